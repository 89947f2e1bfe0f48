"""The command line as users see it: a process, its exit code, and what is on which stream."""

import errno
import json
import os
import signal
import stat
import subprocess
import sys

import pytest

from cli.in_process import run
from coalmine.corpus import write_embedded_corpus

SMALL = [
    "--training",
    "hidden=16",
    "--training",
    "embedding=8",
    "--batch-size",
    "8",
    "--training",
    "window=16",
    "--epochs",
    "1",
]


@pytest.fixture(scope="module")
def made(coalmine, tmp_path_factory):
    """A corpus that was planted and trained on through the command line."""
    folder = tmp_path_factory.mktemp("cli")
    write_embedded_corpus(folder / "corpus.txt", 20_000)
    plant = ["plant", "corpus.txt", "--format", "the pin is {digits:3}", "--repeat", "1,8", "--canaries", "2"]
    planted = coalmine(
        *plant, "--references", "20", "--withhold", "0.5", "-o", "planted", "--json", cwd=folder
    )
    trained = coalmine("train", "planted", "-o", "model", *SMALL, "--watch", "planted", "--json", cwd=folder)
    return folder, json.loads(planted.out), json.loads(trained.out)


def test_help_answers_at_once_and_without_torch_or_numpy():
    code = (
        "import sys; sys.argv = ['coalmine', '--help']\n"
        "from coalmine.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'torch', 'numpy', 'scipy', 'pyarrow', 'interegular', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_from_a_corpus_to_exposure(coalmine, made):
    folder, planted, trained = made
    assert planted["planted"] + planted["withheld"] == 4
    assert trained["training"]["watched"]
    shown = coalmine("expose", "model", "planted/canaries.json", cwd=folder)
    assert "f0-x8-0" in shown.out
    assert shown.err.count("done in")  # progress is told there
    assert "exact" in shown.out
    results = json.loads((folder / "model-audit" / "exposure" / "exposure.json").read_text())
    assert len(results["results"]) == 4
    for name in ("exposure.json", "scores.parquet", "run.json"):
        assert stat.S_IMODE((folder / "model-audit" / "exposure" / name).stat().st_mode) == 0o600
    record = json.loads((folder / "model-audit" / "exposure" / "run.json").read_text())
    assert record["command"][:2] == ["coalmine", "expose"]
    assert record["versions"]["torch"]


def test_extracting_masks_what_it_finds(coalmine, made, tmp_path):
    folder, _, _ = made
    extract = ["extract", "model", "--format", "the pin is {digits:3}", "--top", "3", "-o", tmp_path]
    masked = coalmine(*extract, cwd=folder).out
    assert "the pin is •••" in masked
    assert "Proven in" in masked
    kept = json.loads((tmp_path / "extraction.json").read_text())
    revealed = json.loads(coalmine(*extract, "--reveal", "--json", cwd=folder).out)
    assert revealed["found"] == kept["found"]
    assert not any(found["text"] in masked for found in kept["found"])
    assert stat.S_IMODE((tmp_path / "extraction.json").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["expose", "nowhere", "planted"], "model not found"),
        (
            ["expose", "model", "planted", "--set", "magic=1"],
            "--set takes NAME=VALUE",
        ),
        (["expose", "model", "planted", "--seed", "-1"], "--seed"),
        (["extract", "model"], "needs either a manifest"),
        (["train", "planted", "-o", "corpus.txt"], "a file is in its way"),
        (
            ["train", "planted", "-o", "other", "--epochs", "1", "--training", "epochs=2"],
            "an option of its own",
        ),
        (["train", "planted", "-o", "other", "--base", "model", "--preset", "gru"], "leave out --preset"),
        (["data", "dedup", "corpus.txt", "-o", "x", "--field", "author=by"], "--field takes a role"),
        (["plant", "corpus.txt", "-f", "{digits:3}", "-o", "x", "--repeat", "two"], "whole numbers"),
        (["plant", "corpus.txt", "--from", "rows.csv", "-o", "x"], "planted already"),
        (["frobnicate"], "No such command"),
    ],
)
def test_wrong_input_is_one_message_and_exit_code_2(coalmine, made, arguments, says):
    folder, _, _ = made
    process = coalmine(*arguments, "--json", cwd=folder, check=False)
    assert process.code == 2
    assert says in process.err
    assert process.err.startswith("coalmine: ")
    assert "Traceback" not in process.err
    assert says in json.loads(process.out)["error"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "library",
    [
        # What Python makes of an interruption here, where it would end with its own signal.
        "exec('os.kill(os.getpid(), {number}); os.getpid()')",
        # What libraries in C make of one.
        "try: os.kill(os.getpid(), {number}); os.getpid()\nexcept BaseException: raise ImportError('no numbers') from None",
    ],
)
def test_a_signal_while_a_library_is_imported_is_no_bug(tmp_path, library, number):
    (tmp_path / "numpy.py").write_text(f"import os\n{library.format(number=number.value)}\n")
    (tmp_path / "corpus.txt").write_text("some words\n" * 100)
    command = [sys.executable, "-m", "coalmine", "data", "scan", "corpus.txt", "--out", "out"]
    path = os.pathsep.join([str(tmp_path), *sys.path])
    ended = subprocess.run(
        command,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert ended.stderr.strip() == "coalmine: stopped; run the same command again to resume"
    assert ended.returncode == 128 + number


@pytest.mark.parametrize("bug", [ZeroDivisionError("ours"), OSError(errno.EBADF, "ours")])
def test_a_bug_is_not_a_broken_policy(monkeypatch, tmp_path, bug):
    def read_run(*_):
        raise bug

    run("init", tmp_path)
    monkeypatch.setattr("coalmine.cli.results.read_run", read_run)
    ended = run("check", tmp_path, "--policy", tmp_path / "policy.toml")
    assert (ended.code, ended.out) == (70, b"")
    told = ended.err.decode()
    assert told.startswith("Traceback")
    assert "in read_run" in told
    assert "ours" in told
    assert "a bug in coalmine" in told


def test_a_project_gets_a_policy_and_a_workflow_that_checks_it(tmp_path):
    assert run("init", tmp_path).code == 0
    workflow = (tmp_path / ".github" / "workflows" / "coalmine.yml").read_text()
    assert "run: coalmine check model --policy policy.toml" in workflow
    assert run("init", tmp_path).code == 0  # the very same files are not in the way
    (tmp_path / "policy.toml").write_text("ours")
    assert run("init", tmp_path).code == 2
    assert (tmp_path / "policy.toml").read_text() == "ours"
