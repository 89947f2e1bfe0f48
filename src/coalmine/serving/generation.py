"""Continuations of prompts: many at a time, token by token, greedily or by seeded sampling; and the texts of their tokens."""

from __future__ import annotations

import codecs
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine.errors import ModelOutputError
from coalmine.models.protocols import FloatArray, Step, Stepper, Tokenizer
from coalmine.randomness import arrays
from coalmine.serving.requests import Completion

LOGITS_AT_A_TIME = 1 << 24  # that come back from a step: 64 MB in float32
LOGITS_WITHIN = 1 << 28  # within the model, which may have to read whole rows again for each step
STATE_BYTES = 1 << 29
MOST_ROWS = 512
ABOVE_ZERO_BITS = 1e-3  # what rounding may make of a log-probability of 0
NATS = math.log(2)  # in a bit


class TokenTexts:
    """The pieces of a tokenizer, as strings that JSON can carry.

    A token that holds a part of a character is written as `bytes:` and its bytes, of which those that are not printable ASCII
    are escaped; one that has no text at all (a document separator, say) as `token_id:` and its id.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._first = tokenizer.pieces(first=True)
        self._further = tokenizer.pieces(first=False)

    def piece(self, token: int, *, first: bool) -> bytes | None:
        """What a token adds to a text, in UTF-8; `first` where it begins the text."""
        # Some tokenizers do not have a piece for what never begins a text; a model may begin with it all the same.
        opening = self._first[token] if first else None
        return self._further[token] if opening is None else opening

    def written(self, token: int, *, first: bool) -> str:
        """A token as one string."""
        piece = self.piece(token, first=first)
        if piece is None:
            return f"token_id:{token}"
        try:
            return piece.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(_escaped(byte) for byte in piece)


class Choice:
    """One choice while it is written: its tokens, and the text that they make."""

    def __init__(self, request: Completion, prompt: int, number: int, texts: TokenTexts) -> None:
        """Choice `number` for prompt number `prompt` of a request."""
        self.request, self.prompt = request, request.prompts[prompt]
        self.written: list[int] = []
        self.shown: list[int] = []
        self.bits: list[float] = []  # the log2 probability of each token that is shown
        self.listed: list[list[tuple[int, float]]] = []  # the likeliest tokens in its place, with theirs
        self._offsets: list[int] = []  # where each token begins in the text, in characters
        self._text, self._finish_reason = "", "length"
        self._texts, self._begins = texts, request.echo or not self.prompt
        # A character whose last byte has not come yet is not in the text yet.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # A stream of its own, so that what is sampled here does not depend on any other choice, prompt or request.
        self._random = arrays(request.seed, "serve", prompt, number)
        for token in self.prompt if request.echo else ():
            self._show(token)
        self._echoed, self._start = len(self.shown), len(self._text)

    def extend(self, log2_probabilities: FloatArray, end: int | None) -> bool:
        """Choose the next token; `end` is the token that ends a document. Returns whether more are to come."""
        request, known = self.request, len(self._text)
        check_bits(log2_probabilities.max())  # NaN where any is; minus infinity is allowed elsewhere
        token = draw(log2_probabilities, request.temperature, request.top_p, self._random.random())
        if token == end:
            self._finish_reason = "stop"
            return False
        self.written.append(token)
        self._show(token)
        found = [self._text.find(stop, max(self._start, known - len(stop) + 1)) for stop in request.stop]
        if places := [place for place in found if place >= 0]:
            self._stop(min(places))
        return not places and len(self.written) < request.max_tokens

    def answer(self, index: int) -> dict[str, Any]:
        """In OpenAI's shape."""
        tops = [self._top(place, listed) for place, listed in enumerate(self.listed)]
        logprobs = {
            "tokens": [self._spelled(place, token) for place, token in enumerate(self.shown)],
            "token_logprobs": [bits * NATS for bits in self.bits],
            "top_logprobs": tops if self.request.logprobs else None,
            "text_offset": self._offsets,
        }
        return {
            "text": self._text + self._decoder.decode(b"", final=True),
            "index": index,
            "finish_reason": self._finish_reason,
            "logprobs": None if self.request.logprobs is None else logprobs,
        }

    def _show(self, token: int) -> None:
        piece = self._texts.piece(token, first=self._begins and not self.shown)
        self.shown.append(token)
        self._offsets.append(len(self._text))
        self._text += self._decoder.decode(piece or b"")

    def _stop(self, length: int) -> None:
        """Keep the first `length` characters, and the tokens that begin within them."""
        kept = max(self._echoed, sum(offset < length for offset in self._offsets))
        del self.shown[kept:], self._offsets[kept:]
        self._text, self._finish_reason = self._text[:length], "stop"
        self._decoder.reset()

    def _spelled(self, place: int, token: int) -> str:
        return self._texts.written(token, first=self._begins and place == 0)

    def _top(self, place: int, listed: list[tuple[int, float]]) -> dict[str, float]:
        """The most likely tokens in one place and the token that is there, with the same number as it has alone."""
        own, bits, top = self.shown[place], self.bits[place], dict[str, float]()
        for token, its in [*listed[: self.request.logprobs], (own, bits)]:
            # Of two tokens with the same text the more likely is listed; impossible ones have no number in JSON.
            if math.isfinite(its):
                top.setdefault(self._spelled(place, token), (bits if token == own else its) * NATS)
        return top


def generate(model: Stepper, rows: Sequence[Choice]) -> None:
    """Write all choices; as many together as memory allows, of one length unless the model mixes depths."""
    end = model.context[-1] if model.context else None
    most = _rows_at_a_time(model, max(len(row.prompt) + row.request.max_tokens for row in rows))
    in_order = sorted(rows, key=lambda row: len(row.prompt))
    for _, alike in itertools.groupby(in_order, key=lambda row: 0 if model.mixes_depths else len(row.prompt)):
        group = list(alike)
        for begin in range(0, len(group), most):
            _write(model, group[begin : begin + most], end)


def _write(model: Stepper, rows: Sequence[Choice], end: int | None) -> None:
    """Write some choices together. A prompt is read once, however many choices it has."""
    prompts = sorted({row.prompt for row in rows}, key=len)
    read = [
        model.start([model.context + prompt for prompt in alike])
        for _, alike in itertools.groupby(prompts, key=len)
    ]
    states = model.gather([(one.states, np.arange(len(one.log2_probabilities))) for one in read])
    step = Step(states, np.concatenate([one.log2_probabilities for one in read]))
    parents = {prompt: place for place, prompt in enumerate(prompts)}
    active = [(row, parents[row.prompt]) for row in rows]
    while going := [one for one in active if one[0].extend(step.log2_probabilities[one[1]], end)]:
        tokens = np.array([row.written[-1] for row, _ in going])
        step = model.step(step.states, np.array([parent for _, parent in going]), tokens)
        active = [(row, place) for place, (row, _) in enumerate(going)]


def _rows_at_a_time(model: Stepper, length: int) -> int:
    """How many texts of `length` tokens a batch can hold, so that neither states nor probabilities outgrow memory."""
    own = model.state_bytes(model.start([model.context]).states)
    states = STATE_BYTES // max(1, own if model.mixes_depths else own * (1 + length))
    size = model.tokenizer.size
    return max(1, min(MOST_ROWS, states, LOGITS_AT_A_TIME // size, LOGITS_WITHIN // (size * (1 + length))))


def draw(log2_probabilities: FloatArray, temperature: float, top_p: float, uniform: float) -> int:
    """A token: the most likely at temperature 0 (of equals, the lowest id), else where `uniform` in [0, 1) falls.

    With `top_p`, only the most likely tokens that together have this share, after the temperature, can be drawn.

    >>> draw(np.log2([0.25, 0.5, 0.25]), 1.0, 1.0, 0.49), draw(np.log2([0.25, 0.5, 0.25]), 1.0, 1.0, 0.51)
    (1, 0)
    >>> draw(np.log2([0.25, 0.5, 0.25]), 1.0, 0.5, 0.99)
    1
    """
    if temperature == 0:
        return int(log2_probabilities.argmax())
    exact: NDArray[np.float64] = log2_probabilities.astype(np.float64)
    with np.errstate(over="ignore"):  # to minus infinity, whose weight is 0, as it should be
        weights = np.exp2((exact - exact.max()) / temperature)
    order = np.argsort(-weights, kind="stable")
    sums = np.cumsum(weights[order])
    # The fewest that reach the share: those before the last of them do not.
    kept = min(int(np.searchsorted(sums, top_p * sums[-1], side="left")) + 1, len(sums))
    place = int(np.searchsorted(sums[:kept], uniform * sums[kept - 1], side="right"))
    return int(order[min(place, kept - 1)])


def check_bits(bits: FloatArray) -> None:
    """Refuse numbers that are not the log-probabilities of something possible."""
    if not (np.isfinite(bits) & (bits <= ABOVE_ZERO_BITS)).all():
        raise ModelOutputError(
            "the model gave a log-probability that is not a finite number below 0, so there is no answer"
        )


def _escaped(byte: int) -> str:
    return chr(byte) if 32 <= byte < 127 and byte != ord("\\") else f"\\x{byte:02x}"
