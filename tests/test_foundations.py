"""Whole files, private files, and randomness that is a function of a seed and a name."""

import os
import pickle
import stat

import pytest

import coalmine
from coalmine.errors import FormatError, InputError, MissingExtraError
from coalmine.randomness import arrays, child_seed, integers
from coalmine.storage.files import PRIVATE, read_bytes, sha256_of_file, whole_file, write_json


def fail_half_way(target):
    with whole_file(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError


def test_a_file_is_whole_or_not_there(tmp_path):
    target = tmp_path / "deep" / "file.txt"
    with pytest.raises(RuntimeError):
        fail_half_way(target)
    assert list(target.parent.iterdir()) == []
    with whole_file(target) as temporary:
        temporary.write_text("whole")
        assert not target.exists()
    assert target.read_text() == "whole"
    with pytest.raises(RuntimeError):
        fail_half_way(target)
    assert target.read_text() == "whole"


def test_a_private_file_is_private_from_its_first_byte(tmp_path):
    before = os.umask(0)
    try:
        with whole_file(tmp_path / "secret", mode=PRIVATE) as temporary:
            assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600


def test_json_is_the_same_bytes_each_time(tmp_path):
    for name in ("one", "two"):
        write_json(tmp_path / name, {"b": [1, 2.5], "a": None})
    assert sha256_of_file(tmp_path / "one") == sha256_of_file(tmp_path / "two")


def test_reading_what_is_not_there(tmp_path):
    with pytest.raises(InputError, match="the thing was not found"):
        read_bytes(tmp_path / "no", "the thing")
    with pytest.raises(InputError, match="is a directory"):
        read_bytes(tmp_path, "the thing")


def test_children_of_a_seed_are_apart():
    assert child_seed(1, "a", "b") != child_seed(1, "ab")
    assert child_seed(1, "a") != child_seed(2, "a")
    assert integers(0, "x").getrandbits(200) == integers(0, "x").getrandbits(200)
    assert (arrays(0, "x").random(5) == arrays(0, "x").random(5)).all()


def test_every_public_name_is_there():
    for name in coalmine.__all__:
        assert getattr(coalmine, name) is not None
    assert set(coalmine.__all__) <= set(dir(coalmine))
    with pytest.raises(AttributeError):
        _ = coalmine.nothing


def test_a_missing_extra_says_how_to_install_it():
    assert str(MissingExtraError("training", "torch", "torch")) == (
        "training needs torch, which is not installed: pip install 'coalmine[torch]'"
    )


def test_errors_survive_the_way_to_another_process():
    for error in (
        MissingExtraError("loading a model", "torch", "torch"),
        FormatError("bad hole", "a {b", 2, "close it"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.shown()) == (type(error), str(error), error.shown())
