"""What a run.json tells of, `verify` looks for: the document that the same command wrote, unchanged and of the same run."""

import shutil

import pytest

from coalmine import verify_run
from coalmine.reports.verifying.run_records import written_with


def wrong(folder):
    return {
        row.path.removeprefix(f"{folder}/"): row.state
        for row in verify_run(folder).files
        if row.state != "as written"
    }


# Of each command the document that nothing else but its run.json may tell of.
@pytest.mark.parametrize(
    "name",
    [
        "planted/canaries.json",
        "model/training.json",
        "model-audit/exposure/exposure.json",
        "model-audit/extraction/verified.json",
        "model-audit/found/extraction.json",
        "model-audit/recitation/recitation.json",
        "model-audit/provenance/provenance.json",
        "fit/provenance-fit.json",
        "index/manifest.json",
        "deduplicated/dedup.json",
        "compared/comparison.json",
    ],
)
def test_a_document_that_is_gone_is_missing(whole, name):
    path = whole / name
    path.unlink()
    assert wrong(whole)[name] == "missing"
    # Neither a directory of its name nor a link that leads nowhere is the document.
    path.mkdir()
    assert wrong(whole)[name] == "missing"
    path.rmdir()
    path.symlink_to(whole / "nowhere")
    assert "missing" in wrong(whole).values()


@pytest.mark.parametrize(
    ("place", "other"),
    [
        ("model", "other"),
        ("model-audit/exposure", "other-audit/exposure"),
        ("other-audit/exposure", "model-audit/exposure"),
    ],
)
def test_the_record_of_another_run(whole, place, other):
    shutil.copy(whole / other / "run.json", whole / place / "run.json")
    assert wrong(whole) == {f"{place}/run.json": "of other results"}


def test_the_record_of_another_command(whole):
    shutil.copy(whole / "deduplicated" / "run.json", whole / "planted" / "run.json")
    assert wrong(whole) == {"planted/dedup.json": "missing"}


@pytest.mark.parametrize(
    ("record", "name"),
    [
        ({"command": ["coalmine", "extract", "m"]}, "extraction.json"),
        ({"command": ["coalmine", "extract", "m"], "manifest_sha256": "0"}, "verified.json"),
        ({"command": ["coalmine", "demo"]}, None),
        ({"command": ["coalmine"]}, None),
        ({"command": ["coalmine", ["expose"]]}, None),
        ({"command": "coalmine expose"}, None),
        ({}, None),
    ],
)
def test_what_a_record_tells_of(record, name):
    assert written_with(record) == name
