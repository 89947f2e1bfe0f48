"""What masked models share: scoring each token of a text while it is hidden, and choosing which tokens to hide for a test."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coalmine.errors import InputError, NotMeasurableError
from coalmine.grouped import grouped
from coalmine.models.inference.local import LocalModel
from coalmine.models.inference.memory import Room
from coalmine.models.inference.token_scores import TokenScores, check_numbers, log2_softmax
from coalmine.models.protocols import IntArray, SequenceScore, TokenSequence
from coalmine.models.transformers.subwords import SubwordTokenizer
from coalmine.randomness import integers

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# The widest tensor of a pass holds no more numbers than this: 64 MB in float32. A pass has a few of them at a time.
NUMBERS_AT_A_TIME = 1 << 24
# The memory for rows that wait to be scored, each a text with one token hidden; Python needs about 256 bytes more for each.
WAITING_BYTES, BYTES_A_ROW = 1 << 26, 256


class GapScorer(LocalModel[SubwordTokenizer]):
    """The base of masked models: a Scorer whose scores are pseudo-log-perplexities.

    Each token of a target is hidden in turn and scored by what the model predicts in its place, given all other tokens.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: SubwordTokenizer,
        *,
        mask: int,
        closing: tuple[int, ...],
        name: str,
        origin: dict[str, Any] | None,
        adapter: bool,
    ) -> None:
        """`mask` hides a token; `closing` follows each text; with `adapter` False, a PEFT model is read without its adapter."""
        super().__init__(model, tokenizer, name=name, origin=origin)
        self._model = cast("Any", model)
        self._mask, self._closing = mask, closing
        self._adapter = adapter
        self._room = Room()

    @property
    def memory_note(self) -> str | None:
        """What was done because memory ran out, for the record of a run; None if it never did."""
        return self._room.note

    def _facts(self) -> dict[str, Any]:
        """What the record of a run has of every masked model."""
        return {
            "architecture": str(self._model.config.model_type),
            "score": "pseudo-log-perplexity",
            **super()._facts(),
        }

    @torch.inference_mode()
    def score(self, sequences: Sequence[TokenSequence], *, ranks: bool = False) -> list[SequenceScore]:
        """Scores in the order of `sequences`; a gap that several of them share is asked about once."""
        self._check_at_rest()
        rows = [self._row(sequence) for sequence in sequences]
        ends = np.cumsum([0, *(len(sequence.target) for sequence in sequences)])
        total = int(ends[-1])
        scores = TokenScores(
            np.full(total, np.nan), np.zeros(total, bool), np.zeros(total, np.int64) if ranks else None
        )
        # For each row with a hidden token, and the position of that token: where its answers go, and which tokens are asked for.
        waiting: dict[tuple[bytes, int], list[tuple[int, int]]] = {}
        bytes_waiting = 0
        for row, sequence, start in zip(rows, sequences, ends.tolist(), strict=False):
            first = len(row) - len(self._closing) - len(sequence.target)
            for place, token in enumerate(sequence.target):
                hidden = row.copy()
                hidden[first + place] = self._mask
                waiting.setdefault((hidden.tobytes(), first + place), []).append((start + place, token))
            bytes_waiting += (row.nbytes + BYTES_A_ROW) * len(sequence.target)
            if bytes_waiting > WAITING_BYTES:
                self._ask(waiting, scores)
                waiting, bytes_waiting = {}, 0
        self._ask(waiting, scores)
        return [
            scores.part(slice(start, end)).sequence()
            for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
        ]

    def _ask(self, waiting: dict[tuple[bytes, int], list[tuple[int, int]]], scores: TokenScores) -> None:
        """Score all gaps that wait, and put the results into `scores`."""
        keys = list(waiting)

        def score(batch: Sequence[int]) -> None:
            rows = np.stack([np.frombuffer(keys[i][0], np.int32) for i in batch])
            logits = self._at_gap(rows, np.array([keys[i][1] for i in batch]))  # (batch, vocabulary)
            wanted = [(place, *one) for place, i in enumerate(batch) for one in waiting[keys[i]]]
            _enter(logits, np.array(wanted, dtype=np.int64), scores)

        self._in_batches([len(row) // 4 for row, _ in keys], score, answers=1)

    def _at_gap(self, rows: IntArray, places: IntArray) -> Tensor:
        """Logits at the one gap of each row, (batch, vocabulary); `places` has their positions."""
        raise NotImplementedError

    def _numbers(self, length: int, answers: int) -> int:
        """How many numbers the widest tensor of a pass holds for one row of this length with this many gaps."""
        raise NotImplementedError

    def _in_batches(
        self, lengths: Sequence[int], ask: Callable[[Sequence[int]], None], *, answers: int
    ) -> None:
        """Ask about the indices of rows, in batches of rows of one length: nothing is padded, so no padding can leak into a score."""
        for length, group in sorted(grouped((length, i) for i, length in enumerate(lengths)).items()):
            most = max(1, NUMBERS_AT_A_TIME // self._numbers(length, answers))
            self._room.in_parts(len(group), length, partial(_ask_part, ask, group), most=most)

    def _row(self, sequence: TokenSequence) -> NDArray[np.int32]:
        """A sequence as the model reads it, with nothing hidden."""
        self._check_sequences([sequence])
        return np.array(sequence.context + sequence.target + self._closing, dtype=np.int32)

    def _as_chosen(self) -> contextlib.AbstractContextManager[Any]:
        """The model with or without its adapter, for the duration of a pass."""
        return (
            contextlib.nullcontext()
            if self._adapter
            else cast("contextlib.AbstractContextManager[Any]", self._model.disable_adapter())
        )


def _ask_part(ask: Callable[[Sequence[int]], None], group: Sequence[int], begin: int, end: int) -> None:
    ask(group[begin:end])


def hidden_places(tokens: Sequence[int], *, share: float, seed: int) -> list[int]:
    """The positions to hide in a text, in order: a `share` of them, rounded, and at least one, drawn uniformly.

    >>> len(hidden_places(range(200), share=0.15, seed=0))
    30
    """
    return sorted(masking_draws(tokens, seed).sample(range(len(tokens)), how_many_hidden(tokens, share)))


def how_many_hidden(tokens: Sequence[int], share: float) -> int:
    """The number of tokens to hide.

    >>> how_many_hidden(range(50), 0.15), how_many_hidden(range(2), 0.15)
    (8, 1)
    """
    if not 0 < share < 1:
        raise InputError(f"the share of tokens to hide must be between 0 and 1, such as 0.15, got {share}")
    if not tokens:
        raise NotMeasurableError("a text without tokens has nothing to hide; leave it out")
    return max(1, round(share * len(tokens)))


def masking_draws(tokens: Sequence[int], seed: int) -> random.Random:
    """The generator that hides tokens of a text: the same for the same text, whatever else is in the batch."""
    return integers(seed, "masking", " ".join(map(str, tokens)))


def check_gaps(gaps: Sequence[int], length: int) -> None:
    """Reject gaps that are not different positions of a target of this length."""
    if len(set(gaps)) < len(gaps) or (gaps and not (min(gaps) >= 0 and max(gaps) < length)):
        raise InputError(f"gaps must be different positions in [0, {length}), got {list(gaps)}")


def likeliest(logits: Tensor) -> Tensor:
    """The token with the highest logit, and the lowest id among equals; NaN is refused, because it hides a failure."""
    check_numbers(not bool(torch.isnan(logits).any()))
    return logits.argmax(dim=-1)


def widest_layer(config: Any, length: int) -> int:
    """How many numbers the widest layer makes of one row: its attention weights, or its inner layer."""
    heads, hidden = (int(getattr(config, name, 1)) for name in ("num_attention_heads", "hidden_size"))
    return length * max(4 * hidden, heads * length)


def _enter(logits: Tensor, wanted: NDArray[np.int64], scores: TokenScores) -> None:
    """Enter the scores of each of `wanted`, which are (row of the logits, index of the answer, token)."""
    first = likeliest(logits).cpu().numpy()
    log2 = log2_softmax(logits)
    # Many tokens may be asked for at one gap, so ranks are counted for some of them at a time.
    most = max(1, NUMBERS_AT_A_TIME // log2.shape[1])
    for start in range(0, len(wanted), most):
        rows, places, tokens = wanted[start : start + most].T
        chosen = torch.from_numpy(np.ascontiguousarray(rows)).to(log2.device)
        asked = torch.from_numpy(np.ascontiguousarray(tokens)).to(log2.device)
        own = log2[chosen, asked]
        scores.log2_probabilities[places] = own.cpu().numpy()
        scores.is_argmax[places] = first[rows] == tokens
        if scores.ranks is not None:
            scores.ranks[places] = ((log2[chosen] > own[:, None]).sum(dim=1) + 1).cpu().numpy()
