"""Where the base of an adapter is looked for: from the working directory and from the adapter, and never by guessing between two."""

import shutil

import pytest

from coalmine import load_model
from coalmine.errors import ModelError
from coalmine.models.transformers.adapter_base import base_of_adapter
from models.local_models import change_json, save_adapter, save_checkpoint


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("made")
    save_adapter(root / "adapter", save_checkpoint(root / "base"))
    return root


@pytest.fixture
def place(made, tmp_path, monkeypatch):
    """An adapter in models/adapter that names its base by `named`, with copies of the base in some places; we work in `work`."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")

    def placed(named, *bases):
        directory = shutil.copytree(made / "adapter", tmp_path / "models" / "adapter")
        change_json(directory / "adapter_config.json", base_model_name_or_path=named)
        for base in bases:
            shutil.copytree(made / "base", tmp_path / base, dirs_exist_ok=True)
        return directory

    return placed


def refusal(directory):
    with pytest.raises(ModelError) as refused:
        load_model(directory)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("named", "base"),
    [
        ("../base", "base"),
        ("../base", "models/base"),
        ("base", "work/base"),
        ("base", "models/adapter/base"),
        ("..", "models"),
        ("..", "."),
    ],
)
def test_a_relative_base_is_found_where_there_is_one(place, tmp_path, named, base):
    directory = place(named, base)
    assert base_of_adapter(directory).samefile(tmp_path / base)
    load_model(directory)


@pytest.mark.parametrize(
    ("named", "from_work", "from_adapter"),
    [("../base", "base", "models/base"), ("base", "work/base", "models/adapter/base"), ("..", ".", "models")],
)
def test_two_bases_that_a_path_could_mean_are_named_and_neither_is_taken(
    place, tmp_path, named, from_work, from_adapter
):
    said = refusal(place(named, from_work, from_adapter))
    assert f"{(tmp_path / from_work).resolve()} from the working directory" in said
    assert f"{(tmp_path / from_adapter).resolve()} from the adapter; put the full path" in said


def test_one_base_that_is_reached_in_two_ways_is_one(place, tmp_path, monkeypatch):
    directory = place("../base", "base")
    (tmp_path / "models" / "base").symlink_to(tmp_path / "base")
    load_model(directory)
    monkeypatch.chdir(directory)
    load_model(directory)


@pytest.mark.parametrize("content", [None, "{}", '{"architecture": "lstm"}'])
def test_a_directory_without_a_model_is_passed_over(place, tmp_path, content):
    directory = place("../base", "models/base")
    (tmp_path / "base").mkdir()
    if content is not None:
        (tmp_path / "base" / "config.json").write_text(content)
    assert base_of_adapter(directory).samefile(tmp_path / "models" / "base")


def test_a_base_whose_config_cannot_be_read_is_not_passed_over(place, tmp_path):
    directory = place("../base", "base", "models/base")
    (tmp_path / "base" / "config.json").write_text("{")
    assert "base/config.json is not valid JSON" in refusal(directory)


def test_a_base_without_a_model_is_told(place, tmp_path):
    directory = place("../base")
    (tmp_path / "models" / "base").mkdir()
    assert "which has no config.json that names a model_type of transformers" in refusal(directory)


def test_a_base_that_is_an_adapter_is_told(place, made, tmp_path):
    directory = place("../first")
    shutil.copytree(made / "adapter", tmp_path / "models" / "first")
    assert "which is an adapter too" in refusal(directory)
    shutil.copytree(made / "base", tmp_path / "models" / "first", dirs_exist_ok=True)
    assert "which is an adapter too" in refusal(
        directory
    )  # a library would put that one on the base by itself


def test_adapters_below_a_directory_are_named(place, tmp_path):
    directory = place("../base", "base")
    assert f"there is an adapter below it; name the directory of the adapter: {directory}" in refusal(
        directory.parent
    )
    shutil.copytree(directory, tmp_path / "models" / "second")
    assert f"there are 2 adapters below it; name the directory of the adapter: {directory}" in refusal(
        directory.parent
    )
