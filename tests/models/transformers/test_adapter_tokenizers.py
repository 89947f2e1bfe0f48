"""An adapter with a tokenizer of its own is measured with it, in whichever files it is, or rejected; never with that of its base."""

import json
import shutil

import pytest

from coalmine import load_model
from coalmine.errors import ModelError
from models.local_models import save_adapter, save_checkpoint
from models.tiny_transformers import END, byte_level

TEXT = "the random number is 2812"
OWN = byte_level(400)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("made")
    save_adapter(root / "adapter", save_checkpoint(root / "base"))
    return root


@pytest.fixture
def adapter(made, tmp_path):
    return shutil.copytree(made / "adapter", tmp_path / "adapter")


def save_parts(directory, **config):
    """The vocabulary and the merges without a tokenizer.json, as tokenizers in Python are saved."""
    OWN.backend_tokenizer.model.save(str(directory))
    if config:
        (directory / "tokenizer_config.json").write_text(json.dumps(config))


def test_the_tokenizers_differ():
    assert OWN.encode(TEXT) != byte_level().encode(TEXT)


def test_without_one_that_of_the_base_is_used(adapter):
    assert load_model(adapter).tokenizer.encode(TEXT) == byte_level().encode(TEXT)


def test_one_in_a_single_file(adapter):
    OWN.save_pretrained(adapter)
    assert load_model(adapter).tokenizer.encode(TEXT) == OWN.encode(TEXT)


def test_one_as_vocabulary_and_merges(adapter):
    save_parts(adapter, tokenizer_class="GPT2Tokenizer", bos_token=END, eos_token=END, unk_token=END)
    model = load_model(adapter)
    assert model.tokenizer.encode(TEXT) == OWN.encode(TEXT)
    assert model.describe()["adapter_in_use"] is True


def test_one_that_does_not_say_what_it_is_is_refused(adapter):
    save_parts(adapter)
    with pytest.raises(ModelError) as refused:
        load_model(adapter)
    assert str(adapter) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "name",
    ["merges.txt", "vocab.json", "tokenizer_config.json", "added_tokens.json", "special_tokens_map.json"],
)
def test_a_part_of_one_is_refused(adapter, tmp_path, name):
    whole = tmp_path / "whole"
    whole.mkdir()
    save_parts(whole, tokenizer_class="GPT2Tokenizer")
    for more in ("added_tokens.json", "special_tokens_map.json"):
        (whole / more).write_text("{}")
    shutil.copy(whole / name, adapter / name)
    with pytest.raises(ModelError) as refused:
        load_model(adapter)
    assert str(adapter) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_ids_of_a_vocabulary_are_checked_before_a_library_reads_it(adapter):
    save_parts(adapter, tokenizer_class="GPT2Tokenizer")
    words = json.loads((adapter / "vocab.json").read_text())
    for wrong, said in (({"a": 3}, "gives the id 3 to two"), ({"zz": 10**9}, "more than any vocabulary has")):
        (adapter / "vocab.json").write_text(json.dumps(words | wrong))
        with pytest.raises(ModelError, match=said):
            load_model(adapter)
