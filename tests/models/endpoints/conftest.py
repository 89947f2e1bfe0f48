"""Servers that the tests of endpoints ask."""

import pytest

from coalmine import serve
from coalmine.models import from_transformers
from models.random_networks import random_model
from models.switching import scripted
from models.tiny_transformers import byte_level, tiny


@pytest.fixture(scope="module")
def local():
    return random_model("lstm")


@pytest.fixture(scope="module")
def url(local):
    with serve(local, port=0) as server:
        yield server.url


@pytest.fixture(scope="module")
def subwords():
    tokenizer = byte_level()
    return from_transformers(tiny("gpt2", len(tokenizer)), tokenizer)


@pytest.fixture(scope="module")
def subwords_url(subwords):
    with serve(subwords, port=0) as server:
        yield server.url


@pytest.fixture(scope="module")
def scripted_url():
    with serve(scripted(), port=0, name="m") as server:
        yield server.url


@pytest.fixture(scope="module")
def other_url():
    with serve(scripted(a=5), port=0, name="m") as server:
        yield server.url


@pytest.fixture(scope="module")
def near_url():
    """A model that gives each character other odds by a thousandth of a bit, as one in other precision might."""
    with serve(scripted(e=3.003), port=0, name="m") as server:
        yield server.url
