"""What a callback writes: where nothing can be written, that is an error before a training and a warning during one."""

import pytest

from coalmine import Canary, CanarySet, ExposureWatch, Format
from coalmine.errors import InputError
from coalmine.integrations.exposure_log import ExposureLog


@pytest.fixture
def log(tmp_path, monkeypatch):
    canary = Canary(canary_id="f0-x1-0", format_id="f0", text="my pin is 4921", repetitions=1, planted=True)
    canaries = CanarySet(
        [canary], {"f0": Format("my pin is {digits:4}")}, references={"f0": ["my pin is 1234"]}
    )
    made = ExposureLog(ExposureWatch(canaries), trainer="a test")
    monkeypatch.setattr(made, "_measure", lambda *_: [])  # what is measured is tested elsewhere
    (tmp_path / "file").write_text("")
    made.begin(tmp_path / "file" / "exposure.json", 0)
    return made


def test_a_place_that_cannot_be_written_to_ends_no_training(log):
    with pytest.warns(UserWarning, match="the exposure at step 3 was not written: .* cannot be a directory"):
        log.look(None, None, step=3, epoch=0.5, when="step")
    assert len(log.moments) == 1, "what was seen is kept, and written once that is possible"


def test_before_a_training_it_is_an_error(log):
    with pytest.raises(InputError, match="cannot be a directory"):
        log.look(None, None, step=0, epoch=0.0, when="start")
