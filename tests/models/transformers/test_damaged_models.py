"""Model directories with damaged or hostile files: a refusal in one sentence, or a model that can be used, and never another error."""

import json
import math
import os
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coalmine import load_model
from coalmine.corpus.index.tokenizing import index_tokenizer
from coalmine.errors import CoalmineError
from coalmine.models import text_sequence
from coalmine.models.endpoints.tokens import LocalTokenizer
from models.local_models import (
    change_json,
    save_adapter,
    save_checkpoint,
    save_reference_models,
    write_document,
)
from oracles import brute_force_bits

JSON_FILES = [
    ("causal", "config.json"),
    ("causal", "generation_config.json"),
    ("causal", "tokenizer.json"),
    ("causal", "tokenizer_config.json"),
    ("sharded", "model.safetensors.index.json"),
    ("adapter", "adapter_config.json"),
    ("reference-lstm", "config.json"),
]
NOT_JSON = {
    "empty": b"",
    "cut off": b'{"model_type": "gpt2", ',
    "not an object": b"[1, 2]",
    "null": b"null",
    "5,000 levels": b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    "100,000 lists": b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "a NUL byte": b'{"a": 1}\0',
    "not UTF-8": b'{"a": "\xff"}',
    "a number of 10,000 digits": b'{"a": ' + b"9" * 10_000 + b"}",
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    root = tmp_path_factory.mktemp("saved")
    save_checkpoint(root / "causal")
    save_checkpoint(root / "sharded", max_shard_size="60KB")
    save_adapter(root / "adapter", root / "causal")
    save_reference_models(root)
    return root


@pytest.fixture
def copied(saved, tmp_path):
    return lambda name: shutil.copytree(saved / name, tmp_path / name)


def refusal(directory, read=load_model):
    with pytest.raises(CoalmineError) as refused:
        read(directory)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(("name", "file"), JSON_FILES)
@pytest.mark.parametrize("content", NOT_JSON.values(), ids=NOT_JSON)
def test_json_that_cannot_be_read_is_refused_by_name(copied, name, file, content):
    directory = copied(name)
    (directory / file).write_bytes(content)
    assert str(directory / file) in refusal(directory)


@pytest.mark.parametrize(("name", "file"), JSON_FILES)
def test_a_directory_or_a_pipe_in_place_of_a_file_is_refused_by_name(copied, name, file):
    directory = copied(name)
    (directory / file).unlink()
    (directory / file).mkdir()
    assert str(directory / file) in refusal(directory)
    (directory / file).rmdir()
    os.mkfifo(directory / file)  # reading it would never end
    assert str(directory / file) in refusal(directory)


@pytest.mark.parametrize("read", [index_tokenizer, LocalTokenizer], ids=["index", "endpoint"])
@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", ["5,000 levels", "cut off", "not an object", "not UTF-8"])
def test_tokenizers_alone_are_refused_by_name_too(copied, read, file, content):
    directory = copied("causal")
    (directory / file).write_bytes(NOT_JSON[content])
    assert str(directory / file) in refusal(directory, read)


def header(length, content=b"{}"):
    return struct.pack("<Q", length) + content


DAMAGED_WEIGHTS = {
    "empty": b"",
    "eight bytes": b"\0" * 8,
    "a header of 2^63 bytes": header(1 << 63),
    "a header of 10^12 bytes": header(10**12),
    "a header longer than the file": header(1000),
    "a header that is not JSON": header(2, b"[["),
    "no tensors": header(2),
    "a tensor beyond the end": header(
        72, b'{"a":{"dtype":"F32","shape":[1000000000],"data_offsets":[0,4000000000]}}'
    ),
    "shape and size that differ": header(53, b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,4]}}'[:53])
    + b"\0" * 4,
    "a header of 90 levels": header(
        len(b'{"a":' * 200 + b"1" + b"}" * 200), b'{"a":' * 200 + b"1" + b"}" * 200
    ),
    "text": b"not weights at all, but a note that somebody left",
}


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("causal", "model.safetensors"),
        ("adapter", "adapter_model.safetensors"),
        ("reference-lstm", "model.safetensors"),
    ],
)
@pytest.mark.parametrize("content", DAMAGED_WEIGHTS.values(), ids=DAMAGED_WEIGHTS)
def test_damaged_weights_are_refused_by_name(copied, name, file, content):
    directory = copied(name)
    (directory / file).write_bytes(content)
    assert str(directory / file) in refusal(directory)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.999])
def test_weights_that_were_cut_off_are_refused_by_name(copied, share):
    directory = copied("causal")
    path = directory / "model.safetensors"
    os.truncate(path, int(path.stat().st_size * share))
    assert f"{path} is not a whole safetensors file" in refusal(directory)


HUGE = [
    ("causal", {"vocab_size": 10**12}),
    ("causal", {"n_layer": 10**12}),
    ("causal", {"num_labels": 10**9}),
    ("causal", {"n_embd": 10**9}),
    ("causal", {"n_positions": 10**10}),
    ("causal", {"n_inner": 10**10}),
    ("adapter", {"r": 10**12}),
    ("reference-lstm", {"network": {"hidden": 10**6}}),
    ("reference-transformer", {"network": {"layers": 10**9}}),
    ("reference-transformer", {"network": {"hidden": 4000}}),
    ("reference-cnn", {"network": {"vocabulary": 10**30}}),
    ("reference-attention", {"network": {"architecture": [[]]}}),
]


def peak_kilobytes():
    (line,) = (
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")
    )
    return int(line.split()[1])


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peaks are read from Linux's /proc")
@pytest.mark.parametrize(("name", "changes"), HUGE)
def test_a_config_that_asks_for_far_more_than_its_weights_takes_no_memory(copied, name, changes):
    directory = copied(name)
    path = directory / ("adapter_config.json" if name == "adapter" else "config.json")
    if "network" in changes:
        changes = {"network": json.loads(path.read_text())["network"] | changes["network"]}
    change_json(path, **changes)
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = peak_kilobytes()
    refusal(directory)
    assert peak_kilobytes() - before < 300_000


def test_a_network_is_refused_while_it_is_built(copied):
    directory = copied("causal")
    change_json(directory / "config.json", n_positions=10**9)
    assert "describes a network far larger than its weights" in refusal(directory)


def test_an_id_that_no_token_can_have_is_refused(copied):
    directory = copied("causal")
    change_json(directory / "config.json", pad_token_id=10**30)
    assert f"{directory / 'config.json'} sets pad_token_id to 1e+30, which no token has" in refusal(directory)


@pytest.mark.parametrize(
    ("name", "file", "changes"),
    [
        ("adapter", "adapter_config.json", {"lora_alpha": 1e308}),
        ("causal", "config.json", {"layer_norm_epsilon": -1.0}),
    ],
)
def test_a_model_that_gives_no_numbers_is_refused(copied, name, file, changes):
    directory = copied(name)
    change_json(directory / file, **changes)
    assert f"{directory} gives values that are not numbers (NaN) instead of probabilities" in refusal(
        directory
    )


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 10**12, 10**30, 1e308, float("nan"), float("inf")]),
    st.sampled_from(["", "a", "a\0b", "../x", "\x1b[31m", "é" * 300]),
    st.sampled_from([[], {}, [[]], {"a": 1}, [1, 2, 3]]),
)


def places(document, before=()):
    """Where something can be changed in a document; of long lists and objects, the first few."""
    yield before
    if isinstance(document, dict):
        for name in list(document)[:40]:
            yield from places(document[name], (*before, name))
    elif isinstance(document, list):
        for index in range(min(3, len(document))):
            yield from places(document[index], (*before, index))


def changed(document, place, value):
    if not place:
        return value
    here = document
    for step in place[:-1]:
        here = here[step]
    here[place[-1]] = value
    return document


# A pass takes a tenth of a second, and the files of a checkpoint have some 300 places: a longer run is a matter of the numbers here.
@settings(
    max_examples=40,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_whatever_a_field_says_there_is_a_refusal_or_a_model(saved, tmp_path, data):
    name, file = data.draw(st.sampled_from(JSON_FILES))
    directory = tmp_path / "model"
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(saved / name, directory)
    document = json.loads((directory / file).read_text())
    place = data.draw(st.sampled_from(list(places(document))))
    write_document(directory / file, changed(document, place, data.draw(VALUES)))
    said = outcome(directory)
    assert "\n" not in said
    assert len(said) < 1000


def outcome(directory):
    """The refusal, or nothing where there is a model whose probabilities are probabilities."""
    try:
        model = load_model(directory)
    except CoalmineError as refused:
        return str(refused)
    sequence = text_sequence(model, "a value")
    assert np.exp2(model.start([sequence.context]).log2_probabilities).sum() == pytest.approx(1, abs=1e-3)
    assert 0 < brute_force_bits(model, "a value") < math.inf
    return ""


@pytest.mark.parametrize(
    "tokenizer",
    [
        None,
        [],
        {"kind": "characters"},
        {"kind": "characters", "characters": None},
        {"kind": "characters", "characters": "ba"},
        {"kind": "characters", "characters": "aab"},
        {"kind": "words", "words": [1, 2]},
        {"kind": "words", "words": ["b", "a"]},
        {"kind": ["words"]},
        {"kind": "characters", "characters": "ab"},
    ],
)
def test_the_tokenizer_of_a_reference_model_must_be_one_and_fit_its_network(copied, tokenizer):
    directory = copied("reference-gru")
    document = json.loads((directory / "config.json").read_text())
    write_document(directory / "config.json", {**document, "tokenizer": tokenizer})
    assert str(directory / "config.json") in refusal(directory)
