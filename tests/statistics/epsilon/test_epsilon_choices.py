"""Which threshold is chosen on a part of the scores: the one that promises most for as many as will be counted."""

import numpy as np
import pytest

from coalmine.statistics import MembershipScores, membership_scores
from coalmine.statistics.epsilon.lower_bounds import group_delta, largest_refuted
from coalmine.statistics.epsilon.thresholds import ThresholdRule, chosen_rule, split_scores


def bound(rule, scores):
    counts = rule.counts(scores)
    return largest_refuted(lambda epsilon, delta: counts.refutes(epsilon, delta, 0.95), 0.0)


def repeated(**times):
    return np.repeat([float(score[1:]) for score in times], list(times.values()))


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_few_errors_for_many_hits_promise_more_than_none_for_few(mirrored):
    """Above 7 there are 20 of 100 against none, and above 0 there are 60 against 4."""
    members, others = repeated(_10=20, _5=40, _0=40), repeated(_7=4, _0=96)
    scores = membership_scores(-others, -members) if mirrored else membership_scores(members, others)
    chosen = chosen_rule(scores, scores, delta=0.0)
    assert chosen == ThresholdRule(-0.0 if mirrored else 0.0, says_in=not mirrored)
    few = ThresholdRule(-7.0 if mirrored else 7.0, says_in=not mirrored)
    assert bound(chosen, scores) > bound(few, scores) + 0.3


def test_what_delta_explains_promises_nothing():
    """With a delta of 0.25, 20 of 100 prove nothing, however few errors there are."""
    scores = membership_scores(repeated(_10=20, _5=40, _0=40), repeated(_7=4, _0=96))
    assert chosen_rule(scores, scores, delta=0.25).threshold == 0.0
    sparse = membership_scores(repeated(_10=20, _5=10, _0=70), repeated(_7=20, _0=80))
    assert chosen_rule(sparse, sparse, delta=0.0).threshold == 7.0
    assert chosen_rule(sparse, sparse, delta=0.25).threshold != 7.0


@pytest.mark.parametrize(("size", "share", "cut"), [(100, 0.3, 30), (2, 0.01, 1), (2, 0.99, 1), (5, 0.5, 2)])
def test_both_parts_of_a_split_have_scores_and_all_of_them(size, share, cut):
    scores = MembershipScores(np.arange(float(size)), np.arange(float(size)) + 1000)
    first, second = split_scores(scores, share, seed=1)
    for one, other, whole in zip(first, second, scores, strict=True):
        assert len(one) == cut
        assert sorted([*one, *other]) == whole.tolist()
    assert split_scores(MembershipScores(np.arange(1.0), np.arange(9.0)), share, 0) is None


def test_a_group_has_the_delta_of_its_members_one_after_the_other():
    """Each record more multiplies what came before by exp(epsilon), and adds its own delta."""
    for epsilon in (0.0, 0.3, 2.0):
        whole = 0.0
        for copies in range(1, 9):
            whole = whole * np.exp(epsilon) + 1e-9
            assert group_delta(epsilon, 1e-9, copies) == pytest.approx(whole)
    assert group_delta(1.0, 0.0, 1000) == 0.0
    assert group_delta(20.0, 1e-9, 4) == 1.0
