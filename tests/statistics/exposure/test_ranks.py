"""Exposure against counting: small spaces whose every member is scored, and simulations with known ranks."""

import ast
import inspect
import itertools
import math
from fractions import Fraction
from pathlib import Path

import mpmath
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coalmine.statistics
from coalmine import Estimate
from coalmine.errors import InputError, ModelOutputError, NotMeasurableError
from coalmine.randomness import arrays
from coalmine.statistics import (
    exact_exposure,
    exposure_bits,
    reference_exposure,
    reference_exposures,
    sampled_exposure,
    sampled_exposures,
)

# Coarse scores, so that ties are common.
coarse = st.integers(-20, 20).map(float)


@given(st.integers(1, 10**40).flatmap(lambda size: st.tuples(st.integers(1, size), st.just(size))))
def test_bits_of_an_exact_rank(rank_and_size):
    rank, size = rank_and_size
    bits = exposure_bits(rank, size)
    with mpmath.workdps(60):
        exact = mpmath.log(mpmath.mpf(size) / rank, 2)
        assert abs(bits - exact) <= 4e-16 * exact
    assert 0.0 <= bits <= math.log2(size)
    estimate = exact_exposure(rank, size)
    assert estimate.interval == (bits, bits) == (estimate.value, estimate.value)
    assert estimate.confidence is None


def test_last_but_one_of_a_huge_space_is_not_zero():
    size = 10**40
    assert exposure_bits(size - 1, size) == pytest.approx(1e-40 / math.log(2), rel=1e-12)
    assert exposure_bits(1, 10**400) == pytest.approx(400 * math.log2(10))


@pytest.mark.parametrize(("rank", "size"), [(0, 10), (11, 10), (-1, 10), (1, 0), (1.5, 10), ("1", 10)])
def test_impossible_ranks_are_refused(rank, size):
    with pytest.raises(InputError):
        exposure_bits(rank, size)


@given(st.lists(coarse, min_size=1, max_size=60), st.data())
def test_a_sample_that_is_the_whole_space_gives_the_exact_exposure(space, data):
    canary = data.draw(st.sampled_from(space))
    rank = sum(score <= canary for score in space)  # ties count
    assert sampled_exposure(canary, space, len(space)).value == pytest.approx(exposure_bits(rank, len(space)))


@pytest.mark.parametrize("confidence", [0.5, 0.95])
@pytest.mark.parametrize(("size", "n"), [(10**4, 50), (10**6, 1_000)])
def test_sampled_intervals_cover_at_every_rank(size, n, confidence):
    rng = arrays(0, "coverage", size, n)
    repeats = 400
    for rank in np.unique(np.geomspace(1, size, 25).astype(int)):
        # The space is the permutation 1..size of scores, so that a canary's score is its rank.
        covered = 0
        truth = exposure_bits(int(rank), size)
        # All estimates depend on the sample only through the count: estimate once for each count that occurs.
        counts = rng.binomial(n, rank / size, size=repeats)
        for count, times in zip(*np.unique(counts, return_counts=True), strict=True):
            sample = np.where(np.arange(n) < count, rank, rank + 1)
            low, high = sampled_exposure(rank, sample, size, confidence).interval
            covered += times * (low <= truth + 1e-12 and truth <= high + 1e-12)
        noise = 3.5 * math.sqrt(confidence * (1 - confidence) / repeats)
        assert covered / repeats >= confidence - noise, rank


def test_sampled_intervals_cover_with_samples_that_are_really_drawn():
    size, n = 10**5, 2_000
    rng = arrays(1, "coverage")
    scores = rng.permutation(size) * 0.001
    covered, total = 0, 0
    for _ in range(200):
        canaries = rng.integers(0, size, size=20) ** 2 // size * 0.001  # squared: more canaries of low rank
        for canary, estimate in zip(
            canaries, sampled_exposures(canaries, rng.choice(scores, n), size), strict=True
        ):
            truth = exposure_bits(round(canary / 0.001) + 1, size)
            covered += estimate.low - 1e-9 <= truth <= estimate.high + 1e-9
            total += 1
    assert covered / total >= 0.95


def test_reference_intervals_cover_the_population():
    rng = arrays(2, "coverage")
    n, repeats, covered = 300, 3_000, 0
    probabilities = 2.0 ** -rng.uniform(0, 14, size=repeats)
    for p, count in zip(probabilities, rng.binomial(n, probabilities), strict=True):
        estimate = reference_exposure(0.5, np.arange(n) >= count)
        high = math.inf if estimate.high is None else estimate.high
        covered += estimate.low <= -math.log2(p) <= high
    assert covered / repeats >= 0.95


def test_a_canary_that_beats_every_sample_has_a_bound_and_no_value():
    estimate = sampled_exposure(1.0, np.linspace(10, 20, 10_000), 10**9)
    assert (estimate.status, estimate.value, estimate.n) == ("lower_bound", None, 10_000)
    assert estimate.high == math.log2(10**9)
    assert estimate.statement == (
        "less surprising than all 10,000 samples: exposure is at least 11.40 bits (95% confidence)"
    )


def test_a_canary_that_beats_no_sample_is_measured_at_zero():
    estimate = sampled_exposure(99.0, [1.0, 2.0, 99.0], 10**9)
    assert (estimate.status, estimate.value, estimate.low) == ("measured", 0.0, 0.0)
    assert not math.copysign(1.0, estimate.low) < 0


def test_bounds_never_leave_the_space():
    for estimate in sampled_exposures([0.0, 1.0, 2.0], np.ones(5_000), size=3):
        assert 0.0 <= estimate.low <= estimate.high <= math.log2(3)
    assert sampled_exposure(1.0, [1.0, *[2.0] * 99], size=8).value == 3.0
    assert sampled_exposure(1.0, [1.0, 2.0], size=1).interval == (0.0, 0.0)


def test_rank_among_references_counts_ties_and_adds_one():
    references = [10.0, 20.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0]
    assert reference_exposure(20.0, references).value == 1.0  # rank 4 of 8
    assert reference_exposure(19.9, references).value == 2.0  # rank 2
    first = reference_exposure(9.0, references)
    assert (first.status, first.value, first.high) == ("lower_bound", None, None)
    assert 0 < first.low < math.log2(8)
    assert reference_exposure(99.0, references).value == 0.0  # rank 9 of 8


def test_median_reference_exposure_of_untrained_canaries_is_one():
    rng = arrays(3, "untrained")
    values = [e.value or e.low for e in reference_exposures(rng.normal(size=4_001), rng.normal(size=4_000))]
    assert np.median(values) == pytest.approx(1.0, abs=0.1)


@given(
    st.lists(coarse, min_size=1, max_size=30),
    st.lists(coarse, min_size=1, max_size=30),
    st.floats(0.01, 0.99),
)
def test_order_is_kept_and_lower_scores_are_never_less_exposed(canaries, sample, confidence):
    routes = [
        (sampled_exposures(canaries, sample, 50, confidence), sampled_exposure, (sample, 50, confidence)),
        (reference_exposures(canaries, sample, confidence), reference_exposure, (sample, confidence)),
    ]
    for estimates, alone, arguments in routes:
        assert estimates == [alone(canary, *arguments) for canary in canaries]
        by_score = [e for _, e in sorted(zip(canaries, estimates, strict=True), key=lambda pair: pair[0])]
        for better, worse in itertools.pairwise(by_score):
            assert better.low >= worse.low
            assert better.high is None or better.high >= worse.high
            assert better.value is None or better.value >= worse.value
        for estimate in estimates:
            if estimate.status == "measured":
                assert estimate.low <= estimate.value <= estimate.high
            assert msgspec.json.decode(msgspec.json.encode(estimate), type=Estimate) == estimate


@given(
    st.lists(coarse, min_size=1, max_size=20), st.lists(coarse, min_size=1, max_size=20), st.integers(-99, 99)
)
def test_only_the_order_of_scores_matters(canaries, sample, shift):
    moved = sampled_exposures(np.array(canaries) * 2.0 + shift, np.array(sample) * 2.0 + shift, 999)
    assert moved == sampled_exposures(canaries, sample, 999)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_no_number_is_named_and_never_counted(bad):
    with pytest.raises(ModelOutputError, match="canary 'c2'"):
        sampled_exposures([1.0, bad], [1.0], 10, canary_ids=["c1", "c2"])
    with pytest.raises(ModelOutputError, match="position 1"):
        reference_exposures([1.0, bad], [1.0])
    with pytest.raises(ModelOutputError, match="1 of the 2 samples"):
        sampled_exposures([1.0], [1.0, bad], 10)
    with pytest.raises(ModelOutputError, match="1 of the 2 references"):
        reference_exposure(1.0, [1.0, bad])


def test_nothing_to_compare_with_is_not_measurable():
    with pytest.raises(NotMeasurableError):
        sampled_exposure(1.0, [], 10)
    with pytest.raises(NotMeasurableError):
        reference_exposure(1.0, [])
    assert sampled_exposures([], [1.0], 10) == []


@pytest.mark.parametrize(
    "arguments", [{"confidence": 1.0}, {"size": 0}, {"size": 1.5}, {"canary_ids": ["a", "b"]}]
)
def test_bad_arguments_are_refused(arguments):
    with pytest.raises(InputError):
        sampled_exposures(**{"canary_scores": [1.0], "sample_scores": [1.0], "size": 10, **arguments})
    with pytest.raises(InputError):
        sampled_exposures([[1.0]], [1.0], 10)


def test_many_canaries_against_a_large_sample_match_counting():
    rng = arrays(4, "large")
    canaries, sample = rng.normal(size=10_000) - 2, rng.normal(size=10**6)
    estimates = sampled_exposures(canaries, sample, 10**9)
    for i in (0, 1, 4_999, 9_999):
        count = int(np.count_nonzero(sample <= canaries[i]))
        if count:
            assert 2.0 ** -estimates[i].value == pytest.approx(float(Fraction(count, 10**6)))
        else:
            assert estimates[i].status == "lower_bound"


def test_statistics_import_only_errors_records_and_randomness():
    allowed = (
        "coalmine.errors",
        "coalmine.lazy",
        "coalmine.records",
        "coalmine.randomness",
        "coalmine.statistics",
    )
    modules = sorted(Path(inspect.getfile(coalmine.statistics)).parent.rglob("*.py"))
    assert len(modules) > 20
    for module in modules:
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("coalmine"):
                assert node.module.startswith(allowed), (module, node.module)
