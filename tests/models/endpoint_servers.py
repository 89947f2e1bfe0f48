"""Servers for the tests of endpoints (the real one as a process, and one that alters the answers of a real one), and questions for them."""

import contextlib
import http.client
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from coalmine.models import text_sequence
from coalmine.models.endpoints import connecting


def connect(url, **options):
    """With a short text to try the server with, which is quicker."""
    return connecting.connect(url, **{"probe_texts": ["the cat sat"], **options})


def bits(model, texts):
    """The log-perplexities of texts by an endpoint."""
    return [score.log_perplexity_bits for score in model.score_text(texts)]


def local_bits(model, texts):
    """The same by a model on this machine."""
    return [
        score.log_perplexity_bits for score in model.score([text_sequence(model, text) for text in texts])
    ]


@contextlib.contextmanager
def serving_process(directory, *options, environment=None):
    """The url of `coalmine serve DIRECTORY` in a process of its own."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "coalmine",
            "serve",
            str(directory),
            "--port",
            "0",
            "--json",
            "--quiet",
            *options,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # a pipe without a reader fills up
        text=True,
        env=environment,
    )
    try:
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        process.communicate(timeout=20)


@contextlib.contextmanager
def twisted(upstream, twist=lambda _, document: document, *, asked=lambda request: request):
    """The url of a server that answers as the one at `upstream`, but for what `twist(request, document)` makes of it.

    The twist may return a document, bytes, or a (status, bytes) pair, and so may `asked(request)`, which otherwise returns the
    request that is passed on. Requests that came are in `.bodies` of what is given.
    """
    parts = urlsplit(upstream)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def log_message(self, *_):
            pass

        def do_GET(self):
            self.answer(*self.forwarded(None))

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            place.bodies.append(json.loads(body))
            place.headers.append(dict(self.headers))
            passed = asked(json.loads(body))
            if isinstance(passed, tuple):
                self.answer(*passed)
                return
            status, content = self.forwarded(json.dumps(passed).encode())
            if status == 200:
                changed = twist(json.loads(body), json.loads(content))
                if isinstance(changed, tuple):
                    status, content = changed
                else:
                    content = changed if isinstance(changed, bytes) else json.dumps(changed).encode()
            self.answer(status, content)

        def forwarded(self, body):
            with contextlib.closing(http.client.HTTPConnection(parts.hostname, parts.port)) as connection:
                connection.request(
                    self.command, self.path, body, {"Content-Type": "application/json"} if body else {}
                )
                response = connection.getresponse()
                return response.status, response.read()

        def answer(self, status, content):
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            self.wfile.flush()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # clients that give up are what this is for
    place = Place(f"http://127.0.0.1:{server.server_address[1]}{parts.path}")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield place
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Place:
    def __init__(self, url):
        self.url = url
        self.bodies = []
        self.headers = []
