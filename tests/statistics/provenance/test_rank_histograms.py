"""Histograms of ranks against counting rank by rank, with fractions for the edges of bins."""

import tracemalloc
from fractions import Fraction

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalmine.errors import InputError, NotMeasurableError
from coalmine.randomness import arrays
from coalmine.statistics import RankHistogram


def bin_by_search(rank, bins, known):
    """The i with i * b <= rank < (i + 1) * b, where b is the exact width of a bin."""
    width = Fraction(known, bins)
    return next(i for i in range(bins) if i * width <= rank < (i + 1) * width)


def features_by_hand(histogram, ranks):
    known = histogram.vocabulary if histogram.top is None else histogram.top
    bins = min(histogram.bins, known)
    counts = [0] * (bins + (histogram.top is not None))
    for rank in ranks:
        listed = 0 <= rank < known
        counts[bin_by_search(rank, bins, known) if listed else bins] += 1
    if histogram.scaling == "counts":
        return counts
    total = len(ranks) if histogram.scaling == "shares" else sum(count**2 for count in counts) ** 0.5
    return [count / total for count in counts]


@st.composite
def histograms_and_ranks(draw):
    vocabulary = draw(st.integers(1, 60))
    top = draw(st.none() | st.integers(1, vocabulary))
    histogram = RankHistogram(
        vocabulary=vocabulary,
        bins=draw(st.integers(1, 70)),
        scaling=draw(st.sampled_from(["shares", "counts", "unit"])),
        top=top,
    )
    ranks = st.integers(0 if top is None else -1, vocabulary - 1)
    return histogram, draw(st.lists(st.lists(ranks, min_size=1, max_size=20), min_size=1, max_size=5))


@given(histograms_and_ranks())
def test_features_are_what_counting_rank_by_rank_gives(drawn):
    histogram, users = drawn
    expected = [features_by_hand(histogram, ranks) for ranks in users]
    for ranks, features in zip(users, expected, strict=True):
        assert histogram.features(ranks) == pytest.approx(features)
        assert histogram.features(ranks).shape == (histogram.width,)
    offsets = np.cumsum([0, *(len(ranks) for ranks in users)])
    together = histogram.features_of_many([rank for ranks in users for rank in ranks], offsets)
    assert together == pytest.approx(np.array(expected))


def test_every_rank_has_a_bin_up_to_the_last():
    # 5,000 words in 100 bins of 50 ranks; counted from 1, the last rank would be outside.
    histogram = RankHistogram(vocabulary=5_000, scaling="counts")
    assert (histogram.features(np.arange(5_000)) == 50).all()
    assert histogram.features([4_999])[-1] == 1
    assert histogram.features([49, 50])[:2].tolist() == [1, 1]


def test_there_are_never_more_bins_than_ranks():
    assert RankHistogram(vocabulary=7).width == 7
    assert RankHistogram(vocabulary=7).features([6]).tolist() == [0, 0, 0, 0, 0, 0, 1]
    assert RankHistogram(vocabulary=5_000, top=10).width == 11
    # A single token is listed: it is the one, or it is not.
    assert RankHistogram(vocabulary=5_000, top=1).features([0, -1, -1, 7]).tolist() == [0.25, 0.75]
    # All tokens are listed, and still none can fail to be.
    assert RankHistogram(vocabulary=3, top=3).features([0, 2]).tolist() == [0.5, 0, 0.5, 0]


def test_full_and_listed_ranks_of_the_same_tokens_give_the_same_features():
    histogram = RankHistogram(vocabulary=50, bins=4, top=9)
    ranks = arrays(0, "ranks").integers(0, 50, 400)
    assert (histogram.features(ranks) == histogram.features(np.where(ranks < 9, ranks, -1))).all()


def test_only_counts_tell_how_much_a_user_wrote():
    ranks = [0, 3, 3, 9]
    for scaling in ("shares", "unit", "counts"):
        histogram = RankHistogram(vocabulary=10, bins=5, scaling=scaling)
        same = histogram.features(ranks * 6) == pytest.approx(histogram.features(ranks))
        assert same == (scaling != "counts")


def test_it_is_kept_as_json():
    histogram = RankHistogram(vocabulary=5_000, top=100, scaling="unit")
    assert msgspec.json.decode(msgspec.json.encode(histogram), type=RankHistogram) == histogram


def test_features_of_many_users_one_by_one_need_the_memory_of_one():
    histogram, chance = RankHistogram(vocabulary=5_000), arrays(0, "users")

    def most_memory(users):
        tracemalloc.start()
        for _ in range(users):
            histogram.features(chance.integers(0, 5_000, 32))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    # The first call pays for what is loaded once.
    most_memory(10)
    assert most_memory(10_000) < most_memory(100) + 20_000


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([], "at least one counted token"),
        ([[0, 1]], "one row of whole numbers"),
        ([0.5], "one row of whole numbers"),
        ([3, 10], "between 0 and 9, got 10 at position 1"),
        ([3, -1], "between 0 and 9, got -1 at position 1"),
    ],
)
def test_ranks_that_have_no_features_are_refused(ranks, words):
    expected = NotMeasurableError if not ranks else InputError
    with pytest.raises(expected, match=words):
        RankHistogram(vocabulary=10).features(ranks)


def test_listed_ranks_that_have_no_features_are_refused():
    for rank in (-2, 10):
        with pytest.raises(InputError, match=f"between -1 and 9, got {rank}"):
            RankHistogram(vocabulary=10, top=5).features([0, rank])


@pytest.mark.parametrize("offsets", [[], [1, 3], [0, 2], [0, 2, 1, 3], [0, 4]])
def test_offsets_that_leave_ranks_out_are_refused(offsets):
    with pytest.raises(InputError, match="from 0 to the number of ranks, which is 3"):
        RankHistogram(vocabulary=10).features_of_many([1, 2, 3], offsets)


def test_a_user_without_a_counted_token_is_named():
    with pytest.raises(NotMeasurableError, match="user 1 of 3"):
        RankHistogram(vocabulary=10).features_of_many([1, 2, 3], [0, 2, 2, 3])
    assert RankHistogram(vocabulary=10).features_of_many([], [0]).shape == (0, 10)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"vocabulary": 0}, "vocabulary must be at least 1"),
        ({"vocabulary": 10, "bins": 0}, "bins must be at least 1"),
        ({"vocabulary": 10, "top": 0}, "top must be at least 1"),
        ({"vocabulary": 10, "top": 11}, "got 11 of 10 tokens"),
        ({"vocabulary": 10, "scaling": "l1"}, "got 'l1'"),
    ],
)
def test_histograms_that_cannot_be_are_refused(wrong, words):
    with pytest.raises(InputError, match=words):
        RankHistogram(**wrong)
