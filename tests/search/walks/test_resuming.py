"""What a search keeps to resume: of its own and of nobody else's, now or when it is time to."""

import numpy as np
import pytest

from coalmine.errors import InputError
from coalmine.search.walks.resuming import ResumeFile


def kept():
    return {"costs": np.array([1.0, 2.0])}


def test_what_was_kept_is_there_for_the_same_search_alone(tmp_path):
    path = tmp_path / "search.npz"
    own, other = ResumeFile(path, "one"), ResumeFile(path, "two")
    assert own.load() is None
    assert not own.is_there()
    own.save(kept, now=True)
    assert own.is_there()
    assert own.load()["costs"].tolist() == [1.0, 2.0]
    assert not other.is_there()
    with pytest.raises(InputError, match="another search"):
        other.load()
    path.write_bytes(path.read_bytes()[:-3])
    assert not own.is_there()
    own.remove()
    assert not path.exists()


def test_it_is_kept_when_it_is_time_to_and_not_before(tmp_path):
    path = tmp_path / "search.npz"
    patient, hasty = (
        ResumeFile(path, "one", seconds_between_saves=1e9),
        ResumeFile(path, "one", seconds_between_saves=0.0),
    )
    patient.save(kept)
    assert not path.exists()
    hasty.save(kept)
    assert path.exists()


def test_without_a_place_nothing_is_kept():
    nowhere = ResumeFile(None, "one", seconds_between_saves=0.0)
    nowhere.save(lambda: pytest.fail("nothing is to be kept"), now=True)
    assert not nowhere.is_there()
    nowhere.remove()
