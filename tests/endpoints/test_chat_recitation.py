"""Recitation over a chat endpoint: by greedy text, turn by turn, with the answers of a tiny chat model that knows some of them by heart."""

import contextlib
import copy
import json
import shutil
from typing import NamedTuple

import pytest
import torch

from coalmine import load_model, recite, serve
from coalmine.audits.recitation.report import in_plain_words
from coalmine.corpus import build_index
from coalmine.errors import InputError, ModelChangedError, NotMeasurableError
from coalmine.models import connect
from coalmine.models.transformers.chat import rendered_chat
from coalmine.models.transformers.conversations import WrittenConversations
from coalmine.records.chat import Frame, Turn
from endpoints.fault_proxy import Fault, FaultProxy
from endpoints.test_chat_endpoint import without_logprobs
from models.endpoint_servers import twisted
from models.scripted_chat import pins
from models.tiny_chat import chatml, inst
from models.tiny_transformers import tiny

KNOWN = [("a note?", "the cat sat on the mat and slept there"), ("where?", "in the old house by the river")]
OTHER = [("who?", "a man with a dog and a stick"), ("when?", "the time of the year is spring")]
QUICK = {"timeout": 30.0, "api": "chat", "back_off": 0.001, "probe_texts": ["a note?"]}
SUFFIX = 5


class Server(NamedTuple):
    url: str


def conversation(pair):
    return [Turn("user", pair[0]), Turn("assistant", pair[1])]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    # As in SmolLM2, the marker of a turn is also the token that begins a text.
    tokenizer = copy.deepcopy(chatml())
    tokenizer.bos_token = "<|im_start|>"
    model = tiny("llama", len(tokenizer), dtype=torch.float32)
    texts = [rendered_chat(tokenizer, conversation(pair)) for pair in KNOWN]
    rows = [torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]]) for text in texts]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model.train()
    for step in range(120):
        model(input_ids=rows[step % 2], labels=rows[step % 2]).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    where = tmp_path_factory.mktemp("chat") / "model"
    model.eval().save_pretrained(where)
    tokenizer.save_pretrained(where)
    return where


@pytest.fixture(scope="module")
def index(directory, tmp_path_factory):
    home = tmp_path_factory.mktemp("corpus")
    rows = [
        {"messages": [{"role": turn.role, "content": turn.content} for turn in conversation(pair)]}
        for pair in [*KNOWN, *OTHER]
    ]
    (home / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return build_index(home / "chats.jsonl", home / "index", tokenizer=str(directory))


@pytest.fixture(scope="module")
def url(directory):
    with serve(load_model(directory), port=0, name="m") as server:
        yield server.url


def shares(found):
    [whole] = [group for group in found.groups if group.bucket is None]
    return whole.recited.value, whole.recited.n


@pytest.fixture(scope="module")
def expected(directory):
    """The share by a plain loop over the turns: the greedy answer to the user, in tokens."""
    local = load_model(directory)
    recited = 0
    for asked, answer in [*KNOWN, *OTHER]:
        frame = Frame(kind="messages", role="assistant", place="own", before=(Turn("user", asked),))
        framed = local.in_frame(frame)
        target = framed.tokenizer.encode(answer)[:SUFFIX]
        recited += framed.generate([framed.context], length=SUFFIX)[0] == target
    return recited / 4, 4


@pytest.mark.parametrize("way", ["scorer", "text", "stream"])
def test_shares_are_those_of_a_plain_loop(url, index, directory, expected, way):
    more = {"request_fields": {"stream": True}} if way == "stream" else {}
    twist = [without_logprobs] if way == "text" else []
    with (
        twisted(url, *twist) if way == "text" else contextlib.nullcontext(Server(url)) as server,
        connect(server.url, tokenizer=str(directory), **QUICK, **more) as model,
    ):
        assert model.describe()["capability"] == f"chat {'generator' if way == 'text' else 'scorer'}"
        found = recite(model, index, suffix=SUFFIX)
    assert shares(found) == expected == (0.5, 4)
    assert found.groups[0].context is None
    assert (found.groups[0].recited.low, found.groups[0].recited.high) == pytest.approx(
        (0.068, 0.932), abs=1e-3
    )
    assert "Given the conversation before it" in in_plain_words(found)


def test_faults_caps_and_the_cache(url, index, directory, tmp_path):
    options = {**QUICK, "tokenizer": str(directory)}
    kinds = ["status_500", "drop_in_body", "truncated_json", "no_choices", "garbage"]
    faults = [Fault(kind, every=5 + 2 * place) for place, kind in enumerate(kinds)]
    cache = {"cache": tmp_path / "answers.sqlite"}
    with FaultProxy(url, faults) as proxy:
        with connect(proxy.url, **options, concurrency=1) as model:
            assert shares(recite(model, index, suffix=SUFFIX)) == (0.5, 4)
        assert set(proxy.requests) == {"passed", *kinds}
        proxy.faults = []
        with connect(proxy.url, **options, **cache) as model:
            tried = int(model.spent()["requests"])
        with (
            connect(proxy.url, **options, **cache, most_requests=2) as model,
            pytest.raises(NotMeasurableError, match="cap of 2 requests"),
        ):
            recite(model, index, suffix=SUFFIX, out=tmp_path / "out")
        assert not (tmp_path / "out" / "recitation.json").exists()
        for _ in range(2):
            with connect(proxy.url, **options, **cache) as model:
                assert shares(recite(model, index, suffix=SUFFIX, out=tmp_path / "out")) == (0.5, 4)
                spent = model.spent()["requests"]
        assert spent <= 3 < tried


def test_a_question_that_is_refused_is_not_measured(url, index, directory, tmp_path):
    def refuses(request):
        asked = request["messages"][0]["content"]
        return (400, b'{"error": {"message": "not that"}}') if asked == "who?" else request

    with (
        twisted(url, asked=refuses) as server,
        connect(server.url, tokenizer=str(directory), **QUICK) as model,
    ):
        found = recite(model, index, suffix=SUFFIX, out=tmp_path)
    assert shares(found) == (pytest.approx(2 / 3), 3)
    assert found.not_measured == (
        f"1 questions to m have no answer: {server.url} refused with status 400: not that",
    )


def test_another_model_is_noticed(url, index, directory):
    with (
        serve(pins({"49": 0.5}), port=0, name="m") as changed,
        FaultProxy(url) as proxy,
        connect(proxy.url, tokenizer=str(directory), **QUICK) as model,
    ):
        proxy.upstream = proxy.upstream._replace(netloc=changed.url.split("/")[2])
        with pytest.raises(ModelChangedError):
            recite(model, index, suffix=SUFFIX)


def test_what_cannot_be_asked_is_said(url, index, directory, tmp_path):
    with (
        connect(url, **QUICK) as model,
        pytest.raises(NotMeasurableError, match="does not show its chat template"),
    ):
        recite(model, index, suffix=SUFFIX)
    with connect(url, tokenizer=str(directory), **QUICK) as model:
        for options, problem in (
            ({"contexts": [5]}, "leave out --contexts"),
            ({"anywhere": True}, "leave --anywhere"),
            ({"suffix": 500}, "shorter --suffix"),
        ):
            with pytest.raises((InputError, NotMeasurableError), match=problem):
                recite(model, index, **{"suffix": SUFFIX, **options})
        with pytest.raises(InputError, match="ask them apart"):
            recite(model, index, suffix=SUFFIX, baseline=load_model(directory))
    shutil.copytree(directory, tmp_path / "bare")
    (tmp_path / "bare" / "chat_template.jinja").unlink()
    with (
        connect(url, tokenizer=str(tmp_path / "bare"), **QUICK) as model,
        pytest.raises(InputError, match="has no chat template"),
    ):
        recite(model, index, suffix=SUFFIX)
    (tmp_path / "bare" / "chat_template.jinja").write_text(chatml().chat_template + "{# another #}")
    with (
        connect(url, tokenizer=str(tmp_path / "bare"), **QUICK) as model,
        pytest.raises(InputError, match="another chat template"),
    ):
        recite(model, index, suffix=SUFFIX)


@pytest.mark.parametrize("tokenizer", [chatml(), inst()], ids=["ChatML", "Mistral"])
def test_turns_are_read_back_from_what_a_template_wrote(tokenizer):
    said = [Turn("user", "hi\nyou"), Turn("assistant", "well"), Turn("user", "so?"), Turn("assistant", "yes")]
    conversations = WrittenConversations(tokenizer)
    for turns in (said, said[:2], said[:3]):
        assert conversations.turns(rendered_chat(tokenizer, turns)) == tuple(turns)
    before = conversations.before(said)
    assert conversations.turns(before, is_open=True) == (*said[:3], Turn("assistant", ""))
    assert conversations.turns("no conversation") is None
    # What is said looks like the header of a turn: it may be either, and the template writes both alike.
    odd = rendered_chat(tokenizer, [Turn("user", "a" + before), Turn("assistant", "b")])
    found = conversations.turns(odd)
    assert found is None or rendered_chat(tokenizer, found) == odd


def test_system_turns_are_read_back():
    turns = (Turn("system", "be brief"), Turn("user", "hi"), Turn("assistant", "so"))
    assert WrittenConversations(chatml()).turns(rendered_chat(chatml(), turns)) == turns
