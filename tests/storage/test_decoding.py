"""Content that is not JSON or TOML is rejected with a short reason that never quotes the file."""

import json
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.in_process import run
from coalmine import CanarySet
from coalmine.corpus import read_documents
from coalmine.errors import CorpusError, ManifestError
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
        f"['{SECRET}']\na=1\n['{SECRET}']",
        f"a = {{'{SECRET}' = 1, '{SECRET}' = 2}}",
        f"a = {{}}\n[a.'{SECRET}']",
        f"a = {SECRET}",
        "a." * 10_000 + "a = 1",
        "a = " + "9" * 10_000,
    ],
)
def test_no_reason_quotes_toml(content):
    with pytest.raises(UndecodableError) as problem:
        decode_toml(content.encode("utf-8", "surrogatepass"))
    assert "0451" not in str(problem.value)
    assert len(str(problem.value)) < 100


@pytest.mark.parametrize("content", [b'{"number": 1e999}', b'{"number": NaN}', b'"\\ud800"', b"\xff", b""])
def test_numbers_and_text_that_cannot_be_are_refused(content):
    with pytest.raises(UndecodableError):
        decode_json(content, Record)


def test_a_manifest_of_5000_levels(tmp_path):
    path = tmp_path / "canaries.json"
    path.write_text('{"schema": "coalmine.canaries/1", "seed": ' + "[" * 5_000 + "]" * 5_000 + "}")
    with pytest.raises(
        ManifestError, match=r"canaries.json: the manifest is damaged \(it is nested too deeply\)"
    ):
        CanarySet.load(path)


@pytest.mark.parametrize("field", ["text", "other"])
def test_a_line_of_100000_levels(tmp_path, field):
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"text": "a"}\n{"text": "b", "' + field + '": ' + "[" * 100_000 + "]" * 100_000 + "}\n")
    with pytest.raises(CorpusError, match=r"corpus.jsonl, line 2 is not JSON \(it is nested too deeply\)"):
        list(read_documents(path))
    ended = run("plant", path, "-f", "{digits:9}", "-o", tmp_path / "out")
    assert ended.code == 2, ended.said
