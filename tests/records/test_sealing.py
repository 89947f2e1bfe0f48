"""A sealed file is read only if it is, to the byte, what was written."""

import json
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalmine.errors import AlteredError
from coalmine.records.documents import check_seal, sealed, write_sealed

DOCUMENT = {"schema": "a/1", "value": 3.29, "results": [{"rank": 1}, {"rank": 2}]}


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs sha256sum")
def test_any_tool_can_make_the_checksum(tmp_path):
    write_sealed(tmp_path / "a.json", DOCUMENT)
    made = subprocess.run(
        "head -n -2 a.json | sha256sum", shell=True, cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout
    assert made.split()[0] == json.loads((tmp_path / "a.json").read_bytes())["checksum"]


@given(place=st.integers(0, len(sealed(DOCUMENT)) - 1), other=st.integers(0, 255))
def test_every_changed_byte_is_noticed(place, other):
    content = bytearray(sealed(DOCUMENT))
    if content[place] == other:
        other ^= 1
    content[place] = other
    with pytest.raises(AlteredError):
        check_seal("a.json", bytes(content), "the result")
