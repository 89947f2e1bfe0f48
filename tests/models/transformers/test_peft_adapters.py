"""Adapters at rest: each kind is read in full, and one that is not used in full, or changes nothing, is refused."""

import itertools
import json
import shutil

import peft
import pytest
import torch
from peft import LoraConfig
from safetensors.torch import load_file, save_file

from coalmine import load_model
from coalmine.errors import ModelError
from models.local_models import change_json, save_adapter, save_checkpoint
from models.tiny_transformers import byte_level, tiny
from oracles import brute_force_bits, peft_bits

TEXT = "the random number is 2812"
TOKENS = [int(token) for token in byte_level().encode(TEXT)[1:3]]
LANGUAGE = {"task_type": "CAUSAL_LM"}
KINDS = {
    "LoRA": lambda: LoraConfig(r=4, target_modules=["q_proj", "v_proj"], **LANGUAGE),
    "LoRA on all layers": lambda: LoraConfig(r=4, target_modules="all-linear", **LANGUAGE),
    "LoRA of several ranks": lambda: LoraConfig(
        r=4, target_modules=["q_proj", "v_proj"], rank_pattern={"v_proj": 2}
    ),
    "DoRA": lambda: LoraConfig(r=4, target_modules=["q_proj"], use_dora=True),
    "rsLoRA": lambda: LoraConfig(r=4, target_modules=["q_proj"], use_rslora=True),
    "LoRA on embeddings": lambda: LoraConfig(r=4, target_modules=["embed_tokens", "lm_head"], **LANGUAGE),
    "whole modules": lambda: LoraConfig(
        r=4, target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"]
    ),
    "LoRA and tokens": lambda: LoraConfig(
        r=4, target_modules=["q_proj"], trainable_token_indices=TOKENS, **LANGUAGE
    ),
    "tokens": lambda: peft.TrainableTokensConfig(token_indices=TOKENS, target_modules=["embed_tokens"]),
    "AdaLoRA": lambda: peft.AdaLoraConfig(target_modules=["q_proj"], total_step=10),
    "IA3": lambda: peft.IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]),
    "LoHa": lambda: peft.LoHaConfig(r=4, target_modules=["q_proj"]),
    "LoKr": lambda: peft.LoKrConfig(r=4, target_modules=["q_proj"]),
    "OFT": lambda: peft.OFTConfig(r=0, oft_block_size=8, target_modules=["q_proj"]),
    "HRA": lambda: peft.HRAConfig(r=4, target_modules=["q_proj"]),
    "VeRA": lambda: peft.VeraConfig(r=4, target_modules=["q_proj"]),
    "FourierFT": lambda: peft.FourierFTConfig(n_frequency=16, target_modules=["q_proj"]),
    "layer norms": lambda: peft.LNTuningConfig(target_modules=["input_layernorm"], **LANGUAGE),
    "prompt": lambda: peft.PromptTuningConfig(num_virtual_tokens=4, **LANGUAGE),
    "prefix": lambda: peft.PrefixTuningConfig(num_virtual_tokens=4, **LANGUAGE),
    "P-tuning": lambda: peft.PromptEncoderConfig(num_virtual_tokens=4, encoder_hidden_size=8, **LANGUAGE),
}
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # what PEFT says while adapters are made


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return save_checkpoint(tmp_path_factory.mktemp("models") / "base", "llama")


@pytest.fixture(scope="module")
def adapters(base):
    """An adapter of each kind, made when it is first asked for."""

    def directory(kind):
        path = base.parent / kind
        return path if path.exists() else save_adapter(path, base, KINDS[kind](), kind="llama", spread=0.2)

    return directory


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_read_in_full_beside_its_base(adapters, base, kind):
    model, alone = load_model(adapters(kind)), load_model(base)
    assert model.describe()["adapter_in_use"] is True
    assert brute_force_bits(model, TEXT) == pytest.approx(
        peft_bits(model, TEXT, adapters(kind), base), abs=1e-3
    )
    assert abs(brute_force_bits(model, TEXT) - brute_force_bits(alone, TEXT)) > 1e-3
    assert brute_force_bits(model.reference, TEXT) == pytest.approx(brute_force_bits(alone, TEXT), abs=1e-4)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        *((kind, "missing") for kind in KINDS),
        *itertools.product(
            ["LoRA", "DoRA", "whole modules", "LoRA and tokens", "IA3", "prompt"],
            ["renamed", "extra", "reshaped"],
        ),
    ],
)
def test_a_tensor_that_is_missing_renamed_extra_or_reshaped_is_refused(adapters, tmp_path, kind, change):
    directory = shutil.copytree(adapters(kind), tmp_path / "adapter")
    path = directory / "adapter_model.safetensors"
    tensors = load_file(path)
    own = [name for name in tensors if "base_layer" not in name]
    name = max(own)
    if change in {"missing", "renamed"}:
        taken = tensors.pop(name)
    if change == "renamed":
        tensors[name + "_"] = taken
    if change == "extra":
        tensors["base_model.model.model.layers.7.self_attn.q_proj.lora_A.weight"] = torch.ones(4, 32)
    if change == "reshaped":
        tensors[name] = torch.cat([tensors[name], tensors[name]])
    save_file(tensors, path)
    said = {
        "missing": f"has no {name}" if len(own) > 1 else "holds no tensors",
        "renamed": f"has no {name}",
        "extra": "layers.7.self_attn.q_proj.lora_A.weight, which has no place",
        "reshaped": "cannot be put on its base",
    }[change]
    with pytest.raises(ModelError) as refused:
        load_model(directory)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "rename",
    [
        lambda name: name.removeprefix("base_model.model."),
        lambda name: f"base_model.{name}",
        lambda name: name.replace("lora_A.", "lora_A.default.").replace("lora_B.", "lora_B.default."),
        lambda name: name.replace("layers.", "layers.1"),
    ],
    ids=["without the prefix", "with the prefix twice", "with the name of the adapter", "of other layers"],
)
def test_an_adapter_that_was_saved_under_other_names_is_refused(adapters, tmp_path, rename):
    directory = shutil.copytree(adapters("LoRA"), tmp_path / "adapter")
    path = directory / "adapter_model.safetensors"
    save_file({rename(name): tensor for name, tensor in load_file(path).items()}, path)
    with pytest.raises(ModelError, match="tensors are missing"):
        load_model(directory)


def test_a_config_that_leaves_tensors_out_is_refused(adapters, tmp_path):
    directory = shutil.copytree(adapters("LoRA"), tmp_path / "adapter")
    change_json(directory / "adapter_config.json", target_modules=["q_proj"])
    with pytest.raises(ModelError, match=r"v_proj.*4 of its 8 tensors would not be used"):
        load_model(directory)


@pytest.mark.parametrize("kind", ["LoRA", "AdaLoRA", "LoHa", "FourierFT"])
def test_an_adapter_as_before_training_is_refused(base, tmp_path, kind):
    config = KINDS[kind]()
    if kind == "FourierFT":
        config.init_weights = True
    save_adapter(tmp_path / "adapter", base, config, kind="llama", spread=0)
    with pytest.raises(ModelError, match=r"changes nothing: .* name the base model"):
        load_model(tmp_path / "adapter")


def test_a_scale_of_zero_is_told_as_well(adapters, tmp_path):
    directory = shutil.copytree(adapters("LoRA"), tmp_path / "adapter")
    change_json(directory / "adapter_config.json", lora_alpha=0)
    with pytest.raises(ModelError, match="changes nothing"):
        load_model(directory)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"peft_type": "POLY"}, "of the kind 'POLY'"),
        ({"peft_type": None}, "of the kind None"),
        ({"init_lora_weights": "pissa"}, "'pissa', which changes the weights of the base"),
        ({"init_lora_weights": {"a": 1}}, "which changes the weights of the base"),
        ({"layer_replication": [[0, 2], [1, 2]]}, "sets layer_replication"),
        ({"alora_invocation_tokens": [33, 34]}, "an activated LoRA, which changes nothing"),
        ({"r": 10**9}, "far larger than its file"),
        ({"rank_pattern": {"q_proj": 10**12}}, "far larger than its file"),
        ({"r": "four"}, "cannot be put on its base"),
        ({"target_modules": "("}, "cannot be put on its base"),
        ({"target_modules": ["nothing"]}, "cannot be put on its base"),
        ({"task_type": "NONSENSE"}, "cannot be put on its base"),
        ({"use_later_invention": True}, "sets use_later_invention, which the installed version"),
        ({"base_model_name_or_path": ""}, "does not say which model"),
        ({"base_model_name_or_path": ["a"]}, "does not say which model"),
        ({"base_model_name_or_path": "a" * 5000}, "not a local directory"),
        ({"base_model_name_or_path": "a\0b"}, "not a local directory"),
    ],
)
def test_configs_that_cannot_be_followed_are_refused(adapters, tmp_path, changes, said):
    directory = shutil.copytree(adapters("LoRA"), tmp_path / "adapter")
    change_json(directory / "adapter_config.json", **changes)
    with pytest.raises(ModelError) as refused:
        load_model(directory)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_options_of_a_later_version_that_are_off_do_no_harm(adapters, tmp_path):
    directory = shutil.copytree(adapters("LoRA"), tmp_path / "adapter")
    config = json.loads((directory / "adapter_config.json").read_text())
    (directory / "adapter_config.json").write_text(json.dumps({**config, "later": False, "too": None}))
    assert load_model(directory).describe()["adapter_in_use"] is True


def test_of_several_adapters_the_one_that_is_named_is_read(base, tmp_path):
    torch.manual_seed(0)
    model = tiny("llama", len(byte_level()), dtype=torch.float32)
    model.name_or_path = str(base)
    adapted = peft.get_peft_model(model, KINDS["LoRA"]())
    adapted.add_adapter("second", LoraConfig(r=2, target_modules=["o_proj"], **LANGUAGE))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    adapted.save_pretrained(tmp_path)
    scores = [brute_force_bits(load_model(where), TEXT) for where in (tmp_path, tmp_path / "second", base)]
    assert len(set(scores)) == 3
