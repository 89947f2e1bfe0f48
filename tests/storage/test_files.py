"""Errors of the operating system become one sentence that says what is there now; files that belong together change together."""

import errno
import os
from pathlib import Path

import pytest

from coalmine.errors import InputError, WriteError
from coalmine.storage.files import (
    check_place,
    read_bytes,
    sha256_of_file,
    together,
    whole_file,
    write_bytes,
)


def refused_within(path, error):
    with whole_file(path) as temporary:
        temporary.write_bytes(b"half")
        raise error


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_refusal_is_one_sentence_and_leaves_what_was_there(tmp_path):
    path = tmp_path / "result.json"
    write_bytes(path, b"old")
    with pytest.raises(WriteError, match=r"No space left on device; .* \(what was there is unchanged\)$"):
        refused_within(path, OSError(errno.ENOSPC, "in words of a library"))
    assert contents(tmp_path) == {"result.json": b"old"}


def write_pair(folder, content, *, refused=None, leave=()):
    with together() as group:
        write_bytes(folder / "corpus", content)
        assert group.where(folder / "corpus").read_bytes() == content
        for name in leave:
            group.remove(folder / name)
        write_bytes(folder / "manifest", b"of " + content)
        if refused is not None:
            raise refused


def test_files_that_belong_together_are_replaced_together(tmp_path):
    write_pair(tmp_path, b"old")
    (tmp_path / "earlier").write_bytes(b"of old too")
    write_pair(tmp_path, b"new", leave=["earlier", "never there"])
    assert contents(tmp_path) == {"corpus": b"new", "manifest": b"of new"}


def test_what_goes_wrong_before_the_last_of_them_is_written_changes_nothing(tmp_path):
    write_pair(tmp_path, b"old")
    with pytest.raises(RuntimeError):
        write_pair(tmp_path, b"new", refused=RuntimeError())
    (tmp_path / "manifest").unlink()
    (tmp_path / "manifest").symlink_to(tmp_path / "corpus")
    with pytest.raises(InputError, match="symbolic link"):
        write_pair(tmp_path, b"new")
    assert (tmp_path / "manifest").is_symlink()
    assert (tmp_path / "corpus").read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_manifest_never_tells_of_another_corpus_than_is_there(tmp_path, monkeypatch):
    write_pair(tmp_path, b"old")
    for refused in ("corpus", "manifest"):
        replace = os.replace

        def only_some(source, target, *, refused=refused, replace=replace):
            if Path(target).name == refused:
                raise OSError(errno.EIO, "Input/output error", str(source), None, str(target))
            replace(source, target)

        with monkeypatch.context() as patched:
            patched.setattr("os.replace", only_some)
            with pytest.raises(WriteError, match=rf"{refused} cannot be written.*run the same command again"):
                write_pair(tmp_path, b"new")
        assert contents(tmp_path) == {"corpus": b"old" if refused == "corpus" else b"new"}


def test_a_place_is_refused_before_anything_is_written_there(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for place in (tmp_path / "x.json", tmp_path / "new" / "deeper" / "x.json", tmp_path / "file"):
        check_place(place)
    for place, said in {
        tmp_path: "is a directory",
        tmp_path / "file" / "x.json": "cannot be a directory: a file is in its way",
        tmp_path / "loop" / "x.json": "Too many levels of symbolic links; check the path",
        tmp_path / "loop": "is a symbolic link",
        tmp_path / ("x" * 300): "File name too long; check the path",
    }.items():
        with pytest.raises(InputError, match=said):
            check_place(place)
        with pytest.raises(InputError):
            write_bytes(place, b"new")
        for read in (sha256_of_file, lambda path: read_bytes(path, "the manifest")):
            if place != tmp_path:
                with pytest.raises(InputError):
                    read(place)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "loop"]
