"""Addresses and keys of endpoints, and the pieces of a text: what cannot be meant is refused, and a key goes to the server only."""

import base64
import itertools
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalmine.errors import InputError, ModelError, ModelOutputError, NotMeasurableError
from coalmine.models.endpoints.echo import aligned
from models.endpoint_servers import connect, twisted

TEXTS = ["the random number is 281265017", "a", "00", "some other text", "0 zero first"]
TOLERANCE_BITS = 1e-4


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ("http://me:secret@127.0.0.1:1/v1", "user name or password"),
        ("http://127.0.0.1:1/v1?api-key=secret", "must end with its path"),
        ("ftp://127.0.0.1/v1", "not the url of an endpoint"),
        ("127.0.0.1:8000", "not the url of an endpoint"),
        ("http://127.0.0.1:1/v1/completions", "base of the endpoint"),
        ("http://127.0.0.1:99999999/v1", "cannot be read"),
    ],
)
def test_addresses_that_cannot_be_meant(wrong, match):
    with pytest.raises(InputError, match=match) as problem:
        connect(wrong)
    assert "secret" not in str(problem.value)


def test_a_key_never_travels_in_the_open(monkeypatch):
    monkeypatch.setenv("COALMINE_API_KEY", "sk-very-secret")
    with pytest.raises(InputError, match="unencrypted") as problem:
        connect("http://models.example.com/v1")
    assert "sk-very-secret" not in str(problem.value)
    monkeypatch.setenv("COALMINE_API_KEY", "sk very\nsecret")
    with pytest.raises(InputError, match="no key has") as problem:
        connect("https://models.example.com/v1")
    assert "secret" not in str(problem.value).replace("no key has", "")


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"retries": -1},
        {"timeout": 0},
        {"requests_per_second": 0},
        {"most_requests": -1},
        {"most_cost": 1.0},
        {"timeout": 1e300},
        {"requests_per_second": 1e-320},
        {"tokenizer": "no/such/directory"},
    ],
)
def test_options_that_cannot_be_meant(url, options):
    with pytest.raises(InputError):
        connect(url, **options)


def test_nothing_listens():
    with pytest.raises(
        NotMeasurableError, match="no usable answer in 2 tries, the last time because the connection failed"
    ):
        connect("http://127.0.0.1:1/v1", model="m", retries=1, back_off=0.01)


@given(st.text(min_size=1, max_size=12), st.data())
def test_pieces_of_a_text_join_to_it(text, data):
    """Whatever the cut, also within characters, groups cover the text and all tokens, in order."""
    raw = text.encode("utf-8", "surrogatepass")
    cuts = sorted({0, len(raw), *data.draw(st.lists(st.integers(0, len(raw)), max_size=6))})
    parts = [raw[a:b] for a, b in itertools.pairwise(cuts)]
    tokens = []
    for part in parts:
        try:
            tokens.append(part.decode())
        except UnicodeDecodeError:
            tokens.append(data.draw(st.sampled_from(["", "\ufffd", "bytes:" + repr(part)[2:-1]])))
    groups = aligned(tokens, text)
    if groups is not None:
        assert "".join(piece for _, piece in groups) == text
        assert sum(number for number, _ in groups) == len(tokens)
    if all(part.decode("utf-8", "ignore").encode() == part for part in parts):
        assert groups == [(1, token) for token in tokens]


@given(st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=5), st.text(max_size=3))
def test_tokens_of_another_text_do_not_fit(tokens, more):
    text = "".join(tokens)
    plain = all("\ufffd" not in t and not t.startswith(("bytes:", "token_id:")) for t in tokens)
    if more and plain:
        assert aligned(tokens, text + more) is None
        assert aligned([*tokens, more], text) is None or "\ufffd" in more


def test_the_key_goes_to_the_server_and_to_no_file(url, monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("MY_KEY", "sk-0123456789")
    caplog.set_level("DEBUG")
    with (
        twisted(url, lambda _, document: document) as place,
        connect(place.url, key_variable="MY_KEY", cache=tmp_path / "answers") as model,
    ):
        model.score_text(TEXTS)
        assert place.headers[-1]["Authorization"] == "Bearer sk-0123456789"
        assert "sk-0123456789" not in repr(model.describe()) + repr(vars(model)) + repr(
            vars(model._client.connection)
        )
        files = list(tmp_path.iterdir())
        assert files
        for path in files:
            assert b"sk-0123456789" not in path.read_bytes()
            assert path.stat().st_mode & 0o777 == 0o600
    assert "sk-0123456789" not in caplog.text


def test_only_the_named_variable_is_read(url, monkeypatch):
    monkeypatch.delenv("COALMINE_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    with twisted(url, lambda _, document: document) as place, connect(place.url):
        assert place.headers
        assert all("Authorization" not in headers for headers in place.headers)


@pytest.mark.parametrize("status", [200, 400, 401, 500])
def test_a_server_that_sends_the_key_back(url, monkeypatch, tmp_path, status):
    monkeypatch.setenv("COALMINE_API_KEY", "sk-0123456789")
    said = b'{"error": {"message": "wrong key sk-0123456789\\u001b[31m!"}, "choices": [{"text": "sk-0123456789"}]}'
    with (
        twisted(url, lambda *_: (status, said)) as place,
        pytest.raises((ModelError, ModelOutputError, NotMeasurableError)) as problem,
    ):
        connect(place.url, retries=1, back_off=0.01, cache=tmp_path / "answers")
    assert "sk-0123456789" not in str(problem.value)
    assert "\x1b" not in str(problem.value)
    assert all(b"sk-0123456789" not in path.read_bytes() for path in tmp_path.iterdir())


LONG_KEY = "sk-Ab12cD34eF56gH78iJ90"
DISGUISES = {
    "upper": str.upper,
    "swapped": str.swapcase,
    "split": " ".join,
    "lines": "-\n".join,
    "reversed": lambda key: key[::-1],
    "url": lambda key: "".join(f"%{ord(letter):02x}" for letter in key),
    "quoted": lambda key: quote(key.replace("-", "/"), safe="").replace("%2F", "%2D"),
    "hexadecimal": lambda key: key.encode().hex(),
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "base64 of more": lambda key: base64.b64encode(b"Bearer " + key.encode()).decode(),
    "escaped": lambda key: "".join(f"&#x{ord(letter):x};" for letter in key),
}


@pytest.mark.parametrize("status", [200, 302, 400, 401, 429, 500])
@pytest.mark.parametrize("disguise", DISGUISES)
def test_a_key_is_not_shown_in_other_letters_either(monkeypatch, disguise, status):
    monkeypatch.setenv("COALMINE_API_KEY", LONG_KEY)
    shown = DISGUISES[disguise](LONG_KEY)
    said = json.dumps({"error": {"message": shown, "code": shown}, "data": [{"id": shown}, {"id": "b"}]})

    class Hostile(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.send_header("Location", f"http://{quote(shown)}.example")
            self.end_headers()
            self.wfile.write(said.encode())

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Hostile) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        with pytest.raises((ModelError, ModelOutputError, NotMeasurableError)) as problem:
            connect(f"http://127.0.0.1:{server.server_port}/v1", retries=0)
        server.shutdown()
    for form in (shown, repr(shown)[1:-1], quote(shown), " ".join(shown.split())):
        assert form.casefold() not in str(problem.value).casefold()


def test_what_a_server_says_in_the_words_of_the_api_is_shown_whatever_was_sent(url, monkeypatch):
    monkeypatch.setenv("COALMINE_API_KEY", LONG_KEY)
    error = {"message": "logprobs are off", "code": "unsupported_parameter", "param": "logprobs"}
    said = json.dumps({"error": error}).encode()
    with twisted(url, lambda *_: (400, said)) as place, pytest.raises(ModelError) as problem:
        connect(place.url)
    assert "status 400: unsupported_parameter, logprobs" in str(problem.value)
    monkeypatch.delenv("COALMINE_API_KEY")
    with twisted(url, lambda *_: (400, said)) as place, pytest.raises(ModelError, match="logprobs are off"):
        connect(place.url)


@pytest.mark.parametrize("shift", range(280, 300, 4))
def test_a_key_is_hidden_also_where_an_error_is_cut(url, monkeypatch, shift):
    monkeypatch.setenv("COALMINE_API_KEY", "sk-0123456789")
    page = b"<" + b"x" * shift + b" sk-0123456789 and more"
    with twisted(url, lambda *_: (400, page)) as place, pytest.raises(ModelError) as problem:
        connect(place.url)
    assert "sk-0" not in str(problem.value)
