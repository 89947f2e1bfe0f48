"""No bound on epsilon exceeds the truth more often than its level says, on mechanisms whose epsilon is known."""

import numpy as np
import pytest

from coalmine.statistics import (
    CoinScores,
    MembershipScores,
    epsilon_best,
    epsilon_fixed,
    epsilon_independent,
    epsilon_ladder,
    epsilon_one_run,
    epsilon_split,
)
from coalmine.statistics.epsilon.best import LADDER_SHARE, ONE_RUN_SHARE, headline_test
from coalmine.statistics.epsilon.lower_bounds import group_delta
from coalmine.statistics.epsilon.one_run import Guesses, OneRunLadder, OneRunTest, guesses_at_ends, thinned
from coalmine.statistics.epsilon.thresholds import ThresholdLadder, ThresholdRule, chosen_rule, split_scores
from private_mechanisms import MECHANISMS, gaussian, laplace, randomized_response

AUDITS, LEVEL, CANARIES = 1000, 0.95, 240


def one_audit(mechanism, seed):
    """By a coin for each canary, as in a single training run."""
    rng = np.random.default_rng(seed)
    members = rng.binomial(CANARIES, 0.5)
    return MembershipScores(*mechanism.draw(rng, members, CANARIES - members))


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda one: one.name)
def test_each_bound_exceeds_the_truth_in_at_most_one_of_twenty_audits(mechanism):
    # A bound exceeds the truth if and only if the truth is refuted; that is tested below.
    whole = group_delta(mechanism.epsilon, mechanism.delta, mechanism.copies)
    truth = (mechanism.copies * mechanism.epsilon, whole)
    refuted = dict.fromkeys(("fixed", "split", "ladder", "one run", "independent"), 0)
    # Of bounds that exceed the truth in 7 of 100 audits, 29 of 30 would do so in more than 30 of 600.
    audits = 600
    for seed in range(audits):
        scores = one_audit(mechanism, seed)
        refuted["fixed"] += ThresholdRule(0.75, says_in=True).counts(scores).refutes(*truth, LEVEL)
        choosing, counted = split_scores(scores, 0.2, seed)
        rule = chosen_rule(choosing, counted, delta=mechanism.delta)
        refuted["split"] += rule.counts(counted).refutes(*truth, LEVEL)
        ladder = ThresholdLadder(scores).p_value(*truth)
        one_run = OneRunLadder(scores, mechanism.delta).p_value(*truth)
        refuted["ladder"] += ladder <= 1 - LEVEL
        refuted["one run"] += one_run <= 1 - LEVEL
        refuted["independent"] += min(ladder / LADDER_SHARE, one_run / ONE_RUN_SHARE) <= 1 - LEVEL
    assert max(refuted.values()) <= 0.05 * audits, refuted


@pytest.mark.parametrize("mechanism", [MECHANISMS[1], MECHANISMS[6]], ids=lambda one: one.name)
def test_a_bound_is_where_the_test_stops_refuting(mechanism):
    options = {"delta": mechanism.delta, "confidence": LEVEL, "copies": mechanism.copies}
    whole = group_delta(mechanism.epsilon, mechanism.delta, mechanism.copies)
    truth = (mechanism.copies * mechanism.epsilon, whole)
    for seed in range(12):
        # Members that leak more than the mechanism may, in part of the audits.
        scores = one_audit(mechanism, seed)
        shifted = MembershipScores(scores.in_scores + 1.2 * (seed % 3), scores.out_scores)
        refuted = ThresholdLadder(shifted).p_value(*truth) <= 1 - LEVEL
        assert (epsilon_ladder(*shifted, **options).low > mechanism.epsilon) == refuted
        refuted = OneRunLadder(shifted, mechanism.delta).p_value(*truth) <= 1 - LEVEL
        assert (epsilon_one_run(*shifted, **options).low > mechanism.epsilon) == refuted
        refuted = ThresholdRule(0.75, says_in=True).counts(shifted).refutes(*truth, LEVEL)
        assert (epsilon_fixed(*shifted, 0.75, **options).low > mechanism.epsilon) == refuted


def test_dividing_by_the_copies_would_claim_too_much_where_delta_is_above_zero():
    mechanism = gaussian(0.3, 1e-3, copies=16)
    scores = MembershipScores(*mechanism.draw(np.random.default_rng(0), 2000, 2000))
    whole = epsilon_ladder(*scores, delta=mechanism.delta).low
    one_copy = epsilon_ladder(*scores, delta=mechanism.delta, copies=16).low
    assert one_copy < mechanism.epsilon
    assert one_copy < whole / 16
    # With delta = 0 group privacy is nothing but that division.
    halves = [epsilon_ladder(*scores, copies=copies).low * copies for copies in (1, 16)]
    assert halves[0] == pytest.approx(halves[1], abs=1e-4)


@pytest.mark.parametrize(
    ("epsilon", "delta", "guessed"), [(1.0, 0.0, 60), (0.5, 0.01, 100), (2.0, 0.005, 200)]
)
def test_the_one_run_bound_holds_with_abstentions_fixed_before(epsilon, delta, guessed):
    mechanism, m, too_high = randomized_response(epsilon, delta), 200, 0
    for seed in range(AUDITS):
        rng = np.random.default_rng(seed)
        coins = rng.random(m) < 0.5
        scores = MembershipScores(*mechanism.draw(rng, coins.sum(), m - coins.sum()))
        is_in = np.zeros(m, dtype=bool)
        is_in[scores.places(0)[0]] = True
        too_high += OneRunTest(guesses_at_ends(is_in, guessed)).p_value(epsilon, delta) <= 0.05
    assert too_high <= 0.05 * AUDITS


def test_the_one_run_bound_holds_for_a_mechanism_that_fails_all_at_once():
    # With probability delta it reveals every canary, the case for which the paper's correction is more than independence needs.
    delta, m, too_high, rng = 0.03, 100, 0, np.random.default_rng(7)
    for _ in range(4000):
        right = m if rng.random() < delta else rng.binomial(m, 1 / (1 + np.exp(-1.0)))
        too_high += OneRunTest(Guesses(m, m, int(right))).p_value(1.0, delta) <= 0.05
    assert too_high <= 0.05 * 4000
    # Without the correction it would not hold: the failures come on top of the 5 %.
    assert OneRunTest(Guesses(m, m, m)).p_value(1.0, 0.0) < 1e-12


def test_a_sorted_file_gives_an_unfair_coin_no_luck_of_its_own():
    # Each audit has the default seed. If that alone chose who is left out, it would be the same places in every sorted file.
    mechanism, refuted = laplace(1.0), 0
    for seed in range(AUDITS):
        rng = np.random.default_rng(seed)
        members = rng.binomial(600, 0.1)
        scores = MembershipScores(*map(np.sort, mechanism.draw(rng, members, 600 - members)))
        refuted += OneRunLadder(thinned(scores, 0.1, 0), 0.0).p_value(1.0, 0.0) <= 1 - LEVEL
    assert refuted <= 0.05 * AUDITS


def test_parts_are_drawn_anew_for_each_audit():
    # The lowest 300 scores of each side come first, and which of them is taken must not depend on the size alone.
    shares = []
    for audit in range(40):
        scores = MembershipScores(np.arange(500.0) + audit / 100, np.arange(500.0))
        parts = (
            split_scores(scores, 0.2, 0)[0],
            thinned(scores, 0.8, 0),
            scores.part(100, 100, 0, "one run"),
        )
        shares.append([np.mean(part.in_scores < 300) for part in parts])
    assert all(len(set(column)) > 5 for column in zip(*shares, strict=True))
    assert np.mean(shares, axis=0) == pytest.approx([0.6, 0.6, 0.6], abs=0.05)


@pytest.mark.parametrize("inclusion", [0.2, 0.75])
def test_an_unfair_coin_is_made_fair(inclusion):
    mechanism, refuted, silent = randomized_response(1.0), 0, 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        members = rng.binomial(400, inclusion)
        scores = mechanism.draw(rng, members, 400 - members)
        estimate = epsilon_one_run(*scores, inclusion=inclusion, seed=seed)
        # Counts that are unlikely for the coin, one in a thousand, are not measured.
        silent += estimate.status == "not_measured"
        refuted += (estimate.low or 0.0) > 1.0
    assert refuted <= 0.05 * 300
    assert silent <= 3


def test_the_headline_is_the_one_run_bound_and_many_runs_come_close_to_the_strongest():
    rng = np.random.default_rng(3)
    scores = MembershipScores(rng.normal(2, 1, 1000), rng.normal(0, 1, 1000))
    parts = [bound(*scores, delta=1e-5).low for bound in (epsilon_ladder, epsilon_one_run)]
    best = epsilon_best(*scores, coins=CoinScores(scores), delta=1e-5).low
    assert best == parts[1]
    many = epsilon_best(*scores, coins=CoinScores(scores), runs="many", delta=1e-5).low
    assert max(parts) - 0.2 < many < max(parts)
    assert many == epsilon_independent(*scores, coins=CoinScores(scores), delta=1e-5).low
    assert epsilon_best(*scores, runs="many", delta=1e-5).low == epsilon_ladder(*scores, delta=1e-5).low


def revealing_a_few(rng, canaries, delta, revealed):
    """(0, delta) private: with probability canaries delta / revealed it reveals so many random canaries, and else says nothing."""
    coins, scores = rng.random(canaries) < 0.5, rng.random(canaries)
    if rng.random() < canaries * delta / revealed:
        chosen = rng.permutation(canaries)[:revealed]
        scores[chosen] += np.where(coins[chosen], 10.0, -10.0)
    return MembershipScores(scores[coins], scores[~coins])


@pytest.mark.parametrize(("canaries", "revealed"), [(1000, 1), (1000, 10), (4000, 24), (4000, 200)])
def test_scores_that_depend_on_each_other_are_no_evidence_for_the_headline(canaries, revealed):
    # What is revealed comes all at once, so scores are far from independent, and one run has its coins alone.
    delta, shown = 1e-3, {"one": 0, "many": 0}
    for seed in range(300):
        scores = revealing_a_few(np.random.default_rng(seed), canaries, delta, revealed)
        for runs in shown:
            test = headline_test(scores, CoinScores(scores), delta, seed, runs)
            shown[runs] += test.p_value(0.0, delta) <= 1 - LEVEL
    assert shown["one"] <= 0.05 * 300
    if (canaries, revealed) == (4000, 24):
        assert shown["many"] > 0.08 * 300  # assuming independence is wrong here


def test_a_few_that_are_remembered_among_many_are_found():
    # A fifth of the planted canaries stands out, and all others show nothing: guesses of "out" would be wrong half of the time.
    rng = np.random.default_rng(5)
    coins = rng.random(1000) < 0.5
    scores = rng.normal(0, 1, 1000) + 8 * (coins & (rng.random(1000) < 0.2))
    split = MembershipScores(scores[coins], scores[~coins])
    assert epsilon_best(*split, coins=CoinScores(split), delta=1e-5).low > 2.2


def test_scores_that_say_nothing_give_nothing():
    above = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        scores = MembershipScores(rng.normal(0, 1, 300), rng.normal(0, 1, 300))
        above += epsilon_best(*scores, coins=CoinScores(scores), delta=1e-5).low > 0
        above += epsilon_split(*scores, delta=1e-5, seed=seed).low > 0
    assert above <= 0.05 * 400


def test_ties_are_not_broken_alike_in_every_audit():
    # All scores are equal, so all that a bound could be made of is the luck of breaking ties.
    p_values = [
        ThresholdLadder(MembershipScores(np.full(100, float(n)), np.full(100, float(n)))).p_value(0.0, 0.0)
        for n in range(400)
    ]
    assert len(set(p_values)) > 20
    assert np.mean(np.array(p_values) <= 0.05) <= 0.05
