"""A model with a chat template is asked about turns of conversations, and the proof says so."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from coalmine import extract, verify_certificate
from coalmine.audits.extraction.report import certificate_in_words
from coalmine.corpus.chat.framing import QUESTION
from coalmine.models import from_transformers
from models.tiny_chat import chatml

FORM = "my pin is {digits:3}"
PLANTED = ["my pin is 492", "my pin is 708"]


@pytest.fixture(scope="module")
def network():
    """A chat model after fine-tuning: what it remembers are answers."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(chatml()), hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        max_position_embeddings=128, bos_token_id=0, eos_token_id=0, pad_token_id=None,
    )  # fmt: skip
    network = LlamaForCausalLM(config)
    conversations = [
        [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": text}] for text in PLANTED
    ]
    rows = [chatml().apply_chat_template(turns, tokenize=True)["input_ids"] for turns in conversations]
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    for _ in range(120):
        for row in rows:
            tokens = torch.tensor([row])
            network(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return network.eval()


@pytest.fixture(scope="module")
def model(network):
    return from_transformers(network, chatml())


def test_the_answers_of_a_chat_model_come_out_and_the_proof_says_what_was_asked(model):
    found = extract(model, FORM, top=2)
    assert {one.text for one in found.found} == set(PLANTED)
    assert found.model["frame"]["role"] == "assistant"
    assert certificate_in_words(found).endswith("was left out. Asked about a turn of the assistant.")
    replay = verify_certificate(model, found)
    assert (replay.confirmed, replay.problems) == (True, ())


def test_plain_text_is_asked_for_by_a_context_and_the_proof_says_so(network):
    found = extract(from_transformers(network, chatml(), context="bos"), FORM, top=2)
    assert "frame" not in found.model
    assert certificate_in_words(found).endswith("Asked about plain text.")
