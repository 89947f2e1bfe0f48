"""Where weights come from: pickles are refused by name and never opened, and a checkpoint's weights are all used."""

import json
import os
import pickle
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForPreTraining, LlamaForSequenceClassification

from coalmine import load_model
from coalmine.errors import AlteredError, ModelError
from models import tiny_masked
from models.local_models import change_json, save_adapter, save_checkpoint, save_reference_models
from models.tiny_transformers import byte_level, tiny

INDEX = "model.safetensors.index.json"


class Payload:
    """What makes a file when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A checkpoint, one in shards, an adapter and a reference model."""
    root = tmp_path_factory.mktemp("saved")
    save_checkpoint(root / "causal")
    save_checkpoint(root / "sharded", max_shard_size="60KB")
    save_adapter(root / "adapter", root / "causal")
    save_reference_models(root)
    return root


@pytest.fixture
def copied(saved, tmp_path):
    return lambda name: shutil.copytree(saved / name, tmp_path / name)


@pytest.fixture
def trap(tmp_path):
    """Writes a pickle that leaves a mark when it is opened; that there is none is checked at the end."""
    marker = tmp_path / "a payload ran"

    def write(path, *, zipped=False):
        if zipped:
            torch.save(Payload(marker), path)
        else:
            path.write_bytes(pickle.dumps(Payload(marker)))

    write(tmp_path / "control")
    pickle.loads((tmp_path / "control").read_bytes())
    assert marker.is_dir()  # the trap works
    marker.rmdir()
    yield write
    assert not marker.exists()


def refusal(directory, **options):
    with pytest.raises((ModelError, AlteredError)) as refused:
        load_model(directory, **options)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "zipped"])
@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "model.pt", "model.pth", "model.ckpt", "consolidated.00.pth", "model.pkl"]
)
def test_a_pickle_in_place_of_a_checkpoint_is_refused_by_name(copied, trap, name, zipped):
    directory = copied("causal")
    (directory / "model.safetensors").unlink()
    trap(directory / name, zipped=zipped)
    assert f"{directory / name} is a pickle" in refusal(directory)


def test_a_pickle_in_place_of_an_adapter_is_refused_by_name(copied, trap):
    directory = copied("adapter")
    (directory / "adapter_model.safetensors").unlink()
    trap(directory / "adapter_model.bin")
    assert f"{directory / 'adapter_model.bin'} is a pickle" in refusal(directory)


def test_a_pickle_in_place_of_the_base_of_an_adapter_is_refused_by_name(copied, trap):
    base, directory = copied("causal"), copied("adapter")
    change_json(directory / "adapter_config.json", base_model_name_or_path=str(base))
    (base / "model.safetensors").unlink()
    trap(base / "pytorch_model.bin")
    assert f"{base / 'pytorch_model.bin'} is a pickle" in refusal(directory)


def test_an_index_of_pickles_is_refused_by_name(copied):
    directory = copied("causal")
    (directory / "model.safetensors").unlink()
    (directory / "pytorch_model.bin.index.json").write_text('{"weight_map": {"a": "pytorch_model-1.bin"}}')
    assert "pytorch_model.bin.index.json is a pickle or points to one" in refusal(directory)


@pytest.mark.parametrize("name", ["causal", "sharded"])
@pytest.mark.parametrize(
    "target", ["pytorch_model.bin", "../outside.safetensors", "/tmp/outside.safetensors", "sub\\outside.safetensors", 5]
)  # fmt: skip
def test_an_index_that_points_elsewhere_is_refused_before_anything_is_opened(
    copied, trap, tmp_path, name, target
):
    directory = copied(name)
    trap(directory / "pytorch_model.bin")
    trap(tmp_path / "outside.safetensors")
    index = directory / INDEX
    weights = json.loads(index.read_text())["weight_map"] if index.exists() else {}
    index.write_text(
        json.dumps({"metadata": {}, "weight_map": {**weights, "transformer.wte.weight": target}})
    )
    assert f"{index} names {target}, and only safetensors files" in refusal(directory)


def test_an_index_of_an_adapter_is_refused(copied, trap):
    directory = copied("adapter")
    trap(directory / "adapter_model.bin")
    index = directory / "adapter_model.safetensors.index.json"
    index.write_text('{"weight_map": {"a": "adapter_model.bin"}}')
    assert f"{index} names adapter_model.bin" in refusal(directory)
    index.write_text('{"weight_map": {"a": "adapter_model.safetensors"}}')
    assert "holds an adapter in shards" in refusal(directory)


@pytest.mark.parametrize(
    ("name", "file", "what"),
    [
        ("causal", "model.safetensors", "is not a whole safetensors file"),
        ("adapter", "adapter_model.safetensors", "is not a whole safetensors file"),
        ("reference-lstm", "model.safetensors", "is not what was written"),
    ],
)
@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "zipped"])
def test_a_pickle_that_is_called_safetensors_is_refused(copied, trap, name, file, what, zipped):
    directory = copied(name)
    trap(directory / file, zipped=zipped)
    assert f"{directory / file} {what}" in refusal(directory)


def test_pickles_beside_safetensors_are_not_opened(copied, trap):
    names = [
        "pytorch_model.bin",
        "training_args.bin",
        "optimizer.pt",
        "rng_state.pth",
        "tokenizer.model",
        "tokenizer.pkl",
    ]
    directory, adapter = copied("causal"), copied("adapter")
    for name in names:
        trap(directory / name)
        if name != "tokenizer.model":
            trap(adapter / name)
    trap(adapter / "adapter_model.bin")
    load_model(directory)
    load_model(adapter)
    # That one would be the adapter's own tokenizer, and the base's is not used in its place.
    trap(adapter / "tokenizer.model")
    assert "tokenizer" in refusal(adapter)
    (directory / "model.safetensors").unlink()
    (directory / "pytorch_model.bin").unlink()
    (directory / "tokenizer.pkl").unlink()
    assert "has no model.safetensors" in refusal(directory)  # what trainers leave is not taken for weights


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"transformers_weights": "adapter_model.bin"}, "names a weights file of its own"),
        ({"use_safetensors": False}, None),
        (
            {"quantization_config": {"quant_method": "torchao", "quant_type": "int4"}},
            "which the package torchao reads",
        ),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "which the package optimum reads"),
        ({"quantization_config": {"quant_method": "own-code"}}, "which cannot be read here"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "not whether to 4 or 8 bits"),
        (
            {"quantization_config": {"load_in_4bit": True, "llm_int8_skip_modules": ["(a+)+b"]}},
            "take forever to match",
        ),
        (
            {"quantization_config": {"load_in_4bit": True}},
            "in another form or shape than its config describes",
        ),
        ({"quantization_config": {"load_in_8bit": True}}, "which is 8 bits of bitsandbytes"),
        ({"quantization_config": "int4"}, "must say in an object"),
        (
            {"text_config": {"quantization_config": {"load_in_4bit": True}}},
            "a part of the model is quantized",
        ),
        ({"quantization_config": None}, None),
    ],
)
def test_settings_that_lead_to_other_files_or_code_are_refused(copied, trap, setting, said):
    directory = copied("causal")
    trap(directory / "adapter_model.bin")
    trap(directory / "pytorch_model.bin")
    change_json(directory / "config.json", **setting)
    if said is None:
        load_model(directory)  # a setting that changes nothing
    else:
        assert said in refusal(directory)


def test_links_are_followed_to_safetensors(copied, tmp_path):
    directory = copied("causal")
    (directory / "model.safetensors").rename(tmp_path / "blob")
    (directory / "model.safetensors").symlink_to(tmp_path / "blob")
    assert load_model(directory).describe()["weights_sha256"]
    (tmp_path / "blob").unlink()
    assert "has no model.safetensors" in refusal(directory)


def test_shards_of_single_processes_are_refused(copied):
    directory = copied("causal")
    shutil.copy(directory / "model.safetensors", directory / "shard-00000-model-00001-of-00001.safetensors")
    assert "distributed training" in refusal(directory)


def test_only_the_files_that_are_read_are_hashed(copied):
    directory = copied("causal")
    alone = load_model(directory).describe()["weights_sha256"]
    save_file({"a": torch.zeros(3)}, directory / "another.safetensors")
    assert load_model(directory).describe()["weights_sha256"] == alone
    assert len(alone) == 1


def change_weights(directory, change):
    path = directory / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def test_a_missing_tensor_is_refused(copied):
    directory = copied("causal")
    change_weights(directory, lambda tensors: tensors.pop("transformer.h.1.mlp.c_fc.weight"))
    assert "its weights have no transformer.h.1.mlp.c_fc.weight" in refusal(directory)


def test_a_tensor_of_another_shape_is_refused(copied):
    directory = copied("causal")
    name = "transformer.h.0.mlp.c_fc.bias"
    change_weights(directory, lambda tensors: tensors.update({name: torch.zeros(64)}))
    assert f"{name} as 64, and config.json describes it as 128" in refusal(directory)


def test_a_config_with_fewer_layers_than_the_weights_is_refused(copied):
    directory = copied("causal")
    change_json(directory / "config.json", n_layer=1)
    assert "of its weights would not be used, such as transformer.h.1" in refusal(directory)


def test_what_a_file_names_its_tensors_does_not_reach_the_terminal(copied, capfd):
    directory = copied("causal")
    change_weights(directory, lambda tensors: tensors.update({"\x1b[31mred\n": torch.ones(3)}))
    with pytest.raises(ModelError, match="would not be used"):
        load_model(directory)
    assert capfd.readouterr() == ("", "")


def test_a_tensor_that_two_shards_hold_is_refused(copied):
    directory = copied("sharded")
    first, second = sorted(directory.glob("model-*.safetensors"))[:2]
    tensors = load_file(first) | load_file(second)
    save_file(tensors, second, metadata={"format": "pt"})
    assert "which another shard holds too" in refusal(directory)


def test_a_classifier_is_not_taken_for_a_language_model(tmp_path):
    tokenizer = byte_level()
    config = tiny("llama", len(tokenizer)).config
    config.tie_word_embeddings, config.pad_token_id = True, 0
    LlamaForSequenceClassification(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert "1 of its weights would not be used, such as score.weight" in refusal(tmp_path)


def test_heads_for_other_tasks_and_masks_of_older_versions_do_no_harm(copied, tmp_path):
    tokenizer = tiny_masked.wordpiece()
    config = BertConfig(vocab_size=len(tokenizer), **tiny_masked.SIZES)
    BertForPreTraining(config).save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    assert "bert.pooler.dense.weight" in load_file(tmp_path / "bert" / "model.safetensors")
    load_model(tmp_path / "bert", kind="masked")
    directory = copied("causal")
    old = {f"transformer.h.{layer}.attn.masked_bias": torch.tensor(-1e4) for layer in range(2)}
    old |= {"transformer.h.0.attn.causal": torch.ones(1, 1, 8, 8, dtype=torch.bool)}
    old |= {"transformer.position_ids": torch.arange(8)}
    change_weights(directory, lambda tensors: tensors.update(old))
    load_model(directory)


@pytest.mark.parametrize(
    "name",
    [
        "transformer.pooler.dense.weight",
        "pooler.dense.weight",
        "cls.seq_relationship.weight",
        "sop_classifier.classifier.weight",
        "transformer.h.0.pooler.weight",
        "transformer.h.0.v_head.weight",
    ],
)
def test_heads_that_an_architecture_does_not_have_are_refused(copied, name):
    directory = copied("causal")
    change_weights(directory, lambda tensors: tensors.update({name: torch.ones(3, 3)}))
    assert f"1 of its weights would not be used, such as {name}" in refusal(directory)


def test_heads_of_other_names_than_an_architecture_has_are_refused(tmp_path):
    tokenizer = tiny_masked.wordpiece()
    config = BertConfig(vocab_size=len(tokenizer), **tiny_masked.SIZES)
    BertForPreTraining(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    name = "bert.encoder.layer.0.pooler.dense.weight"
    change_weights(tmp_path, lambda tensors: tensors.update({name: torch.ones(3, 3)}))
    assert f"1 of its weights would not be used, such as {name}" in refusal(tmp_path, kind="masked")


def test_a_value_head_does_no_harm(copied):
    directory = copied("causal")
    change_weights(directory, lambda tensors: tensors.update({"v_head.summary.weight": torch.ones(1, 32)}))
    load_model(directory)


@pytest.mark.parametrize("name", ["causal", "sharded", "adapter"])
def test_weights_begin_where_memory_of_torch_does_wherever_the_file_has_them(saved, name):
    # Addresses decide the last bits of results, and a worker, which has a copy, has other ones.
    model = load_model(saved / name)
    networks = [one for one in vars(model).values() if isinstance(one, torch.nn.Module)]
    tensors = [tensor for network in networks for tensor in (*network.parameters(), *network.buffers())]
    assert tensors
    assert {tensor.data_ptr() % 64 for tensor in tensors} == {0}
