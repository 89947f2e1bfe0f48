"""A model that vLLM runs, as an audit sees it: a Scorer with ranks, a Lister and a Generator, also of turns of conversations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from coalmine.errors import ModelOutputError, NotMeasurableError, TooLongError
from coalmine.models.contexts import Context, Contexts
from coalmine.models.protocols import SequenceScore, TokenSequence
from coalmine.models.resolution import PRECISION_BITS, UNKNOWN_PRECISION_BITS, allowed_bits
from coalmine.models.transformers.chat import ChatTemplate, tokenizer_in
from coalmine.models.transformers.framed import FramedModel
from coalmine.models.transformers.subwords import SubwordTokenizer
from coalmine.models.vllm.prompts import Prompts

# How many prompts share a beginning of several blocks of the cache when the order of prompts is tested.
_ORDERED = 4
# Tokens of a block where vLLM does not say, and the blocks that these prompts share.
_USUAL_BLOCK, _BLOCKS = 128, 2


class VLLMModel(FramedModel):
    """A model in an engine of vLLM. It cannot be walked token by token: members are scored one by one, in vLLM's own batches.

    A rank counts the tokens that are at least as likely, so that of equally likely tokens each has the last rank.
    """

    # It is not sent to other processes.
    only_here = "vLLM runs the model on every device that it was given; more processes would need the same devices again"
    load_again: Callable[[], Any] | None = None

    def __init__(
        self,
        engine: Any,
        tokenizer: SubwordTokenizer,
        *,
        name: str,
        origin: dict[str, Any],
        contexts: Contexts,
        chat: ChatTemplate | None,
    ) -> None:
        """`engine` is a `vllm.LLM`; `origin` goes into the record of a run."""
        self._engine, self._tokenizer, self._name, self._origin = engine, tokenizer, name, origin
        self.contexts, self.chat = contexts, chat
        self._prompts = Prompts(engine)

    @property
    def name(self) -> str:
        """What to call it in a table."""
        return self._name

    @property
    def tokenizer(self) -> SubwordTokenizer:
        """The tokens of the checkpoint."""
        return self._tokenizer

    @property
    def resolution_bits(self) -> float:
        """What the precision that vLLM computes in allows, in bits."""
        return PRECISION_BITS.get(self._precision, UNKNOWN_PRECISION_BITS)

    @property
    def max_length(self) -> int:
        """The most tokens of a text, its context included: vLLM writes one token more for each prompt."""
        return int(self._config.model_config.max_model_len) - 1

    def describe(self) -> dict[str, Any]:
        """For the record of a run."""
        chosen = self.contexts.chosen if self.contexts is not None else None
        return {
            "adapter": "vllm",
            "context": "" if chosen is None else chosen.described,
            "precision": self._precision,
            "prefix_caching": self._caches_prefixes,
            **self._origin,
            **self._written_facts(),
        }

    def in_context(self, context: Context) -> Self:
        """The same weights with another context."""
        return type(self)(
            self._engine,
            tokenizer_in(self._tokenizer, context),
            name=self.name,
            origin=self._origin,
            contexts=self._contexts_in(context),
            chat=self.chat,
        )

    def score(self, sequences: Sequence[TokenSequence], *, ranks: bool = False) -> list[SequenceScore]:
        """Scores in the order of `sequences`, from the log-probabilities of their tokens as prompts."""
        rows = self._rows(sequences)
        found = []
        for sequence, judged in zip(sequences, self._prompts.judge(rows), strict=True):
            own = judged[len(sequence.context) - 1 :]
            found.append(
                SequenceScore(
                    np.array([one.log2_probability for one in own], dtype=np.float64),
                    np.array([one.is_likeliest for one in own], dtype=bool),
                    np.array([one.rank for one in own], dtype=np.int64) if ranks else None,
                )
            )
        return found

    def likeliest(self, sequences: Sequence[TokenSequence], *, k: int) -> list[list[list[tuple[int, float]]]]:
        """The k likeliest tokens at each position of each target with their log2 probabilities; among equals, the lower id first."""
        rows = self._rows(sequences)
        listed = self._prompts.likeliest(rows, k)
        return [one[len(sequence.context) - 1 :] for sequence, one in zip(sequences, listed, strict=True)]

    def generate(self, prompts: Sequence[Sequence[int]], *, length: int) -> list[list[int]]:
        """The greedy continuation of each prompt."""
        if any(not prompt for prompt in prompts):
            raise NotMeasurableError(
                "a model cannot be asked what follows nothing: give its context before the prompt"
            )
        return self._prompts.continued(prompts, length)

    def check_order(self) -> None:
        """Ask about prompts that share their beginning in two orders, and refuse an engine whose numbers depend on the order.

        With prefix caching, the log-probabilities of prompts have depended on what was asked before (vLLM's issue 42019).
        """
        block = getattr(self._config.cache_config, "block_size", None) or _USUAL_BLOCK
        shared = min(_BLOCKS * int(block) + 1, self.max_length - 8)
        size = self._tokenizer.size
        start = [(place * 7 + 4) % size for place in range(max(1, shared))]
        rows = [
            [*start, *((number * 11 + place * 5 + 3) % size for place in range(4))]
            for number in range(_ORDERED)
        ]
        forward = self._prompts.judge(rows)
        backward = self._prompts.judge(rows[::-1])[::-1]
        one, other = (
            np.array([judged.log2_probability for row in found for judged in row])
            for found in (forward, backward)
        )
        difference = np.abs(one - other)
        if not bool((difference <= allowed_bits(self.resolution_bits, one)).all()):
            raise ModelOutputError(
                f"vLLM gives a token of a prompt a log-probability that depends on the order of the prompts, by up to "
                f"{float(difference.max()):.2g} bits; load the model with enable_prefix_caching=False, or with another version of vLLM"
            )

    @property
    def _config(self) -> Any:
        return self._engine.llm_engine.vllm_config

    @property
    def _precision(self) -> str:
        return str(self._config.model_config.dtype).removeprefix("torch.")

    @property
    def _caches_prefixes(self) -> bool:
        return bool(self._config.cache_config.enable_prefix_caching)

    def _rows(self, sequences: Sequence[TokenSequence]) -> list[tuple[int, ...]]:
        for sequence in sequences:
            if not sequence.context:
                raise NotMeasurableError(
                    "a text cannot be scored after nothing: give the model's context before it"
                )
            length = len(sequence.context) + len(sequence.target)
            if length > self.max_length:
                raise TooLongError(
                    f"a text of {length} tokens, the context included, is longer than the {self.max_length} that the model can read; "
                    "give shorter texts"
                )
        return [sequence.context + sequence.target for sequence in sequences]
