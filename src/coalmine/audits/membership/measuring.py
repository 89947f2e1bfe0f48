"""The audit of membership: whether what was trained on can be told from what was not, and what that says about epsilon."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec
from numpy.typing import ArrayLike

from coalmine.audits.exposure.results import Exposures
from coalmine.audits.membership.population import AuditOptions, measured_populations
from coalmine.audits.membership.results import Calibration, Membership, Population
from coalmine.audits.membership.score_files import read_scores
from coalmine.audits.membership.sources import ScoredPopulation, load_source, populations, times_planted
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.errors import InputError
from coalmine.statistics.epsilon.best import Runs
from coalmine.statistics.epsilon.claimed import TOO_LITTLE_POWER, Verdict
from coalmine.statistics.exposure.guessing import compare_with_guessing
from coalmine.statistics.membership_scores import checked_delta, checked_epsilon, membership_scores
from coalmine.statistics.score_arrays import checked_confidence, checked_count

__all__ = ["Membership", "membership", "membership_of_file", "membership_of_scores"]


def membership(
    results: Exposures | str | os.PathLike[str],
    *,
    reference: Exposures | str | os.PathLike[str] | None = None,
    canaries: CanarySet | str | os.PathLike[str] | None = None,
    delta: float = 1e-5,
    confidence: float = 0.95,
    claimed_epsilon: float | None = None,
    claimed_delta: float | None = None,
    inclusion: float | None = None,
    gaussian: bool = False,
    seed: int = 0,
) -> Membership:
    """Membership and lower bounds on epsilon from the results of `expose`, for each number of copies and pooled.

    Args:
        results: what `expose` returned, or the directory that it was saved to.
        reference: the results for a model without the canaries (a base model, an earlier checkpoint), on the same canaries; its
            scores are subtracted.
        canaries: the manifest, for results of an earlier version that do not say how often a withheld canary would have been
            planted.
        delta: the delta at which epsilon is bounded.
        confidence: the level of intervals and bounds.
        claimed_epsilon: a claim to judge, for one record, with `claimed_delta` (default: `delta`).
        claimed_delta: see `claimed_epsilon`.
        inclusion: the probability with which a canary was planted. None takes what the results say, 1 minus that of `plant
            --withhold`; where they do not say it, there is no bound from one training run.
        gaussian: adds the bounds `gaussian` and `f-dp`, for a mechanism that is claimed to add Gaussian noise; for any other they
            can be above the truth, and nothing else is made of them.
        seed: breaks ties and splits samples.
    """
    options = _checked(delta, confidence, claimed_epsilon, claimed_delta, inclusion, seed)
    options = options._replace(gaussian=gaussian)
    source = load_source(results)
    if inclusion is None:
        options = options._replace(inclusion=_known_inclusion(source.document.inclusion))
    base = None if reference is None else load_source(reference)
    plain, warnings = populations(source, None, canaries)
    used = plain
    if base is not None:
        used, warnings = populations(source, base, canaries)
    measured = measured_populations(used, options)
    return Membership(
        score=(
            "minus log-perplexity, in bits"
            if base is None
            else "log-perplexity of the reference model minus that of the model, in bits"
        ),
        delta=options.delta,
        confidence=options.confidence,
        inclusion=options.inclusion,
        seed=seed,
        populations=measured,
        calibration=() if base is None else _calibrations(plain, used),
        verdict=_overall(measured, options),
        model=source.document.model,
        reference_model=None if base is None else base.document.model,
        manifest_sha256=source.document.manifest_sha256,
        exposures_sha256=source.sha256,
        reference_exposures_sha256=None if base is None else base.sha256,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def membership_of_scores(
    in_scores: ArrayLike,
    out_scores: ArrayLike,
    *,
    copies: int = 1,
    delta: float = 1e-5,
    confidence: float = 0.95,
    claimed_epsilon: float | None = None,
    claimed_delta: float | None = None,
    inclusion: float = 0.5,
    runs: Runs = "one",
    gaussian: bool = False,
    seed: int = 0,
) -> Membership:
    """The same from anyone's scores, higher for what was trained on; each canary was planted `copies` times.

    With `runs="one"` all scores come from one training run, in which a coin with probability `inclusion` decided who is in. With
    `runs="many"` they are independent: each comes from a run of its own. `gaussian` is as in `membership`.

    >>> found = membership_of_scores(range(80, 180), range(100))
    >>> found.populations[0].auc.value > 0.9
    True
    """
    if runs not in ("one", "many"):
        raise InputError(f'runs must be "one" or "many", got {runs!r}; say where the scores come from')
    options = _checked(delta, confidence, claimed_epsilon, claimed_delta, inclusion, seed)
    options = options._replace(runs=runs, gaussian=gaussian)
    scores = membership_scores(in_scores, out_scores)
    one = ScoredPopulation(
        times_planted(checked_count(copies, "copies")),
        None,
        copies,
        pooled=False,
        scores=scores,
        coins=scores,
    )
    measured = measured_populations([one], options)
    return Membership(
        score="as given, higher for what was trained on",
        delta=options.delta,
        confidence=options.confidence,
        inclusion=options.inclusion,
        seed=seed,
        runs=runs,
        populations=measured,
        verdict=_overall(measured, options),
    )


def membership_of_file(
    path: str | os.PathLike[str],
    *,
    lower_is_member: bool | None = None,
    column: str | None = None,
    delta: float = 1e-5,
    confidence: float = 0.95,
    claimed_epsilon: float | None = None,
    claimed_delta: float | None = None,
    inclusion: float | None = None,
    runs: Runs = "one",
    gaussian: bool = False,
    seed: int = 0,
) -> Membership:
    """The same from the scores in a file of another tool, for each number of copies and pooled; see `score_files` for the shapes.

    `inclusion` is the probability with which a coin decided who is in; None takes what the file says, or 0.5. What was assumed is
    among the warnings. `lower_is_member` and `column` are those of `read_scores`, the others those of `membership_of_scores`.
    """
    read = read_scores(path, lower_is_member=lower_is_member, column=column)
    notes = list(read.notes)
    if inclusion is None and runs == "one":
        inclusion = read.inclusion
        if inclusion is None and any(row.side == "out" for row in read.rows):
            inclusion = 0.5
            notes.append(
                "a coin with probability 0.5 was taken to have decided who is in; say --inclusion if it was another"
            )
    options = _checked(delta, confidence, claimed_epsilon, claimed_delta, inclusion, seed)
    options = options._replace(runs=runs, gaussian=gaussian)
    measured = measured_populations(read.populations(), options)
    return Membership(
        score=f"from {read.tool}, {'with its sign changed' if read.lower_is_member else 'as given'}, higher for what was trained on",
        delta=options.delta,
        confidence=options.confidence,
        inclusion=options.inclusion,
        seed=seed,
        runs=runs,
        populations=measured,
        verdict=_overall(measured, options),
        warnings=tuple(notes),
    )


def _checked(
    delta: float,
    confidence: float,
    claimed_epsilon: float | None,
    claimed_delta: float | None,
    inclusion: float | None,
    seed: int,
) -> AuditOptions:
    if claimed_epsilon is None and claimed_delta is not None:
        raise InputError("a claimed delta needs a claimed epsilon; give both, or neither")
    if inclusion is not None and not 0.0 < inclusion < 1.0:
        raise InputError(
            f"the probability of inclusion must lie strictly between 0 and 1, got {inclusion}; say how the coin was"
        )
    claim = None
    if claimed_epsilon is not None:
        claim = (
            checked_epsilon(claimed_epsilon),
            checked_delta(delta if claimed_delta is None else claimed_delta),
        )
    return AuditOptions(checked_delta(delta), checked_confidence(confidence), claim, inclusion, seed)


def _known_inclusion(recorded: float | None) -> float | None:
    """What the results say, where it is a coin at all: with probability 0 or 1 nothing was left to chance."""
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


def _overall(measured: Sequence[Population], options: AuditOptions) -> Verdict | None:
    """The verdict of the audit: violated if one population refutes the claim, consistent if one of them could have."""
    verdicts = [one.verdict for one in measured if one.verdict is not None]
    if not verdicts:
        return None
    worst = min(verdicts, key=lambda one: one.p_value)
    if worst.outcome == "violated":
        words = f"violated at {100 * options.confidence:g}%"
        chosen = worst
    else:
        chosen = max(verdicts, key=lambda one: one.power or 0.0)
        words = "consistent" if chosen.outcome == "consistent" else TOO_LITTLE_POWER
    p_value = min(1.0, worst.p_value * len(verdicts))
    why = chosen.statement.rpartition("; ")[2]
    return msgspec.structs.replace(
        chosen,
        words=words,
        confidence=options.confidence,
        p_value=p_value,
        statement=f"claimed epsilon {chosen.claimed_epsilon:g} at delta {chosen.claimed_delta:g}: {words}; {why}",
    )
