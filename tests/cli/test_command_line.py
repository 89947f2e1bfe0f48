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
from waiting import PATIENCE_SECONDS

SMALL = ["--hidden", "16", "--embedding", "8", "--batch-size", "8", "--window", "16", "--epochs", "1"]


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


def test_importing_coalmine_imports_nothing_heavy():
    code = "import sys, coalmine; assert not {'torch', 'numpy', 'scipy', 'msgspec'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("verb", ["plant", "train", "expose", "extract", "serve", "demo"])
def test_every_command_has_the_common_options(coalmine, verb):
    shown = coalmine(verb, "--help").out
    assert "--json" in shown
    assert ("--seed" in shown) == (verb != "extract")  # where nothing is random
    assert "--quiet" in shown


def test_planting_says_what_an_audit_can_show_at_most(coalmine, made, tmp_path):
    _, planted, _ = made
    [power] = planted["power"]["formats"]
    assert power["compared_with"] == 20 + planted["withheld"]
    assert [one["copies"] for one in power["by_copies"]] == [1, 8]
    write_embedded_corpus(tmp_path / "corpus.txt", 120_000)
    said = coalmine("plant", "corpus.txt", "-f", "my pin is {digits:4}", "-o", "out", cwd=tmp_path).out
    assert "- my pin is {digits:4}\n  exposure of 13.29 bits, 9.97 where it is measured among" in said
    assert "TPR at FPR 10%, 1%, 0.1% (with a lower limit above 0 at 10%, 1%): 1,0" in said
    assert said.count("  epsilon of ") == 3
    assert "per copy): 1" in said
    assert "Note:" not in said
    too_many = coalmine(
        "plant", "corpus.txt", "-f", "{digits:4}!", "--repeat", "9999", "-o", "x", cwd=tmp_path, check=False
    )
    assert too_many.code == 2
    assert "cannot hold" in too_many.err
    assert not (tmp_path / "x").exists()
    few = coalmine("plant", "corpus.txt", "-f", "{digits:4}!", "--withhold", "0", "-o", "few", cwd=tmp_path)
    assert "Note: no canary is withheld, so one training run can show nothing about epsilon" in " ".join(
        few.out.split()
    )


def test_deduplicating_a_planted_corpus_writes_its_manifest_again(coalmine, made, tmp_path):
    folder, planted, _ = made
    said = coalmine("dedup", "planted/corpus.txt", "-o", tmp_path / "out", cwd=folder).out
    manifest = json.loads((folder / "planted" / "canaries.json").read_text())
    copies = sum(canary["repetitions"] for canary in manifest["canaries"] if canary["planted"])
    assert f"Canaries: {planted['planted']} of {copies} planted copies are left" in said
    assert "matches" in coalmine("plant", "--verify", tmp_path / "out").out
    after = json.loads((tmp_path / "out" / "canaries.json").read_text())
    assert [one["counted"] for one in after["canaries"]] == [
        int(one["planted"]) for one in manifest["canaries"]
    ]
    assert stat.S_IMODE((tmp_path / "out" / "canaries.json").stat().st_mode) == 0o600


def test_canaries_of_another_tool_are_imported(coalmine, tmp_path):
    rows = "text,in_out,copies\n" + "".join(
        f"my pin is {n:04},{'in' if n % 2 else 'out'},4\n" for n in range(8)
    )
    (tmp_path / "theirs.csv").write_text(rows)
    arguments = ["import", "theirs.csv", "-f", "my pin is {digits:4}", "--withhold", "0.5", "-o", "ours"]
    document = json.loads(coalmine(*arguments, "--json", cwd=tmp_path).out)
    assert (document["planted"], document["withheld"]) == (4, 4)
    assert stat.S_IMODE((tmp_path / "ours" / "canaries.json").stat().st_mode) == 0o600
    coalmine(*arguments, cwd=tmp_path)  # the very same file is not in the way
    other = coalmine(*arguments, "--withhold", "0.25", cwd=tmp_path, check=False)
    assert other.code == 2
    assert "exists already" in other.err
    said = coalmine(*arguments, "--overwrite", cwd=tmp_path).out
    assert "Imported from a table: 4 planted, 4 withheld; 0 references." in said


def test_from_a_corpus_to_exposure(coalmine, made):
    folder, planted, trained = made
    assert planted["planted"] + planted["withheld"] == 4
    assert trained["training"]["watched"]
    shown = coalmine("expose", "model", "planted/canaries.json", cwd=folder)
    assert "f0-x8-0" in shown.out
    assert "exact" in shown.out
    results = json.loads((folder / "model-audit" / "exposure" / "exposure.json").read_text())
    assert len(results["results"]) == 4
    for name in ("exposure.json", "scores.parquet", "run.json"):
        assert stat.S_IMODE((folder / "model-audit" / "exposure" / name).stat().st_mode) == 0o600
    record = json.loads((folder / "model-audit" / "exposure" / "run.json").read_text())
    assert record["command"][:2] == ["coalmine", "expose"]
    assert record["versions"]["torch"]


@pytest.mark.parametrize("method", ["exact", "sampled", "extrapolated", "references"])
def test_json_is_one_document_and_nothing_else(coalmine, made, method, tmp_path):
    folder, _, _ = made
    process = coalmine(
        "expose",
        "model",
        "planted",
        "--method",
        method,
        "--samples",
        "200",
        "--json",
        "-o",
        tmp_path,
        cwd=folder,
    )
    document = json.loads(process.out)
    assert {result["method"] for result in document["results"]} == {method}
    if method != "references":
        assert "done in" in process.err  # progress is told there


def test_quiet_says_nothing(coalmine, made, tmp_path):
    folder, _, _ = made
    process = coalmine("expose", "model", "planted", "--quiet", "-o", tmp_path, cwd=folder)
    assert process.out == process.err == ""


def test_secrets_are_shown_only_when_asked_for(coalmine, made, tmp_path):
    folder, _, _ = made
    manifest = json.loads((folder / "planted" / "canaries.json").read_text())
    texts = [canary["text"] for canary in manifest["canaries"]]
    masked = coalmine("expose", "model", "planted", "-o", tmp_path, cwd=folder).out
    revealed = coalmine("expose", "model", "planted", "-o", tmp_path, "--reveal", cwd=folder).out
    assert not any(text in masked for text in texts)
    assert all(text in revealed for text in texts)


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
    brute = json.loads(coalmine(*extract, "--method", "brute", "--reveal", "--json", cwd=folder).out)
    assert [found["text"] for found in brute["found"]] == [found["text"] for found in kept["found"]]


def test_extraction_of_canaries(coalmine, made, tmp_path):
    folder, _, _ = made
    process = coalmine("extract", "model", "--verify", "planted", "--json", "-o", tmp_path, cwd=folder)
    document = json.loads(process.out)
    assert [one["canary_id"] for one in document["canaries"]] == ["f0-x1-0", "f0-x1-1", "f0-x8-0", "f0-x8-1"]
    assert document["certificates"]["f0"]["proven"] is True


def test_verify_accepts_and_notices(coalmine, made, tmp_path):
    folder, _, _ = made
    assert "matches" in coalmine("plant", "--verify", "planted", cwd=folder).out
    for path in (folder / "planted").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    with open(tmp_path / "corpus.txt", "a") as stream:
        stream.write("one more\n")
    process = coalmine("plant", "--verify", tmp_path, "--json", check=False)
    assert process.code == 2
    assert json.loads(process.out)["ok"] is False


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["expose", "nowhere", "planted"], "model not found"),
        (["expose", "model", "nowhere"], "not found"),
        (["expose", "model", "planted", "--method", "magic"], "unknown method"),
        (["expose", "model", "planted", "--precision", "int8"], "precision must be"),
        (["expose", "model"], "Missing argument"),
        (["expose", "model", "planted", "--samples", "0"], "samples must be"),
        (["expose", "model", "planted", "--seed", "-1"], "--seed"),
        (["expose", "model", "planted", "--device", "cuda"], "cuda"),
        (["expose", "model", "planted", "--kind", "masked"], "cannot be used as masked"),
        (["expose", "http://127.0.0.1:9/v1", "planted", "-o", "x", "--kind", "causal"], "leave out --kind"),
        (["extract", "model"], "needs one of --format F, --verify"),
        (["extract", "model", "-f", "the pin is {digits:3}", "--given", "x"], "no member of"),
        (["extract", "model", "-f", "{digits:3}", "--source-format", "{digits:3}"], "for models of pairs"),
        (
            ["extract", "model", "--verify", "planted", "--source-format", "{digits:3}"],
            "leave --source-format out",
        ),
        (
            ["extract", "model", "-f", "{digits:3}", "--source", "a", "--source-format", "{digits:3}"],
            "leave --source-format out",
        ),
        (["train", "planted", "-o", "corpus.txt"], "a file is in its way"),
        (["train", "planted", "-o", "other", "--threads", "0"], "threads"),
        (["frobnicate"], "No such command"),
        (["train", "planted", "-o", "other", "--optimizer", "magic"], "magic"),
        (["train", "nowhere.txt", "-o", "other"], "nowhere.txt"),
        (["plant", "corpus.txt", "-o", "x"], "--format"),
        (["plant", "corpus.txt", "-f", "{digits:3}", "-o", "x", "--repeat", "two"], "whole numbers"),
        (
            ["plant", "corpus.txt", "-f", "{digits:4}", "-o", "x", "--withhold", "1"],
            "nothing would be planted",
        ),
        (["plant", "corpus.txt", "-f", "{digits:4}", "-f", "{digits:4}", "-o", "x"], "was given twice"),
        (["plant", "corpus.txt", "-f", "pin {digit:3}", "-o", "x"], "digits"),
        (["plant", "corpus.txt", "-f", "{word:2}", "-o", "x"], "words"),
        (["plant", "corpus.txt", "-f", "{word:2}", "-o", "x", "--words", "model"], "vocabulary of words"),
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


def test_what_is_refused_leaves_no_empty_directory(coalmine, made, tmp_path):
    folder, _, _ = made
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n{"other": 1}\n')
    for arguments in (
        ["dedup", tmp_path / "bad.jsonl"],
        ["scan", tmp_path / "bad.jsonl"],
        ["expose", "model", "planted", "--method", "magic"],
        ["extract", "model", "-f", "the pin is {digits:3}", "--given", "x"],
    ):
        assert coalmine(*arguments, "-o", tmp_path / "out", cwd=folder, check=False).code == 2
        assert not (tmp_path / "out").exists()


def test_without_json_an_error_leaves_standard_output_empty(coalmine):
    process = coalmine("expose", "nowhere", "nowhere", check=False)
    assert process.code == 2
    assert process.out == ""


def test_ctrl_c_is_not_a_stack_trace(made, tmp_path):
    folder, _, _ = made
    program = (
        "import sys\n"
        "from coalmine.cli.main import main\n"
        "from coalmine.engines.here import _RunningHere\n"
        "plain = _RunningHere.keep\n"
        "def keep(running, state):\n"
        "    print('in the middle', file=sys.stderr, flush=True)\n"
        "    plain(running, state)\n"
        "_RunningHere.keep = keep\n"
        "main()\n"
    )
    command = [sys.executable, "-c", program, "train", "planted", "-o", tmp_path / "m", "--epochs", "500"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if line == "in the middle\n":
            break
    process.send_signal(2)
    _, told = process.communicate(timeout=PATIENCE_SECONDS)
    assert "done in" not in told
    assert process.returncode == 130
    assert "again to resume" in told
    assert "Traceback" not in told
    assert (tmp_path / "m" / "unfinished.units").exists()


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
    command = [sys.executable, "-m", "coalmine", "scan", "corpus.txt", "--out", "out"]
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


def test_a_reader_that_goes_away_is_not_an_error(made):
    folder, _, _ = made
    command = f"{sys.executable} -m coalmine expose model planted --json | head -c 10"
    process = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=True)
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize("bug", [ZeroDivisionError("ours"), OSError(errno.EBADF, "ours")])
def test_a_bug_is_not_a_broken_policy(monkeypatch, tmp_path, bug):
    def read_run(*_):
        raise bug

    run("policy", "init", tmp_path / "policy.toml")
    monkeypatch.setattr("coalmine.audits.runs.read_run", read_run)
    ended = run("check", tmp_path, "--policy", tmp_path / "policy.toml")
    assert (ended.code, ended.out) == (70, b"")
    told = ended.err.decode()
    assert told.startswith("Traceback")
    assert "in read_run" in told
    assert "ours" in told
    assert "a bug in coalmine" in told


def test_the_help_of_check_names_its_exit_codes(coalmine):
    told = coalmine("check", "--help").out
    for code in ("Exits with 0", "1 if", "2 if", "70 if"):
        assert code in " ".join(told.split())
