"""Paths with any name and of any kind: the error is one sentence, nothing waits, and nothing on a stream acts on a terminal."""

import json
import os
import signal

import click
import pytest

from cli.in_process import run
from coalmine.cli.main import every_command

# Clears the screen, writes to the clipboard, a C1 sequence, a link, text from right to left, lines, and what looks like markup.
HOSTILE = "\x1b[2J\x1b]52;c;ZQ==\x07\x1b]8;;x\x1b\\\x9b31m\u202e\u2066\r\n[bold][link=x]:bomb:"
NOT_UTF8 = os.fsdecode(b"caf\xe9\xff\x80")
# Parameters that are paths, or may be, though the command line takes them for strings.
AS_STRINGS = {"model", "runs", "models_and_index", "baseline", "tokenizer", "reference"}
SECONDS = 20  # in which a command that waits for a pipe is found out


def paths_of(command):
    """The names of the parameters that are paths."""
    return {one.name for one in command.params if isinstance(one.type, click.Path) or one.name in AS_STRINGS}


# One command for each parameter that is a path: the same name is the same reader.
READERS = {
    name: (names, command)
    for names, command in reversed([*every_command()])
    for name in sorted(paths_of(command))
    if names != ("demo",)
}


def called(reader, value):
    """A command with one parameter and all required ones; each path among them is `value`."""
    names, command = READERS[reader]
    paths = paths_of(command)
    options, arguments = [], []
    for one in command.params:
        if one.name == reader or one.required:
            given = value if one.name in paths else "1"
            if one.param_type_name == "option":
                options += [one.opts[0], given]
            else:
                arguments += [given, given] if one.nargs == -1 else [given]
    return [*names, *options, "--json", "--", *arguments]


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Paths of every wrong kind, all in a directory with a hostile name."""
    folder = tmp_path_factory.mktemp("paths") / HOSTILE
    folder.mkdir()
    (folder / "file").write_bytes(b"")
    (folder / "noise.jsonl").write_bytes(bytes(range(256)) * 4)
    (folder / "directory").mkdir()
    (folder / "loop").symlink_to("loop")
    names = ("nothing", "file/x", "directory", "file", "noise.jsonl", "loop", "x" * 300, NOT_UTF8)
    return [folder / name for name in names]


def is_inert(text):
    return all(line.isprintable() for line in text.split("\n"))


@pytest.mark.parametrize("reader", READERS)
def test_a_wrong_path_is_a_sentence(reader, places, tmp_path, monkeypatch):
    for number, place in enumerate(places):
        (tmp_path / str(number)).mkdir()
        monkeypatch.chdir(tmp_path / str(number))
        ended = run(*called(reader, place))
        assert ended.code in {0, 2}, ended.said
        assert is_inert(ended.said), ended.said
        document = json.loads(ended.out)
        if ended.code:
            error = ended.err.decode()
            assert error.startswith("coalmine: "), error
            assert error.count("\n") == 1, error
            assert document["error"] == error.removeprefix("coalmine: ")[:-1]


@pytest.fixture
def pipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")

    def waits(*_):
        raise AssertionError("it waits for the pipe")

    before = signal.signal(signal.SIGALRM, waits)
    signal.alarm(SECONDS)
    yield str(tmp_path / "pipe")
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_a_pipe_or_device_is_refused_wherever_a_path_is_taken(pipe):
    for reader in READERS:
        if reader not in AS_STRINGS:
            for place in (pipe, "/dev/zero"):
                ended = run(*called(reader, place))
                assert ended.code == 2, (reader, ended.said)
                assert f"{place} is a device, pipe or socket; name a regular file" in ended.said, reader
