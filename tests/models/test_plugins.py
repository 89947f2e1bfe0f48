"""Models that a function of the user's makes, by name: what is run, and what is said where it cannot be."""

import sys

import pytest

from coalmine import load_model
from coalmine.corpus.index.tokenizing import index_tokenizer
from coalmine.errors import InputError, ModelError

MODULE = """
from coalmine import ScriptedModel

def plain():
    return ScriptedModel("ab")

def named(text):
    return ScriptedModel("ab", name=text)

def number():
    return 3

class Half:
    name, context, resolution_bits = "half", (0,), 1e-9
    tokenizer = "none"
    def describe(self):
        return {}

def raises():
    raise ValueError("no weights here")

CONSTANT = 1
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    (tmp_path / "my_adapters.py").write_text(MODULE)
    (tmp_path / "needs_another.py").write_text("import not_installed_anywhere\n")
    yield
    for name in ("my_adapters", "needs_another"):
        sys.modules.pop(name, None)


def test_a_function_makes_the_model_with_and_without_a_text():
    assert load_model("python:my_adapters:plain").name == "scripted"
    assert load_model("python:my_adapters:named:a: b").name == "a: b"


def test_an_index_is_cut_by_the_tokens_of_such_a_model():
    assert index_tokenizer("python:my_adapters:plain").encode_query("ba").tolist() == [1, 0]


def test_a_file_here_does_not_take_the_place_of_a_library(tmp_path):
    (tmp_path / "json.py").write_text("raise RuntimeError\n")
    load_model("python:my_adapters:plain")
    assert sys.path[-1] == str(tmp_path)


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("python:", "is named python:module:function, got 'python:'"),
        ("python:my_adapters", "is named python:module:function"),
        ("python:my_adapters:a b", "is named python:module:function"),
        ("python:nowhere:model", "there is no module 'nowhere' for python:nowhere:model"),
        ("python:needs_another:model", "there is no module 'not_installed_anywhere'"),
        ("python:my_adapters:absent", r"my_adapters.py\) has no function 'absent'"),
        ("python:my_adapters:CONSTANT", "has no function 'CONSTANT'"),
        (
            "python:my_adapters:number",
            "returned int, which is not a model: it has no name, tokenizer, context",
        ),
        (
            "python:my_adapters:Half",
            "it has no tokenizer.size, tokenizer.decode, tokenizer.pieces, tokenizer.unambiguous;",
        ),
        ("python:my_adapters:raises", r"ValueError: no weights here \(line 20 of .*my_adapters.py\)"),
        ("python:my_adapters:plain:text", "raised TypeError"),
    ],
)
def test_what_cannot_be_used_is_told_in_a_sentence(where, told):
    with pytest.raises(ModelError, match=told) as raised:
        load_model(where)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "options", [{"kind": "masked"}, {"device": "cuda"}, {"precision": "float64"}, {"context": "none"}]
)
def test_options_that_the_function_decides_on_are_refused(options):
    with pytest.raises(InputError, match="leave out kind, --device, device_map, --precision, context"):
        load_model("python:my_adapters:plain", **options)
