"""What two models say about each document, as units of work: sums of bits, and the spans over which each is ahead of the other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from coalmine.audits.provenance.views import encoded, tokens_digest
from coalmine.engines.engine import Engine
from coalmine.engines.ledger import Ledger
from coalmine.engines.units import Arrays, Run, Running, Unit
from coalmine.errors import ModelOutputError, NotMeasurableError
from coalmine.models.protocols import (
    FloatArray,
    IntArray,
    Model,
    OpenTokenizer,
    PairModel,
    Scorer,
    TextScorer,
    TokenSequence,
    after_context,
    max_length,
)
from coalmine.models.works import ModelWork
from coalmine.progress import Progress
from coalmine.statistics.disagreement import span_gain, span_share
from coalmine.training.data import Documents
from coalmine.visible import visible

# Documents of a unit are few enough to take seconds, and together about this long in characters.
_CHARACTERS_AT_A_TIME = 1 << 18
_DOCUMENTS_AT_A_TIME = 512
_WORD = re.compile(r"\S+")


class Scores(NamedTuple):
    """What two models say about documents; one row each. Where a model cannot read a document, all but the characters are NaN or -1.

    Attributes:
        characters: how long the document is.
        tokens: how many of its tokens were compared; -1 where the models cut texts differently.
        first_bits, second_bits: the log-perplexity of the document under each model.
        first_ahead, second_ahead: by how many bits each model is ahead of the other over the span where it is ahead the most; NaN where the
            models cut texts differently.
        first_share, second_share: the largest share of the other model's bits over a span that each model is spared; NaN likewise.
        first_begin, first_end, second_begin, second_end: the spans of these shares in characters; -1 where they are not known.
    """

    characters: IntArray
    tokens: IntArray
    first_bits: FloatArray
    second_bits: FloatArray
    first_ahead: FloatArray
    second_ahead: FloatArray
    first_share: FloatArray
    second_share: FloatArray
    first_begin: IntArray
    first_end: IntArray
    second_begin: IntArray
    second_end: IntArray

    @classmethod
    def joined(cls, parts: Sequence[Arrays]) -> Scores:
        """The rows of several units, one after the other."""
        return cls(*(np.concatenate([part[name] for part in parts]) for name in cls._fields))


@dataclass(frozen=True)
class DisagreementWork(ModelWork):
    """Documents to ask two models about."""

    first: Model
    second: Model
    span: int

    name = "crosscheck/1"

    @property
    def models(self) -> tuple[Model, ...]:
        """Both."""
        return (self.first, self.second)

    @property
    def facts(self) -> Any:
        """The models, and the length of spans."""
        return [super().facts, self.span]

    @property
    def same_tokens(self) -> bool:
        """Whether both cut texts alike, so that they can be compared token by token."""
        if any(isinstance(model, TextScorer) for model in self.models):
            return False
        return tokens_digest(self.first.tokenizer) == tokens_digest(self.second.tokenizer)

    def units(self, documents: Documents) -> Iterator[Unit]:
        """All documents, cut in the same way for every engine."""
        sources: Sequence[str | None] = documents.sources or [None] * len(documents.texts)
        start, characters = 0, 0
        for place, text in enumerate(documents.texts):
            full = characters + len(text) > _CHARACTERS_AT_A_TIME or place - start >= _DOCUMENTS_AT_A_TIME
            if full and place > start:
                yield Unit((documents.texts[start:place], list(sources[start:place])), size=place - start)
                start, characters = place, 0
            characters += len(text)
        if start < len(documents.texts):
            size = len(documents.texts) - start
            yield Unit((documents.texts[start:], list(sources[start:])), size=size)

    def prepare(self) -> Run:
        """The models are loaded; whether they cut texts alike is found out once."""
        places = _Places(self.first) if self.same_tokens else None

        def run(unit: Unit, running: Running) -> Arrays:
            texts, sources = unit.inputs
            first, second = (_ask(model, texts, sources) for model in self.models)
            running.advance(len(texts))
            rows = [
                _row(text, one, other, self.span, places)
                for text, one, other in zip(texts, first, second, strict=True)
            ]
            columns = zip(*rows, strict=True)
            return {name: np.array(column) for name, column in zip(Scores._fields, columns, strict=True)}

        return run


def check_models(first: Model, second: Model, *, pairs: bool) -> None:
    """Refuse models that cannot be asked about documents."""
    reads = "pairs" if pairs else "single texts"
    for model in (first, second):
        if not isinstance(model, Scorer) or isinstance(model, PairModel) != pairs:
            raise NotMeasurableError(
                f"the documents are {reads}, and {visible(model.name)!r} does not give their probability; name the fields of the corpus "
                "accordingly, or give another model"
            )


def score_documents(
    work: DisagreementWork, documents: Documents, *, engine: Engine, ledger: Ledger, progress: Progress
) -> Scores:
    """What both models say about each document, in their order."""
    progress.start("Comparing the two models", len(documents.texts))
    units = list(work.units(documents))
    parts: list[Arrays] = [{}] * len(units)
    for outcome in engine.map(work, units, ledger=ledger, progress=progress):
        parts[outcome.number] = outcome.value()
    progress.finish()
    return Scores.joined(parts)


class _Read(NamedTuple):
    """What one model says about a document."""

    log2: FloatArray  # (tokens,); 0 for an unknown token, which does not count
    tokens: list[int]  # those that `log2` is about; none where they are not known


def _ask(model: Model, texts: Sequence[str], sources: Sequence[str | None]) -> list[_Read | None]:
    """What a model says about each text; None for one that it cannot read. What is too long for it is read in pieces."""
    if isinstance(model, TextScorer):
        scores = model.score_text(list(texts))
        bits = [np.asarray(score.log2_probabilities, dtype=np.float64) for score in scores]
        return [_Read(_finite(model, one), []) if len(one) else None for one in bits]
    owners: list[int] = []
    sequences: list[TokenSequence] = []
    for place, (text, source) in enumerate(zip(texts, sources, strict=True)):
        pieces = _pieces(model, text, source)
        sequences += pieces
        owners += [place] * len(pieces)
    scored: Any = model
    found: list[list[tuple[TokenSequence, FloatArray]]] = [[] for _ in texts]
    for owner, sequence, score in zip(owners, sequences, scored.score(sequences), strict=True):
        found[owner].append((sequence, np.asarray(score.log2_probabilities, dtype=np.float64)))
    unknown = model.tokenizer.unknown if isinstance(model.tokenizer, OpenTokenizer) else None
    return [_read(model, pieces, unknown) if pieces else None for pieces in found]


def _pieces(model: Model, text: str, source: str | None) -> list[TokenSequence]:
    """A text as training saw it, in as many pieces as the model needs; none where it cannot be read."""
    tokens = encoded(model.tokenizer, text)
    before: tuple[int, ...] = ()
    if isinstance(model, PairModel):
        read = encoded(model.source_tokenizer, source or "")
        if not read:
            return []
        before = tuple(read)
    if not tokens:
        return []
    most = max_length(model)
    before = before if most is None else before[:most]
    size = len(tokens) if most is None else max(2, most - len(model.context))
    cut = (
        after_context(model.context, tokens[start : start + size], before)
        for start in range(0, len(tokens), size)
    )
    return [sequence for sequence in cut if sequence.target]


def _read(model: Model, pieces: Sequence[tuple[TokenSequence, FloatArray]], unknown: int | None) -> _Read:
    # Without a context, the first token of a piece is given and not scored: it counts no bits.
    given = 0 if model.context else 1
    log2 = np.concatenate([part for _, bits in pieces for part in (np.zeros(given), bits)])
    tokens = [
        token
        for sequence, _ in pieces
        for token in (*sequence.context[len(sequence.context) - given :], *sequence.target)
    ]
    if unknown is not None:
        log2 = np.where(np.array(tokens) == unknown, 0.0, log2)
    return _Read(_finite(model, log2), tokens)


def _finite(model: Model, log2: FloatArray) -> FloatArray:
    """Log2 probabilities of which none is NaN; one of 0 is read as the smallest that a double holds."""
    if np.isnan(log2).any():
        raise ModelOutputError(
            f"the model {visible(model.name)!r} gave nan as the log-probability of a token; no conclusion is possible: check the weights"
        )
    return np.maximum(log2, -1074.0)


def _row(
    text: str, first: _Read | None, second: _Read | None, span: int, places: _Places | None
) -> tuple[Any, ...]:
    """A row of `Scores`; without `places`, the models cut texts differently."""
    if first is None or second is None:
        return (len(text), -1, *[np.nan] * 6, *[-1] * 4)
    sums = (-float(first.log2.sum()), -float(second.log2.sum()))
    if places is None or len(first.log2) != len(second.log2):
        return (len(text), -1, *sums, *[np.nan] * 4, *[-1] * 4)
    gains = first.log2 - second.log2
    shares = [span_share(*pair, span) for pair in ((first.log2, second.log2), (second.log2, first.log2))]
    sizes = [one.size for one in (span_gain(gains, span), span_gain(-gains, span), *shares)]
    ends = places.ends(text, first.tokens)
    spans = [-1] * 4
    if ends is not None:
        begins = np.concatenate([[0], ends])
        spans = [
            int(place)
            for one in shares
            for place in (begins[one.begin], begins[min(one.begin + span, len(ends))])
        ]
    return (len(text), len(gains), *sums, *sizes, *spans)


class _Places:
    """Where the tokens of a model are in texts."""

    def __init__(self, model: Model) -> None:
        self._lengths, self._first = (
            [len(piece or b"") for piece in model.tokenizer.pieces(first=first)] for first in (False, True)
        )

    def ends(self, text: str, tokens: Sequence[int]) -> IntArray | None:
        """Where each token ends in a text, in characters; None where that is not known."""
        lengths = [self._lengths[token] for token in tokens]
        lengths[0] = self._first[tokens[0]]
        ends: IntArray = np.cumsum(lengths)
        content = text.encode("utf-8", "surrogatepass")
        if int(ends[-1]) == len(content):
            # Bytes that continue a character in UTF-8 begin with the bits 10.
            begins = (np.frombuffer(content, dtype=np.uint8) & 0xC0) != 0x80
            return np.concatenate([[0], np.cumsum(begins)])[ends]
        words = [found.end() for found in _WORD.finditer(text)]
        return np.array(words) if len(words) == len(tokens) else None
