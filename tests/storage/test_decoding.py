"""Content that is not JSON or TOML is rejected with a short reason that never quotes the file."""

import json
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalmine.storage.decoding import (
    MOST_LEVELS,
    UndecodableError,
    decode_json,
    decode_python_json,
    decode_toml,
)

SECRET = "my pin is 0451"


class Record(msgspec.Struct, forbid_unknown_fields=True):
    status: Literal["measured"] = "measured"
    number: float = 0.0
    model: dict[str, Any] = {}


@pytest.mark.parametrize("levels", [MOST_LEVELS, MOST_LEVELS + 1, 100_000])
@pytest.mark.parametrize("decode", [decode_json, decode_python_json])
def test_levels_are_limited_and_strings_have_none(decode, levels):
    nested = b"[" * levels + b"]" * levels
    if levels > MOST_LEVELS:
        with pytest.raises(UndecodableError, match="nested too deeply"):
            decode(nested)
    else:
        decode(nested)
    text = nested.decode() + '\\"{'
    assert decode(json.dumps([text]).encode()) == [text]


@given(
    st.recursive(
        st.text(alphabet='"\\[]{}a'), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_what_is_not_nested_deeply_is_read(value):
    written = json.dumps(value).encode()
    assert decode_json(written) == decode_python_json(written) == value


@pytest.mark.parametrize("content", [{"status": SECRET}, {SECRET: 1}, {"number": SECRET}, [SECRET], SECRET])
def test_no_reason_quotes_json(content):
    with pytest.raises(UndecodableError) as problem:
        decode_json(json.dumps(content).encode(), Record)
    assert "0451" not in str(problem.value)
    with pytest.raises(UndecodableError) as problem:
        decode_json(json.dumps(content).encode()[:-1])
    assert "0451" not in str(problem.value)


@pytest.mark.parametrize(
    "content",
    [
        f"'{SECRET}' = 1\n'{SECRET}' = 2",
        f"a = {SECRET}",
        "a." * 10_000 + "a = 1",
    ],
)
def test_no_reason_quotes_toml(content):
    with pytest.raises(UndecodableError) as problem:
        decode_toml(content.encode("utf-8", "surrogatepass"))
    assert "0451" not in str(problem.value)
    assert len(str(problem.value)) < 100
