"""Trainings made up from their exposures, for comparing."""

import math

import numpy as np

from coalmine import Estimate, ExposureResult
from coalmine.audits import Exposures
from coalmine.audits.comparison.records import Strategy
from coalmine.audits.comparison.runs import given_utility
from coalmine.audits.exposure.candidate_scores import CandidateScores
from coalmine.audits.exposure.results import FormatFacts
from coalmine.randomness import arrays
from coalmine.statistics import reference_exposures, sampled_exposures

SIZE = 10**6
SIZE_BITS = math.log2(SIZE)
MANY = 10**9


def document(values, *, manifest="same", repetitions=4, method="exact", template="pin {digits:6}"):
    """The exposures of one training; None is a canary that beat every sample."""
    results = []
    for place, value in enumerate(values):
        times = repetitions if isinstance(repetitions, int) else repetitions[place]
        estimate = Estimate(
            method=method,
            status="lower_bound" if value is None else "measured",
            value=value,
            low=9.0 if value is None else value,
            high=None if value is None else value,
            confidence=None,
            n=1,
            statement="",
        )
        results.append(
            ExposureResult(
                canary_id=f"c{place}",
                format_id="f0",
                repetitions=times,
                planted=times > 0,
                method=method,
                known_log_perplexity_bits=1.0,
                rank=None,
                most_possible_bits=SIZE_BITS,
                estimate=estimate,
            )
        )
    return Exposures(
        seed=0,
        confidence=0.95,
        manifest_sha256=manifest,
        model={},
        formats=(
            FormatFacts(
                format_id="f0",
                template=template,
                size=str(SIZE),
                size_bits=SIZE_BITS,
                method=method,
                why="asked for",
            ),
        ),
        expansions=0,
        tail_fits={},
        results=tuple(results),
    )


def strategy(name, values, utility="2.5", **options):
    measure = None if utility is None else given_utility(utility)
    return Strategy(name, document(values, **options), measure)


LESS, MORE = [1.0, 2.0, 1.5, 0.5, 2.5, 1.2, 0.8, 2.1], [4.0, 6.0, 5.5, 3.5, 9.5, 4.2, 5.8, 6.1]


def seeds(side, values, utilities, **options):
    """Trainings of one kind, each with its own exposures and utility."""
    return [
        strategy(f"{side}{seed}", own, utility, **options)._replace(side=side)
        for seed, (own, utility) in enumerate(zip(values, utilities, strict=True))
    ]


def varied(values, seed, by=0.3):
    """The exposures of another seed: moved all together, and each by itself."""
    chance = arrays(seed, "test", "seeds")
    return (np.array(values) + chance.normal(0, by) + chance.normal(0, by, len(values))).tolist()


def strategy_among(
    name, canaries, others, *, method="references", manifest="same", indices=None, scored=True
):
    """A training that gave these scores to its canaries and to the others that they are placed among."""
    by_references = method == "references"
    # Log-perplexities are at least 0.
    canaries, others = canaries + 50, others + 50
    estimates = (
        reference_exposures(canaries, others)
        if by_references
        else sampled_exposures(canaries, others, size=MANY)
    )
    results = tuple(
        ExposureResult(
            canary_id=f"c{place}",
            format_id="f0",
            repetitions=4,
            planted=True,
            method=method,
            known_log_perplexity_bits=float(score),
            rank=1 + int((others <= score).sum()) if by_references else None,
            most_possible_bits=math.log2(len(others) if by_references else MANY),
            estimate=estimate,
        )
        for place, (score, estimate) in enumerate(zip(canaries, estimates, strict=True))
    )
    facts = FormatFacts(
        format_id="f0",
        template="pin {digits:9}",
        size=str(MANY),
        size_bits=math.log2(MANY),
        method=method,
        why="asked for",
    )
    document = Exposures(
        seed=0,
        confidence=0.95,
        manifest_sha256=manifest,
        model={},
        formats=(facts,),
        expansions=0,
        tail_fits={},
        results=results,
    )
    numbers = np.arange(len(others)) if indices is None else indices
    scores = CandidateScores("f0", "reference" if by_references else "sample", numbers, others)
    return Strategy(name, document, None, {"f0": scores} if scored else {})
