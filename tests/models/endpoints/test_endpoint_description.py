"""A TOML file that says how to reach an endpoint: whatever is in it, it is used or refused in a sentence."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine import load_model, serve
from coalmine.errors import CoalmineError, InputError, NotMeasurableError
from coalmine.models import connect
from models.switching import QUICK, scripted

NOWHERE = 'url = "http://127.0.0.1:9/v1"\nretries = 0\ntimeout = 2\nmodel = "m"\n'


@pytest.fixture
def load(tmp_path):
    def load(content):
        path = tmp_path / "endpoint.toml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return load_model(path)

    return load


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[",
        "url",
        "url = 5",
        'url = ["http://127.0.0.1:9/v1"]',
        NOWHERE + "api_key = 'sk-0123456789'",
        NOWHERE + "x = " + "[" * 100_000 + "]" * 100_000,
        NOWHERE + "x = " + "{a=" * 100_000 + "1" + "}" * 100_000,
        NOWHERE + ".".join(["a"] * 5_000) + " = 1",
        NOWHERE + "concurrency = 1e3",
        NOWHERE + "concurrency = true",
        NOWHERE + "concurrency = 0",
        NOWHERE + "concurrency = 100000",
        NOWHERE + "noise_bits = nan",
        NOWHERE + "most_cost = inf\ncost_per_million_tokens = 1.0",
        NOWHERE + "most_cost = 1.0\ncost_per_million_tokens = inf",
        NOWHERE + "requests_per_second = nan",
        NOWHERE + "request_fields = 5",
        NOWHERE + 'tokenizer = "no/such/place"',
        NOWHERE.replace("timeout = 2", "timeout = nan"),
        NOWHERE.replace("127.0.0.1:9", "me:s3cret@127.0.0.1:9"),
        NOWHERE.replace("127.0.0.1:9", "127.0.0.1:99999"),
        NOWHERE.replace("127.0.0.1:9", "\\u0000"),
        NOWHERE.replace("127.0.0.1:9", "b\\u00fccher.example"),
        b"\xff\xfe" + NOWHERE.encode("utf-16-le"),
        b"\x00" * 1000,
        b"\x80\x81",
    ],
)
def test_what_cannot_be_meant_is_refused(load, content):
    with pytest.raises(InputError) as problem:
        load(content)
    assert "sk-0123456789" not in str(problem.value)
    assert "s3cret" not in str(problem.value)
    assert len(str(problem.value)) < 600


@pytest.mark.parametrize(
    "more",
    [
        "",
        "request_fields = { seed = 5, when = 1979-05-27T07:32:00Z, x = nan, deep = [[[[1]]]] }",
        "request_fields = { prompt = 'mine', model = 'mine', max_tokens = 999, temperature = 2, echo = 5 }",
        "requests_per_second = inf",
        'key_variable = ""',
        'key_variable = "A=B\\u0000"',
        'context = "\\u0000\\u001b[31m"',
    ],
)
def test_what_is_odd_is_tried(load, more):
    with pytest.raises(NotMeasurableError, match="the connection failed"):
        load(NOWHERE + more)


def test_fields_of_the_request_do_not_replace_the_question():
    model = scripted()
    with (
        serve(model, port=0) as server,
        connect(server.url, **QUICK, request_fields={"prompt": "mine", "max_tokens": 999, "n": 1}) as asked,
    ):
        assert asked.capability.level == "scorer"
        assert asked.complete(["my pin is "], length=4) == ["4921"]


@settings(max_examples=150)
@given(
    st.binary(max_size=60)
    | st.text(max_size=60).map(lambda text: (NOWHERE + text).encode("utf-8", "replace"))
)
def test_any_file(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(content)
    with pytest.raises(CoalmineError):
        load_model(path)
