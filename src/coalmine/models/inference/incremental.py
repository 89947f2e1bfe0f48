"""Incremental decoding: the adapter for networks that carry a state. It scores, steps, generates and follows texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coalmine.errors import ModelError, NotMeasurableError
from coalmine.models.contexts import Context, Contexts
from coalmine.models.inference.following import follow_all
from coalmine.models.inference.likeliest import list_likeliest
from coalmine.models.inference.local import LocalModel, check_ids
from coalmine.models.inference.memory import (
    LOGITS_AT_A_TIME,
    STATES_AT_A_TIME,
    Room,
    read_prefix,
    times_the_budget,
)
from coalmine.models.inference.projection import Projection
from coalmine.models.inference.reading import Reader
from coalmine.models.inference.scoring import Scoring, hidden_width, masks_without, shared_length
from coalmine.models.inference.state_arrays import from_arrays, to_arrays
from coalmine.models.inference.token_scores import TokenScores, Wanted, log2_softmax
from coalmine.models.protocols import (
    DistributionScore,
    FloatArray,
    Followed,
    IntArray,
    Sampling,
    SequenceScore,
    Step,
    TokenSequence,
)
from coalmine.models.reference.networks import LEAST_SHARED, Network, State, parameter_count
from coalmine.models.reference.tokens import ReferenceTokenizer
from coalmine.models.transformers.chat import ChatTemplate, tokenizer_in
from coalmine.models.transformers.framed import FramedModel
from coalmine.models.transformers.subwords import SubwordTokenizer

# The logits of a model, the same in single precision, and the logs of their softmax.
LOGITS_COPIES = 3

DEFAULT_CONTEXT = "document separator, initial state"


class StatefulModel(FramedModel, LocalModel[ReferenceTokenizer | SubwordTokenizer]):
    """A network with a state as an audit sees it: a DistributionScorer, a Stepper, a Generator, a Reciter and a Lister.

    A text is scored after the document separator and the initial state, as the start of each document was in training.
    """

    def __init__(
        self,
        network: Network,
        tokenizer: ReferenceTokenizer | SubwordTokenizer,
        *,
        name: str = "model",
        origin: dict[str, Any] | None = None,
        reference: StatefulModel | None = None,
        contexts: Contexts | None = None,
        chat: ChatTemplate | None = None,
    ) -> None:
        """`origin` goes into the record of a run; `reference` is a model to compare scores with, such as a base model.

        Texts are scored after the context that `contexts` chose, or after the document separator. `chat` writes conversations.
        """
        super().__init__(network, tokenizer, name=name, origin=origin)
        self.reference = reference
        self._network = network
        self.contexts = contexts
        self.chat = chat
        self._room = Room()
        self._times_the_budget = times_the_budget(self._device)

    @property
    def memory_note(self) -> str | None:
        """What was done because memory ran out, for the record of a run; None if it never did."""
        return self._room.note or (None if self.reference is None else self.reference.memory_note)

    @property
    def network(self) -> Network:
        """The network itself, with its weights."""
        return self._network

    def in_context(self, context: Context) -> Self:
        """The same weights with another context."""
        reference = None if self.reference is None else self.reference.in_context(context)
        found = type(self)(
            self._network,
            tokenizer_in(self._tokenizer, context),
            name=self.name,
            origin=self._origin,
            reference=reference,
            contexts=self._contexts_in(context),
            chat=self.chat,
        )
        found.load_again = self.load_again
        found._room = self._room  # noqa: SLF001 - it is the same memory
        return found

    def describe(self) -> dict[str, Any]:
        """For the record of a run."""
        return {
            "adapter": "stateful",
            "architecture": self._network.architecture,
            "context": DEFAULT_CONTEXT if self.contexts is None else self.contexts.chosen.described,
            "parameters": parameter_count(self._network),
            **self._facts(),
            **self._written_facts(),
        }

    @property
    def max_length(self) -> int | None:
        """The most tokens that it can read in one sequence, its context included; None where there is no limit."""
        return self._network.max_length

    @torch.inference_mode()
    def follow(
        self,
        sequences: Sequence[TokenSequence],
        *,
        samplings: Sequence[Sampling] = (),
        stop_at_miss: bool = False,
    ) -> list[Followed]:
        """Whether greedy decoding writes each target, and how likely sampling does, in one pass over the true text."""
        self._check_at_rest()
        self._check_sequences(sequences)
        return follow_all(self._reader, sequences, samplings=samplings, stop_at_miss=stop_at_miss)

    @torch.inference_mode()
    def likeliest(self, sequences: Sequence[TokenSequence], *, k: int) -> list[list[list[tuple[int, float]]]]:
        """The k likeliest tokens at each position of each target with their log2 probabilities; among equals, the lower id first."""
        self._check_at_rest()
        self._check_sequences(sequences)
        return list_likeliest(self._reader, sequences, k)

    @property
    def _reader(self) -> Reader:
        return Reader(
            self._network,
            rows_at_a_time=self._states_at_a_time,
            logits_at_a_time=self._logits_at_a_time,
            room=self._room,
            device=self._device,
        )

    def score(self, sequences: Sequence[TokenSequence], *, ranks: bool = False) -> list[SequenceScore]:
        """Scores in the order of `sequences`; their common prefix is read once."""
        return [one.sequence() for one in self._scores(sequences, Wanted(ranks=ranks))]

    def score_distribution(self, sequences: Sequence[TokenSequence]) -> list[DistributionScore]:
        """Scores in the order of `sequences`, with ranks and the moments of each distribution in bits, from the same pass."""
        return [one.distribution() for one in self._scores(sequences, Wanted(ranks=True, moments=True))]

    @property
    def hidden_units(self) -> int:
        """The units of the last hidden layer; 0 for a network that cannot be read without its last layer."""
        return hidden_width(self._network)

    def predicts_without(
        self, sequences: Sequence[TokenSequence], units: Sequence[Sequence[int]]
    ) -> list[NDArray[np.bool_]]:
        """(sets, tokens) for each sequence: whether each token is the argmax with each set of units at zero; texts are read once."""
        kept = masks_without(self._network, units)
        return [one.ablated() for one in self._scores(sequences, Wanted(kept=kept))]

    @torch.inference_mode()
    def _scores(self, sequences: Sequence[TokenSequence], asked: Wanted) -> list[TokenScores]:
        self._check_at_rest()
        self._check_sequences(sequences)
        if not sequences:
            return []
        scoring = Scoring(
            self._network,
            self._projection,
            rows_at_a_time=self._rows_at_a_time,
            room=self._room,
            device=self._device,
        )
        return scoring.scores(sequences, asked)

    @torch.inference_mode()
    def start(self, contexts: Sequence[Sequence[int]], *, columns: IntArray | None = None) -> Step:
        """One state per context."""
        self._check_at_rest()
        lengths = {len(context) for context in contexts}
        if lengths == {0} or not lengths:
            raise NotMeasurableError("a walk cannot start after nothing: give the model's context")
        if len(lengths) > 1:
            raise ModelError(f"contexts to start from must be of one length, got lengths {sorted(lengths)}")
        rows = [tuple(context) for context in contexts]
        # The common prefix of all contexts is read once; a walk that reads nodes again shares most of it.
        shared = shared_length(rows) if len(rows) > 1 else len(rows[0])
        hidden, state = (
            self._read_start(rows[0][:shared]) if shared else (None, self._network.initial_state(1))
        )
        if hidden is not None and len(rows) == 1:
            return Step(state, self._log2(hidden, columns))
        parents = np.zeros(len(rows), dtype=np.int64)
        return self._read_after(state, parents, [row[shared:] for row in rows], columns, len(rows[0]))

    @torch.inference_mode()
    def read_after(
        self,
        states: State,
        parents: IntArray,
        rests: Sequence[Sequence[int]],
        *,
        columns: IntArray | None = None,
    ) -> Step:
        """As `step`, with several tokens for each row, as many for one as for the others."""
        self._check_at_rest()
        return self._read_after(states, parents, rests, columns, len(rests[0]))

    @torch.inference_mode()
    def step(
        self, states: State, parents: IntArray, tokens: IntArray, *, columns: IntArray | None = None
    ) -> Step:
        """Gather, advance, and predict the next token."""

        def part(begin: int, end: int) -> tuple[State, FloatArray]:
            state = self._network.select(states, self._tensor(parents[begin:end]))
            read = self._tensor(tokens[begin:end])[:, None]
            hidden, state = self._network.read_hidden(read, state, 1)
            return state, self._log2(hidden[:, 0], columns)

        return self._joined(self._room.in_parts(len(tokens), 1, part))

    @property
    def mixes_depths(self) -> bool:
        """True for states of a fixed size."""
        return self._network.fixed_state

    @torch.inference_mode()
    def gather(self, parts: Sequence[tuple[State, IntArray]]) -> State:
        """Rows of several batches as one batch."""
        return self._network.join([self._network.select(state, self._tensor(rows)) for state, rows in parts])

    def state_bytes(self, states: State) -> int:
        """The bytes of its tensors."""
        return sum(part.numel() * part.element_size() for part in states)

    @property
    def step_row_bytes(self) -> int:
        """The bytes of a row's logits, and of their copies, where the last layer cannot be applied in blocks; else 0."""
        if self._network.head() is not None:
            return 0
        return LOGITS_COPIES * self._network.vocabulary * max(4, self._dtype.itemsize)

    def states_to_arrays(self, states: State) -> list[NDArray[Any]]:
        """Its tensors; bfloat16, which NumPy does not have, as two bytes each."""
        return to_arrays(states)

    def states_from_arrays(self, arrays: Sequence[NDArray[Any]]) -> State:
        """The same tensors again."""
        return self._network.at_home(from_arrays(arrays))

    @torch.inference_mode()
    def generate(self, prompts: Sequence[Sequence[int]], *, length: int) -> list[list[int]]:
        """The greedy continuation of each prompt; among equals, the token with the lowest id."""
        self._check_at_rest()
        continuations: list[list[int]] = [[] for _ in prompts]

        def generate(group: Sequence[int], begin: int, end: int) -> None:
            batch = group[begin:end]
            for i in batch:
                continuations[i] = []
            hidden, state = self._read_last([prompts[i] for i in batch])
            for written in range(1, length + 1):
                tokens = self._projection.argmax(hidden)
                for i, token in zip(batch, tokens.tolist(), strict=True):
                    continuations[i].append(token)
                if written < length:  # the last one is not read: there may be no position left for it
                    following, state = self._network.read_hidden(tokens[:, None], state, 1)
                    hidden = following[:, 0]

        for batch in self._batches(prompts, length):
            self._room.in_parts(len(batch), len(prompts[batch[0]]) + length, partial(generate, batch))
        return continuations

    def _read_last(self, rows: Sequence[Sequence[int]], state: State | None = None) -> tuple[Tensor, State]:
        """The (rows, width) hidden numbers after rows of one length, and the state there."""
        for row in rows:
            check_ids(row, self._tokenizer.size)
        if state is None:
            state = self._network.initial_state(len(rows))
        hidden, state = self._network.read_hidden(self._tensor(np.array(rows, dtype=np.int64)), state, 1)
        return hidden[:, 0], state

    def _read_start(self, tokens: Sequence[int]) -> tuple[Tensor, State]:
        """The (1, width) hidden numbers after what one or many rows begin with, and the state there, which they will share."""
        check_ids(tokens, self._tokenizer.size)
        read = self._tensor(np.array([tokens], dtype=np.int64))
        hidden, state = read_prefix(self._network, read, 1, self._room)
        return hidden[:, 0], state

    def _read_after(
        self,
        states: State,
        parents: IntArray,
        rests: Sequence[Sequence[int]],
        columns: IntArray | None,
        length: int,
    ) -> Step:
        """Read the rest of each row after the state of its parent; rows have `length` tokens in all."""
        own = len(rests[0])

        def part(begin: int, end: int) -> tuple[State, FloatArray]:
            state = self._network.select(states, self._tensor(parents[begin:end]))
            hidden, state = self._read_last(rests[begin:end], state)
            return state, self._log2(hidden, columns)

        return self._joined(self._room.in_parts(len(rests), own, part, most=self._rows_to_read(length, own)))

    def _joined(self, parts: Sequence[tuple[State, FloatArray]]) -> Step:
        if len(parts) == 1:
            return Step(*parts[0])
        states, expected = zip(*parts, strict=True)
        return Step(self._network.join(states), np.concatenate(expected))

    def _batches(self, prompts: Sequence[Sequence[int]], length: int) -> Iterator[list[int]]:
        """The indices of prompts in batches that need no padding, of as many rows that grow by `length` as memory holds."""
        for group in _by_length(prompts):
            own = len(prompts[group[0]])
            most = self._rows_to_read(own + length, own)
            for begin in range(0, len(group), most):
                yield group[begin : begin + most]

    def _rows_at_a_time(self, length: int, read: int) -> int:
        """How many rows of `length` tokens to read at a time, if each reads its last `read` tokens and is judged at all of them."""
        read = max(1, read)
        numbers = self._network.numbers_read(read, read)
        return min(max(1, self._logits_at_a_time // numbers), self._states_at_a_time(length, read))

    def _rows_to_read(self, length: int, read: int) -> int:
        """As `_rows_at_a_time`, where only the logits after the last token are needed."""
        numbers = max(self._network.vocabulary, self._network.numbers_read(read, 1))
        return min(max(1, self._logits_at_a_time // numbers), self._states_at_a_time(length, read))

    def _states_at_a_time(self, length: int, read: int) -> int:
        """For how many rows of `length` tokens to make states at a time, if all rows begin with all but their last `read` tokens."""
        once = length - read >= LEAST_SHARED and self._network.keeps_prefix_once
        state = self._bytes_of_state[0] + (read if once else length) * self._bytes_of_state[1]
        # The states are there twice: the old ones, repeated for each row, and the new ones.
        return max(1, STATES_AT_A_TIME * self._times_the_budget // max(1, 2 * state))

    @property
    def _logits_at_a_time(self) -> int:
        return LOGITS_AT_A_TIME * self._times_the_budget

    @cached_property
    def _bytes_of_state(self) -> tuple[int, int]:
        """The bytes of one row's state: a fixed number, and those that each token adds."""
        if self._network.fixed_state:
            return self.state_bytes(self._network.initial_state(1)), 0
        two, four = (self.state_bytes(self._read_last([[0] * length])[1]) for length in (2, 4))
        return max(0, 2 * two - four), (four - two + 1) // 2

    def _log2(self, hidden: Tensor, columns: IntArray | None) -> FloatArray:
        if columns is None:
            return np.asarray(log2_softmax(self._network.project(hidden)).cpu().numpy())
        return self._projection.log2(hidden, np.asarray(columns, dtype=np.int64))

    @property
    def _projection(self) -> Projection:
        return Projection(self._network, whole_at_a_time=self._logits_at_a_time)


def _by_length(prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """The indices of prompts, grouped so that a group needs no padding."""
    groups: dict[int, list[int]] = {}
    for i, prompt in enumerate(prompts):
        if not prompt:
            raise NotMeasurableError(
                "a model cannot be asked what follows nothing: give its context before the prompt"
            )
        groups.setdefault(len(prompt), []).append(i)
    return list(groups.values())
