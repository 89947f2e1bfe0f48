"""`coalmine membership` on results and on files of scores: what it shows, what it writes and what it refuses."""

import json

import pytest
import typer

from audits.membership.test_membership import DIGITS, model_with_memory, planted_set
from coalmine import Canary, CanarySet, Format, ScriptedModel, check, expose, parse_policy, read_run
from coalmine.audits import read_membership
from coalmine.audits.membership.score_files import read_score_file
from coalmine.cli.membership import membership as command
from coalmine.errors import CoalmineError


@pytest.fixture(scope="module")
def canaries():
    return planted_set()


@pytest.fixture(scope="module")
def exposures(canaries):
    return expose(model_with_memory(canaries), canaries, method="references")


def five_formats():
    forms = {
        f"f{place}": Format(template)
        for place, template in enumerate(
            (
                "my pin is {digits:4}",
                "the password of the server is {digits:6}",
                "{digits:5} is my zip",
                "call {digits:3}-{digits:4} now",
                "order number {digits:5} please",
            )
        )
    }
    canaries, references = [], {}
    for format_id, form in forms.items():
        drawn = form.sample(260, seed=3, replace=False)
        references[format_id] = drawn[60:]
        canaries += [
            Canary(
                canary_id=f"{format_id}-{place}",
                format_id=format_id,
                text=text,
                repetitions=1 if place < 30 else 8,
                planted=place % 2 == 0,
            )
            for place, text in enumerate(drawn[:60])
        ]
    return CanarySet(canaries, forms, references=references, withhold=0.5)


def test_five_formats_are_readable_in_a_hundred_columns(tmp_path, run, capsys, monkeypatch):
    canaries = five_formats()
    model = ScriptedModel(
        "abcdefghijklmnopqrstuvwxyz -" + DIGITS,
        memory={
            c.text: 1e-3
            for place, c in enumerate(canaries)
            if (c.planted and c.format_id == "f0") or place % 3 == 0
        },
    )
    expose(model, canaries, method="references").save(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    run(tmp_path)
    short = capsys.readouterr().out
    lines = short.splitlines()
    assert max(map(len, lines)) <= 100
    assert len(lines) <= 55
    # Each row is on one line, with its interval and its best bound.
    assert sum("-" in line and "%)" in line for line in lines) == 15
    for form in canaries.formats.values():
        assert form.template.split("{")[0].strip() in short
    assert "median exposure, point estimate" not in short
    run(tmp_path, "--all-bounds")
    detail = capsys.readouterr().out
    assert detail.count("median exposure, point estimate") == 15
    assert max(map(len, detail.splitlines())) <= 100


@pytest.fixture
def run():
    app = typer.Typer()
    app.command("membership")(command)

    def invoke(*arguments):
        return app([str(argument) for argument in arguments], standalone_mode=False)

    return invoke


def test_the_command_on_results(tmp_path, canaries, exposures, run, capsys):
    exposures.save(tmp_path / "exposure")
    canaries.save(tmp_path / "canaries.json")
    run(tmp_path / "exposure", "--canaries", tmp_path / "canaries.json", "--claimed-epsilon", 0.3)
    shown = capsys.readouterr().out
    assert "Verdict: claimed epsilon 0.3" in shown
    assert (tmp_path / "exposure" / "membership.json").exists()
    run(tmp_path / "exposure", "--out", tmp_path / "elsewhere", "--json")
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "coalmine.membership/1"
    assert (tmp_path / "elsewhere" / "membership.json").exists()


def test_the_command_on_files_of_scores(tmp_path, run, capsys):
    (tmp_path / "in.csv").write_text("\n".join(str(50 + i) for i in range(60)))
    (tmp_path / "out.csv").write_text("id,score\n" + "\n".join(f"{i},{i}.5" for i in range(60)))
    run(
        "--in-scores", tmp_path / "in.csv", "--out-scores", tmp_path / "out.csv", "--out", tmp_path, "--quiet"
    )
    assert capsys.readouterr().out == ""
    (one,) = read_membership(tmp_path).populations
    assert (one.in_count, one.out_count) == (60, 60)
    given = ("--in-scores", tmp_path / "in.csv", "--out-scores", tmp_path / "out.csv", "--out", tmp_path)
    run(*given, "--runs", "many", "--gaussian", "--all-bounds")
    shown = capsys.readouterr().out
    assert "gaussian, assumes Gaussian noise" in shown
    assert "independent of each other" in " ".join(shown.split())
    many = read_membership(tmp_path)
    assert many.runs == "many"
    assert many.populations[0].best.canary.low == many.populations[0].independent.canary.low
    for wrong in (
        [tmp_path, "--runs", "many"],
        [],
        ["--in-scores", tmp_path / "in.csv"],
        [tmp_path, "--in-scores", tmp_path / "in.csv", "--out-scores", tmp_path / "out.csv"],
        ["--in-scores", tmp_path / "in.csv", "--out-scores", tmp_path / "out.csv", "--reference", tmp_path],
        [tmp_path, "--copies", 2],
    ):
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
    for name, scores in (("in.csv", ins), ("out.csv", outs)):
        (tmp_path / name).write_text("\n".join(map(str, scores)))
    run("--in-scores", tmp_path / "in.csv", "--out-scores", tmp_path / "out.csv", "--out", tmp_path)
    assert says in " ".join(capsys.readouterr().out.split())
    rules = "[membership]\nauc_at_most = 0.6\ntpr_at_fpr_1_percent_at_most = 0.5\nno_epsilon_shown_above = 1"
    assert {one.outcome for one in check(read_run(tmp_path), parse_policy(rules)).rules} == {"not_shown"}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "a,b\n1,2\n",
        "loss\n1\n",
        "1\nx\n",
        "1,2\n3,4\n",
        "score\n1\n\nnothing\n",
        "1\nnan\n",
        b"\xff\xfe",
        # A comma for the decimal point: half of the number must not count.
        "1\n2,5\n",
        "id,score\na,2,5\n",
        "1\n" + "9" * 200_000,
    ],
)
def test_files_that_hold_no_scores(tmp_path, content, run):
    path = tmp_path / "in.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    good = tmp_path / "out.csv"
    good.write_text("1\n2\n")
    with pytest.raises(CoalmineError):
        run("--in-scores", path, "--out-scores", good, "--out", tmp_path)
    with pytest.raises(CoalmineError):
        read_score_file(tmp_path / "missing.csv")


def test_a_file_of_scores_from_a_spreadsheet(tmp_path):
    (tmp_path / "scores.csv").write_bytes(b"\xef\xbb\xbfid,score\r\n1,2.5\r\n2,-3\r\n")
    assert read_score_file(tmp_path / "scores.csv") == [2.5, -3.0]
