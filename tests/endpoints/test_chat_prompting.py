"""Extraction by prompting over a chat endpoint: shares over prompts, through faults, caps and switches; and user canaries, which are never safe."""

import json
import subprocess
import sys
import time

import pytest

from cli.in_process import run
from coalmine import CanarySet, extract, serve
from coalmine.audits import read_extraction, verify_extraction
from coalmine.audits.extraction.prompting import share_of_prompts
from coalmine.errors import ContradictionError, InputError, ModelChangedError, NotMeasurableError
from coalmine.models import connect
from coalmine.records.chat import Turn
from endpoints.fault_proxy import Fault, FaultProxy, Switch
from endpoints.test_chat_endpoint import (
    ASSISTANT,
    FORMAT,
    QUICK,
    REFUSED,
    SHARES,
    continues_nothing,
    lists_five,
    without_logprobs,
)
from models.endpoint_servers import twisted
from models.scripted_chat import ASKED, ScriptedChat, conversation, pins, save_characters

PROMPTS = (ASKED[0].content, "the cat sat", "who are you?", "a b c")
OTHERWISE = Turn("user", "the cat sat"), Turn("assistant", "in a box")
ASKS = {"method": "prompt", "prompts": PROMPTS}


@pytest.fixture(scope="module")
def url():
    with serve(pins(SHARES), port=0, name="m") as server:
        yield server.url


def refuses_one(request):
    return REFUSED if request["messages"][0]["content"] == "who are you?" else request


@pytest.mark.parametrize("asked", [None, continues_nothing], ids=["continues", "answers"])
def test_the_share_of_prompts_has_an_interval(url, asked):
    with (
        twisted(url, without_logprobs, **({} if asked is None else {"asked": asked})) as server,
        connect(server.url, **QUICK) as model,
    ):
        found = extract(model.in_frame(ASSISTANT), FORMAT, **ASKS)
    prompts = found.prompts
    assert [one.text for one in found.found] == ["my pin is 49"]
    assert (prompts.asked, prompts.failed, prompts.wrote) == (4, 0, 1)
    assert (
        prompts.share.statement
        == "a member came out after 1 of 4 prompts (25%, 95% interval 0.63% to 80.59%)"
    )
    assert not found.proven


def test_prompts_without_an_answer_are_counted(url, tmp_path):
    with (
        twisted(url, asked=refuses_one) as server,
        connect(server.url, **QUICK) as model,
    ):
        framed = model.in_frame(ASSISTANT)
        found = extract(framed, FORMAT, **ASKS)
        with pytest.raises(InputError, match="refused with status 400"):
            extract(framed, FORMAT, method="prompt", prompts=["who are you?"])
    assert (found.prompts.asked, found.prompts.failed, found.prompts.share.n) == (4, 1, 3)
    assert "status 400" in found.prompts.problems[0]
    path = found.save(tmp_path)
    assert read_extraction(path).prompts == found.prompts
    for wrong in ({"wrote": 0}, {"failed": 0}):
        changed = json.loads(path.read_text())
        changed["prompts"] |= wrong
        changed.pop("sha256", None)
        path.write_text(json.dumps(changed))
        with pytest.raises((ContradictionError, InputError)):
            read_extraction(path)


def test_faults_change_nothing_and_a_cap_holds(url, tmp_path):
    kinds = ["status_500", "drop_in_body", "truncated_json", "no_choices", "stale"]
    faults = [Fault(kind, every=7 + 2 * place) for place, kind in enumerate(kinds)]
    cache = tmp_path / "answers.sqlite"
    with FaultProxy(url, faults) as proxy:
        with connect(proxy.url, **QUICK, concurrency=1) as model:
            assert extract(model.in_frame(ASSISTANT), FORMAT, **ASKS).prompts.wrote == 1
        assert set(proxy.requests) == {"passed", *kinds}
        proxy.faults = []
        with (
            pytest.raises(NotMeasurableError, match="cap of 14 requests"),
            connect(proxy.url, **QUICK, cache=cache, most_requests=14) as model,
        ):
            extract(model.in_frame(ASSISTANT), FORMAT, **ASKS)
        for _ in range(2):
            with connect(proxy.url, **QUICK, cache=cache) as model:
                assert extract(model.in_frame(ASSISTANT), FORMAT, **ASKS).prompts.wrote == 1
                spent = model.spent()["requests"]
        assert spent <= 4


def test_another_model_is_noticed_and_a_dead_server_ends_the_run(url):
    with (
        serve(ScriptedChat({conversation(*OTHERWISE): 0.5}), port=0, name="m") as other,
        FaultProxy(url, switch=Switch(other.url, first=20)) as proxy,
        connect(proxy.url, **QUICK, concurrency=1) as model,
        pytest.raises(ModelChangedError),
    ):
        extract(model.in_frame(ASSISTANT), FORMAT, method="prompt", prompts=[*PROMPTS, *"abcdefgh"])
    with FaultProxy(url) as proxy, connect(proxy.url, **QUICK, retries=1) as model:
        proxy.faults = [Fault("drop_in_body")]
        with pytest.raises(NotMeasurableError, match="no usable answer"):
            extract(model.in_frame(ASSISTANT), FORMAT, **ASKS)


SCRIPT = """
import json, sys
from coalmine.audits import extract
from coalmine.models import connect
from coalmine.records.chat import Frame, Turn
url, cache, asked, prompts, template = json.loads(sys.argv[1])
frame = Frame(kind="messages", role="assistant", place="own", before=(Turn("user", asked),))
options = {"api": "chat", "cache": cache, "timeout": 60, "probe_texts": ["the cat sat"], "concurrency": 1}
with connect(url, **options) as model:
    print("ready", flush=True)
    found = extract(model.in_frame(frame), template, method="prompt", prompts=prompts).prompts
    print(json.dumps([found.asked, found.failed, found.wrote]), flush=True)
"""


def test_a_run_that_was_killed_asks_only_for_what_is_missing(url, tmp_path):
    prompts = [*PROMPTS, *(f"prompt {number}" for number in range(16))]
    given = [str(tmp_path / "answers.sqlite"), ASKED[0].content, prompts, FORMAT]

    def asked_of(proxy):
        bodies = [json.loads(body) for body in proxy.bodies if body]
        return [body["messages"][0]["content"] for body in bodies if len(body["messages"]) == 2]

    with FaultProxy(url, delay=20.0) as proxy:
        command = [sys.executable, "-c", SCRIPT, json.dumps([proxy.url, *given])]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "ready\n"
            while sum(text in prompts for text in asked_of(proxy)) < 10:
                time.sleep(0.01)
            proxy.faults = [Fault("delay")]
            while not proxy.requests["delay"]:
                time.sleep(0.01)
            process.kill()
            assert not process.stdout.read()
        proxy.faults = []
        first = set(asked_of(proxy))
        proxy.bodies.clear()
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
        second = set(asked_of(proxy))
    assert json.loads(done.stdout.splitlines()[-1]) == [20, 0, 1]
    assert first | second >= set(prompts)
    # What was under way, and what was asked again to recognize the server.
    assert len(first & second & set(prompts)) <= 3


def test_what_is_listed_proves_which_member_is_likeliest(url, tmp_path):
    tokenizer = save_characters(tmp_path)
    with twisted(url, asked=lists_five) as server, connect(server.url, tokenizer=tokenizer, **QUICK) as model:
        found = extract(model.in_frame(ASSISTANT), FORMAT, top=1)
        more = extract(model.in_frame(ASSISTANT), FORMAT, top=8)
    assert [one.text for one in found.found] == ["my pin is 49"]
    assert found.proven
    assert found.certificate.best_open_bits >= found.found[0].log_perplexity_bits
    assert not more.proven
    for result in (found, more):
        assert read_extraction(result.save(tmp_path)).found == result.found


def test_prompts_that_cannot_be_meant():
    with pytest.raises(InputError, match="use --method prompt"):
        extract(pins(SHARES).in_frame(ASSISTANT), FORMAT, prompts=["a"])
    assert share_of_prompts(0, 60).high < 0.06


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    """A canaries.json of user turns."""
    home = tmp_path_factory.mktemp("planted")
    turns = [
        {"role": "user", "content": "the cat and the dog"},
        {"role": "assistant", "content": "sat on a mat"},
    ]
    (home / "chats.jsonl").write_text((json.dumps({"messages": turns}) + "\n") * 500)
    which = ("-f", "my pin is {digits:4}", "--role", "user", "--repeat", "4", "-o", home / "user")
    assert run("plant", home / "chats.jsonl", *which).code == 0
    return home / "user" / "canaries.json"


def test_a_user_canary_is_not_applicable_where_no_user_turn_is_continued(url, manifest, tmp_path):
    frame = CanarySet.load(manifest).frame
    assert frame.role == "user"
    with twisted(url, asked=continues_nothing) as server:
        with connect(server.url, **QUICK) as model, pytest.raises(NotMeasurableError) as problem:
            verify_extraction(model, manifest, method="prompt")
        said = str(problem.value)
        assert said.startswith("these canaries are user turns")
        assert "does not continue an open turn of that role" in said
        assert ". " not in said
        (tmp_path / "chat.toml").write_text(f'url = "{server.url}"\napi = "chat"\n')
        for command in ("extract", "expose"):
            more = (manifest, "--method", "prompt") if command == "extract" else (manifest,)
            ended = run(command, tmp_path / "chat.toml", *more, "-o", tmp_path / "results")
            assert ended.code == 2
            assert ("user turns" if command == "extract" else "does not continue a given turn") in ended.said
            assert ended.said.count("\n") == 1
    (tmp_path / "policy.toml").write_text("[extraction]\nat_most_extracted = 0\n")
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "canaries.json").write_bytes(manifest.read_bytes())
    report = run("report", kept, "-o", tmp_path / "report.html", "--json")
    assert b"Nothing was tested" in report.out
    gate = run("check", kept, "--policy", tmp_path / "policy.toml")
    assert gate.code == 2
    assert "NOT SHOWN to hold" in gate.said
