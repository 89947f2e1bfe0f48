"""Planting on a disk that is too small: a real limit of the operating system, in a process of its own."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

SUFFIXES = [".txt", ".txt.gz", ".txt.zst", ".jsonl", ".csv", ".parquet"]
# Random, so that compression does not make it fit.
TEXTS = [random.Random(number).randbytes(24).hex() for number in range(6000)]

LIMITED = """
import resource, sys
from coalmine.corpus import plant
from coalmine.errors import InputError
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
try:
    plant(sys.argv[1], "my pin is {digits:9}", repeat=1, canaries=1, withhold=0, references=int(sys.argv[4]), out=sys.argv[2], overwrite=True)
except InputError as error:
    print(error)
"""


def run_limited(path, out, limit, references=0):
    command = [sys.executable, "-c", LIMITED, str(path), str(out), str(limit), str(references)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_corpus_that_does_not_fit_leaves_nothing_behind(make_corpus, tmp_path, suffix):
    path = make_corpus(TEXTS, suffix)
    said = run_limited(path, tmp_path / "out", 10_000)
    assert said.startswith(f"{tmp_path / 'out' / f'corpus{suffix}'} cannot be written: File too large")
    assert not (tmp_path / "out").exists()


def test_a_manifest_that_does_not_fit_takes_the_corpus_with_it(make_corpus, tmp_path):
    path = make_corpus(TEXTS[:10], ".txt")
    said = run_limited(path, tmp_path / "out", 10_000, references=1000)
    assert said.startswith(f"{tmp_path / 'out' / 'canaries.json'} cannot be written: File too large")
    assert not (tmp_path / "out").exists()


def test_a_manifest_that_does_not_fit_leaves_the_corpus_and_the_manifest_of_an_earlier_run(
    make_corpus, tmp_path
):
    path = make_corpus(TEXTS[:10], ".txt")
    assert not run_limited(path, tmp_path / "out", 2**40)
    before = {one.name: one.read_bytes() for one in (tmp_path / "out").iterdir()}
    said = run_limited(path, tmp_path / "out", 10_000, references=1000)
    assert said.endswith("(what was there is unchanged)\n")
    assert {one.name: one.read_bytes() for one in (tmp_path / "out").iterdir()} == before


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = (
        os.getuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], check=False, capture_output=True
        ).returncode
    )
    if not mounted:
        pytest.skip("mounting a small disk needs to be root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_full_disk_leaves_nothing_behind(make_corpus, small_disk, suffix):
    path = make_corpus(TEXTS, suffix)
    said = run_limited(path, small_disk / "out", 2**40)
    assert said.startswith(
        f"{small_disk / 'out' / f'corpus{suffix}'} cannot be written: No space left on device"
    )
    assert not (small_disk / "out").exists()


def test_a_place_that_cannot_be_written_to_is_named(make_corpus, tmp_path):
    path = make_corpus(TEXTS[:10], ".txt")
    (tmp_path / "file").write_text("")
    said = run_limited(path, tmp_path / "file" / "out", 2**40)
    assert said.startswith(f"{tmp_path / 'file' / 'out'} cannot be a directory: ")
