"""A planted corpus and tiny checkpoints, made once."""

import pytest

from integrations.tiny_training import planted_corpus, tiny_gpt2
from models.tiny_transformers import byte_level


@pytest.fixture(scope="package")
def planted(tmp_path_factory):
    return planted_corpus(tmp_path_factory.mktemp("corpus"), size=4_000)


@pytest.fixture(scope="package")
def base(tmp_path_factory):
    place = tmp_path_factory.mktemp("checkpoint") / "base"
    tiny_gpt2().save_pretrained(place)
    byte_level().save_pretrained(place)
    return place
