"""Adapters of installed packages, by entry point: found by name, imported only then, and audited like any model."""

import json
import sys
from pathlib import Path

import pytest

from coalmine import load_model
from coalmine.cli.main import app
from coalmine.corpus.index.tokenizing import index_tokenizer
from coalmine.errors import InputError, ModelError
from coalmine.models import check_model

MODULE = """
from coalmine.models import ScriptedModel

def load(where, **options):
    model = ScriptedModel("0123456789 :/abcdefghijklmnopqrstuvwxyz", memory={f"my pin is {where}": 0.25}, name=where)
    model.options = options
    return model

def plain(where):
    return load(where)

def raises(where):
    raise ValueError("no weights\\nin " + where)

def needs(where):
    import not_installed_anywhere

def number(where):
    return 3

CONSTANT = 1
"""
ENTRY_POINTS = """
[coalmine.models]
toy = toy_adapter:load
toy-plain = toy_adapter:plain
toy-raises = toy_adapter:raises
toy-needs = toy_adapter:needs
toy-number = toy_adapter:number
toy-constant = toy_adapter:CONSTANT
toy-absent = toy_adapter:absent
toy-broken = not_there_at_all:load

[other.group]
stranger = toy_adapter:load
"""


def install(directory: Path, name: str, module: str, code: str, entry_points: str) -> None:
    """What an installer leaves of a distribution with one module."""
    (directory / f"{module}.py").write_text(code)
    information = directory / f"{name}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(entry_points)
    files = [f"{module}.py", f"{information.name}/METADATA", f"{information.name}/entry_points.txt"]
    (information / "RECORD").write_text(
        "".join(f"{file},,\n" for file in [*files, f"{information.name}/RECORD"])
    )


@pytest.fixture(autouse=True)
def toy(tmp_path, monkeypatch):
    packages = tmp_path / "site-packages"
    packages.mkdir()
    install(packages, "toy-adapter", "toy_adapter", MODULE, ENTRY_POINTS)
    monkeypatch.syspath_prepend(packages)
    monkeypatch.chdir(tmp_path)
    yield packages
    sys.modules.pop("toy_adapter", None)


def test_an_adapter_is_found_by_its_name_and_gets_what_the_user_gave():
    model = load_model("toy:4921")
    assert (model.name, model.options) == ("4921", {})
    assert load_model("toy:a:b/c").name == "a:b/c"
    given = {
        "device": "cuda",
        "precision": "bfloat16",
        "kind": "causal",
        "context": "bos",
        "context_text": "x",
    }
    assert load_model("toy:4921", **given).options == given
    assert check_model(model, ["my pin is 4921", "a", "12"]) == []


def test_nothing_is_imported_unless_it_is_named(tmp_path):
    (tmp_path / "toy:here").mkdir()
    for where in ("stranger:x", "unheard-of:x", "toy:here", "toy", str(tmp_path / "toy:x")):
        with pytest.raises(InputError):
            load_model(where)
    assert "toy_adapter" not in sys.modules
    with pytest.raises(
        ModelError, match=r"no installed package registers an adapter 'unheard-of' .*toy, toy-absent"
    ):
        load_model("unheard-of:x")


@pytest.mark.parametrize(
    ("where", "told"),
    [
        (
            "toy-raises:x",
            r"calling the adapter 'toy-raises' raised ValueError: no weights in x \(line 13 of ",
        ),
        (
            "toy-needs:x",
            "there is no module 'not_installed_anywhere' for the adapter 'toy-needs'; install it",
        ),
        ("toy-broken:x", "there is no module 'not_there_at_all' for the adapter 'toy-broken'"),
        ("toy-number:x", "the adapter 'toy-number' returned int, which is not a model: it has no name"),
        ("toy-constant:x", r"\(toy_adapter:CONSTANT\) is not a function; ask the authors of toy-adapter"),
        ("toy-absent:x", r"importing the adapter 'toy-absent' \(toy_adapter:absent\) raised AttributeError"),
        ("stranger:x", "no installed package registers an adapter 'stranger'"),
    ],
)
def test_what_cannot_be_used_is_reported_in_one_sentence(where, told):
    with pytest.raises(ModelError, match=told) as raised:
        load_model(where)
    assert "\n" not in str(raised.value)


def test_an_option_that_the_adapter_does_not_have_is_refused():
    assert load_model("toy-plain:x").name == "x"
    with pytest.raises(ModelError, match="unexpected keyword argument 'device'"):
        load_model("toy-plain:x", device="cuda")


def test_two_packages_with_one_name_are_refused(toy):
    install(toy, "another", "another_adapter", MODULE, "[coalmine.models]\ntoy = another_adapter:load\n")
    with pytest.raises(ModelError, match="another and toy-adapter register the adapter 'toy'"):
        load_model("toy:x")
    assert "another_adapter" not in sys.modules


def test_the_command_line_audits_it():
    arguments = ["extract", "toy:4921", "--format", "my pin is {digits:4}", "--top", "2"]
    assert not app(arguments, standalone_mode=False)
    found = json.loads(Path("toy-4921-audit/extraction/extraction.json").read_text())
    assert found["found"][0]["text"] == "my pin is 4921"
    assert index_tokenizer("toy:4921").encode_query("10").tolist() == [3, 2]
