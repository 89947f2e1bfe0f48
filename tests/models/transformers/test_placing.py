"""Checkpoints in shards and layers on several devices: the numbers are those of one file on one device."""

import json
import shutil

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from coalmine import load_model, score_texts
from coalmine.errors import InputError, ModelError
from coalmine.models.devices import check_places, read_device_map, usable_device
from models.tiny_transformers import byte_level, tiny

TEXTS = ["the random number is 281265017", "a", "the value of x is 12"]
# Layers on disk are brought to memory by accelerate when they are used, as those of other devices are.
SPREAD = {"model.embed_tokens": "cpu", "model.rotary_emb": "cpu", "model.layers.0": "disk", "model.layers.1": "cpu", "model.norm": "cpu", "lm_head": "cpu"}  # fmt: skip
MAPS = {
    "some layers on disk": SPREAD,
    "the first and the last on disk": {**SPREAD, "model.embed_tokens": "disk", "lm_head": "disk"},
    "all on disk": {"": "disk"},
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A checkpoint in one file, and the same in shards."""
    directory = tmp_path_factory.mktemp("models")
    tokenizer = byte_level()
    model = tiny("llama", len(tokenizer), dtype=torch.float32)
    for name, size in (("whole", "1GB"), ("sharded", "50KB")):
        model.save_pretrained(directory / name, max_shard_size=size)
        tokenizer.save_pretrained(directory / name)
    assert len(list((directory / "sharded").glob("model-*.safetensors"))) > 2
    return directory


@pytest.mark.parametrize("device_map", MAPS)
def test_a_map_of_layers_changes_no_number(saved, tmp_path, device_map):
    path = tmp_path / "map.json"
    path.write_text(json.dumps(MAPS[device_map]))
    alone, spread = (
        load_model(saved / "whole", precision="float64"),
        load_model(saved / "sharded", device_map=str(path), precision="float64"),
    )
    assert score_texts(spread, TEXTS) == pytest.approx(score_texts(alone, TEXTS), abs=1e-9)
    prompts = [[0, 5, 6], [0, 7, 8]]
    assert spread.generate(prompts, length=4) == alone.generate(prompts, length=4)
    steps = [
        model.step(model.start([[0]]).states, np.array([0, 0]), np.array([5, 7])) for model in (alone, spread)
    ]
    assert np.allclose(steps[0].log2_probabilities, steps[1].log2_probabilities, atol=1e-6)
    kept = spread.states_from_arrays(spread.states_to_arrays(steps[1].states))
    assert all(torch.equal(one, other) for one, other in zip(kept, steps[1].states, strict=True))
    described = spread.describe()
    assert (described["device_map"], described["precision"]) == (MAPS[device_map], "float64")
    assert described["device"] == ", ".join(dict.fromkeys(MAPS[device_map].values()))
    assert described["parameters"] == alone.describe()["parameters"]
    # A worker may have another working directory, and reads no file.
    path.unlink()
    assert spread.load_again().describe() == described
    if device_map == "some layers on disk":
        assert spread.hidden_units == alone.hidden_units  # the last layer is still applied in blocks


def test_auto_is_what_this_machine_has(saved):
    model = load_model(saved / "sharded", device_map="auto")
    assert score_texts(model, TEXTS) == pytest.approx(
        score_texts(load_model(saved / "whole"), TEXTS), abs=1e-9
    )
    assert load_model(saved / "whole", device="auto").describe()["device"] == usable_device("auto")


def test_an_adapter_on_layers_that_are_spread(saved, tmp_path):
    base = AutoModelForCausalLM.from_pretrained(saved / "whole")
    adapted = get_peft_model(
        base, LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    )
    adapted.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="is for layers that the device map leaves on disk"):
        load_model(tmp_path, device_map=json.dumps(SPREAD))
    spread = {**SPREAD, "model.layers.0": "cpu", "lm_head": "disk"}
    alone, spread = (
        load_model(tmp_path, device_map=one, precision="float64") for one in (None, json.dumps(spread))
    )
    assert score_texts(spread, TEXTS) == pytest.approx(score_texts(alone, TEXTS), abs=1e-9)
    without = score_texts(spread.reference, TEXTS)
    assert without == pytest.approx(
        score_texts(load_model(saved / "whole", precision="float64"), TEXTS), abs=1e-9
    )


def test_shards_that_are_missing_or_left_over_are_refused(saved, tmp_path):
    directory = tmp_path / "model"
    shutil.copytree(saved / "sharded", directory)
    first, second = sorted(directory.glob("model-*.safetensors"))[:2]
    left = directory / "model-00001-of-00099.safetensors"
    shutil.copy(first, left)
    with pytest.raises(
        ModelError, match=r"99\.safetensors is a shard that model\.safetensors\.index\.json does not name"
    ):
        load_model(directory)
    left.unlink()
    second.unlink()
    with pytest.raises(ModelError, match=rf"names {second.name}, which is not there"):
        load_model(directory)
    shutil.copy(first, second)
    with pytest.raises(ModelError, match="which another shard holds too"):
        load_model(directory)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"device": "cuda"}, "cannot be put on 'cuda'"),
        ({"device": "abacus"}, "cannot be put on 'abacus'"),
        ({"device": "meta"}, "cannot be put on 'meta'"),
        ({"device_map": '{"": 0}'}, "cannot be put on 'cuda:0'"),
        ({"device_map": "everywhere"}, "a device map is one of auto, balanced"),
        ({"device_map": "[1]"}, "a device map is one of"),
        ({"device_map": "{1}"}, "is not valid JSON"),
        ({"device_map": "{}"}, "must be a JSON object that maps"),
        ({"device_map": '{"": true}'}, "must be a JSON object that maps"),
        ({"device_map": "auto", "device": "cpu"}, "give one of the two"),
        ({"precision": "float8"}, "precision must be one of auto, float32"),
    ],
)
def test_what_this_machine_cannot_do_is_said_in_a_sentence(saved, options, said):
    if torch.cuda.is_available():
        pytest.skip("this machine has the device")
    with pytest.raises(InputError) as refused:
        load_model(saved / "whole", **options)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_maps_and_devices_by_themselves():
    assert read_device_map("auto") == "auto"
    # A map as transformers has it, with a device of torch.
    assert read_device_map({"model": torch.device("cpu"), "lm_head": 0}) == {"model": "cpu", "lm_head": 0}
    with pytest.raises(InputError, match="must be a JSON object that maps names of modules"):
        read_device_map({})
    check_places({"model": "cpu", "lm_head": "disk"})
    assert usable_device("cpu", "float64") == "cpu"
