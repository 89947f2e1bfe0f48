"""Trainings made up from their exposures, for comparing."""

import math

import numpy as np

from coalmine import ExposureResult
from coalmine.audits import Exposures
from coalmine.audits.comparison.records import Strategy
from coalmine.audits.exposure.results import CandidateScores, FormatFacts
from coalmine.randomness import arrays
from coalmine.statistics import reference_exposures, sampled_exposures
from reports.verdict_parts import interval

SIZE = 10**6
MANY = 10**9
LESS, MORE = [1.0, 2.0, 1.5, 0.5, 2.5, 1.2, 0.8, 2.1], [4.0, 6.0, 5.5, 3.5, 9.5, 4.2, 5.8, 6.1]


def exposures(estimates, template, size, manifest, repetitions=4, scores=None, ranks=None):
    """The exposures of one training by its canaries' estimates."""
    times = [repetitions] * len(estimates) if isinstance(repetitions, int) else repetitions
    method = estimates[0].method
    results = tuple(
        ExposureResult(
            canary_id=f"c{place}", format_id="f0", repetitions=times[place], planted=times[place] > 0, method=method,
            known_log_perplexity_bits=1.0 if scores is None else float(scores[place]), rank=ranks and ranks[place],
            most_possible_bits=math.log2(size), estimate=estimate,
        )
        for place, estimate in enumerate(estimates)
    )  # fmt: skip
    facts = FormatFacts(
        format_id="f0", template=template, size=str(size), size_bits=math.log2(size), method=method, why=""
    )
    return Exposures(
        seed=0, confidence=0.95, manifest_sha256=manifest, model={}, formats=(facts,), expansions=0, tail_fits={}, results=results
    )  # fmt: skip


def strategy(name, values, loss=2.5, *, side=None, manifest="same", repetitions=4, template="pin {digits:6}"):
    """A training with these exposures; None is a canary that beat every sample."""
    estimates = [interval(v, 9.0 if v is None else v, v, confidence=None, method="exact") for v in values]
    document = exposures(estimates, template, SIZE, manifest, repetitions)
    return Strategy(name, document, loss, side=side)


def seeds(side, values, losses, **options):
    """Trainings of one kind, each with its own exposures and loss."""
    return [
        strategy(f"{side}{seed}", own, loss, side=side, **options)
        for seed, (own, loss) in enumerate(zip(values, losses, strict=True))
    ]


def varied(values, seed, by=0.3):
    """The exposures of another seed: moved all together, and each by itself."""
    chance = arrays(seed, "test", "seeds")
    return (np.array(values) + chance.normal(0, by) + chance.normal(0, by, len(values))).tolist()


def strategy_among(name, canaries, others, *, method="references", manifest="same", indices=None):
    """A training that gave these scores to its canaries and to the others that they are placed among."""
    # Log-perplexities are at least 0.
    canaries, others = canaries + 50, others + 50
    if method == "references":
        estimates, kind = reference_exposures(canaries, others), "reference"
        ranks = [1 + int((others <= score).sum()) for score in canaries]
    else:
        estimates, kind, ranks = sampled_exposures(canaries, others, size=MANY), "sample", None
    document = exposures(estimates, "pin {digits:9}", MANY, manifest, scores=canaries, ranks=ranks)
    numbers = np.arange(len(others)) if indices is None else indices
    return Strategy(name, document, None, {"f0": CandidateScores("f0", kind, numbers, others)})
