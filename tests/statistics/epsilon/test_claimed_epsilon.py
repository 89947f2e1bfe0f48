"""Verdicts on a claimed epsilon, and the power of the audits."""

import math

import numpy as np
import pytest

from coalmine.errors import InputError
from coalmine.statistics import CoinScores, MembershipScores, judge_claim
from coalmine.statistics.epsilon.claimed import claim_p_value, claim_power, revealing_response
from private_mechanisms import laplace, randomized_response


def audit(mechanism, canaries, seed):
    rng = np.random.default_rng(seed)
    members = rng.binomial(canaries, 0.5)
    return MembershipScores(*mechanism.draw(rng, members, canaries - members))


@pytest.mark.parametrize(
    ("epsilon", "canaries", "claimed", "words"),
    [
        (3.0, 2000, 1.0, "violated at 95%"),
        (1.0, 2000, 1.0, "consistent"),
        (1.0, 10, 1.0, "the audit has too little power to say"),
        (0.2, 2000, 8.0, "the audit has too little power to say"),
    ],
)
def test_the_three_verdicts(epsilon, canaries, claimed, words):
    scores = audit(randomized_response(epsilon), canaries, seed=5)
    verdict = judge_claim(*scores, coins=CoinScores(scores), claimed_epsilon=claimed)
    assert verdict.words == words
    assert words in verdict.statement
    assert (verdict.power is None) == words.startswith("violated")


def test_a_true_claim_is_called_violated_in_at_most_one_of_twenty_audits():
    mechanism, wrong = laplace(0.7, copies=3), 0
    for seed in range(1000):
        scores = audit(mechanism, 160, seed)
        wrong += (
            claim_p_value(scores, CoinScores(scores), mechanism.epsilon, 0.0, mechanism.copies, seed) <= 0.05
        )
    assert wrong <= 50


def test_the_power_is_the_share_of_audits_that_find_the_alternative():
    claim, alternative, canaries = (0.5, 1e-5), (1.2, 1e-5), 120
    found = 0
    for seed in range(400):
        scores = audit(randomized_response(*alternative), canaries, seed)
        found += claim_p_value(scores, CoinScores(scores), *claim, 1, seed) <= 0.05
    half = MembershipScores(np.zeros(canaries // 2), np.zeros(canaries // 2))
    power = claim_power(
        half, CoinScores(half), claim=claim, alternative=alternative, copies=1, confidence=0.95, seed=0
    )
    assert 0.1 < found / 400 < 0.95
    assert power == pytest.approx(found / 400, abs=0.15)


def test_copies_make_a_claim_harder_to_refute():
    scores = audit(randomized_response(3.0), 1000, seed=2)
    for given in ({"coins": CoinScores(scores)}, {"runs": "many"}):
        assert judge_claim(*scores, **given, claimed_epsilon=1.0).outcome == "violated"
        assert judge_claim(*scores, **given, claimed_epsilon=1.0, copies=4).outcome != "violated"
        # So many copies that the group's delta is 1: nothing is promised, so nothing can be broken.
        verdict = judge_claim(*scores, **given, claimed_epsilon=1.0, claimed_delta=1e-5, copies=100)
        assert verdict.p_value == 1.0


def test_one_run_without_coins_cannot_judge_and_says_what_to_do():
    scores = audit(randomized_response(3.0), 1000, seed=2)
    verdict = judge_claim(*scores, claimed_epsilon=1.0)
    assert verdict.outcome == "too little power"
    assert (verdict.p_value, verdict.power) == (1.0, 0.0)
    assert "--withhold 0.5" in verdict.statement


@pytest.mark.parametrize(
    "arguments",
    [
        {"claimed_epsilon": -1.0},
        {"claimed_epsilon": math.inf},
        {"claimed_epsilon": math.nan},
        {"claimed_epsilon": 1.0, "claimed_delta": 1.0},
        {"claimed_epsilon": 1.0, "copies": 0},
    ],
)
def test_claims_that_are_none(arguments):
    with pytest.raises(InputError):
        judge_claim([1.0, 2.0], [0.0, 1.0], **arguments)


@pytest.mark.parametrize(("claimed", "copies"), [(1000.0, 1), (1.0, 1000), (1e300, 10)])
def test_a_claim_too_large_to_refute_is_no_crash(claimed, copies):
    scores = np.arange(50.0)
    verdict = judge_claim(scores + 100, scores, claimed_epsilon=claimed, copies=copies)
    assert verdict.p_value == 1.0
    assert verdict.words == "the audit has too little power to say"


def test_the_least_private_mechanism_reveals_with_delta_and_answers_at_random_otherwise():
    chance = np.random.default_rng(0)
    assert set(revealing_response(1.0, 1.0, 50, chance)) == {2.0}
    assert set(revealing_response(60.0, 0.0, 50, chance)) == {1.0}
    found = revealing_response(1.5, 0.2, 20_000, chance)
    shares = [np.mean(found == score) for score in (2.0, 1.0, -1.0)]
    truthful = 1 / (1 + math.exp(-1.5))
    assert shares == pytest.approx([0.2, 0.8 * truthful, 0.8 * (1 - truthful)], abs=0.012)
