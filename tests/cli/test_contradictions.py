"""Commands reject results that contradict themselves or their manifest, and `check` those that are not what is computed again."""

import hashlib
import math
import shutil

import pytest

from cli.in_process import run
from reports import report_runs as made
from resealing import resealed

# Commands that read the results of others.
READERS = ("check", "report", "membership")
# What the model remembers breaks it, and 3.29 bits would not.
POLICY = "[exposure]\nat_most = 10\n"


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """Two runs of models that remember nothing and one canary, with everything that an audit leaves."""
    folder = tmp_path_factory.mktemp("audited")
    for name, remembered in (("one", 0), ("two", 1)):
        made.audited_run(folder / name, remembered=remembered)
        for path in sorted((folder / name).rglob("*.json")):
            if path.name != "canaries.json":
                with resealed(path) as document:
                    document.setdefault("model", {})["weights"] = name
        with resealed(folder / name / "membership" / "membership.json") as document:
            source = folder / name / "references" / "exposure.json"
            document["exposures_sha256"] = hashlib.sha256(source.read_bytes()).hexdigest()
    (folder / "policy.toml").write_text(POLICY)
    return folder


@pytest.fixture
def runs(audited, tmp_path):
    shutil.copytree(audited, tmp_path / "runs")
    return tmp_path / "runs"


def commands(folder):
    return {
        "check": ("check", folder / "two", "-p", folder / "policy.toml"),
        "report": ("report", folder / "two", "-o", folder / "report.html"),
        "membership": ("membership", folder / "two" / "exposure", "--out", folder / "members"),
    }


@pytest.mark.parametrize("command", READERS)
def test_what_was_written_is_read(runs, command):
    ended = run(*commands(runs)[command])
    assert ended.code == (1 if command == "check" else 0), ended.said


def test_rank_1_of_10000_is_not_3_bits(runs):
    path = runs / "two" / "exposure" / "exposure.json"
    with resealed(path) as document:
        best = min(document["results"], key=lambda result: result["rank"])
        assert (best["rank"], best["estimate"]["value"]) == (1, math.log2(10_000))
        best["estimate"] |= {"value": 3.29, "low": 3.29, "high": 3.29}
    ended = run(*commands(runs)["check"])
    assert ended.code == 2
    assert (
        f"{path} contradicts what it was computed from: canary '{best['canary_id']}' has rank 1 of 10,000"
        in ended.said
    )


@pytest.mark.parametrize("command", READERS)
def test_edits_and_files_of_another_run_are_refused_by_whoever_reads_them(runs, command):
    path = runs / "two" / "exposure" / "exposure.json"
    before = path.read_bytes()
    path.write_bytes(before.replace(b'"rank": 1,', b'"rank": 2,'))
    ended = run(*commands(runs)[command])
    assert ended.code == 2
    assert f"{path} is not what was written" in ended.said
    path.write_bytes(before)
    shutil.copy(runs / "one" / "exposure" / "scores.parquet", path.with_name("scores.parquet"))
    ended = run(*commands(runs)[command])
    assert ended.code == 2
    assert "scores.parquet is not what was written with exposure.json" in ended.said


@pytest.mark.parametrize(
    ("command", "name", "change"),
    [
        ("report", "membership/membership.json", lambda it: it["populations"][0]["auc"].update(value=7.0)),
        ("report", "extraction/verified.json", lambda it: it["canaries"][0].update(repetitions=9)),
        ("report", "exposure/exposure.json", lambda it: it["results"][0].update(repetitions=9)),
        ("check", "exposure/exposure.json", lambda it: it["results"][0].update(rank=0)),
        ("check", "membership/membership.json", lambda it: it["populations"][0].update(in_count=5)),
        ("check", "extraction/verified.json", lambda it: it["canaries"][0].update(proven=False)),
    ],
)
def test_numbers_that_no_result_has_and_what_the_manifest_or_the_files_beside_say(
    runs, command, name, change
):
    with resealed(runs / "two" / name) as document:
        change(document)
    ended = run(*commands(runs)[command])
    assert ended.code == 2
    assert f"{runs / 'two' / name} contradicts " in ended.said


def test_the_manifest_of_the_results_must_be_there_if_one_is(runs):
    """A manifest that is edited after measuring is a different one: canaries that are not in the results were not measured."""
    path = runs / "two" / "canaries.json"
    path.write_bytes(path.read_bytes() + b"\n")
    ended = run(*commands(runs)["check"])
    assert ended.code == 2
    assert "of other canaries than those in two/canaries.json" in " ".join(ended.said.split())
