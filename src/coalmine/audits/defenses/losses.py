"""Validation losses of models of any kind: held-out documents, each scored on its own, in bits per character."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from coalmine.engines.engine import Engine
from coalmine.engines.units import Arrays, Running, Unit
from coalmine.errors import NotMeasurableError
from coalmine.models.protocols import Model
from coalmine.models.works import ModelWork
from coalmine.search.walks.scoring import score_each
from coalmine.training.data import Documents

_DOCUMENTS_AT_A_TIME = 256


@dataclass(frozen=True)
class LossWork(ModelWork):
    """Documents to score."""

    model: Model

    name = "defend-loss/1"

    @property
    def models(self) -> tuple[Model, ...]:
        """The only one."""
        return (self.model,)

    def units(self, documents: Documents) -> Iterator[Unit]:
        """All documents, cut in the same way for every engine."""
        for start in range(0, len(documents.texts), _DOCUMENTS_AT_A_TIME):
            part = slice(start, start + _DOCUMENTS_AT_A_TIME)
            texts, sources = documents.texts[part], documents.sources
            yield Unit((texts, None if sources is None else sources[part]), size=len(texts))

    def run(self, unit: Unit, running: Running) -> Arrays:
        """The bits of each document; NaN where the model has no number."""
        texts, sources = unit.inputs
        found = score_each(self.model, texts, sources=sources)
        running.advance(len(texts))
        return {"bits": found.bits}


def loss_bits(model: Model, documents: Documents, engine: Engine) -> float:
    """The loss of a model on all documents together, in bits per character.

    A document that it gives no number for is an error, because a loss over the others could not be compared.
    """
    work = LossWork(model)
    outcomes = engine.map(work, work.units(documents))
    # Exact, so that it does not matter in which order the units arrive.
    total = math.fsum(bits for outcome in outcomes for bits in outcome.value()["bits"].tolist())
    if not math.isfinite(total):
        raise NotMeasurableError(
            "the model gives no probability for some of the documents that are held out, so that its loss cannot be compared"
        )
    return total / sum(map(len, documents.texts))
