"""Standard output and standard error that are full, closed or without a reader: an exit code, a sentence, and no lost work."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

COALMINE = f"{sys.executable} -m coalmine"
FULL = "coalmine: standard output cannot be written: No space left on device; redirect it, or use --quiet\n"
CLOSED = "coalmine: standard output cannot be written: it is closed; redirect it, or use --quiet\n"

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")


def shell(command, folder, **environment):
    ended = {**os.environ, "PYTHONUNBUFFERED": "", **environment}
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=folder, env=ended, check=False
    )


@pytest.mark.parametrize("what", ["--help", "init", "init --json"])
@pytest.mark.parametrize(
    ("where", "said", "unbuffered"),
    [("> /dev/full", FULL, ""), ("> /dev/full", FULL, "1"), (">&-", CLOSED, "")],
)
def test_what_cannot_be_shown_is_an_error(tmp_path, what, where, said, unbuffered):
    ended = shell(f"{COALMINE} {what} {where}", tmp_path, PYTHONUNBUFFERED=unbuffered)
    assert (ended.returncode, ended.stderr) == (2, said)
    # The work was done all the same.
    assert sorted(path.name for path in tmp_path.iterdir()) == (
        [".github", "policy.toml"] if "init" in what else []
    )


def test_an_error_that_cannot_be_shown_on_one_stream_is_shown_on_the_other(tmp_path):
    wrong = f"{COALMINE} expose nowhere nowhere --json"
    full = shell(f"{wrong} > /dev/full", tmp_path)
    assert full.returncode == 2
    assert full.stderr.startswith("coalmine: ")
    assert full.stderr.count("\n") == 1
    for where in ("2> /dev/full", "2>&-"):
        silent = shell(f"{wrong} {where}", tmp_path)
        assert (silent.returncode, silent.stderr) == (2, "")
        assert '"error":' in silent.stdout


def test_work_goes_on_where_progress_cannot_be_shown(tmp_path):
    (tmp_path / "corpus.txt").write_text("".join(f"document number {number}\n" for number in range(2000)))
    plant = f"{COALMINE} plant corpus.txt -f 'my pin is {{digits:4}}' --canaries 1 --overwrite -o planted"
    for where in ("2> /dev/full", "2>&-", "2> >(true)"):
        ended = shell(f"{plant} {where}", tmp_path)
        assert ended.returncode == 0
        assert "Canaries: 3 planted" in ended.stdout
        assert shell(f"{COALMINE} verify planted", tmp_path).returncode == 0


def test_a_reader_who_goes_early_is_no_error(tmp_path):
    ended = shell(f"set -o pipefail; {COALMINE} plant --help | head -c 1", tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    for unbuffered in ("", "1"):
        gone = shell(
            f"(sleep 0.1; {COALMINE} --version; echo $? >&2) | true", tmp_path, PYTHONUNBUFFERED=unbuffered
        )
        assert gone.stderr == "0\n"
