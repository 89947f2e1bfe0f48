"""Scores of texts against loops over tokens, and what becomes of short texts, impossible tokens and certain models."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalmine.errors import InputError, ModelOutputError, NotMeasurableError
from coalmine.randomness import arrays
from coalmine.statistics import log_ratio, min_k_plus_plus, rmia, rmia_ratio, windowed_ratio
from coalmine.statistics.provenance.text_scores import WINDOW_SIZES

# Eighths of a bit, so that sums are exact and ties are ties.
BITS = st.integers(-160, 0).map(lambda eighths: eighths / 8)
PAIRS = st.lists(st.tuples(BITS, BITS), min_size=1, max_size=50)


def ratio_by_probabilities(target, references):
    """The mean log2 ratio of probabilities, as exact fractions until the logarithm; bits must be whole."""
    total = 0.0
    for place, bits in enumerate(target):
        mean = sum(Fraction(1, 2 ** -int(row[place])) for row in references) / len(references)
        total += math.log2(Fraction(1, 2 ** -int(bits)) / mean)
    return total / len(target)


@given(st.lists(st.lists(st.integers(-30, 0), min_size=4, max_size=4), min_size=2, max_size=5))
def test_ratios_are_those_of_probabilities(rows):
    target, *others = rows
    assert rmia_ratio(target, others) == pytest.approx(ratio_by_probabilities(target, others), abs=1e-9)
    assert log_ratio(target, others[0]) == pytest.approx(ratio_by_probabilities(target, others[:1]), abs=1e-9)
    # One shadow is a reference.
    assert rmia_ratio(target, others[:1]) == pytest.approx(log_ratio(target, others[0]))


def test_models_that_cut_texts_differently_are_compared_by_sums():
    assert log_ratio([-1.0, -3.0], [-2.0, -1.0, -1.0], same_tokens=False) == 0.0
    assert log_ratio([-1.0, -3.0], [-9.0], same_tokens=False) == 2.5
    with pytest.raises(InputError, match="same tokens, got 2 and 1"):
        log_ratio([-1.0, -3.0], [-9.0])
    with pytest.raises(InputError, match="a shadow must score the same tokens, got 2 and 1"):
        rmia_ratio([-1.0, -3.0], [[-9.0]])


def windowed_by_loops(pairs, sizes):
    shares = []
    for size in sizes if min(sizes) <= len(pairs) else [len(pairs)]:
        windows = [pairs[start : start + size] for start in range(len(pairs) - size + 1)]
        if windows:
            higher = [sum(t for t, _ in window) > sum(r for _, r in window) for window in windows]
            shares.append(sum(higher) / len(higher))
    return sum(shares) / len(shares)


@given(PAIRS, st.lists(st.integers(1, 60), min_size=1, max_size=4))
def test_windows_are_counted_one_by_one(pairs, sizes):
    target, reference = zip(*pairs, strict=True)
    assert windowed_ratio(target, reference, sizes) == pytest.approx(windowed_by_loops(pairs, sizes))
    assert windowed_ratio(target, reference) == pytest.approx(windowed_by_loops(pairs, WINDOW_SIZES))


def test_a_text_shorter_than_every_window_is_one_window():
    assert windowed_ratio([-1.0], [-2.0]) == 1.0
    assert windowed_ratio([-2.0], [-1.0]) == 0.0
    assert windowed_ratio([-1.0, -5.0, -1.0], [-2.0, -2.0, -2.0], sizes=[7, 9]) == 0.0


def test_a_target_that_says_what_the_reference_says_is_never_higher():
    bits = -arrays(0, "windows").exponential(3.0, 200)
    assert windowed_ratio(bits, bits) == 0.0
    assert windowed_ratio(bits + 1e-9, bits) == 1.0


def z_scores(log2_probabilities):
    """For each token of a vocabulary: its log2 probability, and the mean and deviation over all."""
    probabilities = [2.0**one for one in log2_probabilities]
    mean = sum(p * math.log2(p) for p in probabilities)
    variance = sum(p * (math.log2(p) - mean) ** 2 for p in probabilities)
    return [(one, mean, math.sqrt(variance)) for one in log2_probabilities]


@given(
    st.lists(
        st.tuples(BITS, BITS, st.integers(1, 40).map(lambda eighths: eighths / 8)), min_size=1, max_size=40
    ),
    st.sampled_from([0.05, 0.1, 0.2, 0.5, 1.0]),
)
def test_min_k_plus_plus_is_the_mean_of_the_lowest(tokens, share):
    lowest = sorted((bits - mean) / deviation for bits, mean, deviation in tokens)
    kept = lowest[: max(1, int(Fraction(str(share)) * len(tokens)))]
    assert min_k_plus_plus(*zip(*tokens, strict=True), share) == pytest.approx(sum(kept) / len(kept))


def test_min_k_plus_plus_of_a_distribution():
    # Half, a quarter and two eighths: the mean is -1.75 bits, the variance 0.6875.
    rows = z_scores([-1.0, -2.0, -3.0, -3.0])
    assert min_k_plus_plus(*zip(*rows, strict=True), 1.0) == pytest.approx((-2.25 + 1.75) / math.sqrt(0.6875))
    assert min_k_plus_plus(*zip(rows[0], strict=True)) == pytest.approx(0.75 / math.sqrt(0.6875))


def test_a_certain_model_has_its_token_at_the_mean_and_others_far_below():
    assert min_k_plus_plus([0.0], [0.0], [0.0]) == 0.0
    # What single precision leaves of a certain distribution is not evidence of anything.
    assert abs(min_k_plus_plus([-1e-7], [0.0], [0.0])) < 1e-3
    assert (
        -math.inf
        < min_k_plus_plus([-math.inf], [0.0], [0.0])
        < min_k_plus_plus([-30.0], [0.0], [0.0])
        < -1_000
    )
    # A uniform distribution has no deviation either.
    assert min_k_plus_plus([-3.0], [-3.0], [0.0]) == 0.0


def test_impossible_tokens_leave_scores_finite_and_in_order():
    never = -math.inf
    assert log_ratio([never, -1.0], [never, -2.0]) == 0.5
    assert log_ratio([-1.0], [never]) == -log_ratio([never], [-1.0]) == 1_073.0
    assert windowed_ratio([never, -1.0, -1.0], [never, -2.0, -2.0], sizes=[2]) == 1.0
    assert rmia_ratio([-1.0, -1.0], [[never, -1.0], [-1.0, -1.0]]) == pytest.approx(0.5)
    assert rmia_ratio([never], [[never], [never]]) == 0.0
    assert math.isfinite(rmia_ratio([-1.0], [[never]]))


@given(st.lists(st.integers(-20, 20), min_size=1, max_size=20), st.integers(-20, 20), st.integers(-3, 3))
def test_rmia_counts_who_is_below(population, user, log2_gamma):
    # The ratio of the user's ratio to that of another is at least gamma.
    below = [Fraction(2) ** (user - other) >= Fraction(2) ** log2_gamma for other in population]
    assert rmia(float(user), population, gamma=2.0**log2_gamma) == sum(below) / len(below)


ONE = [-1.0]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: log_ratio([], []), NotMeasurableError, "the target has no log2"),
        (lambda: log_ratio(ONE, []), NotMeasurableError, "the reference has no log2"),
        (lambda: log_ratio([-1.0, math.nan], [-1.0, -1.0]), ModelOutputError, "the target has nan at position 1"),
        (lambda: log_ratio(ONE, [3.0]), ModelOutputError, "has 3.0 at position 0; log-perplexities must be negated"),
        (lambda: log_ratio(ONE, [math.inf]), ModelOutputError, "has inf"),
        (lambda: log_ratio([ONE], [ONE]), InputError, "one row"),
        (lambda: windowed_ratio([-1.0, -1.0], ONE), InputError, "got 2 and 1"),
        (lambda: windowed_ratio(ONE, ONE, sizes=[]), InputError, "at least one size"),
        (lambda: windowed_ratio(ONE, ONE, sizes=[0]), InputError, "at least 1, got 0"),
        (lambda: min_k_plus_plus([], [], []), NotMeasurableError, "at least one token"),
        (lambda: min_k_plus_plus(ONE, [], ONE), InputError, "got 1, 0 and 1"),
        (lambda: min_k_plus_plus(ONE, ONE, [-0.1]), ModelOutputError, "at least 0"),
        (lambda: min_k_plus_plus(ONE, [math.nan], [1.0]), ModelOutputError, "finite numbers of bits"),
        (lambda: min_k_plus_plus(ONE, ONE, [math.inf]), ModelOutputError, "finite numbers of bits"),
        (lambda: min_k_plus_plus(ONE, ONE, [1.0], share=0.0), InputError, "got 0.0"),
        (lambda: min_k_plus_plus(ONE, ONE, [1.0], share=1.1), InputError, "got 1.1"),
        (lambda: rmia_ratio(ONE, []), NotMeasurableError, "at least one shadow"),
        (lambda: rmia_ratio(ONE, [[math.nan]]), ModelOutputError, "a shadow has nan"),
        (lambda: rmia(0.0, []), NotMeasurableError, "population is empty"),
        (lambda: rmia(math.nan, [0.0]), ModelOutputError, "NaN"),
        (lambda: rmia(0.0, [math.nan]), ModelOutputError, "NaN"),
        (lambda: rmia(0.0, [0.0], gamma=0.0), InputError, "got 0.0"),
        (lambda: rmia(0.0, [0.0], gamma=math.inf), InputError, "got inf"),
    ],
)  # fmt: skip
def test_what_has_no_score_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
