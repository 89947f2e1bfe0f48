"""Commands without the packages of an extra: one sentence that names it, before anything is written, or a step less."""

import subprocess
import sys

import pytest

# As if these packages were not installed.
_WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))
sys.argv = ["coalmine", *sys.argv[2:]]
from coalmine.cli.main import main
main()
"""
_MODEL = """
from coalmine import ScriptedModel
def load():
    return ScriptedModel("abcdefghijklmnopqrstuvwxyz ")
"""


def run_without(packages, *arguments, cwd):
    command = [sys.executable, "-c", _WITHOUT, packages, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.txt").write_text(
        "the cat sat on a mat and saw dogs run far away under seven trees\n" * 200
    )
    (tmp_path / "own.py").write_text(_MODEL)
    return tmp_path


def test_the_demo_asks_for_torch_before_it_writes(folder):
    done = run_without("torch", "demo", cwd=folder)
    assert done.returncode == 2
    assert (
        done.stderr
        == "coalmine: the demo needs torch, which is not installed: pip install 'coalmine[torch]'\n"
    )
    assert not (folder / "coalmine-demo").exists()


def test_an_audit_leaves_out_the_scan_that_it_cannot_make(folder):
    asked = ("audit", "python:own:load", "--data", "train.txt", "--minutes", "1", "--out", "audit")
    done = run_without("re2,phonenumbers,stdnum", *asked, cwd=folder)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "Scan for secrets: scanning for secrets needs google-re2" in said
    assert "pip install 'coalmine[secrets]'" in said
    assert "pip install" in (folder / "audit" / "report.html").read_text()
