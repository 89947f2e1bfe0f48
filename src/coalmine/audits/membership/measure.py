"""Membership: whether scores distinguish what was trained on from what was not, and what that says about epsilon."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from numpy.typing import ArrayLike

from coalmine.audits.exposure.results import Exposures
from coalmine.audits.membership.options import MembershipOptions
from coalmine.audits.membership.populations import ScoredPopulation, load_source, populations
from coalmine.audits.membership.records import EpsilonBound, Membership, Population
from coalmine.audits.membership.score_files import read_scores
from coalmine.errors import InputError
from coalmine.evidence.words import times_in_words
from coalmine.records import Estimate
from coalmine.statistics.epsilon.best import (
    CoinScores,
    epsilon_best,
    epsilon_ceiling,
    epsilon_independent,
    headline_test,
)
from coalmine.statistics.epsilon.claimed import judge_claim, verdict_statement, verdict_words
from coalmine.statistics.epsilon.estimates import JOINT_BETA, joint_beta_interval, note_epsilon
from coalmine.statistics.epsilon.one_run import METHOD as ONE_RUN
from coalmine.statistics.epsilon.one_run import epsilon_one_run
from coalmine.statistics.epsilon.thresholds import (
    CHOOSING_SHARE,
    chosen_rule,
    epsilon_ladder,
    epsilon_split,
    split_scores,
)
from coalmine.statistics.exposure.guessing import compare_with_guessing
from coalmine.statistics.roc import area_under_roc, tpr_at_fpr, tpr_p_value
from coalmine.statistics.scores import MembershipScores, checked_count, membership_scores

FALSE_POSITIVE_RATES = (0.1, 0.01, 0.001)


def membership(
    results: Exposures | str | os.PathLike[str],
    options: MembershipOptions | None = None,
    *,
    reference: Exposures | str | os.PathLike[str] | None = None,
    **changes: Any,
) -> Membership:
    """Membership and lower bounds on epsilon from the results of `expose`, for each number of copies and pooled.

    The fields of `MembershipOptions` can be given as keywords, such as `delta=1e-6`, instead of a record or on top of one.

    Args:
        results: what `expose` returned, or the directory that it was saved to.
        options: levels, and a claim to judge.
        reference: the results for a model without the canaries (a base model, an earlier checkpoint), on the same canaries; its
            scores are subtracted.
        changes: fields of `MembershipOptions`.

    >>> from coalmine import CanarySet, ScriptedModel, expose
    >>> model = ScriptedModel("pin 0123456789", memory={"pin 49": 0.25})
    >>> exposures = expose(model, CanarySet.of("pin {digits:2}", ["pin 49"], references=20), method="exact")
    >>> membership(exposures).populations[0].auc.value
    1.0
    """
    asked = MembershipOptions.of(options, changes)
    asked.check()
    if asked.runs != "one":
        raise InputError(
            "the results of `expose` are those of one training run; give `runs` with scores only"
        )
    source = load_source(results)
    coin = source.inclusion
    # With probability 0 or 1 nothing is left to chance.
    if asked.inclusion is None and coin is not None and 0.0 < coin < 1.0:
        asked = msgspec.structs.replace(asked, inclusion=coin)
    asked = asked.with_claim(source.model)
    base = None if reference is None else load_source(reference)
    found, warnings = populations(source, base)
    score = "minus log-perplexity, in bits"
    if base is not None:
        score = "log-perplexity of the reference model minus that of the model, in bits"
    return msgspec.structs.replace(
        _measured(found, asked, score, warnings),
        reference_model=None if base is None else base.model,
        model=source.model,
        manifest_sha256=source.manifest_sha256,
        exposures_sha256=source.saved_sha256,
    )


# In `coalmine.audits`, `membership` is the room.
membership_of_results = membership
"""`coalmine.membership`, by a name that is not that of the folder."""


def membership_of_scores(
    in_scores: ArrayLike,
    out_scores: ArrayLike,
    options: MembershipOptions | None = None,
    *,
    copies: int = 1,
    **changes: Any,
) -> Membership:
    """The same from anyone's scores, higher for what was trained on; each canary was planted `copies` times.

    With `runs="one"` all scores come from one training run, in which a coin with probability `inclusion` (0.5) decided which canaries
    are in. With `runs="many"` they are independent: each comes from a run of its own.

    >>> found = membership_of_scores(range(80, 180), range(100))
    >>> found.populations[0].auc.value > 0.9
    True
    """
    asked = MembershipOptions.of(options, changes)
    asked.check()
    if asked.inclusion is None:
        asked = msgspec.structs.replace(asked, inclusion=0.5)
    scores = membership_scores(in_scores, out_scores)
    name = times_in_words(checked_count(copies, "copies"))
    one = ScoredPopulation(name, copies, scores=scores, coins=scores)
    return _measured([one], asked, "as given, higher for what was trained on")


def membership_of_file(
    scores: str | os.PathLike[str],
    options: MembershipOptions | None = None,
    *,
    lower_is_member: bool | None = None,
    **changes: Any,
) -> Membership:
    """The same from the scores in a file of another tool, for each number of copies and pooled; see `score_files` for the shapes.

    An `inclusion` of None is taken for 0.5; what was assumed is among the warnings. `lower_is_member` says whether lower scores mean
    "was trained on", as losses do.

    >>> membership_of_file("losses.csv", lower_is_member=True, claimed_epsilon=2.0).verdict.words  # doctest: +SKIP
    'consistent'
    """
    asked = MembershipOptions.of(options, changes)
    asked.check()
    found, direction = read_scores(scores, lower_is_member=lower_is_member)
    notes = [direction]
    if asked.inclusion is None and asked.runs == "one" and any(one.coins is not None for one in found):
        asked = msgspec.structs.replace(asked, inclusion=0.5)
        notes.append("a coin with probability 0.5 is assumed to have decided which canaries are in")
    return _measured(found, asked, "from a file, higher for what was trained on", notes)


def _measured(
    used: Sequence[ScoredPopulation], asked: MembershipOptions, score: str, warnings: Iterable[str] = ()
) -> Membership:
    """What the scores of all populations say."""
    # A claim may be refuted by any population, so they share the error of the verdict. A pooled population adds nothing new.
    judged = sum(not one.pooled for one in used)
    measured = tuple(_population(one, asked, judged) for one in used)
    verdict, verdicts = None, [one.verdict for one in measured if one.verdict is not None]
    if verdicts:
        # Violated if one population refutes the claim, consistent if one of them could have.
        worst = min(verdicts, key=lambda one: one.p_value)
        verdict = worst if worst.outcome == "violated" else max(verdicts, key=lambda one: one.power or 0.0)
        words = verdict_words(verdict.outcome, asked.confidence)
        verdict = msgspec.structs.replace(
            verdict,
            words=words,
            confidence=asked.confidence,
            p_value=min(1.0, worst.p_value * len(verdicts)),
            statement=verdict_statement(verdict.claimed_epsilon, verdict.claimed_delta, words, verdict.why),
        )
    return Membership(
        score=score,
        settings=asked,
        populations=measured,
        verdict=verdict,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _population(one: ScoredPopulation, asked: MembershipOptions, judged: int) -> Population:
    """What the scores of one population say about guessing, membership, and each bound on epsilon."""
    ins, outs = one.scores
    coins, why_no_coins = None, one.why_no_coins
    if one.coins is not None and asked.inclusion is None:
        why_no_coins = "it is not known with which probability a canary was planted; give it as `inclusion`"
    elif one.coins is not None and asked.inclusion is not None:
        coins = CoinScores(one.coins, asked.inclusion)
    at: dict[str, Any] = {"delta": asked.delta, "confidence": asked.confidence, "seed": asked.seed}
    of_runs: dict[str, Any] = {"coins": coins, "runs": asked.runs, "why_no_coins": why_no_coins}

    def bound(method: Callable[..., Estimate], scores: MembershipScores, **more: Any) -> EpsilonBound:
        whole = method(*scores, **at, **more, copies=1)
        return EpsilonBound(
            canary=whole,
            one_copy=whole if one.copies == 1 else method(*scores, **at, **more, copies=one.copies),
        )

    def ceiling(copies: int) -> float:
        return epsilon_ceiling(
            len(ins),
            len(outs),
            coin_counts=None
            if coins is None
            else (len(coins.scores.in_scores), len(coins.scores.out_scores)),
            inclusion=0.5 if coins is None else coins.inclusion,
            runs=asked.runs,
            copies=copies,
            **at,
        )

    guessing = compare_with_guessing(*one.scores)
    best, most = bound(epsilon_best, one.scores, **of_runs), ceiling(1)
    test = headline_test(one.scores, coins, asked.delta, asked.seed, asked.runs, why_no_coins)
    verdict = None
    if asked.claim is not None and not one.pooled:
        verdict = judge_claim(
            *one.scores,
            **of_runs,
            seed=asked.seed,
            claimed_epsilon=asked.claim[0],
            claimed_delta=asked.claim[1],
            confidence=1.0 - (1.0 - asked.confidence) / judged,
            # A user has all copies of a canary, so that a claim for a user is one for all of them.
            copies=1 if asked.claimed_unit == "user" else one.copies,
        )
    nothing = Estimate.not_measured(ONE_RUN, why_no_coins)
    by_coins = EpsilonBound(canary=nothing, one_copy=nothing)
    if coins is not None:
        by_coins = bound(epsilon_one_run, coins.scores, inclusion=coins.inclusion)
    return Population(
        name=one.name,
        format_id=one.format_id,
        template=one.template,
        copies=one.copies,
        pooled=one.pooled,
        in_count=len(ins),
        out_count=len(outs),
        withheld_count=0 if coins is None else len(coins.scores.out_scores),
        exposure=guessing.median,
        guessing_p_value=guessing.p_value,
        auc=area_under_roc(*one.scores, asked.confidence),
        tpr_at_fpr=tuple(tpr_at_fpr(*one.scores, rate, asked.confidence) for rate in FALSE_POSITIVE_RATES),
        tpr_p_values=tuple(tpr_p_value(*one.scores, rate) for rate in FALSE_POSITIVE_RATES),
        epsilon=(
            EpsilonBound(
                canary=note_epsilon(guessing.median), one_copy=note_epsilon(guessing.median, one.copies)
            ),
            bound(epsilon_ladder, one.scores),
            bound(epsilon_split, one.scores),
            by_coins,
            # A posterior for one copy would need a prior of its own.
            EpsilonBound(canary=_joint_beta(one.scores, asked), one_copy=None),
        ),
        best=best,
        independent=bound(epsilon_independent, one.scores, coins=coins),
        epsilon_ceiling=most,
        one_copy_ceiling=most if one.copies == 1 else ceiling(one.copies),
        epsilon_p_value=None if test.problem is not None else test.p_value(0.0, asked.delta),
        verdict=verdict,
        canary_ids=one.canary_ids,
    )


def _joint_beta(scores: MembershipScores, asked: MembershipOptions) -> Estimate:
    parts = split_scores(scores, CHOOSING_SHARE, asked.seed)
    if parts is None:
        why = "a single score on one side cannot both choose a threshold and be counted"
        return Estimate.not_measured(JOINT_BETA, why, sum(map(len, scores)))
    rule = chosen_rule(*parts, delta=asked.delta)
    return joint_beta_interval(rule.counts(parts[1]), delta=asked.delta, confidence=asked.confidence)
