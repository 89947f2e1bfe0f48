"""The file that a stopped command resumes from: complete, or rejected by name with advice."""

import contextlib
import itertools

import pytest

from cli.in_process import run
from coalmine.corpus import write_embedded_corpus
from coalmine.errors import InputError
from coalmine.storage.files import guarded_file, read_guarded


def test_any_single_bit_is_noticed(tmp_path):
    path = tmp_path / "unfinished"
    with guarded_file(path) as stream:
        stream.write(b"a short one")
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        with pytest.raises(InputError):
            read_guarded(path, "a search")


@contextlib.contextmanager
def _interrupted_soon():
    """After the first look, which is before the first unit."""
    looks = itertools.count()
    yield lambda: next(looks) > 0


def test_a_training_refuses_its_own_damaged_file(tmp_path, monkeypatch):
    write_embedded_corpus(tmp_path / "corpus.txt", 8_000)
    out = tmp_path / "train"
    small = ("--training", "hidden=8", "--training", "embedding=8")
    command = ("train", tmp_path / "corpus.txt", "-o", out, *small)
    with monkeypatch.context() as patched:
        # Ctrl-C after the first batch, without waiting for it.
        patched.setattr("coalmine.engines.here.deferred_interrupt", _interrupted_soon)
        assert run(*command).code == 130
    [path] = out.glob("unfinished-*.npz")
    path.write_bytes(path.read_bytes()[:-9])
    ended = run(*command)
    assert ended.code == 2, ended.said
    assert path.name in ended.said
    assert "to start over" in ended.said
    assert path.exists(), "what may still be of use to somebody is not removed"
