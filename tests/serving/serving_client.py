"""A plain client of the server, and the local model as its oracle."""

import http.client
import json
import math
from urllib.parse import urlsplit

import numpy as np

from coalmine.models import TokenSequence
from waiting import PATIENCE_SECONDS

TEXTS = ["my pin is 4921", "a", "the random number is 281265017", "zz top 99"]
ECHO = {"max_tokens": 0, "echo": True, "logprobs": 0}


class Client:
    """One kept connection."""

    def __init__(self, url, key=None):
        parts = urlsplit(url)
        self.prefix = parts.path
        self.headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=PATIENCE_SECONDS)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def ask(self, path, document=None, **headers):
        """The status and the document of an answer."""
        body = document if isinstance(document, bytes | None) else json.dumps(document).encode()
        method = "GET" if body is None else "POST"
        kind = {} if body is None else {"Content-Type": "application/json"}
        self.connection.request(method, self.prefix + path, body, {**kind, **self.headers, **headers})
        answer = self.connection.getresponse()
        return answer.status, json.loads(answer.read())

    def choices(self, prompt, **fields):
        status, document = self.ask("/completions", {"prompt": prompt, **fields})
        assert status == 200, document
        return document["choices"]


def nats(model, prompts):
    """The oracle: each text scored by itself, after the model's context."""
    return [
        model.score([TokenSequence(model.context, tuple(prompt))])[0].log2_probabilities * math.log(2)
        for prompt in prompts
    ]


def assert_close(numbers, expected):
    np.testing.assert_allclose(numbers, expected, rtol=0, atol=1e-9)
