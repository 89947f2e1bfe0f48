"""The public names of the models, audits and integrations rooms: documented with an example, and loaded when first used."""

import subprocess
import sys

import pytest

import coalmine.audits
import coalmine.integrations
import coalmine.models

ROOMS = [coalmine.models, coalmine.audits, coalmine.integrations]


@pytest.mark.parametrize(("room", "name"), [(room, name) for room in ROOMS for name in room.__all__])
def test_every_name_has_a_docstring_with_an_example(room, name):
    assert name in dir(room)
    documented = getattr(room, name).__doc__
    assert ">>> " in documented, f"{room.__name__}.{name} has no example"


@pytest.mark.parametrize("room", ROOMS)
def test_a_name_that_is_not_there_is_an_attribute_error(room):
    with pytest.raises(AttributeError, match=f"module '{room.__name__}' has no attribute 'nothing'"):
        _ = room.nothing


def test_importing_the_rooms_imports_nothing_heavy():
    code = (
        "import sys, coalmine.models, coalmine.audits, coalmine.integrations; "
        "print([name for name in ('numpy', 'scipy', 'torch', 'transformers', 'lightning') if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert found.stdout == "[]\n"
