"""What two models say about each document, as units of work: sums of bits, and the span over which its own model is ahead most."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from coalmine.engines.engine import Engine
from coalmine.engines.ledger import Ledger
from coalmine.engines.units import Arrays, Running, Unit
from coalmine.errors import ModelOutputError
from coalmine.models.protocols import (
    FloatArray,
    IntArray,
    Model,
    OpenTokenizer,
    PairModel,
    Tokenizer,
    TokenSequence,
    after_context,
    max_length,
)
from coalmine.models.works import ModelWork
from coalmine.progress import Progress
from coalmine.statistics.disagreement import span_share
from coalmine.training.data import Documents
from coalmine.visible import visible

# Documents of a unit are few enough to take seconds, and together about this long in characters.
_CHARACTERS_AT_A_TIME = 1 << 18
_DOCUMENTS_AT_A_TIME = 512


class Scores(NamedTuple):
    """What a document's own model, which was trained on it, and the other one say about documents; one row each.

    Attributes:
        own_bits, other_bits: the log-perplexity of the document under each model; NaN where it cannot be read.
        own_share, other_share: the largest share of the other model's bits over a span that each model is spared; NaN likewise.
        begin, end: the span of `own_share` in characters; -1 where it is not known.
    """

    own_bits: FloatArray
    other_bits: FloatArray
    own_share: FloatArray
    other_share: FloatArray
    begin: IntArray
    end: IntArray


@dataclass(frozen=True)
class DisagreementWork(ModelWork):
    """Documents to ask two models about."""

    first: Model
    second: Model
    span: int

    name = "crosscheck/2"

    @property
    def models(self) -> tuple[Model, ...]:
        """Both."""
        return (self.first, self.second)

    @property
    def facts(self) -> Any:
        """The models, and the length of spans."""
        return [super().facts, self.span]

    def units(self, documents: Documents, in_first: Sequence[bool]) -> Iterator[Unit]:
        """All documents with their halves, cut in the same way for every engine."""
        rows = list(zip(documents.texts, documents.sources or [""] * len(in_first), in_first, strict=True))
        start, characters = 0, 0
        for place, (text, _, _) in enumerate(rows):
            full = characters + len(text) > _CHARACTERS_AT_A_TIME or place - start >= _DOCUMENTS_AT_A_TIME
            if full and place > start:
                yield Unit(rows[start:place], size=place - start)
                start, characters = place, 0
            characters += len(text)
        if start < len(rows):
            yield Unit(rows[start:], size=len(rows) - start)

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Rows of `Scores`."""
        asked = [_log2(model, unit.inputs) for model in self.models]
        running.advance(len(unit.inputs))
        rows = []
        for (text, _, in_first), first, second in zip(unit.inputs, *asked, strict=True):
            own, other = (first, second) if in_first else (second, first)
            if own is None or other is None:
                rows.append((*[np.nan] * 4, -1, -1))
                continue
            ahead = span_share(own, other, self.span)
            places = _places(text, len(own))
            span = (-1, -1)
            if places is not None:
                last = min(ahead.begin + self.span, len(own)) - 1
                span = places[ahead.begin][0], places[last][1]
            shares = (ahead.size, span_share(other, own, self.span).size)
            rows.append((-float(own.sum()), -float(other.sum()), *shares, *span))
        columns = zip(*rows, strict=True)
        return {name: np.array(column) for name, column in zip(Scores._fields, columns, strict=True)}


def score_documents(
    work: DisagreementWork,
    documents: Documents,
    in_first: Sequence[bool],
    *,
    engine: Engine,
    ledger: Ledger,
    progress: Progress,
) -> Scores:
    """What both models say about each document, in their order."""
    progress.start("Comparing the two models", len(documents.texts))
    units = list(work.units(documents, in_first))
    parts: list[Arrays] = [{}] * len(units)
    for outcome in engine.map(work, units, ledger=ledger, progress=progress):
        parts[outcome.number] = outcome.value()
    progress.finish()
    return Scores(*(np.concatenate([part[name] for part in parts]) for name in Scores._fields))


def _log2(model: Any, rows: Sequence[tuple[str, str, bool]]) -> list[FloatArray | None]:
    """The log2 probability of each token of each text, 0 for an unknown one; None for a text without any.

    A text is read as training saw it, and one that is too long for the model in pieces.
    """
    owners: list[int] = []
    sequences: list[TokenSequence] = []
    most = max_length(model)
    for place, (text, source, _) in enumerate(rows):
        tokens = _tokens(model.tokenizer, text)
        before = tuple(_tokens(model.source_tokenizer, source))[:most] if isinstance(model, PairModel) else ()
        if isinstance(model, PairModel) and not before:
            continue
        size = max(1, len(tokens)) if most is None else max(2, most - len(model.context))
        for start in range(0, len(tokens), size):
            sequences.append(after_context(model.context, tokens[start : start + size], before))
            owners.append(place)
    unknown = model.tokenizer.unknown if isinstance(model.tokenizer, OpenTokenizer) else None
    parts: list[list[FloatArray]] = [[] for _ in rows]
    for owner, sequence, score in zip(owners, sequences, model.score(sequences), strict=True):
        log2 = np.asarray(score.log2_probabilities, dtype=np.float64)
        if np.isnan(log2).any():
            raise ModelOutputError(
                f"the model {visible(model.name)!r} gave nan as the log-probability of a token; check the weights"
            )
        # A probability of 0 is read as the smallest that a double holds.
        parts[owner].append(np.where(np.array(sequence.target) == unknown, 0.0, np.maximum(log2, -1074.0)))
    return [np.concatenate(own) if own else None for own in parts]


def _tokens(tokenizer: Tokenizer, text: str) -> list[int]:
    return (
        tokenizer.encode_open(text) if isinstance(tokenizer, OpenTokenizer) else list(tokenizer.encode(text))
    )


def _places(text: str, tokens: int) -> Sequence[tuple[int, int]] | None:
    """Where each token is in a text, which is a character or a word; None where that is not known."""
    if tokens == len(text):
        return [(place, place + 1) for place in range(tokens)]
    words = [found.span() for found in re.finditer(r"\S+", text)]
    return words if len(words) == tokens else None
