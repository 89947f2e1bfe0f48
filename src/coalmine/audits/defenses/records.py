"""Results of `defend`, and their file, defenses.json: every model that was trained and audited, and one row per defense."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from coalmine.audits.defenses.recipes import NONE, Defense, DefenseOptions
from coalmine.corpus.planting.options import PlantOptions
from coalmine.records import Estimate
from coalmine.records.documents import Document, Origin, SaidOfCanary, differences
from coalmine.records.estimate import Amount, Bits, Count, Level, Share
from coalmine.records.privacy import DescribedClaim
from coalmine.statistics.differences import Difference, paired_difference
from coalmine.statistics.epsilon.claimed import Verdict
from coalmine.statistics.intervals import median_estimate
from coalmine.statistics.multiple_tests import adjusted_p_values
from coalmine.training.finetuning.base_checkpoint import Base

SCHEMA = "coalmine.defenses/4"
# The models, their audits, and the corpora that defenses leave of the planted one.
TRAININGS_FOLDER = "trainings"
_METHOD = "median over canaries"


class BenchCanary(msgspec.Struct, frozen=True, kw_only=True):
    """A canary of the bench: how often it was to be planted, and whether its coin said so."""

    canary_id: str
    copies: Count
    planted: bool


class BenchedModel(msgspec.Struct, frozen=True, kw_only=True):
    """One model that was trained and audited; its directory below `trainings` is DEFENSE-seedN, and its audit is beside that."""

    defense: str
    seed: int
    model: dict[str, Any]
    # Copies of planted canaries in what it was trained on.
    copies_left: Count
    # The validation loss, in bits per character.
    loss_bits: Bits
    # What is known of the exposure of each canary, in bits, in the order of `canaries`: its limits, which are equal where it was measured.
    exposures: tuple[tuple[float, float], ...]
    # The ids of planted canaries that a search found, and how many were searched for.
    extracted: tuple[str, ...]
    searched: Count
    # The largest lower bound on epsilon that the coins of a population prove, for one copy of a canary, or for all copies where privacy is
    # claimed for users; see `bound_confidence` of the bench.
    bound: Amount | None
    # Of a model whose description claims privacy: that claim, and what the coins say about it.
    privacy: DescribedClaim | None = None
    verdict: Verdict | None = None


class DefenseRow(msgspec.Struct, frozen=True, kw_only=True):
    """One defense beside the others, over all of its models."""

    defense: Defense
    # Models that were audited.
    trainings: Count
    # The validation loss of each training, in bits per character.
    losses: tuple[float, ...] = ()
    # The median over planted canaries of the mean exposure over trainings, in bits; of all, and by the number of copies.
    exposure: Estimate
    by_copies: dict[str, Estimate] = {}
    # Planted canaries that a search found and those that were searched for, each counted once per training.
    extracted: Count = 0
    searched: Count = 0
    # The largest lower bound on epsilon that a training proves, at the confidence of the bench for all of its trainings together.
    audited_epsilon: Amount | None = None
    # Of several trainings, the weakest promise.
    claim: DescribedClaim | None = None
    # The probability, at most, of such scores if the claim holds; None without a claim.
    claim_p_value: Share | None = None
    # Mean exposure minus that without a defense, in bits: paired by canary, over the trainings of the seeds that both have; and raised for
    # the number of defenses that are compared (Holm).
    difference: Difference | None = None
    adjusted_p_value: Share | None = None
    # In how many of the seeds that both have the mean exposure is lower than without a defense, and how many these are.
    lower_in: Count = 0
    of_seeds: Count = 0

    @property
    def loss(self) -> float | None:
        """The mean validation loss."""
        return fmean(self.losses) if self.losses else None


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """What each defense does to exposure, and what it costs; defenses.json. Exposures are in bits, losses in bits per character.

    >>> for row in defend("mail.jsonl", "bench/", ["dropout=0.2", "dedup"]).rows:  # doctest: +SKIP
    ...     print(row.defense.name, row.loss, row.exposure.value)
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
    # Which models could not be trained or audited, and why.
    failed: tuple[str, ...] = ()
    rows: tuple[DefenseRow, ...] = ()
    finished: bool = False

    def row(self, name: str) -> DefenseRow | None:
        """One row by the name of its defense, or None."""
        return next((one for one in self.rows if one.defense.name == name), None)

    def of(self, name: str) -> list[BenchedModel]:
        """The models of one defense, by their seeds."""
        return sorted((one for one in self.models if one.defense == name), key=lambda one: one.seed)

    @property
    def planted(self) -> list[bool]:
        """Which canaries were planted."""
        return [one.planted for one in self.canaries]


def with_rows(bench: Bench) -> Bench:
    """The bench with one row per defense, by the models that there are."""
    rows = [_row(defense, bench) for defense in bench.defenses]
    adjusted = iter(adjusted_p_values([row.difference.p_value for row in rows if row.difference is not None]))
    return msgspec.structs.replace(
        bench,
        rows=tuple(
            msgspec.structs.replace(row, adjusted_p_value=row.difference and next(adjusted)) for row in rows
        ),
    )


def _row(defense: Defense, bench: Bench) -> DefenseRow:
    """What the models of a defense say, and how they differ from those without one."""
    own, planted = bench.of(defense.name), bench.planted
    verdicts = [one.verdict for one in own if one.verdict is not None]
    against = {} if defense.name == NONE else _compared(own, bench.of(NONE), bench)
    return DefenseRow(
        defense=defense,
        trainings=len(own),
        losses=tuple(one.loss_bits for one in own),
        exposure=_median(own, planted, bench),
        by_copies={
            str(copies): _median(own, [one.planted and one.copies == copies for one in bench.canaries], bench)
            for copies in sorted({one.copies for one in bench.canaries})
        },
        extracted=sum(len(one.extracted) for one in own),
        searched=sum(one.searched for one in own),
        audited_epsilon=max((one.bound for one in own if one.bound is not None), default=None),
        claim=max((one.privacy for one in own if one.privacy), key=lambda one: one.epsilon, default=None),
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
    pair = [[one for one in side if one.seed in seeds] for side in (own, baseline)]
    if not seeds or not any(bench.planted):
        return {}
    means = [[float(_limits([one], bench.planted)[0].mean()) for one in side] for side in pair]
    lower = sum(one < other for one, other in zip(*means, strict=True))
    found: dict[str, Any] = {"lower_in": lower, "of_seeds": len(seeds)}
    (low, high), (low_without, high_without) = (_limits(side, bench.planted) for side in pair)
    # A canary that was not measured could be anywhere, and leaving it out might leave out those that are best remembered.
    if np.allclose(low, high) and np.allclose(low_without, high_without):
        level: dict[str, Any] = {"confidence": bench.settings.confidence, "seed": bench.settings.seed}
        found["difference"] = paired_difference(low, low_without, most=bench.most_bits, **level)
    return found


def _again(_: Path, bench: Bench) -> Iterator[str]:
    """The rows follow from the numbers of their models."""
    yield from differences(bench.rows, with_rows(bench).rows, "rows")


BENCHES = Document(
    record=Bench,
    schema=SCHEMA,
    file="defenses.json",
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
