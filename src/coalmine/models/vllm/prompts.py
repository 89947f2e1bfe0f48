"""Prompts to vLLM and what it answers, checked: the log-probability and rank of each token, the likeliest tokens, and greedy text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from coalmine.errors import ModelOutputError

# Above this, a log-probability is no rounding error.
_MOST_LOGPROB = 1e-3


class PromptToken(NamedTuple):
    """What vLLM says of one token of a prompt."""

    log2_probability: float
    is_likeliest: bool
    rank: int


class Prompts:
    """Asks the engine of vLLM about token ids; every answer is checked for being the one to its question."""

    def __init__(self, engine: Any) -> None:
        """`engine` is a `vllm.LLM`."""
        self._engine = engine

    def judge(self, rows: Sequence[Sequence[int]]) -> list[list[PromptToken]]:
        """What is said of each token of each row but the first, which nothing comes before."""
        # The likeliest token is listed too: among equals, a rank alone does not say which one greedy decoding writes.
        listed = self._listed(rows, 1)
        return [
            [_judged(answers[row[place]]) for place, answers in enumerate(one, start=1)]
            for row, one in zip(rows, listed, strict=True)
        ]

    def likeliest(self, rows: Sequence[Sequence[int]], k: int) -> list[list[list[tuple[int, float]]]]:
        """The k likeliest tokens at each place but the first, with their log2 probabilities."""
        return [
            [
                [
                    (token, _judged(said).log2_probability)
                    for token, said in sorted(answers.items(), key=lambda pair: (-pair[1].logprob, pair[0]))
                ][:k]
                for answers in one
            ]
            for one in self._listed(rows, k)
        ]

    def continued(self, rows: Sequence[Sequence[int]], length: int) -> list[list[int]]:
        """The greedy continuation of each row."""
        answers = self._ask(rows, max_tokens=length, min_tokens=length, ignore_eos=True)
        found = [[int(token) for token in one.outputs[0].token_ids] for one in answers]
        for one in found:
            if len(one) != length:
                raise ModelOutputError(
                    f"vLLM continued a prompt by {len(one)} tokens where {length} were asked for; give shorter prompts"
                )
        return found

    def _listed(self, rows: Sequence[Sequence[int]], k: int) -> list[list[dict[int, Any]]]:
        """At each place but the first, its own token and the k likeliest, as vLLM describes them."""
        found = []
        for row, one in zip(rows, self._ask(rows, max_tokens=1, prompt_logprobs=k), strict=True):
            said = one.prompt_logprobs
            if said is None or len(said) != len(row):
                raise ModelOutputError(
                    f"vLLM gave log-probabilities of {0 if said is None else len(said)} tokens for a prompt of {len(row)}; "
                    "check its version, and that nothing removes prompt_logprobs"
                )
            places = [said[place] for place in range(1, len(row))]
            if any(
                not answers or token not in answers for token, answers in zip(row[1:], places, strict=True)
            ):
                raise ModelOutputError(
                    "vLLM gave no log-probability for a token of a prompt; check its version, and that nothing removes prompt_logprobs"
                )
            found.append(places)
        return found

    def _ask(self, rows: Sequence[Sequence[int]], **settings: Any) -> list[Any]:
        from vllm import SamplingParams

        if not rows:
            return []
        asked = [{"prompt_token_ids": [int(token) for token in row]} for row in rows]
        sampling = SamplingParams(temperature=0.0, detokenize=False, **settings)
        answers: list[Any] = self._engine.generate(asked, sampling, use_tqdm=False)
        if [list(one.prompt_token_ids or ()) for one in answers] != [
            one["prompt_token_ids"] for one in asked
        ]:
            raise ModelOutputError(
                "vLLM answered other prompts than it was given; check its version, and that nothing changes prompts"
            )
        return answers


def _judged(said: Any) -> PromptToken:
    value = float(said.logprob)
    if math.isnan(value) or value > _MOST_LOGPROB:
        raise ModelOutputError(f"vLLM gave {value} as a log-probability; check the weights of the model")
    rank = int(said.rank)
    return PromptToken(min(value, 0.0) / math.log(2), rank == 1, rank)
