"""How exposed is each canary? The question of the Secret Sharer, answered by the estimator that the caller names."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure_methods import MEASURES, Measured, Question
from coalmine.audits.exposure_results import ExposureResult, Exposures, FormatFacts
from coalmine.corpus.manifest import CanarySet, as_canary_set
from coalmine.errors import InputError, NotMeasurableError
from coalmine.files import to_json
from coalmine.formats.format import Format
from coalmine.models.protocols import Model, Scorer
from coalmine.progress import Progress, Silent
from coalmine.records import Canary
from coalmine.search.frontier import BATCH, MEMORY_BYTES
from coalmine.search.members import Members
from coalmine.search.resuming import ResumeFile

__all__ = ["METHODS", "ExposureResult", "Exposures", "expose"]

METHODS = ("auto", *MEASURES)
# `auto` ranks every member of a space up to this size.
EXACT_UP_TO = 1_000_000
# Members drawn where the caller does not say how many. Guided draws share most of their prefixes, so they are cheaper, and past
# the first proofs they narrow an interval more than further proofs do: see docs/search.md.
SAMPLES, GUIDED_SAMPLES = 10_000, 50_000


def expose(
    model: Model,
    canaries: CanarySet | str | os.PathLike[str],
    *,
    method: str = "auto",
    samples: int | None = None,
    budget: int = 50_000,
    memory: int = MEMORY_BYTES,
    confidence: float = 0.95,
    seed: int = 0,
    batch: int = BATCH,
    resume: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Exposures:
    """The exposure of every canary, in the order of the manifest, each with its interval (bits).

    `method` is one of

    - "exact": the rank among all of R; where the model can be walked, the states of shared prefixes are computed once;
    - "bounded": the same rank, without the members that cost more than the canary; after `budget` expansions it gives the
      bounds that are proven by then;
    - "guided": an unbiased estimate from `samples` members (50,000) drawn where the model expects them, for every rank;
    - "sampled": `samples` members (10,000) of R drawn uniformly; exposure beyond what they can show is given as a lower bound;
    - "extrapolated": a skew-normal curve through such a sample, with a test of the fit on samples it has not seen;
    - "references": the rank among the manifest's references;
    - "auto": exact for a space of up to a million members; for a larger one bounded, and guided for what that leaves open. For
      a model that cannot be walked (a masked model, an endpoint, pairs with a source each): exact where scoring every member
      costs no more than a sample would, else extrapolated.

    `memory` bounds the states that a search holds, in bytes. With `resume`, a directory, a search that is stopped keeps there
    what it has proven, and the same call goes on from it.
    """
    _check_arguments(
        method,
        confidence,
        {
            "samples": SAMPLES if samples is None else samples,
            "budget": budget,
            "memory": memory,
            "batch": batch,
        },
    )
    if not isinstance(model, Model):
        raise InputError(f"expose needs a model, got {type(model).__name__}; load one with load_model(path)")
    if not isinstance(model, Scorer):
        raise NotMeasurableError(
            f"exposure is not applicable to {model.name!r}: it does not give the probability of a text"
        )
    chosen = as_canary_set(canaries)
    by_canary: dict[str, ExposureResult] = {}
    formats, candidates, fits, expansions = [], [], {}, 0
    for format_id, form in chosen.formats.items():
        group = [canary for canary in chosen if canary.format_id == format_id]
        if not group:
            continue
        names = [canary.canary_id for canary in group]
        members = Members(
            model, form, sources=chosen.source_formats.get(format_id), batch=batch, memory_bytes=memory
        )
        own = members.score([canary.text for canary in group], names)
        used, why = _chosen_method(method, members, SAMPLES if samples is None else samples)
        drawn = samples if samples is not None else GUIDED_SAMPLES if used == "guided" else SAMPLES
        facts = [model.describe(), chosen.sha256, format_id, used, budget, drawn, seed]
        question = Question(
            members=members,
            format_id=format_id,
            references=chosen.references.get(format_id, ()),
            canary_ids=names,
            canary_texts=tuple(canary.text for canary in group),
            canary_scores=own,
            samples=drawn,
            budget=budget,
            memory_bytes=memory,
            confidence=confidence,
            seed=seed,
            resume=ResumeFile(
                None if resume is None else Path(resume) / f"unfinished-{format_id}.npz",
                hashlib.sha256(to_json(facts)).hexdigest(),
            ),
            progress=progress or Silent(),
        )
        measured = MEASURES[used](question)
        question.resume.remove()
        by_canary.update(_results(group, own, measured, form))
        formats.append(FormatFacts.of(format_id, form, used, why))
        candidates += [] if measured.candidates is None else [measured.candidates]
        expansions += measured.expansions
        if measured.fit is not None:
            fits[format_id] = measured.fit
    warnings = []
    if chosen.corpus is not None and model.describe().get("trained_on_sha256") not in {
        None,
        chosen.corpus.sha256_after,
    }:
        warnings.append(
            "the model was trained on other data than the corpus of this manifest: how often it was trained on a canary is "
            "what the manifest says, and may not be so"
        )
    return Exposures(
        warnings=warnings,
        results=[by_canary[canary.canary_id] for canary in chosen],
        formats=formats,
        candidates=candidates,
        fits=fits,
        seed=seed,
        confidence=confidence,
        model=model.describe(),
        manifest_sha256=chosen.sha256,
        expansions=expansions,
        inclusion=None if chosen.withhold is None else 1.0 - chosen.withhold,
    )


def _check_arguments(method: str, confidence: float, counts: dict[str, int]) -> None:
    if method not in METHODS:
        raise InputError(f"unknown method {method!r}: known are {', '.join(METHODS)}")
    for name, count in counts.items():
        if not isinstance(count, int) or count < 1:
            raise InputError(f"{name} must be a whole number of at least 1, got {count}")
    if not 0 < confidence < 1:
        raise InputError(f"confidence must be between 0 and 1, such as 0.95, got {confidence}")


def _chosen_method(method: str, members: Members, samples: int) -> tuple[str, str]:
    if method != "auto":
        return method, "asked for"
    size = members.format.size
    if members.obstacle is not None:
        if size <= samples:
            return "exact", f"the space has {size:,} members, few enough to score each ({members.obstacle})"
        return "extrapolated", f"{size:,} members are too many to score each ({members.obstacle})"
    if size <= EXACT_UP_TO:
        return "exact", f"the space has {size:,} members, few enough to rank them all"
    return "guided", f"the space has {size:,} members: small ranks are proven, larger ones estimated"


def _results(
    group: Sequence[Canary], own: NDArray[np.float64], measured: Measured, form: Format
) -> dict[str, ExposureResult]:
    ranks: Sequence[int | None] = measured.ranks or [None] * len(group)
    return {
        canary.canary_id: ExposureResult(
            canary_id=canary.canary_id,
            format_id=canary.format_id,
            repetitions=canary.times_trained_on,
            planted=canary.planted,
            planned_repetitions=canary.repetitions,
            method=estimate.method,
            log_perplexity_bits=float(bits),
            rank=rank,
            most_possible_bits=math.log2(estimate.n if estimate.method == "references" else form.size),
            estimate=estimate,
        )
        for canary, bits, rank, estimate in zip(group, own, ranks, measured.estimates, strict=True)
    }
