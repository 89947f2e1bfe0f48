"""What does a long prefix cost that many candidates share? Its keys and values are there once, not once per row.

A Llama-like model with random weights scores 10^4 candidates after a prefix of 4,000 tokens, and walks them token by token. The plain
way to share a prefix reads it once and copies its keys and values for each row of a batch. Each way runs in a process of its own. Memory
is what it takes beyond the libraries and the weights, and time is that of the processor. Scoring with copies is measured on a tenth of
the candidates and scaled, and so is reading full strings from their first token, on one in 500.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import math
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
WAYS = ("shared", "copied")
# Of how many candidates one is scored, where scoring all takes long.
SHARES = {"shared": 1, "copied": 10, "full strings": 500}


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


def measure(way: str, what: str, tokens: int, digits: int) -> dict[str, Any]:
    """Seconds and megabytes of one way to do something."""
    network, tokenizer = small_llama(tokens + 64)
    model = from_transformers(network, tokenizer, name="small Llama")
    if way == "copied":
        model.network.__dict__["sharing"] = None  # as if the model's attention could not be shared
    words = "the quick brown fox jumps over the lazy dog "
    form = Format((words * tokens)[: tokens - 1].rstrip() + f" {{digits:{digits}}}")
    # One tuple for all of them.
    context = (*model.context, *model.tokenizer.encode(form.prefix))
    rests = [tuple(model.tokenizer.encode(f"{number:0{digits}}")) for number in range(form.size)]
    sequences = [TokenSequence(context, rest) for rest in rests][:: SHARES[way]]
    tree = TokenTree(form, model.tokenizer) if what == "walking" else None
    model.score([TokenSequence(context[:20], rest) for rest in rests[:2]])
    give_back()
    before = forget_peak()
    began = time.process_time()
    facts: dict[str, Any] = {}
    if tree is not None:
        frontier = Frontier(model, tree)
        batches = list(enumerate_members(frontier))
        order = np.argsort(np.concatenate([one.indices for one in batches]))
        costs = np.concatenate([one.costs for one in batches])[order]
        facts["rows"] = frontier.batch
    elif way == "full strings":
        costs = np.array([full_cost(network, one) for one in sequences])
    else:
        costs = np.array([one.log_perplexity_bits for one in model.score(sequences)])
    return {
        **facts,
        "seconds": (time.process_time() - began) * (SHARES[way] if tree is None else 1),
        "megabytes": (status("VmHWM") - before) / 1024,
        "prefix_megabytes": model.state_bytes(model.start([context]).states) / 2**20,
        # The walk counts the bits of the prefix too, which are the same for all.
        "costs": (costs - costs[0])[:: 500 // (SHARES[way] if tree is None else 1)].tolist(),
    }


def give_back() -> None:
    """Return to the system what the allocator keeps, so that it is not used for what is measured next; glibc only."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


@torch.inference_mode()
def full_cost(network: LlamaForCausalLM, sequence: TokenSequence) -> float:
    """The bits of a target, by a plain call of transformers."""
    ids = torch.tensor([sequence.context + sequence.target])
    log2 = torch.log_softmax(network(input_ids=ids).logits[0, :-1], dim=-1) / math.log(2)
    return -float(log2.gather(1, ids[0, 1:, None])[len(sequence.context) - 1 :].sum())


def in_a_process(way: str, what: str, given: argparse.Namespace) -> dict[str, Any]:
    """What a new process measures."""
    child = [sys.executable, "-m", "benchmarks.shared_prefix", "--way", way, "--what", what]
    child += ["--tokens", str(given.tokens), "--digits", str(given.digits), "--threads", str(given.threads)]
    found: dict[str, Any] = json.loads(
        subprocess.run(child, check=True, capture_output=True, text=True).stdout
    )
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=4_000, help="of the prefix")
    parser.add_argument("--digits", type=int, default=4, help="how many digits the candidates have")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--way", choices=SHARES, help="measure one way in this process, and print JSON")
    parser.add_argument("--what", choices=("scoring", "walking"), default="scoring")
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    if given.way:
        print(json.dumps(measure(given.way, given.what, given.tokens, given.digits)))
        return
    members = 10**given.digits
    asked = [*((what, way) for what in ("scoring", "walking") for way in WAYS), ("scoring", "full strings")]
    expected: list[float] = []
    for what, way in asked:
        found = in_a_process(way, what, given)
        if not expected:
            one = found["prefix_megabytes"]
            print(
                f"{members:,} candidates after a prefix of {given.tokens:,} tokens, whose keys and values take {one:.1f} MB"
            )
            print(f"one copy for each candidate would take {one * members / 1024:,.0f} GB", flush=True)
            expected = found["costs"]
        apart = float(np.abs(np.array(found["costs"]) - np.array(expected)).max())
        scaled = f", measured on one in {SHARES[way]}" if what == "scoring" and SHARES[way] > 1 else ""
        rows = f" in batches of {found['rows']:,}" if "rows" in found else ""
        print(
            f"{what}, {way}: {found['seconds']:.1f} s{scaled}, {found['megabytes']:.0f} MB{rows}; costs differ by {apart:.1e} bits",
            flush=True,
        )


if __name__ == "__main__":
    main()
