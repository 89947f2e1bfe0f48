"""The fixtures in a user's own suite, run by a pytest of its own; and the workflow of the guide, step by step."""

import importlib.metadata
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from coalmine import expose, load_model, plant, train
from coalmine.corpus import write_embedded_corpus

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "ci.md"
# The sizes of the guide are for people; with these every step is the same, and short.
SMALLER = {"--epochs 4": "--epochs 1", "--hidden 128": "--hidden 16"}
# Where coalmine is installed with its entry point, pytest finds the plugin by itself.
INSTALLED = bool(importlib.metadata.entry_points(group="pytest11", name="coalmine"))


def write_corpus(path, size):
    """English with every digit in it, which a longer corpus has by itself."""
    write_embedded_corpus(path, size)
    with open(path, "a") as corpus:
        corpus.write("0123456789\n" * 10)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A tiny model that learned one of its canaries by heart."""
    folder = tmp_path_factory.mktemp("plugin")
    write_corpus(folder / "corpus.txt", 3_000)
    plant(
        folder / "corpus.txt",
        "pin {digits:3}",
        repeat=[1, 400],
        references=9,
        withhold=0.0,
        canaries=1,
        out=folder / "out",
    )
    small = {"hidden": 32, "embedding": 16, "batch_size": 8, "window": 16, "layers": 1, "holdout": 0.0}
    train(folder / "out", out=folder / "out" / "model", epochs=2, learning_rate=0.02, **small)
    expose(load_model(folder / "out" / "model"), folder / "out").save(folder / "out" / "model" / "exposure")
    (folder / "policy.toml").write_text("[exposure]\nat_most = 9.9\nup_to_repetitions = 1\n")
    (folder / "absent.toml").write_text("[recitation]\nrate_at_most = 0.1\n")
    return folder


def run_pytest(folder, code, *options, server=None):
    """The exit code of a pytest of its own, and what it shows; from a warm process if there is one."""
    (folder / "test_of_the_user.py").write_text(textwrap.dedent(code))
    plugin = [] if INSTALLED else ["-p", "coalmine.integrations.pytest_plugin"]
    arguments = ["-q", "-p", "no:cacheprovider", *plugin, *options, "test_of_the_user.py"]
    if server is not None:
        ended = server.run(arguments, call="pytest:console_main", cwd=folder)
        return ended.code, ended.out + ended.err
    process = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments], capture_output=True, text=True, cwd=folder, check=False
    )
    return process.returncode, process.stdout + process.stderr


def test_a_suite_with_all_outcomes(made, fork_server):
    code, shown = run_pytest(
        made,
        """
        import os
        from pathlib import Path
        import pytest

        def audit(coalmine_audit, **options):
            return coalmine_audit("out/model", "out/canaries.json", **options)

        def test_holds(coalmine_audit):
            audit(coalmine_audit).exposure.at_most(9.9, repetitions=1)
            audit(coalmine_audit).exposure.at_most(9.9, up_to_repetitions=1)

        def test_broken(coalmine_audit):
            audit(coalmine_audit).exposure.at_most(3)

        def test_broken_is_an_assertion(coalmine_audit):
            with pytest.raises(AssertionError, match="f0-x400-0"):
                audit(coalmine_audit).exposure.at_most(3)

        def test_not_measured(coalmine_audit):
            # The best of nine references: nothing says how far above them it is.
            audit(coalmine_audit, method="references").exposure.at_most(9.9, repetitions=400)

        def test_no_such_canaries(coalmine_audit):
            audit(coalmine_audit).exposure.at_most(3, repetitions=7)

        def test_no_such_model(coalmine_audit):
            coalmine_audit("nowhere", "out/canaries.json").exposure.at_most(3)

        def test_extracted(coalmine_audit):
            audit(coalmine_audit).extraction.none(top=10)

        def test_extraction_that_holds(coalmine_audit):
            audit(coalmine_audit).extraction.at_most(2, top=10)
            audit(coalmine_audit).extraction.at_most(1, top=10, repetitions=400)

        def test_extraction_without_a_proof(coalmine_audit):
            audit(coalmine_audit).extraction.none(budget=1, repetitions=1)

        def test_bits_that_are_no_number(coalmine_audit):
            audit(coalmine_audit).exposure.at_most(float("nan"), repetitions=1)

        def test_count_that_is_no_number(coalmine_audit):
            # More than so many can never come out.
            audit(coalmine_audit).extraction.at_most(float("nan"), top=10)

        def test_measured_once(coalmine_audit):
            assert audit(coalmine_audit) is audit(coalmine_audit)
            assert audit(coalmine_audit) is coalmine_audit(Path("out/model"), Path("out/canaries.json"))
            assert audit(coalmine_audit) is not audit(coalmine_audit, seed=1)
            assert audit(coalmine_audit).exposures is audit(coalmine_audit).exposures

        def test_measured_again_when_the_model_changes(coalmine_audit):
            first = audit(coalmine_audit)
            os.utime("out/model/model.safetensors", ns=(1, 1))
            assert audit(coalmine_audit) is not first

        def test_policy_that_holds(coalmine_check):
            assert coalmine_check("out/model", policy="policy.toml").exit_code == 0

        def test_policy_that_could_not_be_measured(coalmine_check):
            coalmine_check("out/model", policy="absent.toml")
        """,
        "-rA",
        server=fork_server,
    )
    passed = set(re.findall(r"^PASSED test_of_the_user.py::(\w+)", shown, re.MULTILINE))
    assert code == 1
    assert "9 failed, 6 passed" in shown
    assert passed == {
        "test_holds",
        "test_broken_is_an_assertion",
        "test_extraction_that_holds",
        "test_measured_once",
        "test_measured_again_when_the_model_changes",
        "test_policy_that_holds",
    }, shown
    for said in (
        "exposure of every planted canary at most 3 bits, of at most log2 |R|: broken",
        "there is no upper limit",
        "there are no such planted canaries among the results",
        "could not measure this: model not found: nowhere",
        "2 of 2 (f0-x1-0, trained on once, f0-x400-0",
        "members ended after",
        "bits must be a finite number of at least 0, got nan",
        "count must be a finite number of at least 0, got nan",
        "recited share at most 0.1: not shown; there is no result of this audit",
    ):
        assert said in shown, shown
    # A failure shows the evidence, and not how coalmine came to it.
    assert "reports/gate.py" not in shown
    assert "pytest_plugin.py" not in shown


def test_the_plugin_costs_a_suite_nothing_until_it_is_used(tmp_path):
    code, shown = run_pytest(
        tmp_path,
        """
        import sys

        def test_nothing_heavy_is_there(coalmine_audit, coalmine_check):
            audit = coalmine_audit("nowhere", "nowhere")
            assert audit.exposure is not None
            heavy = {"torch", "numpy", "scipy", "msgspec", "rich", "typer", "pyarrow"} & set(sys.modules)
            assert not heavy, heavy
        """,
    )
    assert code == 0, shown


# The guide


def workflow_steps(document):
    """The `run:` steps of the workflow, in order; those over several lines whole."""
    [workflow] = re.findall(r"^```yaml\n(.*?)^```$", document, re.MULTILINE | re.DOTALL)
    return [
        textwrap.dedent(found[3]) if found[2] == "|" else found[2]
        for found in re.finditer(r"^( *)(?:- )?run: (.*)\n((?:\1 +.*\n)*)", workflow, re.MULTILINE)
    ]


def test_the_workflow_of_the_guide_runs(tmp_path):
    document = GUIDE.read_text("utf-8")
    steps = workflow_steps(document)
    assert len(steps) == document.count(" run: ")
    write_corpus(tmp_path / "corpus.txt", 8_000)
    policy, *_ = re.findall(r"^```toml\n(.*?)^```$", document, re.MULTILINE | re.DOTALL)
    (tmp_path / "policy.toml").write_text(policy)
    coalmine = tmp_path / "bin" / "coalmine"
    coalmine.parent.mkdir()
    coalmine.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m coalmine "$@"\n')
    coalmine.chmod(0o755)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{coalmine.parent}:{os.environ['PATH']}"}
    ran = []
    for step in steps:
        if step.startswith("pip install"):
            continue
        for long, short in SMALLER.items():
            step = step.replace(long, short)  # noqa: PLW2901 - the same step, made smaller
        process = subprocess.run(
            ["bash", "-e", "-c", step],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert process.returncode == 0, (step, process.stdout, process.stderr)
        ran.append(process.stdout)
    assert len(ran) >= 4
    assert "The policy holds" in ran[-1]
    assert (tmp_path / "check.xml").exists()
    # The same pipeline stops where the policy is stricter than the model: guesses are above it too, so it is not shown either way.
    (tmp_path / "policy.toml").write_text("[exposure]\nat_most = 0.001\n")
    process = subprocess.run(
        ["bash", "-e", "-c", steps[-1]],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 2, process.stderr
    assert "The policy is NOT SHOWN to hold" in process.stdout


def test_the_python_of_the_guide_is_a_suite_that_runs(made, fork_server):
    examples = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    code, shown = run_pytest(made, "\n\n".join(examples), "--collect-only", server=fork_server)
    assert code == 0, shown
    assert "test_model_keeps_secrets" in shown
