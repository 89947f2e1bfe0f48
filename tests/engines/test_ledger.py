"""The ledger: what a kill cut off is dropped, other damage is refused, and a million units fit into little memory."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from coalmine.engines import ledger as ledger_module
from coalmine.engines.engine import open_engine
from coalmine.engines.ledger import UNITS_FILE, Ledger
from coalmine.engines.units import facts_digest, unit_key
from coalmine.errors import InputError
from engines.works import Squares, squares


def finished(folder, units=4, fingerprint="mine"):
    """How often each unit was run, with the ledger in a directory."""
    ledger = Ledger(folder)
    ledger.begin(fingerprint)
    with open_engine("here") as engine:
        return [outcome.attempts for outcome in engine.map(Squares(), squares(units), ledger=ledger)]


@pytest.fixture
def kept(tmp_path):
    assert finished(tmp_path) == [1, 1, 1, 1]
    assert finished(tmp_path) == [0, 0, 0, 0]
    path = tmp_path / UNITS_FILE
    assert path.stat().st_mode & 0o777 == 0o600
    return path


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_a_record_that_a_kill_cut_off_is_run_again(kept, cut):
    os.truncate(kept, kept.stat().st_size - cut)
    assert finished(kept.parent) == [0, 0, 0, 1]
    assert finished(kept.parent) == [0, 0, 0, 0]


def test_a_last_record_whose_bytes_never_came_is_run_again(kept):
    content = bytearray(kept.read_bytes())
    content[-100:] = bytes(100)
    kept.write_bytes(content)
    assert finished(kept.parent) == [0, 0, 0, 1]


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda content: bytes(len(content)),
        lambda content: content[:20],
        lambda content: content[:200] + bytes([content[200] ^ 1]) + content[201:],
        lambda content: b"something else" + content,
        lambda content: content[:70] + bytes([content[70] ^ 1]) + content[71:],
    ],
    ids=["empty", "zeros", "half a header", "a bit of the first record", "another file", "a bit of a length"],
)
def test_any_other_damage_is_refused_by_name_and_left(kept, damage):
    damaged = damage(kept.read_bytes())
    kept.write_bytes(damaged)
    with pytest.raises(InputError, match=r"unfinished\.units.*remove it to start over"):
        finished(kept.parent)
    assert kept.read_bytes() == damaged


def test_the_ledger_of_another_run_is_refused_or_replaced(kept):
    with pytest.raises(InputError, match="belongs to another run"):
        finished(kept.parent, fingerprint="another")
    ledger = Ledger(kept.parent)
    ledger.begin("another", instead=True)
    assert not ledger.has_results
    assert finished(kept.parent, fingerprint="another") == [1, 1, 1, 1]


@pytest.mark.parametrize("special", ["directory", "pipe", "link"])
def test_only_a_regular_file_is_a_ledger(tmp_path, special):
    path = tmp_path / UNITS_FILE
    if special == "directory":
        path.mkdir()
    elif special == "pipe":
        os.mkfifo(path)
    else:
        (tmp_path / "other").write_text("of the user")
        path.symlink_to(tmp_path / "other")
    with pytest.raises(InputError, match=r"unfinished\.units"):
        finished(tmp_path)


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir])
def test_only_a_regular_file_is_a_state_also_that_of_a_unit_that_is_finished(kept, make):
    key = unit_key(facts_digest(Squares()), squares(1)[0])
    make(kept.parent / f"unfinished-{key.hex()}.npz")
    before = kept.read_bytes()
    with pytest.raises(InputError, match=rf"unfinished-{key.hex()}\.npz is a"):
        finished(kept.parent)
    assert kept.read_bytes() == before


def test_a_state_that_was_damaged_is_refused(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.begin("mine")
    ledger.keep(b"k" * 16, {"at": np.arange(9)})
    [path] = tmp_path.glob("unfinished-*.npz")
    assert ledger.kept(b"k" * 16)["at"].tolist() == list(range(9))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match="remove it to start over"):
        ledger.kept(b"k" * 16)


MILLION = """
import resource, sys
import numpy as np
from pathlib import Path
from coalmine.engines import ledger as rooms
from coalmine.engines.ledger import Ledger, UNITS_FILE, _MAGIC, _content, _record
import hashlib
folder = Path(sys.argv[1])
content = _content({"a": np.zeros(1)})
with open(folder / UNITS_FILE, "wb") as file:
    file.write(_MAGIC + hashlib.sha256(b"mine").digest())
    for number in range(1_000_000):
        key = number.to_bytes(16, "big")
        file.write(_record(key, content))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
book = Ledger(folder)
book.begin("mine")
assert book.result((999_999).to_bytes(16, "big")) is not None
assert book.result((1_000_000).to_bytes(16, "big")) is None
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def test_a_million_units_take_less_than_200_megabytes(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", MILLION, tmp_path], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 200_000_000


@pytest.mark.parametrize("content", [b"", b"garbage", b"PK\x03\x04 half an archive"])
def test_a_record_whose_checksum_was_computed_again_is_refused_all_the_same(kept, content):
    end = len(ledger_module._MAGIC) + 32
    whole = kept.read_bytes()
    key = whole[end : end + 16]
    kept.write_bytes(whole[:end] + ledger_module._record(key, content))
    with pytest.raises(InputError, match="remove it to start over"):
        finished(kept.parent)
