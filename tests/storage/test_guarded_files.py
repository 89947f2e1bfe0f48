"""The file that a stopped command resumes from: complete, or rejected by name with advice."""

import contextlib
import itertools
import shutil
import stat

import numpy as np
import pytest

from cli.in_process import run
from coalmine import Format
from coalmine.audits.extraction.measuring import SpentSearch
from coalmine.corpus import write_embedded_corpus
from coalmine.errors import InputError
from coalmine.models.reference.checkpoint import save_model
from coalmine.storage.files import guarded_file, read_guarded
from models.random_networks import random_model

CONTENT = bytes(range(256)) * 3
DAMAGES = {
    "empty": lambda _: b"",
    "cut in half": lambda content: content[: len(content) // 2],
    "longer": lambda content: content + b"\0",
    "something else": lambda _: b"not a file of ours",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_was_not_written_is_not_read(tmp_path, damage):
    path = tmp_path / "unfinished"
    with guarded_file(path) as stream:
        for place in range(0, len(CONTENT), 100):
            stream.write(CONTENT[place : place + 100])
    assert read_guarded(path, "a search") == CONTENT
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    with pytest.raises(
        InputError, match=r"unfinished, left by a search, is empty, damaged .*; remove it to start"
    ):
        read_guarded(path, "a search")


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


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A training and a search, each stopped in the middle, and the commands that resume them."""
    at = tmp_path_factory.mktemp("stopped")
    write_embedded_corpus(at / "corpus.txt", 8_000)
    made = random_model("lstm")
    save_model(at / "model", made._network, made.tokenizer)
    commands = {
        "train": [
            "train",
            at / "corpus.txt",
            "-o",
            at / "train",
            "--training",
            "hidden=8",
            "--training",
            "embedding=8",
        ],
        "extract": ["extract", at / "model", "-f", "pin {digits:6}", "--budget", "70", "-o", at / "extract"],
    }
    with pytest.MonkeyPatch.context() as patched:
        # Ctrl-C after the first batch, without waiting for it.
        patched.setattr("coalmine.engines.here.deferred_interrupt", _interrupted_soon)
        assert run(*commands["train"]).code == 130
    assert run(*commands["extract"]).code == 0  # the budget is spent, and a larger one would go on
    return at, commands


@contextlib.contextmanager
def _interrupted_soon():
    """After the first look, which is before the first unit."""
    looks = itertools.count()
    yield lambda: next(looks) > 0


FILES = {"train": "unfinished-*.npz", "extract": "unfinished-extraction-*.npz"}


@pytest.mark.parametrize("command", FILES)
def test_every_command_refuses_its_own_damaged_file(stopped, command, tmp_path):
    at, commands = stopped
    shutil.copytree(at / command, tmp_path / command)
    [path] = (tmp_path / command).glob(FILES[command])
    path.write_bytes(DAMAGES["cut in half"](path.read_bytes()))
    given = [tmp_path / command if one == at / command else one for one in commands[command]]
    ended = run(*given)
    assert ended.code == 2, ended.said
    assert path.name in ended.said
    assert "to start over" in ended.said
    assert path.exists(), "what may still be of use to somebody is not removed"


def test_a_search_without_one_of_its_parts(tmp_path):
    kept, other = (SpentSearch(tmp_path, Format("{digits:3}"), "", facts) for facts in ("mine", "another"))
    kept.save({"counts": np.arange(3), "waiting": np.arange(4)})
    assert sorted(kept.load()) == ["counts", "waiting"]
    with pytest.raises(InputError, match="another search"):
        other.load()
    np.savez(kept.path, fingerprint=np.array("mine"), counts=np.arange(3))
    with pytest.raises(InputError, match="remove it to start over"):
        kept.load()
