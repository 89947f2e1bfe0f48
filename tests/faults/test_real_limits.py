"""A real limit on the size of files and a disk that is really full, which the faults of test_writes.py imitate."""

import os
import subprocess
from fnmatch import fnmatch

import pytest

from faults.write_cases import case_named
from faults.write_faults import contents

# Smaller than every file that a command writes, and larger than a sentence.
MOST_BYTES = 350
ON_SMALL_DISKS = ("train", "expose exact", "index", "plant .parquet", "dedup")
UNFINISHED = ("unfinished*", ".*")


@pytest.fixture
def workplace(write_inputs, tmp_path):
    """The inputs, with a directory for results that no other test writes to."""
    folder = tmp_path / "work"
    folder.mkdir()
    for path in write_inputs.iterdir():
        if not path.name.startswith("out"):
            (folder / path.name).symlink_to(path)
    return folder


def is_one_sentence(ended):
    return ended.code == 2 and ended.err.startswith("coalmine: ") and ended.err.count("\n") == 1


@pytest.mark.parametrize("name", ON_SMALL_DISKS)
def test_a_limit_on_the_size_of_files_is_a_sentence_and_changes_nothing(fork_server, workplace, name):
    limit = ["faults.real_limits:limit_file_size", {"most": MOST_BYTES}]
    ended = fork_server.run([*case_named(name).argv, "--quiet"], cwd=workplace, before=limit)
    assert is_one_sentence(ended), ended
    assert "cannot be written: File too large; raise the limit that `ulimit -f` shows" in ended.err
    assert not contents(workplace / "out")


def test_workers_that_cannot_share_memory_for_a_limit_say_where_it_would_be(fork_server, workplace):
    limit = ["faults.real_limits:limit_file_size", {"most": MOST_BYTES}]
    command = [*case_named("expose exact").argv, "--engine", "processes:2", "--quiet"]
    ended = fork_server.run(command, cwd=workplace, before=limit)
    assert is_one_sentence(ended), ended
    assert "where workers share memory, cannot be written: File too large" in ended.err
    assert not contents(workplace / "out")


@pytest.fixture
def small_disk(workplace):
    folder = workplace / "out"
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(mounting, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs to be root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("name", ON_SMALL_DISKS)
def test_a_full_disk_is_a_sentence_and_the_same_command_succeeds_once_there_is_room(
    fork_server, small_disk, workplace, name
):
    case = case_named(name)
    (small_disk / "much").write_bytes(bytes(9_000))  # room for small files, and not for large ones
    ended = fork_server.run([*case.argv, "--quiet"], cwd=workplace)
    assert is_one_sentence(ended), ended
    assert ended.err.startswith("coalmine: out")
    left = [path.name for path in small_disk.rglob("*")]
    assert not [one for one in left if one.startswith(".")], "a work file is left"
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    assert fork_server.run([*case.argv, "--quiet"], cwd=workplace).code == 0
    left = contents(small_disk)
    assert not [one for one in left if any(fnmatch(one, pattern) for pattern in UNFINISHED)]
