"""Exposures during a training that cannot be true, by themselves or by the manifest, are noticed; real ones are not."""

import re

import msgspec
import pytest

from coalmine import CanarySet, ExposureWatch, Format, ScriptedModel, read_run, verify_run
from coalmine.audits import WATCHES
from coalmine.audits.watching.records import WatchedTraining
from coalmine.errors import ContradictionError
from coalmine.records.watching import Moment
from coalmine.training.record import TRAININGS
from reports import report_runs as made
from resealing import resealed

FORM = Format("pin {digits:4}")
FREQUENCIES = {str(digit): 3 + digit for digit in range(10)}


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


@pytest.mark.parametrize("method", ["exact", "references", "extrapolated"])
def test_what_is_seen_during_training_is_without_contradiction(watched, tmp_path, method):
    watched(method)
    assert "altered" not in {row.state for row in verify_run(tmp_path).files}
    assert read_run(tmp_path)


@pytest.mark.parametrize("name", ["exposure-during-training.json", "training.json"])
@pytest.mark.parametrize("changes", [{"low": 14.0}, {"repetitions": -1}, {"status": "not_measured"}])
def test_an_exposure_during_training_that_cannot_be(watched, tmp_path, name, changes):
    watched("exact")
    with resealed(tmp_path / name) as document:
        document["watched"][0]["seen"][1].update(changes)
    with pytest.raises(ContradictionError, match=rf"{re.escape(name)} contradicts itself: what was seen"):
        read_run(tmp_path)


@pytest.mark.parametrize("changes", [{"canary_id": "stranger"}, {"repetitions": 3}, {"format_id": "f1"}])
def test_canaries_during_training_that_the_manifest_does_not_have(watched, tmp_path, changes):
    watched("references")
    with resealed(tmp_path / "training.json") as document:
        document["watched"][0]["seen"][1].update(changes)
    with pytest.raises(ContradictionError, match="contradicts the manifest that it was made with"):
        read_run(tmp_path)


def test_a_watch_is_no_measurement_of_its_manifest(watched, tmp_path):
    """A policy asks for the exposures of every manifest: looks during the training do not count as these."""
    canaries = watched("references")
    assert canaries.sha256 not in read_run(tmp_path).measured_manifests
