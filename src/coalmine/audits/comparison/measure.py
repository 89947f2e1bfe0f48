"""Comparison of trainings: differences in exposure with their significance, and the frontier of loss against exposure.

Formats are compared one by one: exposures in spaces of different size have no common median. The numbers are those of models that were
audited already; nothing is measured here.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from glob import glob
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from coalmine.audits.comparison.records import (
    ComparedRun,
    Comparison,
    ComparisonOptions,
    LossRelation,
    PairDifference,
    Strategy,
)
from coalmine.audits.comparison.references import (
    difference_errors,
    widened_difference,
    widened_median,
)
from coalmine.audits.exposure.estimators import estimator_of
from coalmine.audits.exposure.results import EXPOSURES, ExposureResult
from coalmine.audits.membership.populations import load_source
from coalmine.audits.registry import read_run
from coalmine.errors import InputError, MissingExtraError, NotMeasurableError
from coalmine.evidence.directories import audited_model
from coalmine.evidence.run import Run, names_of
from coalmine.formats.naming import format_name
from coalmine.grouped import grouped
from coalmine.records import Estimate
from coalmine.statistics.differences import (
    FEWEST_RUNS,
    SAME_RUNS,
    Difference,
    paired_difference,
    run_difference,
)
from coalmine.statistics.intervals import median_estimate
from coalmine.statistics.multiple_tests import adjusted_p_values
from coalmine.storage.files import to_json
from coalmine.training.finetuning.record import FinetuningRecord

Results = Sequence[ExposureResult]
# The planted canaries of one format, by the name of the training.
Planted = Mapping[str, Results]


def compare(
    strategies: Sequence[Strategy], options: ComparisonOptions | None = None, **changes: Any
) -> Comparison:
    """Trainings side by side, format by format.

    The fields of `ComparisonOptions` can be given as keywords, such as `equal_within=0.05`. Only planted canaries count. Two trainings
    are compared canary by canary; sides of several trainings by the mean of each,
    because a canary says nothing about another seed. Exposures and their differences are in bits.

    >>> compare([Strategy("a", read_exposures("a"), None), Strategy("b", read_exposures("b"), None)])  # doctest: +SKIP
    """
    asked = ComparisonOptions.of(options, changes)
    sides, by_format = _sides(strategies), _planted(strategies)
    warnings = _loss_obstacles(strategies)
    placed = not warnings
    runs: list[ComparedRun] = []
    pairs: list[PairDifference] = []
    for template, planted in by_format.items():
        present = [one for one in strategies if one.name in planted]
        medians = {one.name: _median(one, planted[one.name], template, asked) for one in present}
        same = _of_same_repetitions(planted.values())
        if not same:
            warnings.append(
                f"the runs had canaries of different repetitions of `{format_name(template)}`, so their medians cannot be compared and "
                "there is no frontier"
            )
        places = _places(sides, medians) if placed and same else {}
        runs += [
            ComparedRun(
                name=one.name,
                side=one.side,
                template=template,
                manifest_sha256=one.exposure.manifest_sha256,
                canaries=len(planted[one.name]),
                exposure=medians[one.name],
                loss=one.loss,
                dominated_by=_better(places, one.side or one.name),
            )
            for one in present
        ]
        for first, second in itertools.combinations(sides, 2):
            own, found = (sides[first], sides[second]), None
            statement = f"{first} against {second}, on `{format_name(template)}`"
            try:
                found = _difference(own, planted, template, asked)
            except NotMeasurableError as problem:
                statement += f": the difference in exposure could not be measured: {problem}"
            pairs.append(
                PairDifference(
                    first=first,
                    second=second,
                    template=template,
                    trainings=(len(own[0]), len(own[1])),
                    exposure=found,
                    loss_relation=loss_relation(own, asked),
                    statement=statement,
                )
            )
    adjusted = iter(adjusted_p_values([pair.exposure.p_value for pair in pairs if pair.exposure]))
    pairs = [_concluded(pair, next(adjusted), asked.confidence) if pair.exposure else pair for pair in pairs]
    about = grouped((warning, one.name) for one in strategies for warning in one.exposure.warnings)
    warnings += [f"{', '.join(names)}: {warning}" for warning, names in about.items()]
    if any(pair.unit == "canaries" for pair in pairs):
        warnings.append(SAME_RUNS)
    return Comparison(
        **msgspec.structs.asdict(asked), runs=tuple(runs), pairs=tuple(pairs), warnings=tuple(warnings)
    )


def _sides(strategies: Sequence[Strategy]) -> dict[str, list[Strategy]]:
    """The runs of each side, by its name; a run without one is a side of its own."""
    sides = grouped((one.side or one.name, one) for one in strategies)
    if len(sides) < 2:
        raise InputError(
            f"comparing takes at least two runs of different labels, got {len(sides)}; name another one"
        )
    for name, runs in sides.items():
        if len(runs) > 1 and None in [one.side for one in runs]:
            raise InputError(
                f"{name!r} is both a run without a label and the label of others; give it a label too"
            )
    return sides


def _planted(strategies: Sequence[Strategy]) -> dict[str, Planted]:
    """The planted canaries of each training by format, in order of appearance; a training without any is refused."""
    found: dict[str, dict[str, list[ExposureResult]]] = {}
    for one in strategies:
        templates = {facts.format_id: facts.template for facts in one.exposure.formats}
        own = [r for r in one.exposure.results if r.planted and r.format_id in templates]
        if not own:
            raise InputError(
                f"{one.name} has no planted canaries among its exposures; name a run that has some"
            )
        for template, results in grouped((templates[r.format_id], r) for r in own).items():
            found.setdefault(template, {})[one.name] = results
    return dict(found)


def _loss_obstacles(strategies: Sequence[Strategy]) -> list[str]:
    """Why no run can be placed in the figure."""
    if missing := [one.name for one in strategies if one.loss is None]:
        return [f"there is no loss for {', '.join(missing)}, so there is no frontier; give it with --loss"]
    if not _on_same_ground(strategies):
        return [
            "the losses were measured on different documents or tokens, so there is no frontier; measure all on the same and give --loss"
        ]
    return []


def _on_same_ground(strategies: Sequence[Strategy]) -> bool:
    """Whether losses can be compared: those that say what they were measured on say the same."""
    return len({one.measured_on for one in strategies} - {None}) <= 1


def _of_same_repetitions(rows: Sequence[Results] | Any) -> bool:
    """Whether all trainings have as many canaries with each number of repetitions."""
    first, *others = (Counter(r.repetitions for r in own) for own in rows)
    return all(other == first for other in others)


def _most(runs: Sequence[Strategy], template: str) -> float:
    """The largest exposure that is possible."""
    return max(
        facts.size_bits for one in runs for facts in one.exposure.formats if facts.template == template
    )


def _median(one: Strategy, results: Results, template: str, asked: ComparisonOptions) -> Estimate:
    """The median exposure; an unmeasured canary may have any value, and one with a lower bound any value above it."""
    estimates, most = [result.estimate for result in results], _most([one], template)
    lows = np.array([float((it.low if it.value is None else it.value) or 0.0) for it in estimates])
    highs = np.array([most if it.value is None else it.value for it in estimates])
    most = max(most, float(highs.max()))
    found = median_estimate(lows, highs, most=most, confidence=asked.confidence)
    try:
        return widened_median(one, results, found, lows, highs, most, asked.seed)
    except NotMeasurableError as problem:
        return Estimate.not_measured("median", str(problem), len(results))


def _places(
    sides: Mapping[str, Sequence[Strategy]], medians: Mapping[str, Estimate]
) -> dict[str, tuple[float, float]]:
    """For each side that has both: its loss and its median exposure; of several trainings, the means."""
    places = {}
    for name, runs in sides.items():
        own = [(one.loss, medians[one.name].value) for one in runs if one.name in medians]
        known = [(loss, middle) for loss, middle in own if loss is not None and middle is not None]
        if own and len(known) == len(own):
            loss, middle = (float(np.mean(column)) for column in zip(*known, strict=True))
            places[name] = (loss, middle)
    return places


def _better(places: Mapping[str, tuple[float, float]], side: str) -> tuple[str, ...] | None:
    """The sides that are no worse in both and better in one."""
    if (own := places.get(side)) is None:
        return None
    return tuple(
        name for name, place in places.items() if place != own and place[0] <= own[0] and place[1] <= own[1]
    )


def _difference(
    sides: Sequence[Sequence[Strategy]], planted: Planted, template: str, asked: ComparisonOptions
) -> Difference:
    """The difference of two sides in exposure; refused where there is none."""
    runs, fewest = [one for side in sides for one in side], min(map(len, sides))
    if without := [one.name for one in runs if one.name not in planted]:
        raise NotMeasurableError(f"there are no such canaries in {', '.join(without)}")
    rows = [planted[one.name] for one in runs]
    if len(runs) > 2 and fewest < FEWEST_RUNS:
        raise NotMeasurableError(
            f"with {fewest} training it cannot be known how much a seed matters; train at least {FEWEST_RUNS} on each side"
        )
    # Leaving them out would leave out those that are best remembered.
    if unknown := sum(result.exposure is None for row in rows for result in row):
        raise NotMeasurableError(
            f"{unknown} exposures have no value, only a bound or none; measure them by the exact or guided method"
        )
    most = _most(runs, template)
    if len(runs) == 2:
        return _of_canaries(runs, rows, most, asked)
    if not _of_same_repetitions(rows):
        raise NotMeasurableError("the trainings had canaries of different repetitions; plant the same in all")
    means = [[float(np.mean(_values(planted[one.name]))) for one in side] for side in sides]
    return run_difference(*means, most=most, confidence=asked.confidence)


def _of_canaries(
    runs: Sequence[Strategy], results: Sequence[Results], most: float, asked: ComparisonOptions
) -> Difference:
    """The difference of two trainings, canary by canary."""
    one, same = results[0], {r.canary_id: r for r in results[1]}
    if len({run.exposure.manifest_sha256 for run in runs}) > 1 or same.keys() != {r.canary_id for r in one}:
        raise NotMeasurableError(
            "two trainings are compared by the same canaries; expose both to one manifest"
        )
    other = [same[r.canary_id] for r in one]

    def again(confidence: float) -> Difference:
        return paired_difference(
            _values(one), _values(other), most=most, seed=asked.seed, confidence=confidence
        )

    errors = difference_errors(runs, (one, other), asked.seed)
    return (
        again(asked.confidence)
        if errors is None
        else widened_difference(again, errors, most, asked.confidence)
    )


def _values(results: Results) -> list[float]:
    return [r.exposure or 0.0 for r in results]


def loss_relation(sides: Sequence[Sequence[Strategy]], options: ComparisonOptions) -> LossRelation:
    """How the losses of two sides compare; over their trainings where there are several, by the interval of the difference."""
    runs = [one for side in sides for one in side]
    values = [[one.loss for one in side if one.loss is not None] for side in sides]
    if sum(map(len, values)) < len(runs) or not _on_same_ground(runs):
        return "not known"
    low = high = values[0][0] - values[1][0]
    if len(runs) > 2:
        try:
            found = run_difference(*values, confidence=options.confidence, unit="").estimate
        except NotMeasurableError:
            return "not told apart"
        low, high = found.low or 0.0, found.high or 0.0
    if -options.equal_within <= low and high <= options.equal_within:
        return "equal"
    if low <= 0 <= high:
        return "not told apart"
    return "second better" if low > 0 else "first better"


def _concluded(pair: PairDifference, p_value: float, confidence: float) -> PairDifference:
    """A pair with its p-value among all, and the conclusion in one sentence.

    Only a difference over several trainings on each side is a reason to prefer a way of training. A difference of two
    models says only which of these two exposes less.
    """
    if pair.exposure is None:
        return pair
    difference, relation = pair.exposure.estimate, pair.loss_relation
    less, more = (pair.second, pair.first) if (difference.value or 0) > 0 else (pair.first, pair.second)
    better = {"first better": pair.first, "second better": pair.second}.get(relation)
    if p_value > 1 - confidence:
        conclusion = "no difference in exposure is shown"
    elif pair.unit == "canaries":
        conclusion = f"of these two models, {less} exposes less"
    elif relation == "equal" or better == less:
        conclusion = f"prefer {less}"
    elif better == more:
        conclusion = f"a trade, because {less} exposes less and {more} has the better loss"
    else:
        conclusion = f"{less} exposes less, and whether that costs loss is open"
    adjusted = "" if p_value == pair.exposure.p_value else f" (adjusted {p_value:.2g})"
    statement = f"{pair.statement}: {difference.statement}{adjusted}; loss: {relation}: {conclusion}"
    return msgspec.structs.replace(pair, adjusted_p_value=p_value, statement=statement)


def compare_runs(
    runs: Sequence[str | os.PathLike[str]],
    options: ComparisonOptions | None = None,
    *,
    labels: Sequence[str | None] = (),
    loss: Sequence[float] = (),
    **changes: Any,
) -> Comparison:
    """Compare runs by the results below their directories; the fields of `ComparisonOptions` can be given as keywords.

    `labels` has one entry per run, in their order: runs with the same one are trainings of one kind, which differ by their seeds, and
    None is a kind of its own. `loss` has one number per run; without it, it is the validation loss of each run's training.json or
    finetuning.json.

    >>> compare_runs(["plain", "private"], loss=[2.41, 2.63]).pairs[0].loss_relation  # doctest: +SKIP
    'first better'
    """
    asked = ComparisonOptions.of(options, changes)
    for name, given in (("labels", labels), ("losses", loss)):
        if given and len(given) != len(runs):
            raise InputError(f"there are {len(runs)} runs and {len(given)} {name}; give one for each run")
    if not all(map(math.isfinite, loss)):
        raise InputError("a loss must be a finite number; check what was measured")
    read, strategies = [read_run(run) for run in runs], []
    seen: dict[tuple[str | None, str], str] = {}
    for place, (name, run) in enumerate(zip(names_of(read), read, strict=True)):
        one = _strategy(name, run)._replace(side=labels[place] if labels else None)
        if loss:
            one = one._replace(loss=float(loss[place]), measured_on=None)
        # One model that is named as two trainings would make their spread look too small.
        weights = one.exposure.model.get("weights_sha256")
        if one.side is not None and weights and seen.setdefault((one.side, str(weights)), name) != name:
            raise InputError(
                f"{name} is the same model as another one of {one.side!r}, so they are not two trainings; train with another seed"
            )
        strategies.append(one)
    return compare(strategies, asked)


def compare_exposed(runs: Sequence[Run]) -> Comparison | None:
    """A comparison of those runs that have exposures of planted canaries; None if there are fewer than two."""
    strategies = [
        _strategy(name, run)
        for name, run in zip(names_of(runs), runs, strict=True)
        if (exposure := run.first(EXPOSURES)) is not None
        and any(result.planted for result in exposure.results)
    ]
    return compare(strategies) if len(strategies) > 1 else None


def labeled_runs(given: Sequence[str]) -> tuple[list[str | None], list[Path]]:
    """The labels and paths of runs as they are named: `RUN`, or `LABEL=RUN`, where RUN may be a pattern such as `runs/plain-*`."""
    labels: list[str | None] = []
    paths: list[Path] = []
    for text in given:
        label, equals, rest = text.partition("=")
        literal = not equals or Path(text).exists()
        # An existing path is taken literally, whatever characters it has; Path.glob takes no absolute patterns.
        matched = [Path(text) if literal else Path(rest)]
        if not matched[0].exists() and not literal:
            matched = [Path(one) for one in sorted(glob(rest))]  # noqa: PTH207
        # The audit directory beside a model is read with it, and is not a run of its own.
        found = [one for one in matched if audited_model(one) not in matched]
        if not found:
            raise InputError(f"{text!r} names no run: nothing matches {rest!r}; give LABEL=RUN")
        labels += [None if literal else label] * len(found)
        paths += found
    return labels, paths


def _strategy(name: str, run: Run) -> Strategy:
    """What a run exposes, and the validation loss of its own training."""
    if not run.all(EXPOSURES):
        raise NotMeasurableError(
            f"{name} has no exposures to compare; run `coalmine expose` on it first, with the same canaries as the others"
        )
    path, exposure = run.all(EXPOSURES)[0]
    used = {facts.format_id: estimator_of(facts.method) for facts in exposure.formats}
    kinds = {format_id: one.keeps for format_id, one in used.items() if one.among_others}
    try:
        candidates = load_source(path).candidates if kinds else ()
    except MissingExtraError:
        candidates = ()
    others = {one.format_id: one for one in candidates if one.kind == kinds.get(one.format_id)}
    return Strategy(name, exposure, run.validation_loss_bits, others, measured_on=_ground(run))


def _ground(run: Run) -> str | None:
    """What decides which documents and which tokens the validation loss of a run is of."""
    if (record := run.training or run.finetuning) is None:
        return None
    options = record.options
    held_out: Any = record.validation_sha256
    if held_out is msgspec.UNSET:
        held_out = [record.data_sha256, options.holdout, options.seed]
    if isinstance(record, FinetuningRecord):
        tokens: list[Any] = [record.base.tokenizer_sha256, record.context, record.window]
    else:
        # All words outside the vocabulary are one token, and the vocabulary is that of the training data.
        words = [record.options.vocabulary, record.data_sha256] if record.options.tokens == "words" else []
        tokens = [record.options.tokens, *words]
    fields = None if record.fields is msgspec.UNSET else record.fields
    return hashlib.sha256(to_json([held_out, tokens, fields])).hexdigest()
