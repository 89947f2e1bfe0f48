"""How well users are found: counts by hand, intervals over users, and how often those intervals cover."""

import itertools
import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from coalmine.errors import InputError, ModelOutputError
from coalmine.randomness import arrays
from coalmine.statistics import Detection, clopper_pearson, measure_detection

USERS = st.lists(
    st.tuples(st.integers(-3, 3).map(float), st.booleans(), st.booleans()), min_size=1, max_size=12
)


@given(USERS)
def test_rates_are_counted(users):
    scores, decisions, truth = zip(*users, strict=True)
    found = measure_detection(scores, decisions, truth)
    pairs = list(zip(decisions, truth, strict=True))
    ins, outs = [s for s, _, t in users if t], [s for s, _, t in users if not t]
    wins = [1.0 if a > b else 0.5 if a == b else 0.0 for a, b in itertools.product(ins, outs)]
    expected = {
        "accuracy": [decided == member for decided, member in pairs],
        "precision": [member for decided, member in pairs if decided],
        "recall": [decided for decided, member in pairs if member],
        "auc": wins if len(set(scores)) > 1 else [],
    }
    for name, counted in expected.items():
        estimate = getattr(found, name)
        assert estimate.value == (pytest.approx(sum(counted) / len(counted)) if counted else None)
        assert estimate.status == ("measured" if counted else "not_measured")
        if counted:
            assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1
    assert (found.members, found.non_members) == (len(ins), len(outs))


def test_intervals_are_over_users():
    truth = np.repeat([True, False], 20)
    found = measure_detection(np.where(truth, 1.0, -1.0), truth, truth)
    assert (found.recall.low, found.recall.high) == clopper_pearson(20, 20)
    assert (found.accuracy.n, found.precision.n, found.recall.n, found.auc.n) == (40, 20, 20, 40)
    assert (
        found.recall.statement == "recall is 1.000 (95% interval 0.832 to 1.000): 20 of 20 members were found"
    )
    assert "20 members and 20 non-members" in found.auc.statement
    assert not found.auc.warnings
    assert "canaries" not in " ".join((*found.auc.assumptions, *found.recall.assumptions))


def test_what_nothing_was_counted_for_is_not_measured():
    no_one = measure_detection([1.0, 2.0], [False, False], [False, False])
    assert no_one.accuracy.value == 1.0
    assert no_one.recall.statement == "recall cannot be measured: there are no members"
    assert no_one.precision.statement == "precision cannot be measured: there are no users said to be members"
    assert no_one.auc.statement == "AUC cannot be measured: there are no members"
    assert (
        measure_detection([1.0], [True], [True]).auc.statement
        == "AUC cannot be measured: there are no non-members"
    )


def test_equal_scores_have_no_area():
    equal = measure_detection([1.0] * 3, [True] * 3, [True, False, False])
    assert (equal.auc.status, equal.recall.value) == ("not_measured", 1.0)


def test_without_decisions_the_scores_still_have_an_area():
    found = measure_detection([2.0, 1.0, 0.0], None, [True, False, False])
    assert found.auc == measure_detection([2.0, 1.0, 0.0], [True] * 3, [True, False, False]).auc
    assert (found.members, found.non_members) == (1, 2)
    for name in ("accuracy", "precision", "recall"):
        assert (
            getattr(found, name).statement == f"{name} cannot be measured: nothing was decided about any user"
        )


def test_it_is_kept_as_json():
    found = measure_detection([1.0, 0.0], [True, False], [True, False])
    assert msgspec.json.decode(msgspec.json.encode(found), type=Detection) == found


@pytest.mark.parametrize(("shift", "users"), [(0.0, 20), (1.0, 30), (2.5, 30)])
def test_intervals_cover_what_other_users_would_show(shift, users):
    """Members' scores are higher by `shift`, decisions are by a fixed threshold, and half of the users are members."""
    chance, audits, threshold = arrays(0, "detection", str(shift)), 600, shift / 2
    hit, pass_by = norm.sf(threshold - shift), norm.sf(threshold)
    truth = {
        "accuracy": (hit + 1 - pass_by) / 2,
        "auc": norm.cdf(shift / math.sqrt(2)),
        "precision": hit / (hit + pass_by),
        "recall": hit,
    }
    members = np.repeat([True, False], users)
    covered = dict.fromkeys(truth, 0)
    for _ in range(audits):
        scores = chance.normal(size=2 * users) + shift * members
        found = measure_detection(scores, scores > threshold, members)
        for name, value in truth.items():
            covered[name] += getattr(found, name).low <= value <= getattr(found, name).high
    for name, count in covered.items():
        assert count >= 0.95 * audits - 3 * math.sqrt(audits * 0.95 * 0.05), name


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: measure_detection([1.0], [True, False], [True]), InputError, "got 1, 2 and 1"),
        (lambda: measure_detection([], [], []), InputError, "got 0, 0 and 0"),
        (lambda: measure_detection([1.0], [1], [True]), InputError, "decisions must be one row of True and False"),
        (lambda: measure_detection([1.0], [True], [[True]]), InputError, "members must be one row of True and False"),
        (lambda: measure_detection([1.0, math.nan], [True, True], [True, False]), ModelOutputError, "not finite"),
        (lambda: measure_detection([1.0], [True], [True], confidence=1.0), InputError, "got 1.0"),
    ],
)  # fmt: skip
def test_what_is_no_detection_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
