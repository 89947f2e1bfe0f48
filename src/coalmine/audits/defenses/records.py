"""Results of `defend`, and their file, defenses.json: every model that was trained and audited, and one row per defense."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from coalmine.audits.defenses.options import DefenseOptions
from coalmine.audits.defenses.recipes import NONE, CorpusName, Defense
from coalmine.corpus.planting.options import PlantOptions
from coalmine.errors import NotMeasurableError
from coalmine.records import Estimate
from coalmine.records.documents import Document, Origin, SaidOfCanary, differences
from coalmine.records.estimate import Amount, Bits, Count, Level, Share
from coalmine.records.privacy import DescribedClaim
from coalmine.statistics.differences import Difference, paired_difference, run_difference
from coalmine.statistics.epsilon.claimed import Verdict
from coalmine.statistics.intervals import median_estimate
from coalmine.statistics.multiple_tests import adjusted_p_values
from coalmine.training.finetuning.base_checkpoint import Base

SCHEMA = "coalmine.defenses/2"
RESULT_FILE = "defenses.json"
# The models, their audits, and the corpora that defenses leave of the planted one.
TRAININGS_FOLDER = "trainings"
_METHOD = "median over canaries"


class BenchCanary(msgspec.Struct, frozen=True, kw_only=True):
    """A canary of the bench: how often it was to be planted, and whether its coin said so."""

    canary_id: str
    copies: Count
    planted: bool


class BenchedModel(msgspec.Struct, frozen=True, kw_only=True):
    """One model that was trained and audited."""

    defense: str
    seed: int
    # The directory of the model below `trainings`; its audit is beside it.
    folder: str
    model: dict[str, Any]
    # What the training took, since it was last resumed; None where it was over before a run that was killed.
    seconds: Amount | None
    corpus: CorpusName
    # Copies of planted canaries in what it was trained on.
    copies_left: Count
    # The validation loss, in bits per character.
    loss_bits: Bits | None
    # What is known of the exposure of each canary, in bits, in the order of `canaries`: its limits, which are equal where it was measured.
    exposures: tuple[tuple[float, float], ...]
    # The ids of planted canaries that a search found, and how many were searched for.
    extracted: tuple[str, ...]
    searched: Count
    # The largest lower bound on epsilon that the coins of a population prove, for one copy of a canary, or for all copies where privacy is
    # claimed for users; see `bound_confidence` of the bench.
    bound: Estimate
    # Of a model whose description claims privacy: that claim, and what the coins say about it.
    privacy: DescribedClaim | None = None
    verdict: Verdict | None = None
    # The share of training sequences that it recites; None where none were asked for.
    recited: Estimate | None = None
    # What could not be measured, in a sentence each.
    problems: tuple[str, ...] = ()


class FailedTraining(msgspec.Struct, frozen=True, kw_only=True):
    """A model that could not be trained or audited, and why."""

    defense: str
    seed: int
    problem: str


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """A number of each of several trainings: the mean, the least and the most.

    >>> Spread.of([2.0, 3.0, None])
    Spread(mean=2.5, low=2.0, high=3.0, n=2)
    """

    mean: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Spread | None:
        """The spread of the numbers among these; None without any."""
        known = [one for one in values if one is not None]
        if not known:
            return None
        return cls(mean=sum(known) / len(known), low=min(known), high=max(known), n=len(known))


class DefenseRow(msgspec.Struct, frozen=True, kw_only=True):
    """One defense beside the others, over all of its models."""

    defense: Defense
    # Models that were audited, and why others are missing.
    trainings: Count
    missing: tuple[str, ...] = ()
    # Validation loss in bits per character, and seconds of training.
    loss: Spread | None = None
    seconds: Spread | None = None
    # The median over planted canaries of the mean exposure over trainings, in bits; of all, and by the number of copies.
    exposure: Estimate
    by_copies: dict[str, Estimate] = {}
    # Planted canaries that a search found and those that were searched for, each counted once per training.
    extracted: Count = 0
    searched: Count = 0
    # The share of training sequences that were recited.
    recited: Spread | None = None
    # Copies of canaries in what the models were trained on, and those that were planted.
    copies_left: Count = 0
    copies: Count = 0
    # The largest lower bound on epsilon that a training proves, at the confidence of the bench for all of its trainings together.
    audited_epsilon: Amount | None = None
    claimed_epsilon: Amount | None = None
    claimed_delta: Share | None = None
    # The probability, at most, of such scores if the claim holds; None without a claim.
    claim_p_value: Share | None = None
    # Mean exposure minus that without a defense, in bits: paired by canary, over the trainings of the seeds that both have; and raised for
    # the number of defenses that are compared (Holm).
    difference: Difference | None = None
    adjusted_p_value: Share | None = None
    # The same over trainings: whether another seed would show it too.
    over_trainings: Difference | None = None
    # In how many of the seeds that both have the mean exposure is lower than without a defense, and how many these are.
    lower_in: Count = 0
    of_seeds: Count = 0
    # Mean loss minus that without a defense, in bits per character.
    loss_difference: float | None = None
    # None where it has no place in the figure; and the defenses that are no worse in loss and exposure, and better in one.
    on_frontier: bool | None = None
    dominated_by: tuple[str, ...] = ()


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """What each defense does to exposure, and what it costs; defenses.json. Exposures are in bits, losses in bits per character.

    >>> for row in defend("mail.jsonl", "bench/", ["dropout=0.2", "dedup"]).rows:  # doctest: +SKIP
    ...     print(row.defense.name, row.loss.mean, row.exposure.value)
    """

    schema: str = SCHEMA
    corpus_sha256: str
    manifest_sha256: str
    format: str
    defenses: tuple[Defense, ...]
    settings: DefenseOptions
    planting: PlantOptions
    # The options of training or fine-tuning where a defense changes nothing, and the checkpoint that is fine-tuned.
    training: dict[str, Any]
    base: Base | None = None
    # The confidence of the bounds on epsilon of single populations, so that all of a defense hold together.
    bound_confidence: Level
    # The largest exposure that is possible.
    most_bits: Bits
    canaries: tuple[BenchCanary, ...]
    models: tuple[BenchedModel, ...] = ()
    failed: tuple[FailedTraining, ...] = ()
    rows: tuple[DefenseRow, ...] = ()
    finished: bool = False

    def row(self, name: str) -> DefenseRow | None:
        """One row by the name of its defense, or None."""
        return next((one for one in self.rows if one.defense.name == name), None)

    def of(self, name: str) -> list[BenchedModel]:
        """The models of one defense."""
        return [one for one in self.models if one.defense == name]

    @property
    def planted(self) -> list[bool]:
        """Which canaries were planted."""
        return [one.planted for one in self.canaries]


def with_rows(bench: Bench) -> Bench:
    """The bench with one row per defense, by the models that there are."""
    rows = [_row(defense, bench) for defense in bench.defenses]
    adjusted = iter(adjusted_p_values([row.difference.p_value for row in rows if row.difference is not None]))
    rows = [
        row if row.difference is None else msgspec.structs.replace(row, adjusted_p_value=next(adjusted))
        for row in rows
    ]
    points = {row.defense.name: point for row in rows if (point := _point(row)) is not None}
    return msgspec.structs.replace(bench, rows=tuple(_placed(row, points) for row in rows))


def _placed(row: DefenseRow, points: dict[str, tuple[float, float]]) -> DefenseRow:
    """The row with its place: on the frontier, or worse than others."""
    own = points.get(row.defense.name)
    if own is None:
        return row
    better = tuple(name for name, at in points.items() if at != own and at[0] <= own[0] and at[1] <= own[1])
    return msgspec.structs.replace(row, on_frontier=not better, dominated_by=better)


def _point(row: DefenseRow) -> tuple[float, float] | None:
    """Loss and exposure of a row; None where one is not known."""
    if row.loss is None or row.exposure.value is None:
        return None
    return row.loss.mean, row.exposure.value


def _row(defense: Defense, bench: Bench) -> DefenseRow:
    """What the models of a defense say, and how they differ from those without one."""
    own, planted = bench.of(defense.name), bench.planted
    # Of several trainings, the weakest promise.
    claim = max((one.privacy for one in own if one.privacy), key=lambda one: one.epsilon, default=None)
    verdicts = [one.verdict for one in own if one.verdict is not None]
    missing = [(one.seed, one.problem) for one in bench.failed if one.defense == defense.name]
    missing += [(one.seed, problem) for one in own for problem in one.problems]
    against = {} if defense.name == NONE else _compared(own, bench.of(NONE), bench)
    return DefenseRow(
        defense=defense,
        trainings=len(own),
        missing=tuple(f"seed {seed}: {problem}" for seed, problem in missing),
        loss=Spread.of([one.loss_bits for one in own]),
        seconds=Spread.of([one.seconds for one in own]),
        exposure=_median(own, planted, bench),
        by_copies={
            str(copies): _median(own, [one.planted and one.copies == copies for one in bench.canaries], bench)
            for copies in sorted({one.copies for one in bench.canaries})
        },
        extracted=sum(len(one.extracted) for one in own),
        searched=sum(one.searched for one in own),
        recited=Spread.of([one.recited.value for one in own if one.recited is not None]),
        copies_left=max((one.copies_left for one in own), default=0),
        copies=sum(one.copies for one in bench.canaries if one.planted),
        audited_epsilon=max((one.bound.low for one in own if one.bound.low is not None), default=None),
        claimed_epsilon=None if claim is None else claim.epsilon,
        claimed_delta=None if claim is None else claim.delta,
        claim_p_value=min(1.0, len(verdicts) * min(one.p_value for one in verdicts)) if verdicts else None,
        **against,
    )


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


def _compared(own: list[BenchedModel], baseline: list[BenchedModel], bench: Bench) -> dict[str, Any]:
    """The differences from no defense, over the seeds that both have, as fields of a row."""
    seeds = {one.seed for one in own} & {one.seed for one in baseline}
    pair = [
        sorted((one for one in side if one.seed in seeds), key=lambda one: one.seed)
        for side in (own, baseline)
    ]
    if not seeds or not any(bench.planted):
        return {}
    settings, losses = bench.settings, [[one.loss_bits for one in side] for side in pair]
    means = [[float(_limits([one], bench.planted)[0].mean()) for one in side] for side in pair]
    found: dict[str, Any] = {
        "lower_in": sum(one < other for one, other in zip(*means, strict=True)),
        "of_seeds": len(seeds),
    }
    known = [[loss for loss in side if loss is not None] for side in losses]
    if all(known):
        found["loss_difference"] = float(np.mean(known[0]) - np.mean(known[1]))
    sides = [_limits(side, bench.planted) for side in pair]
    # A canary that was not measured could be anywhere, and leaving it out might leave out those that are best remembered.
    if all(np.allclose(low, high) for low, high in sides):
        level: dict[str, Any] = {"most": bench.most_bits, "confidence": settings.confidence}
        found["difference"] = paired_difference(sides[0][0], sides[1][0], seed=settings.seed, **level)
        try:
            found["over_trainings"] = run_difference(*means, **level)
        except NotMeasurableError:
            found["over_trainings"] = None
    return found


def _again(_: Path, bench: Bench) -> Iterator[str]:
    """The rows follow from the numbers of their models."""
    yield from differences(bench.rows, with_rows(bench).rows, "rows")


BENCHES = Document(
    record=Bench,
    schema=SCHEMA,
    file=RESULT_FILE,
    title="defenses",
    by="`coalmine lab defend`",
    again=_again,
    other_models=TRAININGS_FOLDER,
    origin=Origin(
        manifests=lambda bench: [bench.manifest_sha256],
        canaries=lambda bench: [
            SaidOfCanary(one.canary_id, planned=one.copies, planted=one.planted) for one in bench.canaries
        ],
    ),
)
"""defenses.json: `run.all(BENCHES)` gives the result of `coalmine lab defend` in a run."""


def read_bench(path: str | os.PathLike[str]) -> Bench:
    """A defenses.json, or the one in a directory.

    >>> read_bench("bench/").row("dedup").exposure.value  # bits  # doctest: +SKIP
    1.2
    """
    return BENCHES.load(path)
