"""One small model, on disk, loaded, and served from a thread."""

import pytest
import torch

from coalmine import load_model, serve
from coalmine.models.reference.checkpoint import save_model
from models.random_networks import random_model
from serving.serving_client import Client


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    model = random_model("lstm", dtype=torch.float64)
    where = tmp_path_factory.mktemp("serving") / "lstm"
    save_model(where, model._network, model.tokenizer)
    return where


@pytest.fixture(scope="module")
def local(directory):
    return load_model(directory, precision="float64")


@pytest.fixture(scope="module")
def url(local):
    with serve(local, port=0, name="lstm") as server:
        yield server.url


@pytest.fixture
def client(url):
    with Client(url) as one:
        yield one
