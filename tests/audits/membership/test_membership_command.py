"""`coalmine membership` on results and on files of scores: what it shows, what it writes and what it refuses."""

import json

import pytest

from audits.membership.test_membership import model_with_memory, planted_set
from coalmine import check, expose, parse_policy, read_run
from coalmine.cli.main import app
from coalmine.errors import CoalmineError


@pytest.fixture(scope="module")
def canaries():
    return planted_set()


@pytest.fixture(scope="module")
def exposures(canaries):
    return expose(model_with_memory(canaries), canaries, method="references")


@pytest.fixture
def run():
    def invoke(*arguments):
        return app(["membership", *map(str, arguments)], standalone_mode=False)

    return invoke


def test_the_command_on_results(tmp_path, canaries, exposures, run, capsys):
    exposures.save(tmp_path / "exposure")
    canaries.save(tmp_path / "canaries.json")
    run(tmp_path / "exposure", "--claimed-epsilon", 0.3)
    shown = capsys.readouterr().out
    assert "Verdict: claimed epsilon 0.3" in shown
    assert (tmp_path / "exposure" / "membership.json").exists()
    run(tmp_path / "exposure", "--out", tmp_path / "elsewhere", "--json")
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "coalmine.membership/3"
    assert (tmp_path / "elsewhere" / "membership.json").exists()


def test_sources_of_scores_exclude_each_other(tmp_path, run):
    for wrong in ([], [tmp_path, "--scores", tmp_path], ["--scores", tmp_path, "--reference", tmp_path]):
        with pytest.raises(CoalmineError):
            run(*wrong)


@pytest.mark.parametrize(
    ("ins", "outs", "says"),
    [
        (
            range(30),
            range(100, 130),
            "either the scores have the wrong sign, or something pushed members away",
        ),
        ([7] * 30, [7] * 30, "AUC cannot be measured: all 60 scores are equal"),
    ],
)
def test_scores_that_cannot_show_anything_are_not_called_innocent(tmp_path, run, capsys, ins, outs, says):
    (tmp_path / "scores.json").write_text(json.dumps({"in": list(ins), "out": list(outs)}))
    run("--scores", tmp_path / "scores.json", "--out", tmp_path)
    assert says in " ".join(capsys.readouterr().out.split())
    rules = "[membership]\nauc_at_most = 0.6\ntpr_at_fpr_1_percent_at_most = 0.5\nepsilon_at_most = 1"
    assert {one.outcome for one in check(read_run(tmp_path), parse_policy(rules)).rules} == {"not_shown"}
