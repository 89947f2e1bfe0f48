"""GGUF files: the numbers and tokens of the model that they were made from, and one sentence about those that cannot be read."""

import hashlib
import json
import shutil

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from coalmine import load_model, score_texts
from coalmine.corpus.index.tokenizing import tokenizer_sha256
from coalmine.errors import ModelError
from coalmine.evidence.directories import audit_directory, beside
from coalmine.models import from_transformers
from models.tiny_transformers import byte_level, tiny

gguf = pytest.importorskip("gguf")
from models.tiny_gguf import gguf_tensors, rounded, write_gguf  # noqa: E402 - needs the package

TEXTS = ["the random number is 281265017", "a", "value é ☕ 12"]


def merges(tokenizer):
    return [" ".join(pair) for pair in json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A model whose matrices are rounded to Q8_0, and its GGUF file."""
    tokenizer = byte_level()
    model = rounded(tiny("llama", len(tokenizer), dtype=torch.float32))
    path = write_gguf(
        tmp_path_factory.mktemp("gguf") / "tiny.gguf", model, tokenizer, merges=merges(tokenizer)
    )
    return path, model


def test_a_file_is_the_model_that_it_was_made_from(written, capfd):
    path, model = written
    loaded, live = load_model(path), from_transformers(model, byte_level())
    assert score_texts(loaded, TEXTS) == pytest.approx(score_texts(live, TEXTS), abs=1e-4)
    assert [loaded.tokenizer.encode(text) for text in TEXTS] == [
        live.tokenizer.encode(text) for text in TEXTS
    ]
    described = loaded.describe()
    assert described["quantization"] == {
        "method": "gguf", "bits": 9.76, "types": {"Q8_0": 14, "F32": 7}, "dequantized": True,
    }  # fmt: skip
    assert described["weights_sha256"] == [hashlib.sha256(path.read_bytes()).hexdigest()]
    assert (described["weights"], described["precision"], loaded.name) == ("tiny.gguf", "float32", "tiny")
    assert described["parameters"] == model.num_parameters()
    # A directory that holds nothing else is as good, and so is a worker that loads it again.
    assert (
        score_texts(load_model(path.parent).load_again(), TEXTS).tolist()
        == score_texts(loaded, TEXTS).tolist()
    )
    assert load_model(path, precision="float64").describe()["precision"] == "float64"
    assert capfd.readouterr() == ("", "")


def test_results_and_indexes_of_a_file(written, tmp_path):
    path = tmp_path / "model.gguf"
    shutil.copy(written[0], path)
    assert tokenizer_sha256(path) == tokenizer_sha256(tmp_path)
    assert audit_directory(path).name == "model.gguf-audit"
    assert beside(path) == ()
    audit_directory(path).mkdir()
    assert beside(path) == (audit_directory(path),)


def test_neighbors_of_a_file_are_not_read(written, tmp_path):
    path = tmp_path / "alone.gguf"
    shutil.copy(written[0], path)
    (tmp_path / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["evil.Evil", null]}}')
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "elsewhere"}')
    assert (
        score_texts(load_model(path), TEXTS).tolist() == score_texts(load_model(written[0]), TEXTS).tolist()
    )


def test_stretched_positions_are_those_of_the_model(tmp_path):
    """As in files of Llama 3: the frequencies of positions are divided by what the file says."""
    tokenizer = byte_level()
    rope = {
        "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    }  # fmt: skip
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.5, bos_token_id=0, eos_token_id=0, rope_parameters=rope,
        )
    )  # fmt: skip
    plain = 10000.0 ** (-np.arange(0, 16, 2) / 16)
    factors = (plain / model.model.rotary_emb.inv_freq.numpy()).astype(np.float32)
    assert factors.max() > 2
    tensors = gguf_tensors(model, gguf.GGMLQuantizationType.F32)
    with_factors = {**tensors, "rope_freqs.weight": (factors, gguf.GGMLQuantizationType.F32)}
    for name, content in (("stretched", with_factors), ("plain", tensors)):
        write_gguf(tmp_path / f"{name}.gguf", model, tokenizer, tensors=content, merges=merges(tokenizer))
    expected = score_texts(from_transformers(model, tokenizer), TEXTS)
    assert score_texts(load_model(tmp_path / "stretched.gguf"), TEXTS) == pytest.approx(expected, abs=1e-3)
    assert abs(score_texts(load_model(tmp_path / "plain.gguf"), TEXTS)[0] - expected[0]) > 0.1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"architecture": "abacus"}, "architecture 'abacus', which transformers does not read from GGUF"),
        ({"pre": "own-rule"}, "by the rule 'own-rule', which transformers does not have"),
        # Each digit is a word by that rule, and some tokens have several.
        ({"pre": "smollm"}, "by the rule 'smollm', which transformers does not have"),
        ({"settings": {"block_count": 3}}, "its weights have no model.layers.2"),
        ({"settings": {"block_count": 1}}, "numbers would not be used"),
        ({"settings": {"block_count": 2_000_000_000}}, "sets num_hidden_layers to 2,000,000,000"),
        ({"settings": {"embedding_length": 2_000_000}}, "far larger than its weights"),
        ({"settings": {"feed_forward_length": 96}}, "in another shape"),
        ({"tensors": "one more"}, "of its 60,352 numbers would not be used"),
    ],
)
def test_files_that_are_not_what_they_say_are_refused(written, tmp_path, changes, said):
    model = written[1]
    if "tensors" in changes:
        more = {"blk.0.own.weight": (np.ones(32, np.float32), gguf.GGMLQuantizationType.F32)}
        changes = {"tensors": {**gguf_tensors(model), **more}}
    path = write_gguf(tmp_path / "changed.gguf", model, byte_level(), merges=merges(byte_level()), **changes)
    with pytest.raises(ModelError) as refused:
        load_model(path)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_damaged_and_divided_files_are_refused(written, tmp_path):
    content = written[0].read_bytes()
    for name, damaged in (("cut", content[:5000]), ("other", b"PK" + content[2:]), ("empty", b"")):
        (tmp_path / f"{name}.gguf").write_bytes(damaged)
        with pytest.raises(ModelError, match="is not a whole GGUF file"):
            load_model(tmp_path / f"{name}.gguf")
    with pytest.raises(ModelError, match=r"holds 3 GGUF files, such as cut\.gguf and empty\.gguf; name one"):
        load_model(tmp_path)
    part = tmp_path / "parts" / "model-00001-of-00002.gguf"
    part.parent.mkdir()
    part.write_bytes(content)
    with pytest.raises(ModelError, match="split into several files"):
        load_model(part.parent)
    with pytest.raises(ModelError, match="runs on one device"):
        load_model(written[0], device_map="auto")
    with pytest.raises(ModelError, match="is read as a causal model"):
        load_model(written[0], kind="masked")
    with pytest.raises(ModelError, match="is not a directory or a"):
        load_model(tmp_path / "absent.gguf")
