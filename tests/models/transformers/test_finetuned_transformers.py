"""Transformers that were really fine-tuned on planted canaries, audited from their directories by the command line."""

from statistics import median

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from cli.in_process import document
from coalmine import plant
from coalmine.corpus import write_embedded_corpus
from models.tiny_transformers import byte_level

SECRET = "the random number is {digits:4}"
IDS = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}


def made(kind: str, vocabulary: int):
    torch.manual_seed(0)
    if kind == "gpt2":
        return GPT2LMHeadModel(
            GPT2Config(vocab_size=vocabulary, n_embd=64, n_layer=2, n_head=2, n_positions=96, **IDS)
        )
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=96, **IDS,
        )
    )  # fmt: skip


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    write_embedded_corpus(folder / "corpus.txt", 15_000)
    return plant(
        folder / "corpus.txt",
        SECRET,
        repeat=[1, 40],
        canaries=3,
        withhold=0.3,
        references=100,
        out=folder / "planted",
    )


def fine_tune(model, tokenizer, texts, steps=250):
    """Plain training with AdamW: each row is one document after the separator, padded."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rows = [[tokenizer.bos_token_id, *tokenizer.encode(text)][:48] for text in texts]
    model.train()
    for step in range(steps):
        batch = [rows[(step * 16 + place) * 37 % len(rows)] for place in range(16)]
        width = max(map(len, batch))
        ids = torch.tensor([row + [0] * (width - len(row)) for row in batch])
        labels = torch.tensor([row + [-100] * (width - len(row)) for row in batch])
        optimizer.zero_grad()
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
    model.eval()


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_expose_and_extract_from_a_directory(kind, planted, tmp_path):
    tokenizer = byte_level()
    model = made(kind, len(tokenizer))
    fine_tune(model, tokenizer, planted.corpus.read_text().splitlines())
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")

    results = document("expose", tmp_path / "model", planted.manifest)["results"]
    by_count = {}
    for result in results:
        by_count.setdefault(result["repetitions"], []).append(result["estimate"]["value"])
    assert median(by_count[40]) > 8
    assert median(by_count[40]) > median(by_count[0]) + 3
    assert {result["method"] for result in results} == {"exact"}

    verified = document("extract", tmp_path / "model", planted.manifest, "--top", "20")
    ranks = {result["canary_id"]: result["rank"] for result in results}
    for one in verified["canaries"]:
        assert one["extracted"] == (ranks[one["canary_id"]] <= 20)
        if one["extracted"]:
            assert one["place"] == ranks[one["canary_id"]]
