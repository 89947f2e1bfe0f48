"""What vLLM answers, without vLLM: its interface and its numbers as version 0.32 has them, from a tiny transformers model.

`make test-vllm` compares it with vLLM itself.
"""

from types import SimpleNamespace
from typing import NamedTuple

import torch
from transformers import AutoModelForCausalLM

__version__ = "double"
BLOCK = 16


class SamplingParams(NamedTuple):
    temperature: float = 1.0
    detokenize: bool = True
    max_tokens: int = 16
    min_tokens: int = 0
    ignore_eos: bool = False
    prompt_logprobs: int | None = None


class Logprob(NamedTuple):
    logprob: float
    rank: int
    decoded_token: str | None = None


class LLM:
    """Takes what coalmine gives, and nothing else."""

    # What a caching engine answers for the blocks that it has read before: numbers that are not those of this prompt.
    stale = True

    def __init__(
        self,
        model,
        *,
        dtype="auto",
        load_format="auto",
        enable_prefix_caching=True,
        trust_remote_code=False,
        tensor_parallel_size=1,
        seed=0,
        max_logprobs=20,
    ):
        assert load_format == "safetensors"
        assert not trust_remote_code
        assert (tensor_parallel_size, seed) == (1, 0)
        assert dtype != "auto"  # which would be bfloat16 for float32
        self.network = AutoModelForCausalLM.from_pretrained(model, dtype=dtype).eval()
        config = self.network.config
        self.max_logprobs, self.seen = max_logprobs, {}
        self.llm_engine = SimpleNamespace(
            vllm_config=SimpleNamespace(
                model_config=SimpleNamespace(
                    dtype=self.network.dtype,
                    max_model_len=config.max_position_embeddings,
                    get_vocab_size=lambda: config.vocab_size,
                ),
                cache_config=SimpleNamespace(block_size=BLOCK, enable_prefix_caching=enable_prefix_caching),
            )
        )

    def generate(self, prompts, sampling_params, *, use_tqdm=True):
        assert not use_tqdm
        return [self._answer(one["prompt_token_ids"], sampling_params) for one in prompts]

    @torch.inference_mode()
    def _answer(self, tokens, sampling):
        config = self.llm_engine.vllm_config
        if len(tokens) + sampling.max_tokens > config.model_config.max_model_len:
            raise ValueError(
                f"The decoder prompt (length {len(tokens)}) is longer than the maximum model length"
            )
        listed = None
        if sampling.prompt_logprobs is not None:
            if sampling.prompt_logprobs > self.max_logprobs:
                raise ValueError(
                    f"Requested prompt logprobs of {sampling.prompt_logprobs}, which is greater than max"
                )
            listed = self._prompt_logprobs(tokens, sampling.prompt_logprobs)
        written = []
        for _ in range(sampling.max_tokens):
            logits = self.network(input_ids=torch.tensor([[*tokens, *written]])).logits[0, -1].float()
            written.append(int(logits.argmax()))
        return SimpleNamespace(
            prompt_token_ids=list(tokens),
            prompt_logprobs=listed,
            outputs=[SimpleNamespace(token_ids=written)],
        )

    def _prompt_logprobs(self, tokens, k):
        logits = self.network(input_ids=torch.tensor([tokens])).logits[0, :-1].float()
        rows = torch.log_softmax(logits, dim=-1)
        if self.llm_engine.vllm_config.cache_config.enable_prefix_caching and self.stale:
            start = tuple(tokens[:BLOCK])
            if len(tokens) > BLOCK and start in self.seen:
                rows[: BLOCK - 1] = self.seen[start] - 0.5  # what was left in memory
            self.seen[start] = rows[: BLOCK - 1].clone()
        found = [None]
        for token, row in zip(tokens[1:], rows, strict=True):
            top = torch.topk(row, k)
            # The token itself comes first, with its rank among all; the likeliest follow, and take its place if it is one of them.
            own = {token: Logprob(float(row[token]), int((row >= row[token]).sum()))}
            ranked = zip(top.indices.tolist(), top.values.tolist(), range(1, k + 1), strict=True)
            found.append(own | {place: Logprob(value, rank) for place, value, rank in ranked})
        return found
