"""Loading a local model opens no connection, whatever its directory says and whichever library reads it."""

import http.server
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import huggingface_hub.constants
import pytest

from coalmine.models.offline import OfflineError, offline
from models.local_models import save_reference_models, save_refused, save_transformers

TOKEN = "hf_a-token-of-the-user"


class Hub(http.server.BaseHTTPRequestHandler):
    """A hub that keeps what it is asked, and has nothing."""

    def do_GET(self):
        by_the_library_alone = self.server.control.exists()
        self.server.asked.append((by_the_library_alone, self.path, self.headers.get("authorization")))
        self.send_error(404)

    do_HEAD = do_POST = do_GET  # noqa: N815 - as the class of the standard library has it

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """What came of every local model in a process where the hub would be reached, and what the hub was asked."""
    root = tmp_path_factory.mktemp("watched")
    save_reference_models(root / "models")
    save_transformers(root / "models")
    save_refused(root / "models")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as hub:
        hub.asked, hub.control = [], root / "control"
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        environment |= {
            "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}",
            "HF_TOKEN": TOKEN,
            "HF_HUB_OFFLINE": "0",
            "HF_HOME": str(root / "cache"),
        }
        done = subprocess.run(
            [sys.executable, Path(__file__).with_name("load_while_watched.py"), root],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        hub.shutdown()
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), hub.asked


def test_no_local_model_opens_a_connection(watched):
    found, _ = watched
    reached = [name for name, one in found.items() if one["events"]]
    assert reached == ["peft alone, without the block"]  # which shows that this test can fail
    assert any(event.startswith("socket.connect") for event in found[reached[0]]["events"])


def test_the_hub_is_asked_for_nothing_and_sent_no_token(watched):
    found, asked = watched
    assert len(found) >= 40
    assert [path for by_the_library_alone, path, _ in asked if not by_the_library_alone] == []
    # Without the switch, the library asks, and sends the token.
    assert f"Bearer {TOKEN}" in {token for _, path, token in asked if "adapter-without-weights" in path}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("adapter-without-weights", "has no adapter_model.safetensors, so there is no adapter to measure"),
        ("adapter-of-hub", "'gpt2', which is not a local directory; nothing is fetched"),
        ("adapter-of-adapter", "which is an adapter too"),
        ("adapter-XLORA", "of the kind 'XLORA'"),
        ("adapter-SHADOW", "of the kind 'SHADOW'"),
        ("adapter-MULTITASK_PROMPT_TUNING", "of the kind 'MULTITASK_PROMPT_TUNING'"),
        ("adapter-that-imports", "sets megatron_config"),
        ("without-tokenizer", "has no tokenizer.json, and no merges.txt to make one from"),
        ("code-of-hub", "names code of its own (auto_map) for its model type"),
        ("kernel-of-hub", "names code in a hub as its attn_implementation"),
        ("tokenizer-of-hub", "the tokenizer of models/tokenizer-of-hub cannot be loaded"),
        ("index over without-tokenizer", "nor a tokenizer.json"),
        ("endpoint with without-tokenizer", "was not found"),
    ],
)
def test_what_leads_to_a_hub_is_refused_in_one_sentence(watched, name, said):
    found, _ = watched
    assert found[name]["said"].startswith("refused: ")
    assert said in found[name]["said"]
    assert "\n" not in found[name]["said"]


def test_every_other_model_was_really_loaded(watched):
    found, _ = watched
    loaded = {name for name, one in found.items() if one["said"].startswith("loaded")}
    kinds = [
        "causal",
        "sharded",
        "mamba",
        "adapter",
        "adapter-with-tokenizer",
        "masked-bert",
        "masked-roberta",
        "masked-t5",
    ]
    kinds += [
        "adapter-bert",
        "adapter-t5",
        "masked-t5 as masked",
        "adapter-t5 as masked",
        "pairs-marian",
        "pairs-bart",
    ]
    kinds += ["index over causal", "index over adapter-with-tokenizer", "endpoint with causal"]
    kinds += [name for name in found if name.startswith("reference-")]
    assert len([name for name in kinds if name.startswith("reference-")]) == 8
    assert {name: found[name]["said"] for name in kinds if name not in loaded} == {}


def send():
    with socket.socket(type=socket.SOCK_DGRAM) as one:
        one.sendto(b"", ("127.0.0.1", 9))


def connect():
    with socket.socket() as one:
        one.connect(("127.0.0.1", 9))


@pytest.mark.parametrize(
    "reach",
    [
        connect,
        lambda: socket.create_connection(("127.0.0.1", 9), timeout=1),
        lambda: socket.getaddrinfo("localhost", 80),
        lambda: socket.gethostbyname("localhost"),
        send,
    ],
    ids=["connect", "create_connection", "getaddrinfo", "gethostbyname", "sendto"],
)
def test_the_interpreter_refuses_connections_in_the_block(reach):
    with offline(), pytest.raises(OfflineError, match="without the network"):
        reach()


def test_the_switch_is_put_back_also_after_an_error_and_by_the_outermost_block():
    before, variables = huggingface_hub.constants.HF_HUB_OFFLINE, dict(os.environ)

    def fail():
        with offline():
            with offline():
                assert huggingface_hub.is_offline_mode()
            assert huggingface_hub.is_offline_mode()
            assert dict(os.environ) == variables
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert before == huggingface_hub.constants.HF_HUB_OFFLINE
    socket.getaddrinfo("127.0.0.1", 80)  # not refused any more


def test_a_thread_that_loads_nothing_keeps_its_connections_and_blocks_may_overlap():
    before = huggingface_hub.constants.HF_HUB_OFFLINE
    first_is_in, second_is_in, first_is_out = threading.Event(), threading.Event(), threading.Event()
    seen = {}

    def first():
        with offline():
            first_is_in.set()
            second_is_in.wait(10)
        first_is_out.set()

    def second():
        first_is_in.wait(10)
        with offline():
            second_is_in.set()
            first_is_out.wait(10)
            seen["hub"] = huggingface_hub.is_offline_mode()

    threads = [threading.Thread(target=work) for work in (first, second)]
    for thread in threads:
        thread.start()
    first_is_in.wait(10)
    socket.getaddrinfo("127.0.0.1", 80)  # this thread loads nothing
    for thread in threads:
        thread.join(10)
    assert seen == {"hub": True}
    assert before == huggingface_hub.constants.HF_HUB_OFFLINE
