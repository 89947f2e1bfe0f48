"""Weights are loaded only if they are exactly those that were written."""

import json
import shutil

import pytest
from safetensors.torch import load_file, save_file

from coalmine import load_model, plant, train
from coalmine.corpus import write_embedded_corpus
from coalmine.errors import AlteredError, ModelError
from coalmine.models.reference.checkpoint import save_model
from coalmine.storage.files import sha256_of_file
from models.random_networks import random_model
from resealing import resealed

SMALL = {"epochs": 1, "hidden": 8, "embedding": 4, "layers": 1, "batch_size": 8, "window": 32}


@pytest.fixture(scope="module")
def once_trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    write_embedded_corpus(folder / "corpus.txt", 4_000)
    plant(
        folder / "corpus.txt", "pin {digits:3}", repeat=[2], canaries=2, references=5, out=folder / "planted"
    )
    train(folder / "planted", out=folder / "model", **SMALL)
    return folder


@pytest.fixture
def trained(once_trained, tmp_path):
    shutil.copytree(once_trained / "model", tmp_path / "model")
    return tmp_path / "model"


def test_the_record_of_a_training_has_the_hashes_of_what_it_wrote(trained):
    record = json.loads((trained / "training.json").read_text())
    assert record["weights_sha256"] == sha256_of_file(trained / "model.safetensors")
    assert record["config_sha256"] == sha256_of_file(trained / "config.json")
    assert load_model(trained).describe()["weights_sha256"] == record["weights_sha256"]


@pytest.mark.parametrize("vouched", [True, False])
def test_zeroed_weights_are_refused(trained, vouched):
    weights = trained / "model.safetensors"
    save_file({name: tensor * 0 for name, tensor in load_file(weights).items()}, weights)
    if (
        vouched
    ):  # with the hash in config.json computed again, the record of the training still has the old one
        with resealed(trained / "config.json") as config:
            config["weights_sha256"] = sha256_of_file(weights)
    with pytest.raises(AlteredError, match=r"(model\.safetensors|config\.json) is not what"):
        load_model(trained)


def test_a_training_is_not_taken_for_done_if_its_weights_are_others(once_trained, trained):
    weights = trained / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x00")
    with pytest.raises(AlteredError, match="another directory"):
        train(once_trained / "planted", out=trained, **SMALL)


@pytest.mark.parametrize("name", ["config.json", "training.json"])
def test_an_edited_file_of_a_model_is_refused(trained, name):
    path = trained / name
    path.write_bytes(path.read_bytes().replace(b'"schema"', b'"sChema"'))
    with pytest.raises(AlteredError, match=name):
        load_model(trained)


def test_a_record_of_another_training_is_refused(trained, tmp_path):
    model = random_model("lstm")
    save_model(tmp_path / "other", model._network, model.tokenizer)
    shutil.copy(trained / "training.json", tmp_path / "other")
    with pytest.raises(AlteredError, match=r"not the one in training\.json"):
        load_model(tmp_path / "other")


def test_a_model_that_was_saved_from_python_is_verified_too(tmp_path):
    model = random_model("lstm")
    save_model(tmp_path / "model", model._network, model.tokenizer)
    described = load_model(tmp_path / "model").describe()
    assert described["weights_sha256"] == sha256_of_file(tmp_path / "model" / "model.safetensors")
    assert described["trained_on_sha256"] is None
    other = random_model("lstm", seed=1)
    save_model(tmp_path / "other", other._network, other.tokenizer)
    shutil.copy(tmp_path / "other" / "model.safetensors", tmp_path / "model")
    with pytest.raises(AlteredError, match=r"not the one in config\.json"):
        load_model(tmp_path / "model")


def test_a_training_that_is_not_finished_says_so(trained):
    (trained / "training.json").rename(trained / "unfinished.units")
    with pytest.raises(ModelError, match="is not finished; run the same `coalmine train` again"):
        load_model(trained)


def test_a_model_of_an_earlier_version_is_to_be_trained_again(trained):
    config = json.loads((trained / "config.json").read_text())
    del config["checksum"], config["weights_sha256"]
    (trained / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    with pytest.raises(AlteredError, match="earlier version; restore it, or make the model again"):
        load_model(trained)
