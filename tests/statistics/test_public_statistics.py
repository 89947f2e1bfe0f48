"""What `coalmine.statistics` and `coalmine.formats` export, and that importing them loads nothing heavy."""

import inspect
import subprocess
import sys

import pytest

import coalmine.formats
import coalmine.statistics

ROOMS = (coalmine.formats, coalmine.statistics)


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.__name__)
def test_every_exported_name_is_there_and_has_an_example(room):
    assert sorted(room.__all__) == dir(room)
    for name in room.__all__:
        assert ">>>" in (inspect.getdoc(getattr(room, name)) or ""), name
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        room.nothing  # noqa: B018


def test_importing_the_rooms_loads_no_numerical_library():
    code = "import sys, coalmine.formats, coalmine.statistics; print({'numpy', 'scipy', 'torch'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
