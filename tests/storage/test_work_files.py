"""Only regular files are replaced; work files cannot be guessed or redirected, and do not outlive their process for long."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from coalmine.errors import InputError, WriteError
from coalmine.storage.files import PRIVATE, remove_abandoned, whole_file, write_bytes

WRITER = """
import sys, time
from coalmine.storage.files import whole_file
with whole_file(sys.argv[1]) as temporary:
    temporary.write_text("half")
    print(temporary, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def writer(tmp_path):
    """A process in the middle of writing tmp_path/result.json, and its work file."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "result.json")], stdout=subprocess.PIPE, text=True
    )
    work = Path(process.stdout.readline().strip())
    yield process, work
    process.kill()
    process.wait()
    process.stdout.close()


def write_and_then(place, act):
    with whole_file(place, mode=PRIVATE) as temporary:
        temporary.write_text("new")
        act(temporary)


def make_fifo(path):
    os.mkfifo(path)


def make_link(path):
    target = path.with_name("target")
    target.write_text("precious")
    path.symlink_to(target)


@pytest.mark.parametrize("make", [make_fifo, make_link, os.mkdir])
def test_only_a_regular_file_is_replaced(tmp_path, make):
    place = tmp_path / "out.json"
    make(place)
    before = {path: path.lstat() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match=r"out\.json is a"):
        write_bytes(place, b"new")
    after = {path: path.lstat() for path in tmp_path.iterdir()}
    assert {path: (found.st_ino, found.st_mode, found.st_size) for path, found in after.items()} == {
        path: (found.st_ino, found.st_mode, found.st_size) for path, found in before.items()
    }


def test_what_appears_while_writing_is_not_replaced_either(tmp_path):
    place = tmp_path / "out.json"
    with pytest.raises(InputError, match="symbolic link"):
        write_and_then(place, lambda _: make_link(place))
    assert place.is_symlink()
    assert place.read_text() == "precious"
    assert {path.name for path in tmp_path.iterdir()} == {"out.json", "target"}


def test_a_work_file_cannot_be_guessed_and_follows_no_link(tmp_path):
    seen = set()
    for _ in range(20):
        with whole_file(tmp_path / "out.json") as temporary:
            seen.add(temporary.name)
            temporary.write_text("new")
    assert len(seen) == 20
    secret = tmp_path / "elsewhere"
    secret.write_text("precious")

    def swap(temporary):
        temporary.unlink()
        temporary.symlink_to(secret)

    with pytest.raises(WriteError, match="symbolic links"):
        write_and_then(tmp_path / "out.json", swap)
    assert secret.read_text() == "precious"


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path, writer):
    process, work = writer
    write_bytes(tmp_path / "other.json", b"new")
    remove_abandoned(tmp_path)
    assert work.exists()
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert work.exists()
    write_bytes(tmp_path / "other.json", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["other.json"]
