"""Servers that mean harm: no number comes from a broken answer, memory and time stay bounded, and the key goes nowhere else."""

import json
import threading
import time
import tracemalloc
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from coalmine import ScriptedModel, serve
from coalmine.errors import InputError, ModelError, NotMeasurableError
from coalmine.models import connect, text_sequence
from coalmine.models.endpoints.client import BYTES_OF_A_TOKEN, BYTES_OF_AN_ANSWER
from endpoints.broken_shapes import BROKEN_BYTES
from endpoints.fault_proxy import REDIRECTS, Fault, FaultProxy
from endpoints.hostile_answers import HOSTILE, SLOW
from models.endpoint_servers import local_bits, twisted
from models.random_networks import CHARACTERS

TEXTS = ["the random number is 281265017", "a", "some other text", "my pin is 4921"]
KEY = "sk-0123456789"
QUICK = {"back_off": 0.001, "timeout": 10.0, "probe_texts": ["the cat sat"], "retries": 2}


@pytest.fixture(scope="module")
def scripted():
    return ScriptedModel(CHARACTERS, memory={"the cat sat on the mat": 0.01, "my pin is 4921": 0.125})


@pytest.fixture(scope="module")
def url(scripted):
    with serve(scripted, port=0) as server:
        yield server.url


@pytest.fixture(scope="module")
def expected(scripted):
    return local_bits(scripted, TEXTS)


@pytest.fixture(scope="module")
def through_a_proxy(url):
    with FaultProxy(url) as proxy, connect(proxy.url, **QUICK) as model:
        assert model.capability.level == "scorer"
        yield proxy, model


@pytest.mark.parametrize("kind", [*HOSTILE, *BROKEN_BYTES])
def test_harmful_answers_give_no_number_and_asking_again_does(through_a_proxy, scripted, kind):
    proxy, model = through_a_proxy
    text = f"asked under {kind.replace('_', ' ')}"
    proxy.faults = [Fault(kind)]
    with pytest.raises(NotMeasurableError, match="no usable answer in 3 tries"):
        model.score_text([text])
    proxy.faults = [Fault(kind, times=proxy.requests[kind] + 1)]
    found = model.score_text([text])[0].log_perplexity_bits
    assert found == pytest.approx(
        scripted.score([text_sequence(scripted, text)])[0].log_perplexity_bits, abs=1e-9
    )
    assert proxy.requests[kind] == 4


@pytest.mark.parametrize("kind", SLOW)
def test_an_answer_that_never_begins_is_not_waited_for(url, kind):
    with FaultProxy(url) as proxy, connect(proxy.url, **{**QUICK, "timeout": 0.4, "retries": 1}) as model:
        proxy.faults = [Fault(kind)]
        before = time.monotonic()
        with pytest.raises(NotMeasurableError, match=r"in 2 tries, .* no answer came within 0\.4 s"):
            model.score_text(["a text"])
        assert time.monotonic() - before < 5


@pytest.mark.parametrize("kind", ["gzip_bomb", "deflate_bomb", "endless_chunks", "endless_body"])
def test_memory_is_bounded_whatever_comes(through_a_proxy, kind):
    """Four gigabytes come, if one lets them."""
    proxy, model = through_a_proxy
    proxy.faults = [Fault(kind)]
    text = "how much is kept of it"
    most = BYTES_OF_AN_ANSWER + BYTES_OF_A_TOKEN * (len(text) + 3)
    tracemalloc.start()
    try:
        with pytest.raises(NotMeasurableError, match=f"the answer has more than {most:,} bytes"):
            model.score_text([text])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        proxy.faults = []
    # What was read, the block that the proxy sends, and what is read at a time.
    assert peak < 2 * most + 3_000_000


def test_a_long_text_may_have_a_longer_answer(url):
    def padded(request, document):
        return {**document, "more": "x" * 1_500_000} if "text" in request["prompt"] else document

    with twisted(url, padded) as place, connect(place.url, **QUICK) as model:
        assert len(model.score_text(["a longer text " * 20])) == 1
        with pytest.raises(NotMeasurableError, match=r"more than 1,0\d\d,000 bytes"):
            model.score_text(["a short text"])


class Elsewhere:
    """Another server on this machine, which remembers what it was sent."""

    def __enter__(self):
        came = self.came = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                came.append((self.path, str(self.headers)))
                self.send_response(200)
                self.end_headers()

            def do_POST(self):
                self.do_GET()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.mark.parametrize("kind", REDIRECTS)
def test_redirects_are_refused_and_the_key_goes_nowhere_else(url, monkeypatch, tmp_path, caplog, kind):
    monkeypatch.setenv("COALMINE_API_KEY", KEY)
    caplog.set_level("DEBUG")
    with Elsewhere() as elsewhere, FaultProxy(url, [kind], elsewhere=elsewhere.url) as proxy:
        with pytest.raises(ModelError, match="redirects are not followed") as problem:
            connect(proxy.url, **QUICK, cache=tmp_path / "answers")
        assert elsewhere.came == []
        assert sum(proxy.requests.values()) == 1  # final: asking again would be redirected again
        leads_to = proxy.url[:-3] if kind == "redirect_303" else elsewhere.url
        if kind == "redirect_308":
            leads_to = leads_to.replace("127.0.0.1", "localhost")
        assert f"a redirect to {leads_to};" in str(problem.value)
        assert proxy.headers[0]["Authorization"] == f"Bearer {KEY}"
    everything = str(problem.value) + caplog.text
    assert KEY not in everything
    assert "word" not in str(problem.value)
    assert "key=x" not in str(problem.value)
    assert all(KEY.encode() not in path.read_bytes() for path in tmp_path.iterdir())


@pytest.mark.parametrize(
    "location", [f"http://{KEY}.example/{KEY}", "http://[", "\x1b[31m", "", f"/{KEY}?{KEY}"]
)
def test_a_redirect_shows_neither_the_key_nor_what_it_likes(url, monkeypatch, location):
    monkeypatch.setenv("COALMINE_API_KEY", KEY)
    from endpoints import fault_proxy

    monkeypatch.setattr(fault_proxy, "redirect_target", lambda *_: location)
    with FaultProxy(url, ["redirect_302"]) as proxy, pytest.raises(ModelError, match="redirect") as problem:
        connect(proxy.url, **QUICK)
    assert KEY not in str(problem.value)
    assert "\x1b" not in str(problem.value)


def test_cookies_are_not_sent_back(url, expected):
    with FaultProxy(url, ["cookie"]) as proxy, connect(proxy.url, **QUICK) as model:
        assert [s.log_perplexity_bits for s in model.score_text(TEXTS)] == pytest.approx(expected, abs=1e-9)
        assert proxy.requests["cookie"] > 5
        assert all("Cookie" not in headers for headers in proxy.headers)


@pytest.mark.parametrize(
    "said",
    ["cannot read {}", "near {:.12}", "the number {last} is odd", "{upper}", "{reversed}", "{split}"],
)
def test_an_error_of_the_server_does_not_quote_the_text(url, said):
    text = "my pin is 4921 and more"
    forms = {"last": "4921", "upper": text.upper(), "reversed": text[::-1], "split": " ".join(text)}
    message = said.format(text, **forms)

    def twist(request, document):
        if request["prompt"] != text:
            return document
        return 400, json.dumps({"error": {"message": message}}).encode()

    with (
        twisted(url, twist) as place,
        connect(place.url, **QUICK) as model,
        pytest.raises(ModelError, match="status 400") as problem,
    ):
        model.score_text([text])
    assert not any(form in str(problem.value) for form in (*forms.values(), "my pin"))


def test_an_error_that_is_nested_without_end(url):
    deep = b"[" * 200_000 + b"]" * 200_000
    with (
        twisted(url, lambda *_: (400, deep)) as place,
        pytest.raises(ModelError, match="status 400"),
    ):
        connect(place.url, **QUICK)


@pytest.mark.parametrize(
    "wrong",
    ["http://" + "a" * 70 + ".example/v1", "http://a..b/v1", "http://bücher.example/v1", "http://[::1/v1"],
)
def test_hosts_that_no_name_server_can_be_asked_about(wrong):
    with pytest.raises(InputError, match="cannot be read"):
        connect(wrong, **QUICK)


def test_an_address_in_brackets(scripted, expected):
    try:
        server = serve(scripted, host="::1", port=0)
    except InputError:
        pytest.skip("this machine has no IPv6")
    with server, connect(server.url, **QUICK) as model:
        assert [s.log_perplexity_bits for s in model.score_text(TEXTS)] == pytest.approx(expected, abs=1e-9)
