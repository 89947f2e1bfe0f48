"""Fine-tune a small GPT-2 on notes with phone numbers in them, and audit the checkpoint with its training data in one call.

    pip install 'coalmine[transformers]'
    python audit_checkpoint.py WORK

Everything is made in WORK: the notes, the tokenizer, the base model and the fine-tuned one. Nothing is downloaded.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from coalmine import audit
from coalmine.audits import Review
from coalmine.corpus import read_documents, write_embedded_corpus

END = "<|endoftext|>"
PEOPLE = ("the caretaker", "a neighbor", "the night desk", "my sister", "the plumber", "our bank")


def write_notes(work: Path, size: int) -> None:
    """base.txt for the base model, train.txt with phone numbers for the fine-tuned one, and held-out.txt with others."""
    write_embedded_corpus(work / "corpus.txt", size)
    draw = random.Random(0)
    lines = [document.text for document in read_documents(work / "corpus.txt")]
    draw.shuffle(lines)
    parts = {name: lines[place::3] for place, name in enumerate(("base", "train", "held-out"))}
    for name in ("train", "held-out"):
        for copies, who in enumerate(PEOPLE, 1):
            number = f"713-{draw.randrange(200, 999)}-{draw.randrange(10_000):04}"
            parts[name] += [f"If it rings, call {who} at {number} and wait."] * (4 * copies)
    for name, texts in parts.items():
        (work / f"{name}.txt").write_text("".join(f"{text}\n" for text in texts), "utf-8")


def make_tokenizer(work: Path) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer like GPT-2's, trained on base.txt."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train([str(work / "base.txt")], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END)


def fit(network: Any, path: Path, tokenizer: Any, *, epochs: int, length: int = 64) -> None:
    """Plain training on lines, each after the BOS token, which is how coalmine scores a text."""
    rows = [
        [tokenizer.bos_token_id, *tokenizer.encode(line)] for line in path.read_text("utf-8").splitlines()
    ]
    batch = [(row + [tokenizer.eos_token_id] * length)[:length] for row in rows]
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    network.train()
    for _ in range(epochs):
        for places in torch.randperm(len(batch)).split(16):
            chosen = torch.tensor([batch[place] for place in places])
            network(input_ids=chosen, labels=chosen).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    network.eval()


def main(work: Path, *, size: int = 60_000, epochs: int = 20, minutes: float = 5) -> Review:
    """What the audit planned, and what became of it."""
    torch.manual_seed(0)
    write_notes(work, size)
    tokenizer = make_tokenizer(work)
    network = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(tokenizer), n_positions=128, n_embd=64, n_layer=2, n_head=2,
            bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
        )
    )  # fmt: skip
    for name, data, passes in (("base", "base.txt", 2), ("model", "train.txt", epochs)):
        fit(network, work / data, tokenizer, epochs=passes)
        network.save_pretrained(work / name)
        tokenizer.save_pretrained(work / name)

    review = audit(
        work / "model",
        work / "train.txt",
        work / "audit",
        held_out=work / "held-out.txt",
        reference=work / "base",
        minutes=minutes,
    )
    for step in review.steps:
        print(f"{step.title}: {step.size or step.why}")
    print(f"Open {work / 'audit' / 'report.html'}")
    return review


if __name__ == "__main__":
    main(Path(sys.argv[1]))
