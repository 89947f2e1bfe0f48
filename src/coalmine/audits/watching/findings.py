"""The findings about exposure during training: when memorization began."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coalmine.audits.exposure.estimators import estimator_of
from coalmine.audits.watching.report import watched_training
from coalmine.evidence.budget import LEVEL
from coalmine.evidence.findings import Catalog, Entry, Finding
from coalmine.evidence.run import Run

CATALOG = Catalog(
    {
        "CM107": Entry(
            "When memorization began",
            "Early stopping helps only if it comes before memorization does. Choose the checkpoint by "
            "exposure as well as by loss.",
            if_not_measured="Watch with more references: the exposure among them cannot exceed log2 of their number.",
        ),
        "CM906": Entry(
            "Exposure during training was not watched",
            "Train with `coalmine train --watch canaries.json`, or with the callback in "
            "docs/guides/watching.md.",
        ),
    }
)
finding = CATALOG.finding


def training_findings(run: Run) -> Iterator[Finding]:
    """The first moment at which a canary is shown to be memorized."""
    watched = watched_training(run)
    if watched is None:
        return
    if not estimator_of(str(watched.watch.get("method"))).is_evidence:
        evidence = "Exposure was watched by extrapolation, whose limits do not hold deep in the tail, so no look is evidence."
        yield finding("CM107", "info", "not_measured", evidence, title="No canary stood out during training")
        return
    looks = [moment for moment in watched.watched if moment.seen]
    if not looks:
        yield finding(
            "CM107", "info", "not_measured", "Exposure was watched, but could not be measured at any moment."
        )
        return
    trained = sum(entry["repetitions"] > 0 for entry in looks[-1].seen)
    first = next(
        (
            (moment, entry)
            for moment in looks
            for entry in moment.seen
            if entry["repetitions"] > 0 and _p_value(entry) < LEVEL / (trained * len(looks))
        ),
        None,
    )
    if first is None:
        evidence = f"At none of {len(looks):,} looks did a canary show memorization by itself; looks during training are coarse."
        yield finding("CM107", "info", "not_measured", evidence, title="No canary stood out during training")
        return
    moment, entry = first
    evidence = (
        f"The first canary that stands out is {entry['canary_id']}, trained on {entry['repetitions']:,} times per epoch, at step "
        f"{moment.step:,} (epoch {moment.epoch:g}) with an exposure of at least {_known_low(entry):.1f} bits"
    )
    record = run.training
    if record is not None and record.epochs:
        evidence += (
            f"; the weights that were kept are those of epoch {record.best_epoch} of {len(record.epochs)}"
        )
    yield finding(
        "CM107",
        "info",
        "found",
        f"{evidence}.",
        subject=[entry["canary_id"]],
        title="Memorization began during training",
    )


def _known_low(entry: dict[str, Any]) -> float:
    return float(entry["low"] if entry.get("low") is not None else entry.get("exposure") or 0.0)


def _p_value(entry: dict[str, Any]) -> float:
    return 1.0 if entry["status"] == "not_measured" else 2.0 ** -_known_low(entry)
