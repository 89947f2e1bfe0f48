"""What a model says about the tokens of texts: ranks and probabilities, as far as it shows them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.provenance.users import UserText
from coalmine.engines.apart import ask_apart
from coalmine.errors import CoalmineError, ModelError, NoNumberError, NotMeasurableError
from coalmine.models.endpoints.http import EndpointRefusedError
from coalmine.models.protocols import (
    DistributionScore,
    DistributionScorer,
    FloatArray,
    IntArray,
    MaskedModel,
    Model,
    OpenTokenizer,
    PairModel,
    PartialScorer,
    RankedTextScorer,
    RemoteModel,
    Scorer,
    SequenceScore,
    TextRanker,
    TextScorer,
    Tokenizer,
    TokenSequence,
    after_context,
    max_length,
)
from coalmine.visible import visible

NOT_LISTED = -1
# HTTP's statuses for a request that cannot be answered because of what is in it.
REFUSED_TEXT = {400, 413, 422}
T = TypeVar("T")
# A word with the white space before it.
_WORD = re.compile(r"\s*\S+")


class View(NamedTuple):
    """What a model shows about the tokens of a text.

    Attributes:
        ranked: how many tokens it ranks; None where only the likeliest are seen, and not among how many.
        top: only the ranks of this many of the likeliest tokens are known; None for all.
        probabilities: whether it gives the log-probability of each token.
        moments: whether it gives their mean and deviation over the vocabulary, at each position.
        tokens_sha256: which tokens it cuts texts into; None where that is not known. Models that agree in it are compared token by token.
        reads_unknown: whether words that it does not know are read as unknown, and not counted.
    """

    ranked: int | None
    top: int | None
    probabilities: bool
    moments: bool
    tokens_sha256: str | None
    reads_unknown: bool


class TextView(NamedTuple):
    """What a model says about one text; arrays have one entry for each token that counts."""

    ranks: IntArray  # from 0; NOT_LISTED for a token that is not among those that are listed
    tokens: IntArray | None = None
    log2_probabilities: FloatArray | None = None
    means: FloatArray | None = None
    deviations: FloatArray | None = None
    # Tokens that were read as unknown, and tokens at the end that the model cannot read; neither count.
    unknown: int = 0
    cut: int = 0
    # Where in the text each token is, from 0 for its first one, which some models are given and do not predict.
    places: IntArray | None = None

    @property
    def has_numbers(self) -> bool:
        """Whether none of what it says is NaN."""
        said = (self.log2_probabilities, self.means, self.deviations)
        return not any(one is not None and bool(np.isnan(one).any()) for one in said)


def view_of(model: Model, top: int | None = None) -> View:
    """What a model shows; with `top`, as if it listed that many of the likeliest tokens and nothing else."""
    if isinstance(model, MaskedModel):
        raise NotMeasurableError(
            f"{visible(model.name)} fills gaps and predicts no next token, which provenance audits ask for; use a causal model or a model "
            "of pairs"
        )
    if isinstance(model, TextScorer):
        # Whether a token is the likeliest is known of every server that scores.
        listed = model.most_listed if isinstance(model, RankedTextScorer) else 1
        return View(None, listed if top is None else min(top, listed), top is None, False, None, False)
    if isinstance(model, Scorer):
        size = model.tokenizer.size
        all_ranks = isinstance(model, DistributionScorer)
        seen = None if top is None or top >= size else top
        return View(
            ranked=size,
            top=seen if all_ranks else 1,
            probabilities=seen is None,
            moments=seen is None and all_ranks,
            tokens_sha256=tokens_digest(model.tokenizer),
            reads_unknown=isinstance(model.tokenizer, OpenTokenizer),
        )
    if isinstance(model, TextRanker):
        most = model.most_listed
        return View(None, most if top is None else min(most, top), False, False, None, False)
    raise NotMeasurableError(
        f"{visible(model.name)} neither scores texts nor lists the likeliest next tokens; provenance audits need one of them"
    )


class Looked(NamedTuple):
    """What a model says about each text, in their order; None for a text that it cannot read, or that it has no number for.

    Attributes:
        problems: why it has none, by the place of the text.
    """

    views: list[TextView | None]
    problems: dict[int, CoalmineError]


def look_at_each(model: Model, view: View, texts: Sequence[UserText]) -> Looked:
    """What a model says about each text; one that it fails at does not stop the others."""
    if isinstance(
        model, RemoteModel
    ):  # which fails for other reasons than a text, and may answer another time
        return Looked(look(model, view, texts), {})
    found = Looked(*ask_apart(lambda some: look(model, view, some), texts))
    for place, said in enumerate(found.views):
        if said is not None and not said.has_numbers:
            found.views[place] = None
            found.problems[place] = NoNumberError(
                f"the model {visible(model.name)!r} gave log-probabilities that are not numbers; check the weights"
            )
    return found


def look(model: Model, view: View, texts: Sequence[UserText]) -> list[TextView | None]:
    """What a model says about each text, in their order; None for a text that it cannot read."""
    if isinstance(model, TextScorer):
        return list(_scored_as_text(model, view, texts))
    if isinstance(model, Scorer):
        return _scored(model, view, texts)
    if isinstance(model, TextRanker):
        return _listed(model, view, texts)
    raise NotMeasurableError(f"{visible(model.name)} cannot be asked about texts")


def tokens_digest(tokenizer: Tokenizer) -> str:
    """A hash of the tokens that texts are cut into."""
    digest = hashlib.sha256()
    for piece in tokenizer.pieces(first=False):
        digest.update(b"\0" if piece is None else b"\1" + len(piece).to_bytes(8, "little") + piece)
    return digest.hexdigest()


def encoded(tokenizer: Tokenizer, text: str) -> list[int] | None:
    """The tokens of a text, with unknown words where the tokenizer has a token for them; None where it cannot be read."""
    if isinstance(tokenizer, OpenTokenizer):
        return tokenizer.encode_open(text)
    try:
        return tokenizer.encode(text)
    except ModelError:
        return None


def _scored(model: Scorer, view: View, texts: Sequence[UserText]) -> list[TextView | None]:
    found: list[TextView | None] = [None] * len(texts)
    asked = readable(model, texts)
    sequences = [sequence for _, sequence, _ in asked]
    scores: list[SequenceScore] | list[DistributionScore]
    scores = (
        model.score_distribution(sequences)
        if isinstance(model, DistributionScorer)
        else model.score(sequences)
    )
    for number, (place, sequence, cut) in enumerate(asked):
        viewed = _viewed(view, model.tokenizer, sequence, scores[number], cut)
        # After no context, the first token is given.
        first = 0 if model.context else 1
        found[place] = viewed._replace(places=None if viewed.places is None else viewed.places + first)
    return found


def readable(model: Model, texts: Sequence[UserText]) -> list[tuple[int, TokenSequence, int]]:
    """The texts that a model can read as training saw them: their places, their tokens, and how many tokens at the end were cut off."""
    found = []
    for place, text in enumerate(texts):
        read = _sequence(model, text)
        if read is not None:
            found.append((place, *read))
    return found


def counted_tokens(tokenizer: Tokenizer, sequence: TokenSequence) -> tuple[IntArray, NDArray[np.bool_]]:
    """The tokens of a target, and which of them count: those that were not read as unknown."""
    tokens = np.array(sequence.target, dtype=np.int64)
    known = np.ones(len(tokens), dtype=bool)
    return tokens, tokens != tokenizer.unknown if isinstance(tokenizer, OpenTokenizer) else known


def _sequence(model: Model, text: UserText) -> tuple[TokenSequence, int] | None:
    """A text as training saw it, cut to what the model can read; None where there is nothing to predict."""
    tokens = encoded(model.tokenizer, text.text)
    source: tuple[int, ...] = ()
    if isinstance(model, PairModel):
        if text.source is None:
            raise NotMeasurableError(
                f"{visible(model.name)} is a model of pairs, and a text has no source; name the source and target fields of the corpora"
            )
        read = encoded(model.source_tokenizer, text.source)
        if not read:
            return None
        source = tuple(read)
    if not tokens:
        return None
    most = max_length(model)
    kept = tokens if most is None else tokens[: max(1, most - len(model.context))]
    source = source if most is None else source[:most]
    sequence = after_context(model.context, kept, source)
    return (sequence, len(tokens) - len(kept)) if sequence.target else None


def _viewed(
    view: View,
    tokenizer: Tokenizer,
    sequence: TokenSequence,
    score: SequenceScore | DistributionScore,
    cut: int,
) -> TextView:
    tokens, counts = counted_tokens(tokenizer, sequence)
    if isinstance(score, DistributionScore):
        ranks = np.asarray(score.ranks, dtype=np.int64)[counts] - 1
        if view.ranked is not None:  # some networks have more logits than there are tokens
            ranks = np.minimum(ranks, view.ranked - 1)
        if view.top is not None:
            ranks = np.where(ranks < view.top, ranks, NOT_LISTED)
    else:
        ranks = np.where(score.is_argmax[counts], 0, NOT_LISTED)
    moments = view.moments and isinstance(score, DistributionScore)
    return TextView(
        ranks,
        tokens[counts],
        _kept(score.log2_probabilities, counts) if view.probabilities else None,
        _kept(score.mean_bits, counts) if moments and isinstance(score, DistributionScore) else None,
        _kept(score.deviation_bits, counts) if moments and isinstance(score, DistributionScore) else None,
        unknown=int(len(tokens) - counts.sum()),
        cut=cut,
        places=np.flatnonzero(counts),
    )


def _kept(values: FloatArray, counts: NDArray[np.bool_]) -> FloatArray:
    return np.asarray(values[counts], dtype=np.float64)


class _Answer(NamedTuple):
    """What a server says about a text: its score, the ranks of its tokens if it lists some, and whether the first of them has no score."""

    score: SequenceScore
    ranks: IntArray | None
    missing: bool


def _scored_as_text(model: TextScorer, view: View, texts: Sequence[UserText]) -> Iterator[TextView | None]:
    """The answers of a server that cuts texts itself: probabilities, and the ranks of tokens that are among the likeliest."""

    def ask(asked: Sequence[str]) -> Sequence[_Answer]:
        ranks: Sequence[IntArray | None] = [None] * len(asked)
        if isinstance(model, RankedTextScorer) and view.top is not None:
            ranks = model.rank_text(asked, k=view.top)  # first: the same answers have the scores
        scores = model.score_text(asked)
        unscored = model.unscored(asked) if isinstance(model, PartialScorer) else [0] * len(asked)
        return [
            _Answer(score, places, bool(missing))
            for score, places, missing in zip(scores, ranks, unscored, strict=True)
        ]

    for answer in _unless_refused(ask, [text.text for text in texts]):
        first = 1 if answer is not None and answer.missing else 0
        if answer is None or len(answer.score.log2_probabilities) <= first:
            yield None
            continue
        score, places = answer.score, answer.ranks
        seen = np.where(score.is_argmax, 0, NOT_LISTED) if places is None else places - 1
        bits = np.asarray(score.log2_probabilities[first:], dtype=np.float64) if view.probabilities else None
        own = np.asarray(seen, dtype=np.int64)[first:]
        yield TextView(own, log2_probabilities=bits, places=np.arange(first, first + len(own)))


def _listed(model: TextRanker, view: View, texts: Sequence[UserText]) -> list[TextView | None]:
    """The places of the own words of texts among the tokens that a server lists after the words before them, all asked at once.

    The tokens of the server are not known. That of a text is taken to be the longest of those listed that the text continues with, which
    is what a tokenizer would usually choose.
    """
    top = view.top or 1

    def ask(asked: Sequence[str]) -> Sequence[list[int]]:
        starts = [[found.start() for found in _WORD.finditer(text)][1:] for text in asked]
        prompts = [text[:start] for text, own in zip(asked, starts, strict=True) for start in own]
        answers = iter(model.next_texts(prompts, k=top) if prompts else [])
        # The words come first in the pairs, so that no answer about the next text is taken when they end.
        return [
            [_place(text[start:], listed) for start, listed in zip(own, answers, strict=False)]
            for text, own in zip(asked, starts, strict=True)
        ]

    found = _unless_refused(ask, [text.text for text in texts])
    return [TextView(np.array(places, dtype=np.int64)) if places else None for places in found]


def _unless_refused(ask: Callable[[Sequence[str]], Sequence[T]], texts: Sequence[str]) -> list[T | None]:
    """What a server says about each text; None for one that it refuses, such as one that is too long, unless it refuses all of them."""
    try:
        return list(ask(texts))
    except EndpointRefusedError as problem:
        if problem.status not in REFUSED_TEXT or len(texts) < 2:
            raise
        halves = texts[: len(texts) // 2], texts[len(texts) // 2 :]
        found: list[T | None] = []
        for half in halves:
            try:
                found += _unless_refused(ask, half)
            except EndpointRefusedError as again:
                if again.status not in REFUSED_TEXT:
                    raise
                found += [None] * len(half)
        if all(one is None for one in found):
            raise
        return found


def _place(rest: str, listed: Sequence[str]) -> int:
    fitting = [
        (len(token.strip()), -place)
        for place, token in enumerate(listed)
        if token.strip() and rest.lstrip().startswith(token.strip())
    ]
    return -max(fitting)[1] if fitting else NOT_LISTED
