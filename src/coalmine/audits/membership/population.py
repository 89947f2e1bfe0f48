"""What the scores of one population say about guessing, membership, and each bound on epsilon."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import UNSET

from coalmine.audits.membership.options import MembershipOptions
from coalmine.audits.membership.results import EpsilonBound, GuessingFacts, Population
from coalmine.audits.membership.sources import ScoredPopulation
from coalmine.records import Estimate
from coalmine.statistics.epsilon.best import (
    CoinScores,
    epsilon_best,
    epsilon_ceiling,
    epsilon_independent,
    headline_test,
)
from coalmine.statistics.epsilon.claimed import Verdict, judge_claim
from coalmine.statistics.epsilon.estimates import JOINT_BETA, joint_beta_interval, note_epsilon
from coalmine.statistics.epsilon.gaussian import F_DP, epsilon_f_dp, epsilon_gaussian
from coalmine.statistics.epsilon.one_run import METHOD as ONE_RUN
from coalmine.statistics.epsilon.one_run import epsilon_one_run
from coalmine.statistics.epsilon.thresholds import (
    CHOOSING_SHARE,
    chosen_rule,
    epsilon_ladder,
    epsilon_split,
    split_scores,
)
from coalmine.statistics.exposure.guessing import GuessingComparison, compare_with_guessing
from coalmine.statistics.roc import area_under_roc, tpr_at_fpr, tpr_p_value

FALSE_POSITIVE_RATES = (0.1, 0.01, 0.001)
NO_COIN = "it is not known with which probability a canary was planted; say it with --inclusion"
# With fewer in scores than this, single canaries decide the result.
FEW = 20


def measured_populations(
    used: Sequence[ScoredPopulation], options: MembershipOptions
) -> tuple[Population, ...]:
    """What the scores of each population say, in their order."""
    # A claim may be refuted by any population, so they share the error of the verdict. A pooled population adds nothing new.
    if options.inclusion is None:
        used = [one if one.coins is None else one._replace(coins=None, why_no_coins=NO_COIN) for one in used]
    judged = sum(not one.pooled for one in used)
    return tuple(_population(one, options, judged) for one in used)


def _population(one: ScoredPopulation, options: MembershipOptions, judged: int) -> Population:
    in_scores, out_scores = one.scores
    level = options.confidence
    guessing = compare_with_guessing(*one.scores)
    coins = None
    if one.coins is not None and options.inclusion is not None:
        coins = CoinScores(one.coins, options.inclusion)
    common: dict[str, Any] = {"delta": options.delta, "confidence": level, "seed": options.seed}
    best = _for_canary_and_copy(
        lambda copies: epsilon_best(
            *one.scores,
            **_of_runs(one, coins, options),
            delta=options.delta,
            confidence=level,
            copies=copies,
        ),
        one.copies,
    )
    independent = _for_canary_and_copy(
        lambda copies: epsilon_independent(*one.scores, coins=coins, **common, copies=copies), one.copies
    )
    test = headline_test(one.scores, coins, options.delta, options.seed, options.runs, one.why_no_coins)
    ceiling = _ceiling(one, coins, options, 1)
    return Population(
        name=one.name,
        format_name=one.format_name,
        format_id=one.format_id,
        copies=one.copies,
        pooled=one.pooled,
        in_count=len(in_scores),
        out_count=len(out_scores),
        withheld_count=0 if one.coins is None else len(one.coins.out_scores),
        unscored_count=one.unscored,
        guessing=_guessing_facts(guessing),
        auc=area_under_roc(*one.scores, level),
        tpr_at_fpr=tuple(tpr_at_fpr(*one.scores, rate, level) for rate in FALSE_POSITIVE_RATES),
        tpr_p_values=tuple(tpr_p_value(*one.scores, rate) for rate in FALSE_POSITIVE_RATES),
        epsilon=_bounds(one, options, guessing.median),
        best=best,
        epsilon_ceiling=ceiling,
        one_copy_ceiling=ceiling if one.copies == 1 else _ceiling(one, coins, options, one.copies),
        epsilon_p_value=test.p_value(0.0, options.delta) if test.problem is None else None,
        independent=independent,
        verdict=_verdict(one, coins, options, judged),
        warnings=_warnings(one, best.canary, ceiling),
        template=one.template,
        proven=one.proven,
        natural=True if one.natural else UNSET,
    )


def _ceiling(
    one: ScoredPopulation, coins: CoinScores | None, options: MembershipOptions, copies: int
) -> float:
    """The highest headline bound for one of `copies` that this many scores could prove."""
    return epsilon_ceiling(
        len(one.scores.in_scores),
        len(one.scores.out_scores),
        coin_counts=None if coins is None else (len(coins.scores.in_scores), len(coins.scores.out_scores)),
        inclusion=0.5 if coins is None else coins.inclusion,
        runs=options.runs,
        delta=options.delta,
        confidence=options.confidence,
        copies=copies,
        seed=options.seed,
    )


def _of_runs(one: ScoredPopulation, coins: CoinScores | None, options: MembershipOptions) -> dict[str, Any]:
    """What a bound may assume of the training runs that the scores come from."""
    return {"coins": coins, "runs": options.runs, "why_no_coins": one.why_no_coins, "seed": options.seed}


def _verdict(
    one: ScoredPopulation, coins: CoinScores | None, options: MembershipOptions, judged: int
) -> Verdict | None:
    """Whether the scores refute the claim, at a level that `judged` populations share; None where there is no claim."""
    if options.claim is None or one.pooled:
        return None
    return judge_claim(
        *one.scores,
        **_of_runs(one, coins, options),
        claimed_epsilon=options.claim[0],
        claimed_delta=options.claim[1],
        confidence=1.0 - (1.0 - options.confidence) / judged,
        # A user has all copies of a canary, so that a claim for a user is one for all of them.
        copies=1 if options.claimed_unit == "user" else one.copies,
    )


def _guessing_facts(found: GuessingComparison) -> GuessingFacts:
    quartile = found.guessing.quantile_bits(0.75)
    return GuessingFacts(
        median=found.median,
        mean_bits=float(np.mean(found.exposures_bits)),
        share_in_upper_quarter=float(np.mean(found.exposures_bits >= quartile)),
        p_value=found.p_value,
        guessing_mean_bits=found.guessing.mean_bits(),
        guessing_median_bits=found.guessing.quantile_bits(0.5),
        guessing_upper_quartile_bits=quartile,
    )


def _bounds(one: ScoredPopulation, options: MembershipOptions, median: Estimate) -> tuple[EpsilonBound, ...]:
    common: dict[str, Any] = {"delta": options.delta, "confidence": options.confidence, "seed": options.seed}

    def one_run(copies: int) -> Estimate:
        if one.coins is None or options.inclusion is None:
            return Estimate.not_measured(ONE_RUN, one.why_no_coins)
        return epsilon_one_run(*one.coins, **common, inclusion=options.inclusion, copies=copies)

    return (
        EpsilonBound(
            canary=note_epsilon(median),
            one_copy=note_epsilon(median, one.copies),
        ),
        _for_canary_and_copy(lambda copies: epsilon_ladder(*one.scores, **common, copies=copies), one.copies),
        _for_canary_and_copy(lambda copies: epsilon_split(*one.scores, **common, copies=copies), one.copies),
        _for_canary_and_copy(one_run, one.copies),
        EpsilonBound(
            canary=_joint_beta(one, options),
            # A posterior for one copy would need a prior of its own.
            one_copy=None,
        ),
        *(_gaussian_bounds(one, options) if options.gaussian else ()),
    )


def _gaussian_bounds(one: ScoredPopulation, options: MembershipOptions) -> tuple[EpsilonBound, ...]:
    common: dict[str, Any] = {"delta": options.delta, "confidence": options.confidence, "seed": options.seed}

    def f_dp(copies: int) -> Estimate:
        if one.coins is None or options.inclusion is None:
            return Estimate.not_measured(F_DP, one.why_no_coins, 0)
        return epsilon_f_dp(*one.coins, **common, inclusion=options.inclusion, copies=copies)

    return (
        _for_canary_and_copy(
            lambda copies: epsilon_gaussian(*one.scores, **common, copies=copies), one.copies
        ),
        _for_canary_and_copy(f_dp, one.copies),
    )


def _for_canary_and_copy(bound: Callable[[int], Estimate], copies: int) -> EpsilonBound:
    whole = bound(1)
    return EpsilonBound(canary=whole, one_copy=whole if copies == 1 else bound(copies))


def _joint_beta(one: ScoredPopulation, options: MembershipOptions) -> Estimate:
    parts = split_scores(one.scores, CHOOSING_SHARE, options.seed)
    if parts is None:
        return Estimate.not_measured(
            JOINT_BETA,
            "a single score on one side cannot both choose a threshold and be counted",
            sum(map(len, one.scores)),
        )
    rule = chosen_rule(*parts, delta=options.delta)
    return joint_beta_interval(rule.counts(parts[1]), delta=options.delta, confidence=options.confidence)


def _warnings(one: ScoredPopulation, best: Estimate, ceiling: float) -> tuple[str, ...]:
    m, n = (len(side) for side in one.scores)
    found = []
    if min(m, n) < FEW and best.status != "not_measured":
        found.append(
            f"{m:,} in against {n:,} out are few: whatever the scores, the best bound on epsilon could not be above {ceiling:.2f}"
        )
    if one.pooled:
        found.append(
            "canaries that were planted different numbers of times are pooled; epsilon for one copy takes each to have the largest number"
        )
    return tuple(found)
