"""Rows of the table of defenses, from the numbers of their models: spreads over seeds, exposures over canaries, and differences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from coalmine.audits.defenses.defense import NONE, Defense
from coalmine.audits.defenses.results import Bench, BenchedModel, DefenseRow, Spread
from coalmine.errors import NotMeasurableError
from coalmine.records import Estimate
from coalmine.statistics.differences import Difference, paired_difference, run_difference
from coalmine.statistics.intervals import median_estimate
from coalmine.statistics.multiple_tests import adjusted_p_values

_METHOD = "median over canaries"


def with_rows(bench: Bench) -> Bench:
    """The bench with one row per defense, by the models that there are."""
    rows = [_row(defense, bench) for defense in bench.defenses]
    baseline = _models(bench, NONE)
    rows = [rows[0], *(_compared(row, _models(bench, row.defense.name), baseline, bench) for row in rows[1:])]
    adjusted = iter(adjusted_p_values([row.difference.p_value for row in rows if row.difference is not None]))
    rows = [
        row if row.difference is None else msgspec.structs.replace(row, adjusted_p_value=next(adjusted))
        for row in rows
    ]
    return msgspec.structs.replace(bench, rows=tuple(_placed(row, rows) for row in rows))


def _models(bench: Bench, name: str) -> list[BenchedModel]:
    return [one for one in bench.models if one.defense == name]


def _row(defense: Defense, bench: Bench) -> DefenseRow:
    """What the models of a defense say, apart from the others."""
    own = _models(bench, defense.name)
    copies = sorted({one.copies for one in bench.canaries})
    planted = [one.planted for one in bench.canaries]
    claims = [one.privacy for one in own if one.privacy is not None]
    # Of several trainings, the weakest promise.
    claim = max(claims, key=lambda one: one.epsilon, default=None)
    verdicts = [one.verdict for one in own if one.verdict is not None]
    bounds = [one.bound.low for one in own if one.bound.low is not None]
    medians = [_median([one], planted, bench).value for one in own]
    return DefenseRow(
        defense=defense,
        trainings=len(own),
        missing=tuple(_missing(defense.name, bench)),
        loss=Spread.of([one.loss_bits for one in own if one.loss_bits is not None]),
        seconds=Spread.of([one.seconds for one in own]),
        exposure=_median(own, planted, bench),
        by_copies={
            str(number): _median(own, [one.planted and one.copies == number for one in bench.canaries], bench)
            for number in copies
        },
        exposure_by_training=Spread.of([one for one in medians if one is not None]),
        extracted=sum(len(one.extracted) for one in own),
        searched=sum(one.searched for one in own),
        recited=Spread.of(
            [one.recited.value for one in own if one.recited and one.recited.value is not None]
        ),
        copies_left=max((one.copies_left for one in own), default=0),
        copies=sum(one.copies for one in bench.canaries if one.planted),
        audited_epsilon=max(bounds, default=None),
        claimed_epsilon=None if claim is None else claim.epsilon,
        claimed_delta=None if claim is None else claim.delta,
        claim_p_value=min(1.0, len(verdicts) * min(one.p_value for one in verdicts)) if verdicts else None,
    )


def _missing(name: str, bench: Bench) -> Iterable[str]:
    """Why trainings have no numbers, and what single ones do not have."""
    failed = [one for one in bench.failed if one.defense == name]
    yield from (f"seed {one.seed}: {one.problem}" for one in failed)
    for one in _models(bench, name):
        yield from (f"seed {one.seed}: {problem}" for problem in one.problems)


def _limits(models: Sequence[BenchedModel], chosen: Sequence[bool]) -> NDArray[np.float64]:
    """(2, canaries): the limits of the mean exposure over these models of each of the chosen canaries."""
    every = np.array([one.exposures for one in models], dtype=np.float64)  # (models, canaries, 2)
    mean: NDArray[np.float64] = every[:, np.array(chosen, dtype=bool)].mean(axis=0).T
    return mean


def _median(models: Sequence[BenchedModel], chosen: Sequence[bool], bench: Bench) -> Estimate:
    if not models or not any(chosen):
        what = "model was audited" if not models else "such canary was planted"
        return Estimate.not_measured(_METHOD, f"not measured: no {what}")
    low, high = _limits(models, chosen)
    return median_estimate(low, high, most=bench.most_bits, confidence=bench.settings.confidence)


def _compared(
    row: DefenseRow, own: Sequence[BenchedModel], baseline: Sequence[BenchedModel], bench: Bench
) -> DefenseRow:
    """The row with its differences from no defense, over the seeds that both have."""
    seeds = {one.seed for one in own} & {one.seed for one in baseline}
    pair = [[one for one in side if one.seed in seeds] for side in (own, baseline)]
    planted = [one.planted for one in bench.canaries]
    if not seeds or not any(planted):
        return row
    sides = [_limits(side, planted) for side in pair]
    losses = [[one.loss_bits for one in side if one.loss_bits is not None] for side in pair]
    difference: Difference | None = None
    # A canary that was not measured could be anywhere, and leaving it out might leave out those that are best remembered.
    if all(np.allclose(low, high) for low, high in sides):
        difference = paired_difference(
            sides[0][0],
            sides[1][0],
            most=bench.most_bits,
            confidence=bench.settings.confidence,
            seed=bench.settings.seed,
        )
    changes = [
        float(_limits([one], planted)[0].mean() - _limits([other], planted)[0].mean())
        for one, other in zip(*(sorted(side, key=lambda model: model.seed) for side in pair), strict=True)
    ]
    return msgspec.structs.replace(
        row,
        lower_in=sum(one < 0 for one in changes),
        of_seeds=len(changes),
        difference=difference,
        over_trainings=None if difference is None else _over_trainings(pair, planted, bench),
        loss_difference=float(np.mean(losses[0]) - np.mean(losses[1])) if all(losses) else None,
    )


def _over_trainings(
    pair: Sequence[Sequence[BenchedModel]], planted: Sequence[bool], bench: Bench
) -> Difference | None:
    """The difference of mean exposures, with one number per training on each side."""
    means = [[float(_limits([one], planted)[0].mean()) for one in side] for side in pair]
    try:
        return run_difference(*means, most=bench.most_bits, confidence=bench.settings.confidence)
    except NotMeasurableError:
        return None


def _placed(row: DefenseRow, rows: Sequence[DefenseRow]) -> DefenseRow:
    """The row with its place: on the frontier, or worse than others, which are no worse in loss and exposure and better in one."""
    own = _point(row)
    if own is None:
        return row
    points = {one.defense.name: point for one in rows if (point := _point(one)) is not None}
    better = tuple(name for name, at in points.items() if at != own and at[0] <= own[0] and at[1] <= own[1])
    return msgspec.structs.replace(row, on_frontier=not better, dominated_by=better)


def _point(row: DefenseRow) -> tuple[float, float] | None:
    """Loss and exposure of a row; None where one is not known."""
    if row.loss is None or row.exposure.value is None:
        return None
    return row.loss.mean, row.exposure.value
