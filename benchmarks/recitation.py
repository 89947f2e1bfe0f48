"""How many sequences a second does one pass over the true suffix judge, against batched generate() of transformers, at 100 tokens
of context and 50 of suffix, with identical verdicts? The promise is 5 times as many. One pass does a prefill and little else, so the
ratio is what decoding costs beside it: less in larger batches, more on accelerators, where each step waits for the one before.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.transformer import small_gpt2
from coalmine.models import Sampling, TokenSequence, from_transformers
from coalmine.randomness import arrays

CONTEXT, SUFFIX = 100, 50
# One suffix in so many is recited.
RECITED = 10
ROUNDS = 3


def gpt2(width: int, layers: int, vocabulary: int, padding: int) -> GPT2LMHeadModel:
    """A GPT-2 with random weights: what it has learned does not change its speed."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=vocabulary,
        n_embd=width,
        n_layer=layers,
        n_head=width // 64,
        n_positions=256,
        bos_token_id=0,
        eos_token_id=None,
        pad_token_id=padding,
    )
    network = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        # Wide enough that what is written does not fall into a loop at once.
        network.transformer.wte.weight.normal_(std=0.1)
    return network


@torch.inference_mode()
def generate(network: GPT2LMHeadModel, prompts: list[tuple[int, ...]], batch: int) -> list[list[int]]:
    """The usual way: greedy decoding by transformers in large batches, with a cache of keys and values."""
    found: list[list[int]] = []
    for start in range(0, len(prompts), batch):
        ids = torch.tensor(prompts[start : start + batch])
        written = cast("Any", network).generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=SUFFIX,
            min_new_tokens=SUFFIX,
        )
        found += written[:, ids.shape[1] :].tolist()
    return found


@torch.inference_mode()
def read_contexts(network: GPT2LMHeadModel, prompts: list[tuple[int, ...]], batch: int = 16) -> None:
    """What no verdict can do without: one bare pass over the contexts, in batches of the best size here."""
    for start in range(0, len(prompts), batch):
        network.transformer(input_ids=torch.tensor(prompts[start : start + batch]))


def seconds(work: Callable[[], object]) -> float:
    """Processor time, the least of a few rounds."""
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=128)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--vocabulary", type=int, default=50_257, help="GPT-2's own has 50,257 tokens")
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 32, 128], help="of generate()")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    _, tokenizer = small_gpt2()
    network = gpt2(given.width, given.layers, given.vocabulary, 1)
    model = from_transformers(network, tokenizer, name="GPT-2")
    draw = arrays(0, "benchmark", "recitation")
    prompts = [
        (*model.context, *row)
        for row in draw.integers(1, given.vocabulary, (given.sequences, CONTEXT - 1)).tolist()
    ]
    written = generate(network, prompts, given.batches[-1])
    times = {batch: seconds(partial(generate, network, prompts, batch)) for batch in given.batches}
    bare = seconds(partial(read_contexts, network, prompts))
    # As in a real audit, few suffixes are what the model writes: the others differ from it from an early place on.
    targets = [list(tokens) for tokens in written]
    for place, target in enumerate(targets):
        if place % RECITED:
            at = min(SUFFIX - 1, int(draw.geometric(0.4)) - 1)
            target[at] = (target[at] + 1) % given.vocabulary
    verdicts = [target == tokens for target, tokens in zip(targets, written, strict=True)]
    sequences = [
        TokenSequence(prompt, tuple(target)) for prompt, target in zip(prompts, targets, strict=True)
    ]
    print(
        f"GPT-2 of {given.layers} layers of {given.width}, {given.vocabulary:,} tokens, {given.sequences} sequences of "
        f"{CONTEXT} + {SUFFIX}, threads: {given.threads}; sequences a second of processor time"
    )
    for batch, slow in times.items():
        print(f"generate() in batches of {batch}: {given.sequences / slow:.0f}")
    print(f"a bare pass over the contexts: {given.sequences / bare:.0f}")
    for label, options in (
        ("greedy verdict and probability", {"samplings": [Sampling()]}),
        ("greedy verdict only, stopping at a miss", {"stop_at_miss": True}),
    ):
        fast = seconds(partial(model.follow, sequences, **options))
        followed = model.follow(sequences, **options)
        same = sum(
            (one.first_miss is None) == verdict for one, verdict in zip(followed, verdicts, strict=True)
        )
        ratios = ", ".join(f"{slow / fast:.1f}" for slow in times.values())
        print(
            f"one pass, {label}: {given.sequences / fast:.0f}; that is {ratios} times as many; "
            f"identical verdicts: {same} of {given.sequences}"
        )


if __name__ == "__main__":
    main()
