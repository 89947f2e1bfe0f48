"""Commands that are given a model that cannot be measured as it is: exit code 2, one sentence, and no result."""

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from cli.in_process import run
from coalmine import CanarySet, Format
from models.local_models import save_adapter, save_checkpoint

FORM = Format("the pin is {digits:2}")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    root = tmp_path_factory.mktemp("saved")
    save_checkpoint(root / "base")
    save_adapter(root / "adapter", root / "base")
    CanarySet.of(FORM, FORM.sample(3, seed=1, replace=False)).save(root / "canaries.json")
    return root


def without_weights(directory):
    (directory / "adapter_model.safetensors").unlink()
    return "has no adapter_model.safetensors"


def with_a_pickle(directory):
    (directory / "adapter_model.safetensors").unlink()
    torch.save({}, directory / "adapter_model.bin")
    return "adapter_model.bin is a pickle"


def with_a_renamed_tensor(directory):
    path = directory / "adapter_model.safetensors"
    tensors = load_file(path)
    name = max(tensors)
    tensors[f"{name}_"] = tensors.pop(name)
    save_file(tensors, path)
    return f"has no {name}"


def with_zeros(directory):
    path = directory / "adapter_model.safetensors"
    save_file({name: torch.zeros_like(tensor) for name, tensor in load_file(path).items()}, path)
    return "changes nothing"


@pytest.mark.parametrize("command", ["expose", "extract"])
@pytest.mark.parametrize("change", [without_weights, with_a_pickle, with_a_renamed_tensor, with_zeros])
def test_an_adapter_that_would_be_measured_as_something_else_is_refused(saved, tmp_path, command, change):
    directory = shutil.copytree(saved / "adapter", tmp_path / "adapter")
    said = change(directory)
    arguments = ["--format", FORM.template] if command == "extract" else [saved / "canaries.json"]
    ended = run(command, directory, *arguments)
    assert ended.code == 2
    assert ended.said.count("\n") == 1
    assert said in ended.said
    assert not list(tmp_path.rglob("exposure.json")) + list(tmp_path.rglob("extraction.json"))
