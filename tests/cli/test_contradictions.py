"""`check` rejects results that contradict themselves, their manifest or the scores beside them, and those that were edited."""

import hashlib
import shutil

import pytest

from cli.in_process import run
from reports import report_runs as made
from resealing import resealed


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """A run of a model that remembers one canary, with everything that an audit leaves."""
    folder = tmp_path_factory.mktemp("audited") / "run"
    made.audited_run(folder, remembered=1)
    for path in sorted(folder.rglob("*.json")):
        if path.name != "canaries.json":
            with resealed(path) as document:
                document.setdefault("model", {})["weights"] = "one"
    with resealed(folder / "membership" / "membership.json") as document:
        source = folder / "references" / "exposure.json"
        document["exposures_sha256"] = hashlib.sha256(source.read_bytes()).hexdigest()
    # What the model remembers breaks it, and 3.29 bits would not.
    (folder.parent / "policy.toml").write_text("[exposure]\nat_most = 10\n")
    return folder


@pytest.fixture
def checked(audited, tmp_path):
    """The run, and what is said of it."""
    folder = shutil.copytree(audited, tmp_path / "run")
    return folder, lambda: run("check", folder, "-p", audited.parent / "policy.toml")


def test_what_was_written_is_read_and_what_was_edited_is_refused(checked):
    folder, check = checked
    assert check().code == 1
    path = folder / "exposure" / "exposure.json"
    path.write_bytes(path.read_bytes().replace(b'"rank": 1,', b'"rank": 2,'))
    ended = check()
    assert ended.code == 2
    assert f"{path} is not what was written" in ended.said


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("membership/membership.json", lambda it: it["populations"][0]["auc"].update(value=7.0)),
        ("exposure/exposure.json", lambda it: it["results"][0].update(repetitions=9)),
        ("exposure/exposure.json", lambda it: it["results"][0].update(rank=0)),
        ("extraction/verified.json", lambda it: it["canaries"][0].update(proven=False)),
    ],
)
def test_numbers_that_no_result_has_and_what_the_manifest_or_the_files_beside_say(checked, name, change):
    folder, check = checked
    with resealed(folder / name) as document:
        change(document)
    ended = check()
    assert ended.code == 2
    assert f"{folder / name} contradicts " in ended.said


def test_the_manifest_of_the_results_must_be_there_if_one_is(checked):
    """A manifest that is edited after measuring is a different one: canaries that are not in the results were not measured."""
    folder, check = checked
    path = folder / "canaries.json"
    path.write_bytes(path.read_bytes() + b"\n")
    ended = check()
    assert ended.code == 2
    assert "of other canaries than those in run/canaries.json" in " ".join(ended.said.split())
