"""Quantized models: few values, a record that says so, and audits that read them as they read the original."""

import json
import stat

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from cli.in_process import run
from coalmine import load_model, quantize, score_texts, verify_run
from coalmine.errors import AlteredError, CorpusError, InputError, ModelError
from coalmine.training.quantizing.record import QUANTIZATIONS
from models.random_networks import random_model, save_network
from models.tiny_transformers import byte_level, tiny

TEXTS = ["the quick brown fox", "0123 and so on"]


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    directory = tmp_path_factory.mktemp("ours") / "model"
    save_network(directory, random_model("lstm"))
    return directory


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    directory = tmp_path_factory.mktemp("theirs") / "model"
    model = tiny("gpt2", len(byte_level()), dtype=torch.float32)
    model.save_pretrained(directory, max_shard_size="60KB")
    byte_level().save_pretrained(directory)
    (directory / "modeling_evil.py").write_text("raise SystemExit")
    return directory


def weights_in(directory):
    found = {}
    for path in directory.glob("*.safetensors"):
        found |= load_file(path)
    return found


def log_perplexities(directory):
    return np.array([float(score) for score in score_texts(load_model(directory), TEXTS)])


@pytest.mark.parametrize("values", [2, 16, 256])
def test_a_model_of_ours_has_so_many_values_per_tensor(ours, tmp_path, values):
    made = quantize(ours, tmp_path / "out", values=values)
    before, after = weights_in(ours), weights_in(tmp_path / "out")
    assert before.keys() == after.keys() == {one.name for one in made.tensors}
    for one in made.tensors:
        assert len(torch.unique(after[one.name])) == one.distinct <= values
        difference = (after[one.name].double() - before[one.name].double()).abs().max()
        assert float(difference) == one.largest_error
    assert made.rounded == sum(tensor.numel() for tensor in before.values())


def test_many_values_leave_the_scores_nearly_as_they_were(ours, tmp_path):
    quantize(ours, tmp_path / "many", values=4096)
    quantize(ours, tmp_path / "few", values=2)
    whole, many, few = (log_perplexities(one) for one in (ours, tmp_path / "many", tmp_path / "few"))
    assert np.abs(many - whole).max() < 0.01 * np.abs(few - whole).max()


def test_int8_rounds_rows_of_matrices_and_keeps_biases(ours, tmp_path):
    made = quantize(ours, tmp_path / "out", int8=True)
    before, after = weights_in(ours), weights_in(tmp_path / "out")
    kept = {one.name for one in made.tensors if one.distinct is None}
    assert kept == {name for name, tensor in before.items() if tensor.dim() == 1}
    for name, tensor in after.items():
        if name in kept:
            assert torch.equal(tensor, before[name])
        else:
            assert max(len(torch.unique(row)) for row in tensor) <= 255
    assert np.allclose(log_perplexities(tmp_path / "out"), log_perplexities(ours), rtol=0.05)


def test_a_checkpoint_is_rewritten_shard_by_shard_without_its_code(theirs, tmp_path):
    out = tmp_path / "out"
    made = quantize(theirs, out, values=16)
    shards = {path.name for path in theirs.glob("*.safetensors")}
    assert len(shards) > 1
    assert shards == {path.name for path in out.glob("*.safetensors")}
    assert all(len(torch.unique(tensor)) <= 16 for tensor in weights_in(out).values())
    assert not list(out.glob("*.py"))
    assert json.loads((out / "config.json").read_bytes()) == json.loads((theirs / "config.json").read_bytes())
    assert made.data_sha256 is None
    assert np.isfinite(log_perplexities(out)).all()
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in out.iterdir())


def test_the_data_of_the_training_is_still_known(tmp_path):
    (tmp_path / "corpus.txt").write_text("a small text of few words\n" * 40)
    small = ["--training", "hidden=8", "--training", "embedding=4", "--epochs", "1"]
    assert run("train", tmp_path / "corpus.txt", "-o", tmp_path / "model", *small).code == 0
    ended = run("lab", "alter", tmp_path / "model", "--values", "16", "-o", tmp_path / "out", "--json")
    said = load_model(tmp_path / "out").describe()
    assert ended.code == 0
    assert said["trained_on_sha256"] == load_model(tmp_path / "model").describe()["trained_on_sha256"]
    assert verify_run(tmp_path / "out").sound
    path = tmp_path / "out" / "model.safetensors"
    save_file({name: tensor + 1 for name, tensor in load_file(path).items()}, path)
    with pytest.raises(AlteredError):
        load_model(tmp_path / "out")


def test_the_same_call_finds_what_it_made_and_another_is_refused(ours, tmp_path):
    first = quantize(ours, tmp_path / "out", values=16)
    assert quantize(ours, tmp_path / "out", values=16) == first
    with pytest.raises(CorpusError, match="exists already"):
        quantize(ours, tmp_path / "out", values=17)
    assert quantize(ours, tmp_path / "out", values=17, overwrite=True).options.values == 17


def test_replacing_a_model_of_more_files_leaves_none_of_them(ours, theirs, tmp_path):
    quantize(theirs, tmp_path / "out")
    made = quantize(ours, tmp_path / "out", overwrite=True)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*made.files, QUANTIZATIONS.file}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"values": 1}, "from 2 to 65,536"),
        ({"values": 16, "int8": True}, "either --values or --int8"),
    ],
)
def test_wrong_options_are_refused(ours, tmp_path, given, message):
    with pytest.raises(InputError, match=message):
        quantize(ours, tmp_path / "out", **given)


def test_what_cannot_be_quantized_is_refused_with_a_reason(ours, tmp_path):
    with pytest.raises(InputError, match=r"replace .* itself"):
        quantize(ours, ours)
    with pytest.raises(ModelError, match="only local models"):
        quantize("http://127.0.0.1/v1", tmp_path / "out")
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="merge it into its base"):
        quantize(adapter, tmp_path / "out")
    broken = tmp_path / "broken"
    save_network(broken, random_model("gru"))
    with torch.no_grad():
        model = random_model("gru")
        model._network.output.bias[0] = float("nan")
        save_network(broken, model)
    with pytest.raises(ModelError, match="not finite"):
        quantize(broken, tmp_path / "out")
    assert not (tmp_path / "out" / "model.safetensors").exists()
