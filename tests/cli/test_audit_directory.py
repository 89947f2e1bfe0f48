"""Results stay out of the model's directory, and every command finds them from there."""

import contextlib
import io
import json
import shutil
from typing import NamedTuple

import pytest

from coalmine import CanarySet, Format, read_run
from coalmine.audits import audited
from coalmine.cli.main import app
from coalmine.errors import InputError
from models.random_networks import random_model, save_network
from reports.report_runs import save_training

FORM = Format("pin {digits:2}")
POLICY = 'require = ["exposure"]\n'


class Result(NamedTuple):
    exit_code: int
    output: str


def coalmine(*arguments):
    """The command in this process, with the exit code that `main` would end with."""
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        code = app(list(map(str, arguments)), standalone_mode=False)
    return Result(code, shown.getvalue())


def saved(folder, seed=0):
    model = random_model("lstm", seed=seed)
    save_network(folder, model)
    return folder


@pytest.fixture
def model(tmp_path):
    texts = FORM.sample(30, seed=1, replace=False)
    CanarySet.of(FORM, texts[:4], withheld=texts[4:8], references=texts[8:]).save(tmp_path / "canaries.json")
    (tmp_path / "policy.toml").write_text(POLICY)
    return saved(tmp_path / "model")


def listed(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_no_audit_writes_into_the_models_directory(model, tmp_path):
    before, audit = listed(model), tmp_path / "model-audit"
    shown = coalmine("expose", model, tmp_path / "canaries.json").output
    assert f"Results: {audit / 'exposure'}" in shown.replace("\n", "")
    coalmine("extract", model, "--format", FORM.template)
    coalmine("extract", model, tmp_path / "canaries.json")
    coalmine("membership", model)
    coalmine("report", model, "-o", tmp_path / "report.html")
    assert listed(model) == before
    assert {path.parent.name for path in audit.rglob("*.json")} == {"exposure", "extraction", "membership"}


def test_report_check_and_membership_read_from_either_directory(model, tmp_path):
    save_training(model)
    coalmine("expose", model, tmp_path / "canaries.json")
    coalmine("extract", model, tmp_path / "canaries.json")
    audit = tmp_path / "model-audit"
    runs = [read_run(named) for named in (model, audit)]
    assert [audited(run) for run in runs] == [("exposure", "extraction")] * 2
    assert all(run.training is not None for run in runs)
    for named in (model, audit, audit / "exposure"):
        checked = json.loads(coalmine("check", named, "-p", tmp_path / "policy.toml", "--json").output)
        assert checked["outcome"] == "holds"
        found = json.loads(coalmine("membership", named, "--json").output)
        assert found["populations"][0]["in_count"] == 4


@pytest.mark.parametrize("named", ["model", "model-audit", "model-audit/exposure"])
def test_results_of_weights_that_were_trained_again_do_not_count(model, tmp_path, named):
    coalmine("expose", model, tmp_path / "canaries.json")
    gate = ("check", tmp_path / named, "-p", tmp_path / "policy.toml")
    assert coalmine(*gate).exit_code == 0
    shutil.copy(saved(tmp_path / "again", seed=5) / "model.safetensors", model / "model.safetensors")
    stale = coalmine(*gate)
    assert stale.exit_code == 2
    assert "other weights than those in model" in " ".join(stale.output.split())


def test_what_is_refused_leaves_no_audit_directory(model, tmp_path):
    with pytest.raises(InputError, match="guess"):
        coalmine("expose", model, tmp_path / "canaries.json", "--method", "guess")
    assert not (tmp_path / "model-audit").exists()
