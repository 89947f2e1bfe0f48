"""The note of what a killed run left: it names only files of its own directory, and is removed together with them."""

import json

import pytest

from coalmine.errors import UnflushedError
from coalmine.storage.directories import SCHEMA, UNFINISHED_FILE, left_unfinished, noted_as_unfinished

NAMES = ("corpus.txt", "canaries.json")


def write_note(folder, *files):
    (folder / UNFINISHED_FILE).write_text(json.dumps({"schema": SCHEMA, "files": files}))


def fail_within(folder, error):
    with noted_as_unfinished(folder, NAMES):
        for name in NAMES:
            (folder / name).write_text("new")
        raise error


def test_what_fails_leaves_neither_its_files_nor_its_note(tmp_path):
    with pytest.raises(RuntimeError):
        fail_within(tmp_path, RuntimeError())
    assert not list(tmp_path.iterdir())


def test_what_was_there_before_stays(tmp_path):
    (tmp_path / "canaries.json").write_text("old")
    with pytest.raises(RuntimeError):
        fail_within(tmp_path, RuntimeError())
    assert [path.name for path in tmp_path.iterdir()] == ["canaries.json"]


def test_what_is_complete_and_only_not_flushed_stays(tmp_path):
    (tmp_path / "canaries.json").write_text("old")
    with pytest.raises(UnflushedError):
        fail_within(tmp_path, UnflushedError("a power failure could still undo it"))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(NAMES, "new")


def test_a_note_that_names_files_elsewhere_removes_nothing_there(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    folder = tmp_path / "out"
    folder.mkdir()
    write_note(folder, "../precious", str(precious), "..", "corpus.txt")
    assert left_unfinished(folder) == {"corpus.txt"}
    with pytest.raises(RuntimeError):
        fail_within(folder, RuntimeError())
    assert precious.read_text() == "precious"
