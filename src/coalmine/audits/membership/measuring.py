"""Membership: whether scores distinguish what was trained on from what was not, and what that says about epsilon."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET
from numpy.typing import ArrayLike

from coalmine.audits.exposure.results import Exposures
from coalmine.audits.membership.options import MembershipOptions
from coalmine.audits.membership.other_scores import ScoredExposures
from coalmine.audits.membership.population import measured_populations
from coalmine.audits.membership.results import Calibration, Membership, Population
from coalmine.audits.membership.score_files import read_scores
from coalmine.audits.membership.sources import ScoredPopulation, load_source, populations
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.errors import InputError
from coalmine.statistics.epsilon.claimed import Verdict, verdict_statement, verdict_words
from coalmine.statistics.epsilon.gaussian import GAUSSIAN
from coalmine.statistics.exposure.guessing import compare_with_guessing
from coalmine.statistics.scores import checked_count, membership_scores


def membership(
    results: Exposures | str | os.PathLike[str],
    options: MembershipOptions | None = None,
    *,
    reference: Exposures | str | os.PathLike[str] | None = None,
    canaries: CanarySet | str | os.PathLike[str] | None = None,
    **changes: Any,
) -> Membership:
    """Membership and lower bounds on epsilon from the results of `expose`, for each number of copies and pooled.

    The fields of `MembershipOptions` can be given as keywords, such as `delta=1e-6`, instead of a record or on top of one.

    Args:
        results: what `expose` returned, or the directory that it was saved to.
        options: levels, and a claim to judge.
        reference: the results for a model without the canaries (a base model, an earlier checkpoint), on the same canaries; its
            scores are subtracted.
        canaries: the manifest, for results of an earlier version that do not say how often a withheld canary would have been
            planted.
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
            "the results of `expose` are those of one training run; give --runs with scores only"
        )
    source = load_source(results)
    if asked.inclusion is None:
        asked = msgspec.structs.replace(asked, inclusion=_known_inclusion(source.document.inclusion))
    asked = asked.with_claim(source.document.model)
    found = _of_exposures(source, None if reference is None else load_source(reference), canaries, asked)
    return msgspec.structs.replace(
        found,
        model=source.document.model,
        manifest_sha256=source.document.manifest_sha256,
        exposures_sha256=source.sha256,
    )


# In `coalmine.audits`, `membership` is the room.
membership_of_results = membership
"""`coalmine.membership`, by a name that is not that of the folder."""


def membership_again(source: Path, found: Membership) -> Membership:
    """The same from the same exposures, by the options that it names."""
    claimed = found.verdict
    return membership(
        source,
        delta=found.delta,
        confidence=found.confidence,
        claimed_epsilon=None if claimed is None else claimed.claimed_epsilon,
        claimed_delta=None if claimed is None else claimed.claimed_delta,
        claimed_unit=found.claimed_unit or "document",
        inclusion=found.inclusion,
        gaussian=any(one.canary.method == GAUSSIAN for row in found.populations for one in row.epsilon),
        seed=found.seed,
    )


def _of_exposures(
    source: ScoredExposures,
    base: ScoredExposures | None,
    canaries: CanarySet | str | os.PathLike[str] | None,
    asked: MembershipOptions,
) -> Membership:
    """What the scores of exposures say, compared with those of a reference model where there is one."""
    plain, warnings = populations(source, None, canaries)
    if base is None:
        return _measured(plain, asked, "minus log-perplexity, in bits", warnings=dict.fromkeys(warnings))
    used, warnings = populations(source, base, canaries)
    score = "log-perplexity of the reference model minus that of the model, in bits"
    return msgspec.structs.replace(
        _measured(used, asked, score, warnings=dict.fromkeys(warnings)),
        calibration=_calibrations(plain, used),
        reference_model=base.document.model,
        reference_exposures_sha256=base.sha256,
    )


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
    one = ScoredPopulation(
        msgspec.UNSET,
        None,
        checked_count(copies, "copies"),
        pooled=False,
        scores=scores,
        coins=scores,
    )
    return _measured([one], asked, "as given, higher for what was trained on")


def membership_of_file(
    scores: str | os.PathLike[str],
    options: MembershipOptions | None = None,
    *,
    lower_is_member: bool | None = None,
    column: str | None = None,
    **changes: Any,
) -> Membership:
    """The same from the scores in a file of another tool, for each number of copies and pooled; see `score_files` for the shapes.

    An `inclusion` of None takes what the file says, or 0.5; what was assumed is among the warnings. `lower_is_member` says whether lower
    scores mean "was trained on", as losses do, and `column` which column of a table holds the scores.

    >>> membership_of_file("losses.csv", lower_is_member=True, claimed_epsilon=2.0).verdict.words  # doctest: +SKIP
    'consistent'
    """
    asked = MembershipOptions.of(options, changes)
    read = read_scores(scores, lower_is_member=lower_is_member, column=column)
    notes = list(read.notes)
    inclusion = asked.inclusion
    if inclusion is None and asked.runs == "one":
        inclusion = read.inclusion
        if inclusion is None and any(row.side == "out" for row in read.rows):
            inclusion = 0.5
            notes.append(
                "a coin with probability 0.5 is assumed to have decided which canaries are in; give --inclusion if it was another"
            )
    asked = msgspec.structs.replace(asked, inclusion=inclusion)
    asked.check()
    given = "with its sign changed" if read.lower_is_member else "as given"
    score = f"from {read.tool}, {given}, higher for what was trained on"
    return _measured(read.populations(), asked, score, warnings=notes)


def _measured(
    used: Sequence[ScoredPopulation], asked: MembershipOptions, score: str, *, warnings: Iterable[str] = ()
) -> Membership:
    """What the scores of all populations say."""
    measured = measured_populations(used, asked)
    return Membership(
        score=score,
        delta=float(asked.delta),
        confidence=float(asked.confidence),
        inclusion=asked.inclusion,
        seed=asked.seed,
        runs=asked.runs,
        populations=measured,
        verdict=_overall(measured, asked),
        claimed_unit=UNSET if asked.claim is None else asked.claimed_unit,
        warnings=tuple(warnings),
    )


def _known_inclusion(recorded: float | None) -> float | None:
    """What the results say, if it is a coin at all: with probability 0 or 1 nothing is left to chance."""
    return recorded if recorded is not None and 0.0 < recorded < 1.0 else None


def _calibrations(
    plain: Sequence[ScoredPopulation], calibrated: Sequence[ScoredPopulation]
) -> tuple[Calibration, ...]:
    rows = []
    # A format whose references the reference model did not score may have dropped out.
    by_name = {one.name: one for one in plain}
    for after in calibrated:
        both = (by_name[after.name], after)
        medians = [compare_with_guessing(*one.scores).median.value or 0.0 for one in both]
        rows.append(
            Calibration(
                population=after.name,
                plain_median_bits=medians[0],
                calibrated_median_bits=medians[1],
                gain_bits=medians[1] - medians[0],
            )
        )
    return tuple(rows)


def _overall(measured: Sequence[Population], options: MembershipOptions) -> Verdict | None:
    """The verdict of the audit: violated if one population refutes the claim, consistent if one of them could have."""
    verdicts = [one.verdict for one in measured if one.verdict is not None]
    if not verdicts:
        return None
    worst = min(verdicts, key=lambda one: one.p_value)
    chosen = worst
    if worst.outcome != "violated":
        chosen = max(verdicts, key=lambda one: one.power or 0.0)
    words = verdict_words(chosen.outcome, options.confidence)
    p_value = min(1.0, worst.p_value * len(verdicts))
    return msgspec.structs.replace(
        chosen,
        words=words,
        confidence=options.confidence,
        p_value=p_value,
        statement=verdict_statement(chosen.claimed_epsilon, chosen.claimed_delta, words, chosen.why),
    )
