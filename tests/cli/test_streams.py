"""Standard output and standard error that are full, closed or without a reader: an exit code, a sentence, and no lost work."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

COALMINE = f"{sys.executable} -m coalmine"
FULL = "coalmine: standard output cannot be written: No space left on device; redirect it, or use --quiet\n"

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")


def shell(command, folder, **environment):
    ended = {**os.environ, **environment}
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=folder, env=ended, check=False
    )


@pytest.mark.parametrize(
    ("where", "code", "said"), [("> /dev/full", 2, FULL), (">&-", 0, ""), ("2> /dev/full", 0, ""), ("2>&-", 0, "")]
)  # fmt: skip
def test_what_cannot_be_shown_is_an_error_and_the_work_is_done(tmp_path, where, code, said):
    (tmp_path / "corpus.txt").write_text("".join(f"document number {number}\n" for number in range(2000)))
    plant = f"{COALMINE} plant corpus.txt -f 'my pin is {{digits:4}}' --canaries 1 -o planted"
    ended = shell(f"{plant} {where}", tmp_path)
    assert ended.returncode == code
    assert ended.stderr.endswith(said)
    assert shell(f"{COALMINE} verify planted", tmp_path).returncode == 0


def test_an_error_that_cannot_be_shown_on_one_stream_is_shown_on_the_other(tmp_path):
    wrong = f"{COALMINE} expose nowhere nowhere --json"
    full = shell(f"{wrong} > /dev/full", tmp_path)
    assert full.returncode == 2
    assert full.stderr.startswith("coalmine: ")
    silent = shell(f"{wrong} 2> /dev/full", tmp_path)
    assert (silent.returncode, silent.stderr) == (2, "")
    assert '"error":' in silent.stdout


def test_a_reader_who_goes_early_is_no_error(tmp_path):
    gone = shell(f"(sleep 0.1; {COALMINE}; echo $? >&2) | true", tmp_path, PYTHONUNBUFFERED="1")
    assert gone.stderr == "0\n"
