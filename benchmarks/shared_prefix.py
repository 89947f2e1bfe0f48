"""What does a long prefix cost that many candidates share? Its keys and values are there once, not once per row.

A Llama-like model with random weights scores 10^4 candidates after a prefix of 4,000 tokens, and walks them token by token. The plain
way to share a prefix reads it once and copies its keys and values for each row of a batch. Each way runs in a process of its own. Memory
is what it takes beyond the libraries and the weights, and time is that of the processor. Scoring with copies is measured on a tenth of
the candidates and scaled, and so is reading full strings from their first token, on a few of them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM

from benchmarks.vocabularies import forget_peak, status
from coalmine import Format
from coalmine.models import TokenSequence, from_transformers
from coalmine.search.tree.token_tree import TokenTree
from coalmine.search.walks.enumeration import enumerate_members
from coalmine.search.walks.frontier import Frontier

END = "<|end|>"
WAYS = ("shared", "copied", "full strings")


def small_llama(positions: int) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """4 layers of 256 with 8 heads and 4 heads of keys; a token is a byte. Neither speed nor memory depends on what it has learned."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={one: i for i, one in enumerate([END, *alphabet])}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(fast), hidden_size=256, intermediate_size=688, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=4, max_position_embeddings=positions, bos_token_id=0, eos_token_id=0, pad_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval(), fast


def measure(way: str, tokens: int, digits: int, sample: int) -> dict[str, Any]:
    """Seconds and megabytes of one way, and costs to compare it by."""
    network, tokenizer = small_llama(tokens + 64)
    model = from_transformers(network, tokenizer, name="small Llama")
    if way == "copied":
        model.network.__dict__["sharing"] = None  # as if the model's attention could not be shared
    words = "the quick brown fox jumps over the lazy dog "
    form = Format((words * tokens)[: tokens - 1].rstrip() + f" {{digits:{digits}}}")
    tree = TokenTree(form, model.tokenizer)
    # One tuple for all of them.
    context = (*model.context, *tree.prefix)
    rests = [tuple(model.tokenizer.encode(text[len(form.prefix) :])) for text in form]
    sequences = [TokenSequence(context, rest) for rest in rests]
    model.score(sequences[:2])
    forget_peak()
    before = status("VmRSS")
    began = time.process_time()
    if way == "full strings":
        with torch.inference_mode():
            for sequence in sequences[:sample]:
                ids = torch.tensor([sequence.context + sequence.target])
                torch.log_softmax(network(input_ids=ids).logits, dim=-1)
        scored = (time.process_time() - began) * len(sequences) / sample
        return {"seconds": scored, "megabytes": (status("VmHWM") - before) / 1024}
    share = 10 if way == "copied" else 1
    costs = np.array([one.log_perplexity_bits for one in model.score(sequences[::share])])
    found = {
        "seconds": (time.process_time() - began) * share,
        "megabytes": (status("VmHWM") - before) / 1024,
    }
    forget_peak()
    before = status("VmRSS")
    began = time.process_time()
    frontier = Frontier(model, tree)
    batches = list(enumerate_members(frontier))
    walked = np.concatenate([one.costs for one in batches])[
        np.argsort(np.concatenate([one.indices for one in batches]))
    ]
    return {
        **found,
        "walking_seconds": time.process_time() - began,
        "walking_megabytes": (status("VmHWM") - before) / 1024,
        "rows": frontier.batch,
        "prefix_megabytes": model.state_bytes(frontier.root().model_states) / 2**20,
        # The walk counts the bits of the prefix too.
        "difference_bits": float(np.abs((walked[::share] - walked[0]) - (costs - costs[0])).max()),
        "sum_bits": float((walked - walked[0]).sum()),
    }


def in_a_process(way: str, given: argparse.Namespace) -> dict[str, Any]:
    """What a new process measures."""
    sizes = ["--tokens", str(given.tokens), "--digits", str(given.digits), "--sample", str(given.sample)]
    child = [
        sys.executable,
        "-m",
        "benchmarks.shared_prefix",
        "--way",
        way,
        *sizes,
        "--threads",
        str(given.threads),
    ]
    found: dict[str, Any] = json.loads(
        subprocess.run(child, check=True, capture_output=True, text=True).stdout
    )
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=4_000, help="of the prefix")
    parser.add_argument(
        "--digits", type=int, default=4, help="candidates are all numbers with so many digits"
    )
    parser.add_argument("--sample", type=int, default=20, help="full strings to read")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--way", choices=WAYS, help="measure one way in this process, and print JSON")
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    if given.way:
        print(json.dumps(measure(given.way, given.tokens, given.digits, given.sample)))
        return
    members = 10**given.digits
    print(f"{members:,} candidates after a prefix of {given.tokens:,} tokens")
    for way in WAYS:
        found = in_a_process(way, given)
        print(f"{way}: scoring {found['seconds']:.1f} s and {found['megabytes']:.0f} MB", end="")
        if "rows" not in found:
            print(f" (measured on {given.sample}, scaled)")
            continue
        print(
            f", walking {found['walking_seconds']:.1f} s and {found['walking_megabytes']:.0f} MB in batches of {found['rows']:,}; "
            f"one prefix is {found['prefix_megabytes']:.1f} MB, all are {found['prefix_megabytes'] * members / 1024:.0f} GB; "
            f"walking and scoring differ by {found['difference_bits']:.1e} bits, relative costs add up to {found['sum_bits']:,.3f}"
        )


if __name__ == "__main__":
    main()
