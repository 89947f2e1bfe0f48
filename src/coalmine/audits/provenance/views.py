"""What a model says about the tokens of texts: ranks and probabilities, as far as it shows them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.provenance.users import UserText
from coalmine.engines.apart import Answered, ask_apart
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

    def cuts_alike(self, other: View) -> bool:
        """Whether both are known to cut texts into the same tokens."""
        return self.tokens_sha256 is not None and self.tokens_sha256 == other.tokens_sha256


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


def look_at_each(model: Model, view: View, texts: Sequence[UserText]) -> Answered[TextView | None]:
    """What a model says about each text, and why it has no number for some; one that it fails at does not stop the others."""
    if isinstance(model, RemoteModel):
        # It fails for other reasons than a text, and may answer another time.
        return Answered(look(model, view, texts), {})
    return ask_apart(lambda some: look(model, view, some), texts)


def look(model: Model, view: View, texts: Sequence[UserText]) -> list[TextView | None]:
    """What a model says about each text, in their order; None for a text that it cannot read."""
    if isinstance(model, TextScorer):
        return list(_scored_as_text(model, view, texts))
    if isinstance(model, Scorer):
        return _scored(model, view, texts)
    return _listed(cast("TextRanker", model), view, texts)


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


def known_tokens(tokenizer: Tokenizer, text: str) -> list[int]:
    """The tokens of a text that count: those that are known."""
    unknown = tokenizer.unknown if isinstance(tokenizer, OpenTokenizer) else None
    return [token for token in encoded(tokenizer, text) or [] if token != unknown]


def readable(model: Model, texts: Sequence[UserText]) -> list[tuple[int, TokenSequence, int]]:
    """The texts that a model can read as training saw them: their places, their tokens, and how many tokens at the end were cut off."""
    most, found = max_length(model), []
    for place, text in enumerate(texts):
        tokens, source = encoded(model.tokenizer, text.text), None
        if isinstance(model, PairModel):
            if text.source is None:
                raise NotMeasurableError(
                    f"{visible(model.name)} is a model of pairs, and a text has no source; name the source and target fields of the corpora"
                )
            source = encoded(model.source_tokenizer, text.source)
        if not tokens or (isinstance(model, PairModel) and not source):
            continue
        kept = tokens if most is None else tokens[: max(1, most - len(model.context))]
        sequence = after_context(model.context, kept, tuple(source or ())[:most])
        if sequence.target:
            found.append((place, sequence, len(tokens) - len(kept)))
    return found


def counted_tokens(tokenizer: Tokenizer, sequence: TokenSequence) -> tuple[IntArray, NDArray[np.bool_]]:
    """The tokens of a target, and which of them count: those that were not read as unknown."""
    tokens = np.array(sequence.target, dtype=np.int64)
    return tokens, tokens != (tokenizer.unknown if isinstance(tokenizer, OpenTokenizer) else -1)


def _scored(model: Scorer, view: View, texts: Sequence[UserText]) -> list[TextView | None]:
    found: list[TextView | None] = [None] * len(texts)
    asked = readable(model, texts)
    sequences = [sequence for _, sequence, _ in asked]
    scores: Sequence[SequenceScore | DistributionScore] = (
        model.score_distribution(sequences)
        if isinstance(model, DistributionScorer)
        else model.score(sequences)
    )
    for (place, sequence, cut), score in zip(asked, scores, strict=True):
        tokens, counts = counted_tokens(model.tokenizer, sequence)
        means, deviations = None, None
        if isinstance(score, DistributionScore):
            ranks = np.asarray(score.ranks, dtype=np.int64)[counts] - 1
            if view.ranked is not None:  # some networks have more logits than there are tokens
                ranks = np.minimum(ranks, view.ranked - 1)
            if view.top is not None:
                ranks = np.where(ranks < view.top, ranks, NOT_LISTED)
            if view.moments:
                means, deviations = score.mean_bits[counts], score.deviation_bits[counts]
        else:
            ranks = np.where(score.is_argmax[counts], 0, NOT_LISTED)
        bits = score.log2_probabilities[counts]
        if any(np.isnan(one).any() for one in (bits, means, deviations) if one is not None):
            raise NoNumberError(
                f"the model {visible(model.name)!r} gave log-probabilities that are not numbers; check the weights"
            )
        found[place] = TextView(
            ranks,
            tokens[counts],
            bits if view.probabilities else None,
            means,
            deviations,
            unknown=int(len(tokens) - counts.sum()),
            cut=cut,
            # After no context, the first token is given.
            places=np.flatnonzero(counts) + (0 if model.context else 1),
        )
    return found


def _scored_as_text(model: TextScorer, view: View, texts: Sequence[UserText]) -> Iterator[TextView | None]:
    """The answers of a server that cuts texts itself: probabilities, and the ranks of tokens that are among the likeliest."""

    def ask(asked: Sequence[str]) -> list[tuple[SequenceScore, IntArray | None, int]]:
        ranks: Sequence[IntArray | None] = [None] * len(asked)
        if isinstance(model, RankedTextScorer) and view.top is not None:
            ranks = model.rank_text(asked, k=view.top)  # first: the same answers have the scores
        scores = model.score_text(asked)
        unscored = model.unscored(asked) if isinstance(model, PartialScorer) else [0] * len(asked)
        return list(zip(scores, ranks, unscored, strict=True))

    for answer in _unless_refused(ask, [text.text for text in texts]):
        if answer is None:
            yield None
            continue
        score, places, unscored = answer
        first = min(1, unscored)  # whose first token has no score
        seen = np.where(score.is_argmax, 0, NOT_LISTED) if places is None else places - 1
        own = np.asarray(seen, dtype=np.int64)[first:]
        bits = np.asarray(score.log2_probabilities[first:], dtype=np.float64)
        yield (
            TextView(
                own,
                log2_probabilities=bits if view.probabilities else None,
                places=np.arange(first, first + len(own)),
            )
            if len(bits)
            else None
        )


def _listed(model: TextRanker, view: View, texts: Sequence[UserText]) -> list[TextView | None]:
    """The places of the own words of texts among the tokens that a server lists after the words before them, all asked at once.

    The tokens of the server are not known. That of a text is taken to be the longest of those listed that the text continues with, which
    is what a tokenizer would usually choose.
    """

    def ask(asked: Sequence[str]) -> list[list[int]]:
        starts = [[found.start() for found in _WORD.finditer(text)][1:] for text in asked]
        prompts = [text[:start] for text, own in zip(asked, starts, strict=True) for start in own]
        answers = iter(model.next_texts(prompts, k=view.top or 1) if prompts else [])
        # The words come first in the pairs, so that no answer about the next text is taken when they end.
        return [
            [_place(text[start:], listed) for start, listed in zip(own, answers, strict=False)]
            for text, own in zip(asked, starts, strict=True)
        ]

    found = _unless_refused(ask, [text.text for text in texts])
    return [TextView(np.array(places, dtype=np.int64)) if places else None for places in found]


def _place(rest: str, listed: Sequence[str]) -> int:
    fitting = [
        (len(token.strip()), -place)
        for place, token in enumerate(listed)
        if token.strip() and rest.lstrip().startswith(token.strip())
    ]
    return -max(fitting)[1] if fitting else NOT_LISTED


def _unless_refused(ask: Callable[[Sequence[str]], Sequence[T]], texts: Sequence[str]) -> list[T | None]:
    """What a server says about each text; None for one that it refuses, such as one that is too long, unless it refuses all of them."""

    def about_texts(error: BaseException) -> CoalmineError | None:
        return error if isinstance(error, EndpointRefusedError) and error.is_about_question else None

    found = ask_apart(ask, texts, about_texts)
    if found.problems and len(found.problems) == len(texts):
        raise found.problems[0]
    return found.answers
