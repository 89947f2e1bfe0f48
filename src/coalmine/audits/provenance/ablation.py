"""Ablation: how fast a model forgets frequent and rare words of texts while hidden units are set to zero.

Figure 7 of Auditing Data Provenance in Text-Generation Models (Song and Shmatikov, 2019, arXiv:1811.00513): accuracy on rare words drops
faster where a model memorized them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coalmine.audits.provenance.asking import FrequencyRanks
from coalmine.audits.provenance.results import AblationPoint
from coalmine.audits.provenance.users import User, UserText
from coalmine.audits.provenance.views import counted_tokens, readable
from coalmine.engines.engine import Engine, open_engine
from coalmine.engines.ledger import Ledger
from coalmine.engines.units import Arrays, Running, Unit
from coalmine.errors import NotMeasurableError
from coalmine.models.protocols import AblatedScorer, IntArray, Model
from coalmine.models.works import ModelWork
from coalmine.progress import Progress, Silent
from coalmine.randomness import arrays
from coalmine.visible import visible

SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
# The words that count as frequent: a tenth of the vocabulary, as in the paper.
FREQUENT = 0.1
TEXTS_AT_A_TIME = 64


@dataclass(frozen=True)
class AblationWork(ModelWork):
    """Texts to be predicted while random shares of the last hidden layer are zero, those of a smaller share among those of a larger."""

    target: Model
    frequencies: FrequencyRanks
    shares: tuple[float, ...] = SHARES
    seed: int = 0

    name = "provenance ablation/1"

    @property
    def models(self) -> tuple[Model | None, ...]:
        """The target alone."""
        return (self.target,)

    @property
    def facts(self) -> Any:
        """The target, what is set to zero, and which words are frequent."""
        return [super().facts, self.shares, self.seed, self.frequencies.shares]

    def units(self, texts: Sequence[UserText]) -> list[Unit]:
        """Texts, cut in the same way for every engine."""
        parts = (texts[first : first + TEXTS_AT_A_TIME] for first in range(0, len(texts), TEXTS_AT_A_TIME))
        return [
            Unit(([one.text for one in part], [one.source for one in part]), size=len(part)) for part in parts
        ]

    def run(self, unit: Unit, running: Running) -> Arrays:
        """How many frequent and how many other words each ablation predicts, and how many there are."""
        texts, sources = unit.inputs
        target = self.target
        if not isinstance(target, AblatedScorer):
            raise NotMeasurableError(no_ablation(target) or "")
        every = [UserText(text, source) for text, source in zip(texts, sources, strict=True)]
        sequences = [sequence for _, sequence, _ in readable(target, every)]
        order = arrays(self.seed, "provenance", "ablation").permutation(target.hidden_units)
        silent = [order[: round(share * len(order))].tolist() for share in self.shares]
        hits, words = np.zeros((len(silent), 2), dtype=np.int64), np.zeros(2, dtype=np.int64)
        for sequence, predicted in zip(sequences, target.predicts_without(sequences, silent), strict=True):
            tokens, counts = counted_tokens(target.tokenizer, sequence)
            rare = self.frequencies.shares[tokens[counts]] >= FREQUENT
            for side, these in enumerate((~rare, rare)):
                hits[:, side] += predicted[:, counts][:, these].sum(axis=1)
                words[side] += these.sum()
        running.advance(len(every))
        return {"hits": hits, "words": words}


def no_ablation(model: Model) -> str | None:
    """Why hidden units of a model cannot be set to zero; None where they can be."""
    if isinstance(model, AblatedScorer) and model.hidden_units:
        return None
    return f"{visible(model.name)} has no last hidden layer whose units can be set to zero"


def ablation_curve(
    model: Model,
    texts: Sequence[UserText],
    frequencies: FrequencyRanks,
    shares: Sequence[float] = SHARES,
    *,
    seed: int = 0,
) -> tuple[AblationPoint, ...]:
    """The accuracy on frequent and on other words of some texts, for each share of the last hidden layer that is set to zero.

    A NotMeasurableError for a model without a last hidden layer of its own.
    """
    work = AblationWork(model, frequencies, tuple(shares), seed)
    with open_engine("here") as engine:
        accuracies = _accuracies(work, texts, engine, Ledger(None), Silent())
    return tuple(
        AblationPoint(ablated=share, frequent=frequent, rare=rare)
        for share, (frequent, rare) in zip(work.shares, accuracies, strict=True)
    )


def ablation_of_groups(
    work: AblationWork,
    suspects: Sequence[User],
    non_members: Sequence[User],
    most: int,
    *,
    engine: Engine,
    ledger: Ledger,
    progress: Progress,
) -> tuple[AblationPoint, ...]:
    """The curves of suspects and of non-members, from at most `most` random texts of each; none where no units can be set to zero."""
    if no_ablation(work.target) is not None:
        return ()
    groups = [_some_texts(group, most, work.seed) for group in (suspects, non_members)]
    progress.start("Setting hidden units to zero", sum(map(len, groups)))
    own, others = (_accuracies(work, texts, engine, ledger, progress) for texts in groups)
    progress.finish()
    return tuple(
        AblationPoint(
            ablated=share,
            frequent=frequent,
            rare=rare,
            non_members_frequent=other_frequent,
            non_members_rare=other_rare,
        )
        for share, (frequent, rare), (other_frequent, other_rare) in zip(
            work.shares, own, others, strict=True
        )
    )


def _some_texts(users: Sequence[User], most: int, seed: int) -> list[UserText]:
    """Random texts of users, in the order of the corpus."""
    texts = [text for user in users for text in user.texts]
    chosen = arrays(seed, "provenance", "ablation", "texts").permutation(len(texts))[:most]
    return [texts[place] for place in sorted(chosen.tolist())]


def _accuracies(
    work: AblationWork, texts: Sequence[UserText], engine: Engine, ledger: Ledger, progress: Progress
) -> list[tuple[float | None, float | None]]:
    """Of frequent and of other words, for each share; None where there are none."""
    hits, words = np.zeros((len(work.shares), 2), dtype=np.int64), np.zeros(2, dtype=np.int64)
    for outcome in engine.map(work, work.units(texts), ledger=ledger, progress=progress):
        found = outcome.value()
        hits, words = hits + found["hits"], words + found["words"]
    return [_shares(row, words) for row in hits]


def _shares(hits: IntArray, words: IntArray) -> tuple[float | None, float | None]:
    frequent, rare = (
        int(hit) / int(number) if number else None for hit, number in zip(hits, words, strict=True)
    )
    return frequent, rare
