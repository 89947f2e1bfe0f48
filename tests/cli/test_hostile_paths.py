"""Paths with any name and of any kind: the error is one sentence, and nothing on a stream acts on a terminal."""

import inspect
import itertools
import json
import os
import typing
from typing import NamedTuple

import pytest
from typer.models import ArgumentInfo, OptionInfo

from cli.in_process import run
from coalmine.cli.main import app

# Clears the screen, writes to the clipboard, a C1 sequence, a link, text from right to left, lines, and what looks like markup.
HOSTILE = "\x1b[2J\x1b]52;c;ZQ==\x07\x1b]8;;x\x1b\\\x9b31m\u202e\u2066\r\n[bold][link=x]:bomb:"
NOT_UTF8 = os.fsdecode(b"caf\xe9\xff\x80")
# Arguments that are paths, or may be, though the command line takes them for strings.
AS_STRINGS = {"model", "runs", "models_and_index", "baseline", "tokenizer", "utility", "index"}


class Parameter(NamedTuple):
    name: str
    # The longest name of an option, or None for an argument.
    option: str | None
    takes_path: bool
    many: bool
    required: bool


def parameters(function):
    """The parameters of a command, from the signature that its options are made from."""
    found = []
    hints = typing.get_type_hints(function, include_extras=True)
    for name, one in inspect.signature(function).parameters.items():
        kind, *described = typing.get_args(hints[name])
        [shown] = [info for info in described if isinstance(info, OptionInfo | ArgumentInfo)]
        names = [*(shown.param_decls or ()), f"--{name.replace('_', '-')}"]
        option = names[0] if isinstance(shown, OptionInfo) else None
        takes_path = "Path" in str(kind) or name in AS_STRINGS
        many = "list" in str(kind)
        found.append(Parameter(name, option, takes_path, many, one.default is inspect.Parameter.empty))
    return found


COMMANDS = {
    **{(one.name,): parameters(one.callback) for one in app.registered_commands},
    **{
        (group.name, one.name): parameters(one.callback)
        for group in app.registered_groups
        for one in group.typer_instance.registered_commands
    },
}


def called(words, parameter, value):
    """A command with one parameter and all required ones; each path among them is `value`."""
    options, arguments = [], []
    for one in COMMANDS[words]:
        if one.name == parameter or one.required:
            given = value if one.takes_path else "1"
            if one.option is not None:
                options += [one.option, given]
            else:
                arguments += [given, given] if one.many else [given]
    return [*words, *options, "--json", "--", *arguments]


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Paths of every wrong kind, all in a directory with a hostile name."""
    folder = tmp_path_factory.mktemp("paths") / HOSTILE
    folder.mkdir()
    (folder / "file").write_bytes(b"")
    (folder / "noise.jsonl").write_bytes(bytes(range(256)) * 4)
    (folder / "directory").mkdir()
    (folder / "loop").symlink_to("loop")
    return {
        "missing": folder / "nothing",
        "below a file": folder / "file" / "x",
        "a directory": folder / "directory",
        "an empty file": folder / "file",
        "noise": folder / "noise.jsonl",
        "a circle of links": folder / "loop",
        "too long": folder / ("x" * 300),
        "not UTF-8": folder / NOT_UTF8,
    }


def is_inert(text):
    return all(line.isprintable() for line in text.split("\n"))


@pytest.mark.parametrize("words", [words for words in COMMANDS if words != ("demo",)], ids=" ".join)
def test_a_wrong_path_is_a_sentence(words, places, tmp_path, monkeypatch):
    paths = [one.name for one in COMMANDS[words] if one.takes_path]
    for number, (parameter, place) in enumerate(itertools.product(paths, places.values())):
        (tmp_path / str(number)).mkdir()
        monkeypatch.chdir(tmp_path / str(number))
        ended = run(*called(words, parameter, place))
        assert ended.code in {0, 2}, ended.said
        assert is_inert(ended.said), ended.said
        document = json.loads(ended.out)
        if ended.code:
            error = ended.err.decode()
            assert error.startswith("coalmine: "), error
            assert error.count("\n") == 1, error
            assert document["error"] == error.removeprefix("coalmine: ")[:-1]
