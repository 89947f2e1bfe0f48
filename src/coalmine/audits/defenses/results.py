"""Results of `defend`, and their file, defenses.json: every model that was trained and audited, and one row per defense."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from coalmine.audits.defenses.defense import CorpusName, Defense
from coalmine.audits.defenses.options import DefenseOptions
from coalmine.corpus.planting.options import PlantOptions
from coalmine.engines.ledger import WORK_FILES
from coalmine.records import Estimate
from coalmine.records.contradictions import differences
from coalmine.records.documents import Document, Origin, SaidOfCanary
from coalmine.records.estimate import Amount, Bits, Count, Level, Share
from coalmine.records.privacy import DescribedClaim
from coalmine.statistics.differences import Difference
from coalmine.statistics.epsilon.claimed import Verdict
from coalmine.training.finetuning.base_checkpoint import Base
from coalmine.training.finetuning.options import FinetuningOptions
from coalmine.training.options import TrainingOptions

SCHEMA = "coalmine.defenses/1"
RESULT_FILE = "defenses.json"
# The models, their audits, and the corpora that defenses leave of the planted one.
TRAININGS_FOLDER = "trainings"


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
    # Equal for two trainings exactly when both should end with the same model.
    key: str
    model: dict[str, Any]
    # What the training took, in seconds.
    seconds: Amount
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

    >>> Spread.of([2.0, 3.0, 2.5])
    Spread(mean=2.5, low=2.0, high=3.0, n=3)
    """

    mean: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, values: list[float]) -> Spread | None:
        """The spread of these numbers; None without any."""
        if not values:
            return None
        return cls(mean=sum(values) / len(values), low=min(values), high=max(values), n=len(values))


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
    # The median exposure of each training.
    exposure_by_training: Spread | None = None
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
    # None where it has no place in the figure.
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
    # How models are trained where a defense changes nothing; for a bench of fine-tunes, how these are, and from which checkpoint.
    training: TrainingOptions | None
    finetuning: FinetuningOptions | None = None
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
    warnings: tuple[str, ...] = ()

    def row(self, name: str) -> DefenseRow | None:
        """One row by the name of its defense, or None."""
        return next((one for one in self.rows if one.defense.name == name), None)


def _again(_: Path, bench: Bench) -> Iterator[str]:
    """The rows follow from the numbers of their models."""
    from coalmine.audits.defenses.rows import with_rows

    yield from differences(bench.rows, with_rows(bench).rows, "rows")


BENCHES = Document(
    record=Bench,
    schema=SCHEMA,
    file=RESULT_FILE,
    what="the bench of defenses",
    title="defenses",
    by="`coalmine defend`",
    holds="one row per defense (loss, exposure, extraction, epsilon, time), and the numbers of each model, by the ids of canaries",
    again=_again,
    work_files=WORK_FILES,
    other_models=TRAININGS_FOLDER,
    written_by="defend",
    origin=Origin(
        manifests=lambda bench: [bench.manifest_sha256],
        canaries=lambda bench: [
            SaidOfCanary(one.canary_id, planned=one.copies, planted=one.planted) for one in bench.canaries
        ],
        facts=lambda bench: {"corpus_sha256": bench.corpus_sha256, "seed": bench.settings.seed},
    ),
)
"""defenses.json: `run.all(BENCHES)` gives the result of `coalmine defend` in a run."""


def read_bench(path: str | os.PathLike[str]) -> Bench:
    """A defenses.json, or the one in a directory.

    >>> read_bench("bench/").row("dedup").exposure.value  # bits  # doctest: +SKIP
    1.2
    """
    return BENCHES.load(path)
