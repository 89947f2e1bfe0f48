"""The rule about epsilon at its boundaries: a lower bound refutes a claim, and never proves one."""

import math

import numpy as np
import pytest

from coalmine.audits import membership_of_scores
from coalmine.audits.membership.policy import judge_epsilon
from coalmine.evidence.outcomes import PartOutcome
from reports.verdict_parts import interval, population, unknown

HAIR = 1e-6


def epsilons(*populations, claimed=1.0, **options):
    return judge_epsilon(populations, claimed, rule="r", asks="asks", confidence=0.95, **options)


def bounded(low, *, name="p", ceiling=3.0, copies=1, p_value=0.001, format_id="f0", confidence=0.95):
    return population(
        name,
        epsilon=(low, low),
        ceiling=ceiling,
        copies=copies,
        epsilon_p_value=p_value,
        format_id=format_id,
        bound_parts={"confidence": confidence},
    )


@pytest.mark.parametrize(
    ("one", "outcome", "says"),
    [
        (bounded(1.0), "holds", "no violation was shown, which does not prove privacy"),
        (bounded(1.0 + HAIR), "broken", "epsilon is at least 1.000001"),
        (bounded(0.5, ceiling=1.0), "not_shown", "could prove is 1.00, whatever the model remembers"),
        (bounded(0.5, ceiling=1.0 + HAIR), "holds", ""),
        # Of two copies one may be half as much: 2 / 2 is no more than claimed.
        (bounded(0.5, ceiling=2.0, copies=2), "not_shown", "could prove is 1.00"),
        (bounded(0.5, ceiling=2.1, copies=2), "holds", ""),
        (bounded(0.5, confidence=0.94), "not_shown", "a confidence of 94%, and 95% is asked for"),
        (bounded(1.5, confidence=0.94), "not_shown", "epsilon is at least 1.5; its interval has a confidence of 94%"),
        (bounded(1.5, p_value=0.025), "broken", ""),
        (bounded(1.5, p_value=0.0251), "not_shown", "chance gives as much"),
        (bounded(1.5, p_value=None), "not_shown", "in up to all of runs"),
        (population(epsilon=(0.0, None)), "not_shown", "there is no bound for one copy"),
        (population(epsilon=(0.0, unknown())), "not_shown", "there is no number"),
        (population(epsilon=(0.0, interval(2.0, None, None, statement="no limit"))), "not_shown", "no limit"),
    ],
)  # fmt: skip
def test_a_bound_on_epsilon_at_the_claim(one, outcome, says):
    found = epsilons(one)
    assert found.outcome == outcome
    assert says in found.evidence
    assert (
        found.words == {"holds": "no violation shown", "broken": "broken", "not_shown": "not shown"}[outcome]
    )
    assert bool(found.settle) == (outcome == "not_shown")


def test_bounds_share_the_level_and_the_chance():
    strong, weak, calm = bounded(1.5, confidence=0.975), bounded(1.5), bounded(0.5, name="calm", p_value=0.5)
    assert epsilons(strong, calm).outcome == "broken"
    assert epsilons(weak, calm).outcome == "not_shown"
    assert "measure with --confidence 0.975" in epsilons(weak, calm).settle
    assert "--claimed-epsilon 1" in epsilons(weak, calm).settle
    shared = [bounded(1.5, confidence=0.975, p_value=one) for one in (0.0125, 0.0126)]
    assert [epsilons(one, calm).outcome for one in shared] == ["broken", "not_shown"]
    assert epsilons(shared[0], calm).chance == pytest.approx(0.025)
    assert epsilons(shared[0], bounded(0.5, p_value=None)).chance == pytest.approx(0.0125)
    assert epsilons(bounded(0.5, p_value=0.9), bounded(0.5, p_value=0.8)).chance == 1.0


def test_a_population_that_could_not_have_shown_a_violation_leaves_it_to_another_of_its_format():
    able, unable = bounded(0.5, name="able"), bounded(0.2, name="unable", ceiling=0.9)
    found = epsilons(able, unable)
    assert (found.outcome, found.judged) == ("holds", 1)
    assert "(1 more could not have shown one)" in found.evidence
    other = bounded(0.2, name="other", ceiling=0.9, format_id="f1")
    assert epsilons(able, other).outcome == "not_shown"
    assert epsilons(unable).outcome == "not_shown"
    # One that is open for another reason stays in the way.
    assert epsilons(able, bounded(0.2, name="weak", confidence=0.9)).outcome == "not_shown"
    lost = PartOutcome("lost", "not_shown", "no scores", math.inf, "plant")
    assert epsilons(able, missing=[lost]).outcome == "not_shown"
    assert epsilons(missing=[lost]).judged == 1
    nothing = epsilons()
    assert (nothing.evidence, nothing.chance) == ("there are no populations among the results", 1.0)
    assert "(" not in epsilons(able).evidence.partition("no violation was shown")[2]


def test_several_copies_need_scores_that_could_refute_the_pair_of_their_group():
    # At delta 0.01 one copy of four proves 0.16 at most, however many are revealed, and a quarter of the canary's bound is 0.99.
    found = membership_of_scores(
        np.ones(200), np.zeros(200), inclusion=0.5, delta=1e-2, copies=4, confidence=0.95
    )
    (one,) = found.populations
    assert 0.0 < one.one_copy_ceiling < 0.9 * one.epsilon_ceiling / 4
    assert one.one_copy_ceiling == pytest.approx(one.best.one_copy.low, abs=1e-5)
    between = (one.one_copy_ceiling + one.epsilon_ceiling / 4) / 2
    assert epsilons(one, claimed=between).outcome == "not_shown"


def test_the_worst_bound_is_named():
    two = epsilons(bounded(1.5, name="p0", confidence=0.975), bounded(2.5, name="p1", confidence=0.975))
    assert "worst: p1" in two.evidence
    open_ones = epsilons(bounded(0.9, name="p0", confidence=0.9), population("p1", epsilon=(0.0, None)))
    assert "; p1: " in open_ones.evidence
