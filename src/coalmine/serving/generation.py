"""Continuations of prompts: many at a time, token by token, greedily or by seeded sampling."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from coalmine.errors import ModelOutputError
from coalmine.models.protocols import FloatArray, Step, Stepper
from coalmine.randomness import arrays
from coalmine.serving.requests import Completion
from coalmine.serving.token_text import TokenTexts, Transcript

# Probabilities that come back at a time, over all rows and positions of a pass: 64 MB in float32.
LOGITS_AT_A_TIME = 1 << 24
# The same within the model, which may have to read whole rows again for each step.
LOGITS_WITHIN = 1 << 28
STATE_BYTES = 1 << 29
MOST_ROWS = 512
ABOVE_ZERO_BITS = 1e-3  # what rounding may make of a log-probability of 0

_Item = TypeVar("_Item")


class Continuation:
    """One choice while it is generated: its tokens, their log2 probabilities, and why it ended."""

    def __init__(self, request: Completion, prompt: int, choice: int, texts: TokenTexts) -> None:
        """Choice number `choice` for prompt number `prompt` of a request."""
        self.prompt = request.prompts[prompt]
        self.transcript = Transcript(texts, first=not self.prompt)
        self.tokens: list[int] = []
        self.log2_probabilities: list[float] = []
        self.tops: list[list[tuple[int, float]]] = []
        self.finish_reason = "length"
        self._cut = False
        self._request = request
        # A stream of its own, so that what is sampled here does not depend on any other choice, prompt or request.
        self._random = arrays(request.seed, "serve", prompt, choice)

    def extend(self, log2_probabilities: FloatArray, end: int | None) -> bool:
        """Choose the next token; `end` is the token that ends a document. Returns whether more are to come."""
        request = self._request
        check_distribution(log2_probabilities)
        token = draw(log2_probabilities, request.temperature, request.top_p, self._random.random())
        if token == end:
            self.finish_reason = "stop"
            return False
        self.tokens.append(token)
        self.log2_probabilities.append(float(log2_probabilities[token]))
        if request.logprobs:
            self.tops.append(likeliest(log2_probabilities, request.logprobs))
        known = len(self.transcript.text)
        self.transcript.add(token)
        return not self._stopped(known) and len(self.tokens) < request.max_tokens

    @property
    def room(self) -> int:
        """The most tokens that it may have."""
        return self._request.max_tokens

    def _stopped(self, known: int) -> bool:
        """Cut the text before the first stop text that the newest token completed; the text had `known` characters before it."""
        text = self.transcript.text
        found = [text.find(stop, max(0, known - len(stop) + 1)) for stop in self._request.stop]
        places = [place for place in found if place >= 0]
        if not places:
            return False
        self.transcript.cut(min(places))
        self.finish_reason, self._cut = "stop", True
        return True

    def end(self) -> None:
        """The text is complete."""
        if not self._cut:
            self.transcript.end()
        kept = len(self.transcript.tokens)
        del self.log2_probabilities[kept:], self.tops[kept:]


def generate(model: Stepper, rows: Sequence[Continuation]) -> None:
    """Generate all continuations; those that can share a batch do."""
    end = model.context[-1] if model.context else None
    for chunk in _chunks(model, rows):
        step, parents = _start(model, chunk)
        active = list(zip(chunk, parents, strict=True))
        while True:
            going = [
                (row, parent) for row, parent in active if row.extend(step.log2_probabilities[parent], end)
            ]
            if not going:
                break
            tokens = np.array([row.tokens[-1] for row, _ in going])
            step = model.step(step.states, np.array([parent for _, parent in going]), tokens)
            active = [(row, place) for place, (row, _) in enumerate(going)]
        for row in chunk:
            row.end()


def _chunks(model: Stepper, rows: Sequence[Continuation]) -> Iterator[list[Continuation]]:
    """Rows that are generated together: as many as memory allows, of one length unless the model mixes depths."""
    longest = max(len(row.prompt) + row.room for row in rows)
    most = rows_at_a_time(model, longest)
    in_order = sorted(rows, key=lambda row: len(row.prompt))
    for _, group in itertools.groupby(in_order, key=lambda row: 0 if model.mixes_depths else len(row.prompt)):
        yield from batched(group, most)


def _start(model: Stepper, rows: Sequence[Continuation]) -> tuple[Step, list[int]]:
    """The state after each prompt, which is read once however many choices it has, and the index of each row's state."""
    prompts = sorted({row.prompt for row in rows}, key=len)
    place = {prompt: number for number, prompt in enumerate(prompts)}
    steps: list[tuple[Step, int]] = []
    for length, group in itertools.groupby(prompts, key=len):
        read = len(model.context) + length
        for some in batched(group, max(1, LOGITS_AT_A_TIME // (model.tokenizer.size * max(1, read)))):
            contexts = [model.context + prompt for prompt in some]
            steps.append((model.start(contexts), len(contexts)))
    if len(steps) > 1:
        states = model.gather([(step.states, np.arange(count)) for step, count in steps])
        joined = Step(states, np.concatenate([step.log2_probabilities for step, _ in steps]))
    else:
        joined = steps[0][0]
    return joined, [place[row.prompt] for row in rows]


def rows_at_a_time(model: Stepper, length: int) -> int:
    """How many texts of `length` tokens a batch can hold, so that neither states nor probabilities outgrow memory."""
    own = model.state_bytes(model.start([model.context]).states)
    whole = own if model.mixes_depths else own * (1 + length)
    vocabulary = model.tokenizer.size
    return max(
        1,
        min(
            MOST_ROWS,
            STATE_BYTES // max(1, whole),
            LOGITS_AT_A_TIME // vocabulary,
            LOGITS_WITHIN // (vocabulary * (1 + length)),
        ),
    )


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
    kept = int(np.searchsorted(sums, top_p * sums[-1], side="left")) + 1
    kept = min(kept, len(sums))
    place = int(np.searchsorted(sums[:kept], uniform * sums[kept - 1], side="right"))
    return int(order[min(place, kept - 1)])


def likeliest(log2_probabilities: FloatArray, count: int) -> list[tuple[int, float]]:
    """The `count` most likely tokens with their log2 probabilities, in descending order, of equals the lowest id first.

    >>> likeliest(np.log2([0.25, 0.5, 0.25]), 2)
    [(1, -1.0), (0, -2.0)]
    """
    count = min(count, len(log2_probabilities))
    bound = np.partition(log2_probabilities, -count)[-count]
    candidates = np.flatnonzero(log2_probabilities >= bound)
    order = candidates[np.argsort(-log2_probabilities[candidates], kind="stable")][:count]
    return [(int(token), float(log2_probabilities[token])) for token in order]


def check_distribution(log2_probabilities: FloatArray) -> None:
    """Refuse numbers that are not log-probabilities; minus infinity is one."""
    highest = float(log2_probabilities.max())  # NaN where any is
    if not -np.inf < highest <= ABOVE_ZERO_BITS:
        raise ModelOutputError(
            "the model answered with something that is not a log-probability; nothing can be concluded from it"
        )


def batched(values: Iterable[_Item], size: int) -> Iterator[list[_Item]]:
    """Lists of up to `size` values, in order."""
    left = iter(values)
    while some := list(itertools.islice(left, size)):
        yield some
