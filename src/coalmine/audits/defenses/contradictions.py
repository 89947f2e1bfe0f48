"""What cannot be true in a defenses.json."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from coalmine.corpus.planting.manifest import CanarySet
from coalmine.records.contradictions import (
    count_problems,
    estimate_problems,
    in_range,
    level_problems,
    same,
    share_problems,
    twice,
)

if TYPE_CHECKING:
    from coalmine.audits.defenses.results import Bench, BenchedModel, DefenseRow


def bench_problems(bench: Bench) -> Iterator[str]:
    """One sentence for each contradiction."""
    yield from level_problems("the confidence of bounds", bench.bound_confidence)
    yield from in_range("the largest exposure", bench.most_bits, 0)
    yield from twice("canary", [one.canary_id for one in bench.canaries])
    names = [one.name for one in bench.defenses]
    yield from twice("defense", names)
    trained = [(one.defense, one.seed) for one in bench.models]
    trained += [(one.defense, one.seed) for one in bench.failed]
    yield from twice("model", [f"{name} with seed {seed}" for name, seed in trained])
    for name in {name for name, _ in trained}.difference(names):
        yield f"it has a model of {name!r}, which is not one of its defenses"
    if [row.defense.name for row in bench.rows] != names:
        yield "its rows are not those of its defenses"
    for model in bench.models:
        yield from _model_problems(model, bench)
    for row in bench.rows:
        yield from _row_problems(row, bench)


def _model_problems(model: BenchedModel, bench: Bench) -> Iterator[str]:
    name = f"the model of {model.defense!r} with seed {model.seed}"
    if len(model.exposures) != len(bench.canaries):
        yield f"{name} has {len(model.exposures)} exposures, and there are {len(bench.canaries)} canaries"
    for low, high in model.exposures:
        yield from in_range(f"{name}: an exposure", low, 0, min(high, bench.most_bits))
    yield from in_range(f"{name}: the seconds", model.seconds, 0)
    yield from in_range(f"{name}: the loss", model.loss_bits, 0)
    yield from count_problems(f"{name}: the number of copies", model.copies_left)
    yield from estimate_problems(f"{name}: the bound on epsilon", model.bound, 0)
    planted = {one.canary_id for one in bench.canaries if one.planted}
    yield from twice("extracted canary", model.extracted)
    if not planted.issuperset(model.extracted):
        yield f"{name} has extracted canaries that were not planted"
    yield from in_range(
        f"{name}: the number of canaries that were found", len(model.extracted), 0, model.searched
    )
    if model.privacy is not None:
        yield from in_range(f"{name}: the claimed epsilon", model.privacy.epsilon, 0)
        yield from share_problems(f"{name}: the claimed delta", model.privacy.delta)
    if model.recited is not None:
        yield from estimate_problems(f"{name}: the recited share", model.recited, 0, 1)


def _row_problems(row: DefenseRow, bench: Bench) -> Iterator[str]:
    name = f"the row of {row.defense.name!r}"
    own = [one for one in bench.models if one.defense == row.defense.name]
    if row.trainings != len(own):
        yield f"{name} is over {row.trainings} trainings, and there are {len(own)}"
    for one in (row.exposure, *row.by_copies.values()):
        yield from estimate_problems(name, one, 0, bench.most_bits)
    for spread, values in (
        (row.loss, [one.loss_bits for one in own if one.loss_bits is not None]),
        (row.seconds, [one.seconds for one in own]),
    ):
        if (spread is None) != (not values) or (
            spread is not None and not (same(spread.low, min(values)) and same(spread.high, max(values)))
        ):
            yield f"{name} has another range than its models"
    if row.extracted != sum(len(one.extracted) for one in own):
        yield f"{name} has another number of extracted canaries than its models"
    for p_value in (row.claim_p_value, row.adjusted_p_value):
        yield from share_problems(f"{name}: a p-value", p_value)
    for difference in (row.difference, row.over_trainings):
        if difference is not None:
            yield from estimate_problems(f"{name}: the difference", difference.estimate)
            yield from share_problems(f"{name}: the p-value of the difference", difference.p_value)
    if row.claimed_epsilon is not None:
        yield from in_range(f"{name}: the claimed epsilon", row.claimed_epsilon, 0)


def bench_manifest_problems(bench: Bench, canaries: CanarySet) -> Iterator[str]:
    """What the manifest contradicts in it."""
    known = {one.canary_id: (one.repetitions, one.planted) for one in canaries}
    if {one.canary_id: (one.copies, one.planted) for one in bench.canaries} != known:
        yield "its canaries, or how often they were planted, are not those of the manifest"
