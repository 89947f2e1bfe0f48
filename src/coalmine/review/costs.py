"""What a model takes: characters it reads, tokens it follows and steps it makes per second, measured on a few texts of the corpus."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec
import numpy as np

from coalmine.audits.provenance.users import User, UserText
from coalmine.audits.provenance.views import encoded, look, view_of
from coalmine.audits.recitation.answers import follow
from coalmine.corpus.index.sorting import sorted_suffixes
from coalmine.corpus.secrets.finding import SecretFinder
from coalmine.corpus.secrets.kinds import KINDS
from coalmine.errors import MissingExtraError, ModelError, NotMeasurableError
from coalmine.models.protocols import (
    MaskedModel,
    Model,
    PairModel,
    Reciter,
    Scorer,
    Stepper,
    TextScorer,
    TokenSequence,
    max_length,
)

Clock = Callable[[], float]
# How long each question is timed for, and the most rows that it is asked with.
PROBE_SECONDS, MOST_ROWS = 0.5, 256
# What a text is cut to, in characters and in tokens, so that a slow model is not timed for minutes.
PROBE_CHARACTERS, PROBE_TOKENS, REMOTE_CHARACTERS = 1_000, 100, 100
# What is so fast that it cannot be timed.
FASTEST = 1e12


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a model is; None for what it cannot be asked.

    Attributes:
        reading: characters of documents per second, with everything that provenance audits ask about them.
        following: tokens per second of sequences that it may recite.
        scoring: texts of about a line per second, one by one.
        stepping: steps of incremental decoding per second.
        cutting: characters per second that its tokenizer cuts into tokens.
        tokens_per_character: of the corpus.
        scanning: characters per second that are scanned for secrets.
        sorting: characters per second whose tokens are sorted for an index.
    """

    reading: float | None = None
    following: float | None = None
    scoring: float | None = None
    stepping: float | None = None
    cutting: float | None = None
    tokens_per_character: float | None = None
    scanning: float | None = None
    sorting: float | None = None


def measure(model: Model, users: Sequence[User], clock: Clock = time.perf_counter) -> Costs:
    """The costs of a model on texts of a corpus."""
    texts = [
        text._replace(text=text.text[:PROBE_CHARACTERS])
        for user in users[:MOST_ROWS]
        for text in user.texts[:1]
    ]
    tokens = (
        [] if isinstance(model, TextScorer) else [encoded(model.tokenizer, text.text) or [] for text in texts]
    )
    read = [one[:PROBE_TOKENS] for one in tokens if len(one) > 1]
    characters = sum(len(text.text) for text, own in zip(texts, tokens, strict=False) if own)
    return Costs(
        reading=_rate(_reading(model, texts), clock),
        following=_rate(_following(model, read), clock),
        scoring=_rate(_scoring(model, texts, read), clock),
        stepping=_rate(_stepping(model), clock),
        cutting=_rate(_cutting(model, texts), clock),
        tokens_per_character=sum(map(len, tokens)) / characters if characters else None,
        scanning=_rate(_scanning(texts), clock),
        sorting=_rate(_sorting(tokens, characters), clock),
    )


# Asks with so many rows, and says how much that was; None where it cannot be asked.
_Question = Callable[[int], float] | None


def _reading(model: Model, texts: Sequence[UserText]) -> _Question:
    try:
        view = view_of(model)
    except NotMeasurableError:
        return None

    # A server refuses a text that is longer than it can read, and does not say how long that is.
    short = (
        [one._replace(text=one.text[:REMOTE_CHARACTERS]) for one in texts]
        if isinstance(model, TextScorer)
        else texts
    )

    def ask(rows: int) -> float:
        chosen = _cycled(short, rows)
        look(model, view, chosen)
        return sum(len(text.text) for text in chosen)

    return ask


def _following(model: Model, tokens: Sequence[list[int]]) -> _Question:
    if not tokens or isinstance(model, PairModel) or not isinstance(model, Reciter | MaskedModel | Scorer):
        return None

    def ask(rows: int) -> float:
        sequences = [
            TokenSequence((*model.context, *one[: len(one) // 2]), tuple(one[len(one) // 2 :]))
            for one in _cycled(tokens, rows)
        ]
        if isinstance(model, MaskedModel):
            model.solves_masking(sequences, share=0.15, seed=0)
        else:
            follow(model, sequences, ())
        return sum(len(one.context) + len(one.target) for one in sequences)

    return ask


def _scoring(model: Model, texts: Sequence[UserText], tokens: Sequence[list[int]]) -> _Question:
    if isinstance(model, TextScorer):
        scorer = model

        def ask_text(rows: int) -> float:
            scorer.score_text([text.text[:100] for text in _cycled(texts, rows)])
            return rows

        return ask_text
    if not tokens or isinstance(model, PairModel) or not isinstance(model, Scorer):
        return None
    scores = model

    def ask(rows: int) -> float:
        scores.score(
            [TokenSequence((*model.context, one[0]), tuple(one[1:30])) for one in _cycled(tokens, rows)]
        )
        return rows

    return ask


def _stepping(model: Model) -> _Question:
    if not isinstance(model, Stepper):
        return None
    depth = min(8, (max_length(model) or 16) - len(model.context) - 1)

    def ask(rows: int) -> float:
        states: Any = model.start([model.context or (0,)]).states
        parents, tokens = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)
        for _ in range(depth):
            states = model.step(states, parents, tokens).states
            parents = np.arange(rows, dtype=np.int64)
        return rows * depth

    return ask


def _cutting(model: Model, texts: Sequence[UserText]) -> _Question:
    if isinstance(model, TextScorer) or not texts:
        return None

    def ask(rows: int) -> float:
        chosen = _cycled(texts, rows)
        for text in chosen:
            encoded(model.tokenizer, text.text)
        return sum(len(text.text) for text in chosen)

    return ask


def _scanning(texts: Sequence[UserText]) -> _Question:
    if not texts:
        return None
    made = cache(
        lambda: SecretFinder(tuple(KINDS.values()))
    )  # which may need packages that are not installed

    def ask(rows: int) -> float:
        finder = made()
        whole = "\n".join(text.text for text in _cycled(texts, rows))
        for _ in finder.find(whole.encode("utf-8", "surrogatepass")):
            pass
        return len(whole)

    return ask


def _sorting(tokens: Sequence[list[int]], characters: int) -> _Question:
    if not characters:
        return None

    def ask(rows: int) -> float:
        chosen = _cycled([one for one in tokens if one], rows)
        # The ends of documents are the smallest symbols.
        symbols = np.concatenate([[*(token + 1 for token in one), 0] for one in chosen]).astype(">u4")
        sorted_suffixes(symbols.view(np.uint8), 4, rows)
        return sum(map(len, chosen)) * characters / sum(map(len, tokens))

    return ask


def _cycled(these: Sequence[Any], rows: int) -> list[Any]:
    return [these[place % len(these)] for place in range(rows)]


def _rate(ask: _Question, clock: Clock) -> float | None:
    """How much per second; the first call, which may load and compile, counts only where it is slow enough to be trusted."""
    if ask is None:
        return None
    rows, last = 1, 0.0
    try:
        while True:
            began = clock()
            done = ask(rows)
            took = clock() - began
            last = min(done / took, FASTEST) if took > 0 else FASTEST
            if took >= PROBE_SECONDS or rows >= MOST_ROWS:
                return last
            rows = min(MOST_ROWS, rows * 4)
    except (NotMeasurableError, ModelError, MissingExtraError):
        return last or None


def could_not_be_asked(costs: Costs) -> bool:
    """Whether a model answered nothing at all."""
    return costs.reading is None and costs.following is None and costs.scoring is None


class Timing(NamedTuple):
    """How time and costs are measured, so that a test can say what they are.

    Attributes:
        clock: seconds that only grow.
        measure: the costs of a model on texts of a corpus.
    """

    clock: Clock = time.monotonic
    measure: Callable[[Model, Sequence[User]], Costs] = measure
