"""Only one process writes to a directory at a time, and only files that a killed one left are replaced without `overwrite`."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from coalmine.storage.directories import (
    SCHEMA,
    UNFINISHED_FILE,
    left_unfinished,
    noted_as_unfinished,
    work_directory,
)

KILLED = """
import os, sys
from pathlib import Path
from coalmine.storage.directories import noted_as_unfinished
with noted_as_unfinished(Path(sys.argv[1]), sys.argv[2].split()):
    for name in sys.argv[3:]:
        Path(sys.argv[1], name).write_text("half")
    os._exit(9)
"""


def killed(folder, names, *written):
    """What a process leaves if it is killed within the block, after it has written some of the files."""
    command = [sys.executable, "-c", KILLED, str(folder), " ".join(names), *written]
    assert subprocess.run(command, check=False).returncode == 9


def test_only_files_that_were_not_there_are_named(tmp_path):
    mine, theirs = tmp_path / "corpus.txt", tmp_path / "canaries.json"
    theirs.write_text("of the user")
    killed(tmp_path, ("corpus.txt", "canaries.json"), "corpus.txt")
    assert left_unfinished(tmp_path) == {"corpus.txt"}
    # Of a second run that was killed, what the first one left is still known.
    killed(tmp_path, ("corpus.txt", "canaries.json"))
    assert left_unfinished(tmp_path) == {"corpus.txt"}
    with noted_as_unfinished(tmp_path, ("corpus.txt",)):
        mine.write_text("whole")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "corpus.txt": "whole",
        "canaries.json": "of the user",
    }


NAMES = ("corpus.txt", "canaries.json")


def fail_within(folder, error):
    with noted_as_unfinished(folder, NAMES):
        for name in NAMES:
            (folder / name).write_text("new")
        raise error


def test_what_fails_leaves_what_was_there_and_neither_its_files_nor_its_note(tmp_path):
    (tmp_path / "canaries.json").write_text("old")
    with pytest.raises(KeyboardInterrupt):
        fail_within(tmp_path, KeyboardInterrupt())
    assert [path.name for path in tmp_path.iterdir()] == ["canaries.json"]


def test_a_note_names_files_of_its_own_directory_only(tmp_path):
    """Also one that somebody edited, or that is not ours."""
    folder, precious = tmp_path / "out", tmp_path / "precious"
    precious.write_text("precious")
    folder.mkdir()
    for content in (b"", b"[]", b'{"schema": "of another tool", "files": ["corpus.txt"]}', b"\xff"):
        (folder / UNFINISHED_FILE).write_bytes(content)
        assert left_unfinished(folder) == set()
    files = ["../precious", str(precious), "..", "corpus.txt"]
    (folder / UNFINISHED_FILE).write_text(json.dumps({"schema": SCHEMA, "files": files}))
    assert left_unfinished(folder) == {"corpus.txt"}
    with pytest.raises(RuntimeError):
        fail_within(folder, RuntimeError())
    assert precious.read_text() == "precious"


_HOLDING = """
import sys, tempfile, time
tempfile.tempdir = sys.argv[1]
from coalmine.storage.directories import work_directory
with work_directory() as directory:
    (directory / "secret.txt").write_text("pin 49")
    print(directory, flush=True)
    time.sleep(600)
"""


def test_temporary_directories_of_killed_processes_are_removed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    started = [
        subprocess.Popen([sys.executable, "-c", _HOLDING, tmp_path], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        killed, alive = (Path(one.stdout.readline().strip()) for one in started)
        started[0].kill()
        started[0].wait()
        for directory in (killed, alive):
            os.utime(directory, (0, 0))  # as if both had been made long ago
        with work_directory() as own:
            assert own.stat().st_mode & 0o077 == 0
            assert sorted(tmp_path.iterdir()) == sorted([alive, own])
        assert list(tmp_path.iterdir()) == [alive]
    finally:
        for one in started:
            one.kill()
            one.communicate()
