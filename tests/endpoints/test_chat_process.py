"""A tiny Llama-like chat model that knows two PINs by heart, served by `coalmine serve` in a process of its own, and audited over HTTP."""

import pytest
import torch

from coalmine import CanarySet, expose, load_model
from coalmine.models import connect
from coalmine.models.transformers.chat import rendered_chat
from coalmine.records.chat import Frame, Turn
from models.endpoint_servers import serving_process
from models.tiny_chat import chatml
from models.tiny_transformers import tiny

ASKED = (Turn("user", "a note?"),)
FRAME = Frame(kind="messages", role="assistant", place="own", before=ASKED)
KNOWN = ["my pin is 49", "my pin is 17"]
CANARIES = CanarySet.of("my pin is {digits:2}", [*KNOWN, "my pin is 55"])
QUICK = {"timeout": 30.0, "api": "chat", "probe_texts": ["the cat sat"]}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A model that was trained on the conversations of the known canaries, and on one for the first test of a server."""
    tokenizer = chatml()
    model = tiny("llama", len(tokenizer), dtype=torch.float32)
    turns = [FRAME.conversation(text) for text in KNOWN]
    turns.append((Turn("user", "the cat sat"), Turn("assistant", "on the mat and slept there")))
    rows = [tokenizer(rendered_chat(tokenizer, one), add_special_tokens=False)["input_ids"] for one in turns]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model.train()
    for step in range(90):
        row = torch.tensor([rows[step % len(rows)]])
        model(input_ids=row, labels=row).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    where = tmp_path_factory.mktemp("chat") / "model"
    model.eval().save_pretrained(where)
    tokenizer.save_pretrained(where)
    return where


def test_exposures_over_http_are_the_local_ones(directory):
    local = load_model(directory).in_frame(FRAME)
    expected = list(expose(local, CANARIES, method="exact"))
    with (
        serving_process(directory) as url,
        connect(url, tokenizer=str(directory), **QUICK) as model,
    ):
        assert model.describe()["capability"] == "chat scorer"
        found = list(expose(model.in_frame(FRAME), CANARIES, method="exact"))
        written = model.in_frame(FRAME).complete(["my pin is "], length=2)
    for result, own in zip(found[:2], expected[:2], strict=True):
        assert result.rank == own.rank <= 2
        assert result.exposure == pytest.approx(own.exposure, abs=0.01)
    for result, own in zip(found, expected, strict=True):
        low, high = result.estimate.low, result.estimate.high
        if low is not None and high is not None:
            assert low - 0.01 <= own.exposure <= high + 0.01
    assert f"my pin is {written[0]}" in KNOWN
