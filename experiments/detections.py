"""How often provenance audits accuse without reason, and how often the intervals of accuracy, AUC, precision and recall are wrong.

    python experiments/detections.py

draws the scores of users from distributions whose truth is known: no model is asked. Rows go to experiments/results/detections.csv:
one per setting and quantity, with its mean over all audits. A minute or two on one core; `--audits` makes it shorter.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from coalmine.randomness import arrays
from coalmine.statistics import Detection, benjamini_hochberg, conformal_p_values, measure_detection, simes
from coalmine.storage.files import whole_file

RESULTS = Path(__file__).parent / "results"
FDR = 0.05
Scores = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Row:
    """The mean of one quantity over all audits of one setting, and its standard error."""

    part: str
    setting: str
    suspects: int
    members: int
    non_members: int
    quantity: str
    audits: int
    mean: float
    standard_error: float


def _drawn(rng: np.random.Generator, suspects: int, members: int, shift: float, kind: str) -> Scores:
    """Scores of suspects, of whom the first are members; "ties" rounds to whole numbers."""
    scores = rng.normal(size=suspects) if kind == "normal" else rng.standard_t(2, suspects)
    scores[:members] += shift
    return np.round(scores) if kind == "ties" else scores


def _rows(
    part: str, setting: str, counts: tuple[int, int, int], seen: dict[str, list[float]]
) -> Iterator[Row]:
    for name, values in seen.items():
        error = float(np.std(values)) / math.sqrt(len(values))
        yield Row(part, setting, *counts, name, len(values), float(np.mean(values)), error)


def discoveries(audits: int) -> Iterator[Row]:
    """The share of audits without members that accuse anyone, the false-discovery rate, and the share of members who are found."""
    for kind in ("normal", "heavy tails", "ties"):
        for suspects, members, non_members in (
            (20, 0, 99),
            (20, 0, 999),
            (100, 0, 999),
            (20, 2, 999),
            (100, 10, 999),
            (100, 50, 99),
            (100, 50, 999),
        ):
            seen: dict[str, list[float]] = {"false-discovery rate": []}
            seen["members found" if members else "Simes at 5%"] = []
            for audit in range(audits):
                rng = arrays(audit, "experiment", "discoveries", kind, suspects, members, non_members)
                scores = _drawn(rng, suspects, members, 4.0, kind)
                p_values = conformal_p_values(scores, _drawn(rng, non_members, 0, 0.0, kind)).tolist()
                shown = np.array(benjamini_hochberg(p_values, FDR).shown)
                seen["false-discovery rate"].append(shown[members:].sum() / max(1, shown.sum()))
                if members:
                    seen["members found"].append(float(np.mean(shown[:members])))
                else:
                    seen["Simes at 5%"].append(float(simes(p_values) <= 0.05))
            yield from _rows("discoveries", kind, (suspects, members, non_members), seen)


def _truth(shift: float, cutoff: float, share: float) -> dict[str, float]:
    """What other users would show at this cutoff, with normal scores and this share of members."""
    hit, pass_by = float(norm.sf(cutoff - shift)), float(norm.sf(cutoff))
    named = share * hit + (1 - share) * pass_by
    return {
        "accuracy": share * hit + (1 - share) * (1 - pass_by),
        "auc": float(norm.cdf(shift / math.sqrt(2))),
        "precision": share * hit / named if named else math.nan,
        "recall": hit,
    }


def _wrong(found: Detection, truth: dict[str, float]) -> dict[str, float | None]:
    """Whether each interval misses the truth; None where there is none."""
    intervals = {name: getattr(found, name).interval for name in truth}
    return {
        name: None if low is None else float(not low <= truth[name] <= high)
        for name, (low, high) in intervals.items()
    }


def intervals(audits: int) -> Iterator[Row]:
    """How often the 95% intervals miss what other users would show, at a cutoff that is fixed or that the audit itself chose."""
    for shift in (0.5, 1.0, 2.0, 3.0):
        for suspects, members in ((20, 10), (100, 50), (300, 150), (100, 10)):
            for rule in ("fixed cutoff", "Benjamini-Hochberg"):
                seen: dict[str, list[float]] = {}
                for audit in range(audits):
                    rng = arrays(audit, "experiment", "intervals", str(shift), suspects, members, rule)
                    scores = _drawn(rng, suspects, members, shift, "normal")
                    cutoff = shift / 2
                    if rule != "fixed cutoff":
                        others = np.sort(_drawn(rng, 999, 0, 0.0, "normal"))
                        shown = np.array(
                            benjamini_hochberg(conformal_p_values(scores, others).tolist(), FDR).shown
                        )
                        # All scores above the same number of non-members are shown together.
                        below = np.searchsorted(others, scores[shown].min()) if shown.any() else 0
                        cutoff = float(others[below - 1]) if below else math.inf
                        decided = shown
                    else:
                        decided = scores > cutoff
                    found = measure_detection(scores, decided, np.arange(suspects) < members)
                    for name, wrong in _wrong(found, _truth(shift, cutoff, members / suspects)).items():
                        if wrong is not None:
                            seen.setdefault(f"{name} wrong", []).append(wrong)
                counts = (suspects, members, 0 if rule == "fixed cutoff" else 999)
                yield from _rows("intervals", f"{rule}, shift {shift:g}", counts, seen)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--audits", type=int, default=1000)
    parser.add_argument("--name", default="detections")
    options = parser.parse_args()
    rows = []
    for part in (discoveries, intervals):
        for row in part(options.audits):
            print(row, flush=True)
            rows.append(row)
    with (
        whole_file(RESULTS / f"{options.name}.csv") as path,
        path.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.DictWriter(file, [field.name for field in dataclasses.fields(Row)], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            facts = dataclasses.asdict(row).items()
            writer.writerow({k: round(v, 4) if isinstance(v, float) else v for k, v in facts})


if __name__ == "__main__":
    main()
