"""A page in a real browser cannot make a server without a key on this machine compute, whatever it tries."""

import os
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from coalmine import ScriptedModel, serve
from models.random_networks import CHARACTERS
from serving.serving_client import Client
from waiting import PATIENCE_SECONDS, wait_until

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install 'coalmine[dev]'"
)
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium was found: install Debian's package chromium"
)

# Each gives what it could see of an answer, or the name of the error.
ATTACKS = {
    "fetch_text": "async u => (await fetch(u, {method: 'POST', mode: 'no-cors', body: BODY})).type",
    "fetch_text_as_json": """async u => (await fetch(u, {method: 'POST', mode: 'no-cors', body: BODY,
        headers: {'Content-Type': 'application/json'}})).type""",
    "fetch_blob_as_json": """async u => (await fetch(u, {method: 'POST', mode: 'no-cors',
        body: new Blob([BODY], {type: 'application/json'})})).type""",
    "fetch_form": """async u => (await fetch(u, {method: 'POST', mode: 'no-cors',
        body: new URLSearchParams({prompt: 'a'})})).type""",
    "fetch_json": """async u => (await fetch(u, {method: 'POST', body: BODY,
        headers: {'Content-Type': 'application/json'}})).status""",
    "fetch_plain_and_read": "async u => (await fetch(u, {method: 'POST', body: BODY})).status",
    "fetch_with_credentials": """async u => (await fetch(u, {method: 'POST', body: BODY, credentials: 'include',
        headers: {'Content-Type': 'application/json'}})).status""",
    "xhr": """u => new Promise((done, failed) => {
        const x = new XMLHttpRequest(); x.open('POST', u); x.setRequestHeader('Content-Type', 'application/json');
        x.onload = () => done(x.status); x.onerror = () => failed(new TypeError('xhr')); x.send(BODY)})""",
    "beacon": "async u => navigator.sendBeacon(u, new Blob([BODY], {type: 'text/plain'}))",
    "beacon_json": "async u => navigator.sendBeacon(u, new Blob([BODY], {type: 'application/json'}))",
    "image": """u => new Promise(done => {
        const i = new Image(); i.onload = () => done('loaded'); i.onerror = () => done('error');
        i.src = u + '?prompt=a'; document.body.append(i)})""",
    "script": """u => new Promise(done => {
        const s = document.createElement('script'); s.onload = () => done('loaded'); s.onerror = () => done('error');
        s.src = u.replace('completions', 'models'); document.body.append(s)})""",
    "form_text": """u => new Promise(done => {
        const f = document.createElement('form'); f.method = 'POST'; f.action = u; f.enctype = 'text/plain';
        const frame = document.createElement('iframe'); frame.name = 'there'; f.target = 'there';
        const field = document.createElement('input'); field.name = BODY.slice(0, -1) + ', "x": "'; field.value = '"}';
        f.append(field); document.body.append(frame, f); frame.onload = () => done('answered'); f.submit()})""",
    "sandboxed_frame": """u => new Promise(done => {
        const frame = document.createElement('iframe'); frame.sandbox = 'allow-scripts';
        frame.srcdoc = `<script>fetch('${u}', {method: 'POST', mode: 'no-cors', body: '${BODY}'})
            .then(r => parent.postMessage(r.type, '*'), e => parent.postMessage(e.name, '*'))<` + `/script>`;
        onmessage = m => done(m.data); document.body.append(frame)})""",
    "websocket": """u => new Promise(done => {
        const w = new WebSocket(u.replace('http', 'ws')); w.onopen = () => done('open'); w.onerror = () => done('error')})""",
}
SEEN_BY_THE_SERVER = ATTACKS.keys() - {"image", "script", "websocket", "beacon_json"}
BODY = '{"prompt": "my pin", "max_tokens": 2}'


@pytest.fixture(scope="module")
def browser():
    # A name of a stranger that leads to this machine, as after a rebinding.
    rules = "MAP evil.example 127.0.0.1"
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", f"--host-resolver-rules={rules}"],
        )
        yield started
        started.close()


@pytest.fixture(scope="module")
def elsewhere():
    """The address of a page of somebody else, on this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            content = b"<!doctype html><title>somebody else's</title><body></body>"
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


class Served:
    """A keyless server as users start it, its log, and how often its model computed."""

    def __init__(self, server, model, lines):
        self.url, self.model, self.lines = server.url, model, lines

    def answered(self):
        """The statuses of the requests that came since this was last asked."""
        found = [int(line.split(" in ")[0].rpartition(" ")[2]) for line in self.lines]
        self.lines.clear()
        return found


@pytest.fixture(scope="module")
def served():
    lines, model = [], ScriptedModel(CHARACTERS, memory={"my pin is 4921": 0.5})
    with serve(model, port=0, log=lines.append) as server:
        yield Served(server, model, lines)


@pytest.fixture
def attack(browser, served):
    page = browser.new_page()
    page.set_default_timeout(1000 * PATIENCE_SECONDS)

    def run(page_url, name, target):
        page.goto(page_url)
        served.answered()
        script = f"async u => {{ const BODY = {BODY!r}; try {{ return await ({ATTACKS[name]})(u) }} catch (e) {{ return e.name }} }}"
        seen = page.evaluate(script, target)
        if name in SEEN_BY_THE_SERVER:
            wait_until(lambda: served.lines)  # what was sent without waiting for an answer
        else:
            page.wait_for_timeout(100)  # the browser may send nothing at all
        return seen

    yield run
    page.close()


@pytest.mark.parametrize("name", ATTACKS)
def test_a_page_of_another_site(attack, served, elsewhere, name):
    before = served.model.calls
    port = urlsplit(served.url).port
    for host in ("127.0.0.1", "localhost", "evil.example"):
        seen = attack(f"http://127.0.0.1:{elsewhere}/", name, f"http://{host}:{port}/v1/completions")
        assert served.model.calls == before, (name, host)
        assert seen not in {200, "loaded", "open"}
        # It came so far that the server had to refuse it, unless the browser itself did.
        statuses = served.answered()
        assert statuses or name not in SEEN_BY_THE_SERVER, (name, host)
        assert all(status in {403, 404, 405, 415} for status in statuses), (name, host, statuses)


@pytest.mark.parametrize("name", ["fetch_json", "xhr", "fetch_text", "beacon_json", "form_text"])
def test_a_page_whose_name_was_bent_to_this_machine(attack, served, name):
    """To the browser it is the same site, so it does not ask first; only the Host shows which server is meant."""
    before = served.model.calls
    there = f"http://evil.example:{urlsplit(served.url).port}"
    seen = attack(f"{there}/v1/models", name, f"{there}/v1/completions")
    assert seen != 200
    assert set(served.answered()) == {403}
    assert served.model.calls == before


def test_the_same_request_from_a_program_computes(served):
    before = served.model.calls
    with Client(served.url) as client:
        assert client.choices("my pin", max_tokens=2)
    assert served.model.calls > before
