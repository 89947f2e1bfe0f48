"""A planted corpus, a tiny GPT-2 with dropout and the rows to train it on."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from coalmine import Format, plant
from coalmine.corpus import write_embedded_corpus
from models.tiny_transformers import byte_level

SECRET = Format("the random number is {digits:4}")


def planted_corpus(directory, *, repeat=(1, 16), canaries=1, size=6_000, withhold=0.0):
    write_embedded_corpus(directory / "corpus.txt", size)
    return plant(
        directory / "corpus.txt",
        SECRET,
        repeat=repeat,
        canaries=canaries,
        withhold=withhold,
        references=60,
        out=directory / "planted",
    )


def rows_of(planted, width=32):
    """Each document after the separator, cut to the width that the model reads and labeled with itself."""
    tokenizer = byte_level()
    rows = []
    for line in planted.corpus.read_text("utf-8").splitlines():
        ids = [
            tokenizer.bos_token_id,
            *tokenizer.encode(line, add_special_tokens=False)[: width - 2],
            tokenizer.eos_token_id,
        ]
        padding = width - len(ids)
        rows.append(
            {
                "input_ids": ids + [0] * padding,
                "attention_mask": [1] * len(ids) + [0] * padding,
                "labels": ids + [-100] * padding,
            }
        )
    return rows


def tiny_gpt2(seed=0):
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=len(byte_level()), n_embd=16, n_layer=1, n_head=2, n_positions=64, bos_token_id=0, eos_token_id=0
    )  # fmt: skip
    assert config.resid_pdrop > 0
    return GPT2LMHeadModel(config)
