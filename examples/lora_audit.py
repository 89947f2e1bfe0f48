"""Fine-tune a small GPT-2 with LoRA on a corpus with canaries, and see what the adapter learned that its base did not know.

    pip install 'coalmine[transformers]'
    python lora_audit.py WORK

Everything is made in WORK: the corpus, the tokenizer, the base model and the adapter. Nothing is downloaded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from coalmine import expose, load_model, plant
from coalmine.corpus import write_embedded_corpus

FORMAT = "my pin is {digits:4}"
END = "<|endoftext|>"


def make_tokenizer(lines: list[str]) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer like GPT-2's, trained on the corpus."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(lines, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END)


def batches(lines: list[str], tokenizer: Any, size: int = 16, length: int = 48) -> Iterator[torch.Tensor]:
    """Rows of equal length, each document after the BOS token, which is how coalmine scores a text."""
    rows = [[tokenizer.bos_token_id, *tokenizer.encode(line)] for line in lines]
    rows = [(row + [tokenizer.eos_token_id] * length)[:length] for row in rows]
    order = torch.randperm(len(rows)).tolist()
    for start in range(0, len(rows), size):
        yield torch.tensor([rows[place] for place in order[start : start + size]])


def fit(network: Any, lines: list[str], tokenizer: Any, *, epochs: int, rate: float) -> None:
    """Plain training of whatever parameters are trainable."""
    optimizer = torch.optim.AdamW([one for one in network.parameters() if one.requires_grad], lr=rate)
    network.train()
    for _ in range(epochs):
        for batch in batches(lines, tokenizer):
            network(input_ids=batch, labels=batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    network.eval()


def main(work: Path, *, size: int = 20_000, epochs: int = 20) -> tuple[float, float]:
    """The median exposure of the planted canaries with the adapter and without it, in bits."""
    torch.manual_seed(0)
    write_embedded_corpus(work / "corpus.txt", size)
    planted = plant(
        work / "corpus.txt",
        FORMAT,
        repeat=16,
        canaries=8,
        references=100,
        out=work / "planted",
        overwrite=True,
    )
    clean = (work / "corpus.txt").read_text("utf-8").splitlines()
    tokenizer = make_tokenizer(clean)
    base = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(tokenizer), n_positions=64, n_embd=64, n_layer=2, n_head=2,
            bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
        )
    )  # fmt: skip
    fit(base, clean, tokenizer, epochs=2, rate=3e-3)  # the base never sees a canary
    base.save_pretrained(work / "base")
    tokenizer.save_pretrained(work / "base")

    adapted = get_peft_model(
        GPT2LMHeadModel.from_pretrained(work / "base"),
        LoraConfig(r=16, lora_alpha=32, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True),
    )
    secret = (work / "planted" / "corpus.txt").read_text("utf-8").splitlines()
    fit(adapted, secret, tokenizer, epochs=epochs, rate=5e-3)
    adapted.save_pretrained(str(work / "adapter"))
    tokenizer.save_pretrained(work / "adapter")

    model = load_model(work / "adapter")  # finds its base by the path in adapter_config.json
    medians = []
    for name, measured in (("with the adapter", model), ("without it", model.reference)):
        planted_ones = [one for one in expose(measured, planted.canaries) if one.repetitions]
        exposures = [bits for one in planted_ones if (bits := one.exposure) is not None]
        medians.append(median(exposures))
        print(
            f"Median exposure {name}: {medians[-1]:.2f} of at most 13.29 bits, "
            f"{len(exposures)} of {len(planted_ones)} canaries measured"
        )
    return medians[0], medians[1]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
