"""Exposures during a training that cannot be true, by their formats or by the manifest, are noticed; real ones are not."""

import re
from pathlib import Path

import msgspec
import pytest

from coalmine import CanarySet, ExposureWatch, Format, ScriptedModel, read_run, verify_run
from coalmine.audits import WATCHES
from coalmine.audits.exposure.estimators import ESTIMATORS
from coalmine.audits.watching.results import WatchedTraining
from coalmine.errors import ContradictionError
from coalmine.records.watching import BEYOND_THE_SPACE, Moment
from coalmine.training.record import TRAININGS
from reports import report_runs as made
from resealing import resealed

FORM = Format("pin {digits:4}")
FREQUENCIES = {str(digit): 3 + digit for digit in range(10)}
METHODS = [one.name for one in ESTIMATORS]


@pytest.fixture
def watched(tmp_path):
    """A manifest, and exposures that were measured during a training."""
    texts = FORM.sample(40, seed=1, replace=False)
    canaries = CanarySet.of(FORM, texts[:4], repetitions=2, withheld=texts[4:8], references=texts[8:])

    def save(method, **options):
        watch = ExposureWatch(canaries, method=method, samples=200)
        seen = watch.measure(ScriptedModel("pin 0123456789", memory={texts[0]: 0.5}, frequencies=FREQUENCIES))
        moments = [Moment(step=1, epoch=1, seen=seen)]
        record = msgspec.structs.replace(
            made.save_training(tmp_path), watch=watch.describe(), watched=moments
        )
        TRAININGS.save(tmp_path, record)
        formats = {"f0": FORM.template}
        WATCHES.save(
            tmp_path, WatchedTraining(watch=watch.describe(), watched=moments, formats=formats, **options)
        )
        canaries.save(tmp_path)
        return canaries

    return save


@pytest.mark.parametrize("method", [*METHODS, "auto"])
def test_what_is_seen_during_training_is_without_contradiction(watched, tmp_path, method):
    watched(method)
    assert "contradictory" not in {row.state for row in verify_run(tmp_path).files}
    assert read_run(tmp_path)


@pytest.mark.parametrize("name", ["exposure-during-training.json", "training.json"])
@pytest.mark.parametrize("method", [*METHODS, "auto"])
def test_more_exposure_during_training_than_the_format_allows(watched, tmp_path, name, method):
    """Without a curve, which may end beyond its space, no canary of 10,000 members has more than 13.29 bits."""
    watched(method)
    with resealed(tmp_path / name) as document:
        one = document["watched"][0]["seen"][1]
        one.update(status="measured", exposure=13.5, low=13.5, high=13.5)
    refused = method not in BEYOND_THE_SPACE
    states = {Path(row.path).name: row.state for row in verify_run(tmp_path).files}
    assert states[name] == ("contradictory" if refused else "as written")
    if not refused:
        assert read_run(tmp_path)
        return
    with pytest.raises(
        ContradictionError, match=rf"{re.escape(name)} contradicts .*: step 1: canary 'f0-x2-1'"
    ):
        read_run(tmp_path)


def test_only_curves_may_end_beyond_their_space():
    assert {one.name for one in ESTIMATORS if not one.is_evidence} == BEYOND_THE_SPACE


def test_more_exposure_during_training_without_a_manifest(watched, tmp_path):
    """The record of a callback names its formats; that of `coalmine train` does not."""
    watched("references")
    (tmp_path / "canaries.json").unlink()
    (tmp_path / "training.json").unlink()
    with resealed(tmp_path / "exposure-during-training.json") as document:
        document["watched"][0]["seen"][1].update(status="lower_bound", exposure=None, low=13.5, high=None)
    with pytest.raises(
        ContradictionError, match=r"the lower limit is 13\.5, which is not between 0 and 13\.2877"
    ):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"canary_id": "stranger"}, "'stranger' is not in the manifest"),
        ({"repetitions": 3}, "planted another number of times"),
        ({"format_id": "f1"}, "is of another format"),
        ({"status": "lower_bound", "exposure": None, "low": 6.0, "high": None}, "the lower limit is 6"),
    ],
)
def test_canaries_during_training_that_the_manifest_does_not_have(watched, tmp_path, changes, said):
    watched("references")
    with resealed(tmp_path / "training.json") as document:
        document["watched"][0]["seen"][1].update(changes)
    with pytest.raises(ContradictionError, match="contradicts the manifest that it was made with") as refused:
        read_run(tmp_path)
    assert said in str(refused.value)


def test_a_watch_is_no_measurement_of_its_manifest(watched, tmp_path):
    """A policy asks for the exposures of every manifest: looks during the training do not count as these."""
    canaries = watched("references")
    assert canaries.sha256 not in read_run(tmp_path).measured_manifests
