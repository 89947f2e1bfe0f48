"""What does the shared cache of a transformer save? Exact exposure over 10^5 members of a GPT-2-like model with a byte-level
tokenizer, against scoring each full string in large padded batches with the same model. The promise is 10 times less time.
"""

from __future__ import annotations

import argparse
import math
import time

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from coalmine import CanarySet, Format, expose
from coalmine.corpus import embedded_documents
from coalmine.models import from_transformers

END = "<|endoftext|>"


def small_gpt2():
    """A GPT-2 of 4 layers of 128, with random weights: speed does not depend on what it has learned."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=2000, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    numbers = [str(number * 7919 % 10**6) for number in range(5000)]
    tokenizer.train_from_iterator([*embedded_documents(300_000), *numbers], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END)
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(fast), n_embd=128, n_layer=4, n_head=4, n_positions=128, bos_token_id=0, eos_token_id=0
    )
    return GPT2LMHeadModel(config).eval(), fast


@torch.inference_mode()
def score_full_strings(network, tokenizer, texts, batch=512) -> None:
    """The naive way: each text from its first token, padded on the right, in large batches."""
    for start in range(0, len(texts), batch):
        rows = [[tokenizer.bos_token_id, *tokenizer.encode(text)] for text in texts[start : start + batch]]
        width = max(map(len, rows))
        ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
        logits = network(input_ids=ids, attention_mask=mask, use_cache=False).logits
        log2 = torch.log_softmax(logits[:, :-1], dim=-1) / math.log(2)
        (log2.gather(2, ids[:, 1:, None])[:, :, 0] * mask[:, 1:]).sum(dim=1)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--digits", type=int, default=5)
    parser.add_argument("--sample", type=int, default=2_000, help="full strings to score")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    network, tokenizer = small_gpt2()
    model = from_transformers(network, tokenizer, name="small GPT-2")
    form = Format(
        f"dear colleague, as agreed on the phone the random number of my account is {{digits:{given.digits}}}"
    )
    canaries = CanarySet.of(form, form.sample(4, seed=0, replace=False))
    texts = form.sample(given.sample, seed=1)
    ours, naive = [], []
    for _ in range(3):
        began = time.perf_counter()
        results = expose(model, canaries, method="exact")
        ours.append(time.perf_counter() - began)
        began = time.perf_counter()
        score_full_strings(network, tokenizer, texts)
        naive.append((time.perf_counter() - began) * form.size / given.sample)
    length = len(tokenizer.encode(texts[0]))
    print(f"{form.size:,} members of about {length} tokens, {results.expansions:,} expansions")
    print(
        f"shared cache {min(ours):.1f} s, full strings {min(naive):.0f} s (measured on {given.sample:,}, scaled): "
        f"{min(naive) / min(ours):.0f} times less time"
    )


if __name__ == "__main__":
    main()
