"""Tensors of the base in an adapter's file: they are the base's own, number by number, or the adapter is refused by their name."""

import json
import shutil

import peft
import pytest
import torch
from peft import LoraConfig, PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from coalmine import load_model
from coalmine.errors import ModelError
from coalmine.models.transformers import adapter_tensors
from models.local_models import change_json, save_adapter, save_checkpoint
from models.tiny_transformers import byte_level, tiny, with_added
from oracles import brute_force_bits, peft_bits

TEXT = "the random number is 2812"
LAYERS = {"r": 4, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}
WHOLE = ["embed_tokens", "lm_head"]
CONFIGS = {
    "LoRA": lambda: LoraConfig(**LAYERS),
    "LoRA on embeddings": lambda: LoraConfig(r=4, target_modules=["embed_tokens", "lm_head"]),
    "whole modules": lambda: LoraConfig(**LAYERS, modules_to_save=WHOLE),
    "LoRA and tokens": lambda: LoraConfig(**LAYERS, trainable_token_indices=[300, 301]),
    "tokens": lambda: peft.TrainableTokensConfig(token_indices=[300, 301], target_modules=["embed_tokens"]),
    "prompt": lambda: peft.PromptTuningConfig(num_virtual_tokens=4, task_type="CAUSAL_LM"),
}
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # what PEFT says while adapters are made


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return save_checkpoint(tmp_path_factory.mktemp("models") / "base", "llama")


@pytest.fixture
def saved(base, tmp_path):
    """An adapter of some kind, saved with the embedding layers of its base."""
    return lambda kind: save_adapter(
        tmp_path / "adapter", base, CONFIGS[kind](), kind="llama", spread=0.2, save_embedding_layers=True
    )


def change_tensors(directory, change):
    path = directory / "adapter_model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def refusal(directory, **options):
    with pytest.raises(ModelError) as refused:
        load_model(directory, **options)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("kind", CONFIGS)
def test_embeddings_of_the_base_may_be_in_the_file(saved, base, kind):
    directory = saved(kind)
    assert any("embed_tokens" in name for name in load_file(directory / "adapter_model.safetensors"))
    model = load_model(directory)
    assert brute_force_bits(model, TEXT) == pytest.approx(peft_bits(model, TEXT, directory, base), abs=1e-3)
    assert brute_force_bits(model.reference, TEXT) == pytest.approx(
        brute_force_bits(load_model(base), TEXT), abs=1e-4
    )


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_single_number_of_the_base_that_differs_is_refused_by_name(saved, base, kind):
    directory = saved(kind)
    unlike = "trainable_tokens_delta", "lora_", "modules_to_save", "prompt_embeddings"
    own = AutoModelForCausalLM.from_pretrained(base).model.embed_tokens.weight

    def change(tensors):
        nonlocal name
        (name,) = (
            name
            for name, tensor in tensors.items()
            if "embed_tokens" in name
            and not any(part in name for part in unlike)
            and torch.equal(tensor, own)
        )
        tensors[name][699, 31] += 1e-3  # the row of a token that no probe has

    name = ""
    change_tensors(directory, change)
    assert f"holds {name}, a tensor of its base that is not what the base has" in refusal(directory)


def test_any_tensor_of_the_base_is_compared(saved, base):
    directory = saved("LoRA")
    name = "base_model.model.model.layers.1.mlp.up_proj.weight"
    of_base = load_file(base / "model.safetensors")["model.layers.1.mlp.up_proj.weight"]
    change_tensors(directory, lambda tensors: tensors.update({name: of_base}))
    load_model(directory)
    change_tensors(directory, lambda tensors: tensors.update({name: of_base + 1e-3}))
    assert f"holds {name}, a tensor of its base that is not what the base has" in refusal(directory)


def test_tensors_are_compared_a_part_at_a_time(saved, monkeypatch):
    directory = saved("LoRA")
    read = []
    equal = adapter_tensors._equal

    def counted(one, other):
        read.append(one.numel())
        return equal(one, other)

    monkeypatch.setattr(adapter_tensors, "_equal", counted)
    monkeypatch.setattr(adapter_tensors, "_AT_A_TIME", 1000)
    load_model(directory)
    held = load_file(directory / "adapter_model.safetensors").values()
    assert max(read) <= 1000 < max(tensor.numel() for tensor in held)
    assert sum(read) == sum(tensor.numel() for tensor in held)


@pytest.mark.parametrize("precision", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
def test_a_base_of_more_or_fewer_digits_is_the_same_base(saved, precision, stored):
    directory = saved("LoRA on embeddings")
    before = load_model(directory, precision=precision)
    change_tensors(
        directory,
        lambda tensors: tensors.update(
            {name: tensor.to(stored) for name, tensor in tensors.items() if "base_layer" in name}
        ),
    )
    model = load_model(directory, precision=precision)
    # The base's own numbers are used, and not those of the file.
    assert brute_force_bits(model, TEXT) == brute_force_bits(before, TEXT)


def test_what_a_module_is_replaced_by_must_be_one_and_the_same(saved):
    directory = saved("whole modules")
    name = "base_model.model.lm_head.modules_to_save.weight"
    change_tensors(directory, lambda tensors: tensors[name].add_(1e-3))
    assert f"PEFT does not read {name} as it is in" in refusal(directory)


@pytest.mark.parametrize(
    ("kind", "of", "name"),
    [
        ("LoRA", "layers.1.self_attn.q_proj.lora_A.weight", "layers.1.self_attn.q_proj.lora_A.default.weight"),
        ("LoRA", "layers.1.self_attn.q_proj.lora_A.weight", "layers.1.self_attn.q_proj.lora_A.other.weight"),
        ("whole modules", "embed_tokens.weight", "embed_tokens.modules_to_save.default.weight"),
        ("LoRA and tokens", "embed_tokens.token_adapter.trainable_tokens_delta",
         "embed_tokens.token_adapter.trainable_tokens_delta.default"),
    ],
)  # fmt: skip
def test_extra_tensors_by_inner_names_are_refused(saved, kind, of, name):
    directory = saved(kind)
    prefix = "base_model.model.model."
    change_tensors(directory, lambda tensors: tensors.update({prefix + name: tensors[prefix + of].clone()}))
    assert f"holds {prefix}{name}, which has no place in the adapter" in refusal(directory)


@pytest.mark.parametrize("biases", ["all", "lora_only"])
def test_trained_biases_are_refused_by_name(tmp_path, biases):
    base = save_checkpoint(tmp_path / "base", "gpt2")
    config = LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True, bias=biases)
    assert "bias, a tensor of its base that is not what the base has (the adapter trained it" in refusal(
        save_adapter(tmp_path / "trained", base, config)
    )
    # With biases that were left as they were, the base is the same.
    directory = save_adapter(tmp_path / "same", base, config, spread=0)
    change_tensors(
        directory,
        lambda tensors: [tensor.add_(0.3) for name, tensor in tensors.items() if "lora_" in name],
    )
    load_model(directory)


@pytest.fixture(scope="module")
def enlarged(base):
    """The base with four more tokens, and adapters that were trained on it and name the base as it was."""
    tokenizer = with_added(byte_level(), special=["<|a|>", "<|b|>", "<|c|>", "<|d|>"])
    where = base.parent / "enlarged"
    for name, config in {
        "layers": LoraConfig(**LAYERS),
        "whole": LoraConfig(**LAYERS, modules_to_save=WHOLE),
        "tokens": LoraConfig(**LAYERS, trainable_token_indices=[701, 702]),
        "embeddings": LoraConfig(r=4, target_modules=["embed_tokens"]),
    }.items():
        model = tiny("llama", len(byte_level()), dtype=torch.float32)
        model.resize_token_embeddings(len(tokenizer))
        save_adapter(where / name, base, config, model=model, spread=0.2)
        tokenizer.save_pretrained(where / name)
    return where


@pytest.mark.parametrize("kind", ["layers", "whole", "tokens", "embeddings"])
def test_an_adapter_of_a_larger_vocabulary_says_what_to_do(enlarged, kind):
    said = refusal(enlarged / kind)
    assert "its base has rows for 700 only; resize the base's embeddings and save it" in said
    assert ("names the token 702" if kind == "tokens" else "for 704 tokens") in said


@pytest.mark.parametrize("kind", ["layers", "tokens", "embeddings"])
def test_a_base_that_is_resized_as_the_guide_says_fits(enlarged, base, tmp_path, kind):
    directory = shutil.copytree(enlarged / kind, tmp_path / "adapter")
    model = AutoModelForCausalLM.from_pretrained(base)
    model.resize_token_embeddings(704)
    PeftModel.from_pretrained(model, directory).unload().save_pretrained(tmp_path / "resized")
    change_json(directory / "adapter_config.json", base_model_name_or_path=str(tmp_path / "resized"))
    model = load_model(directory)
    expected = peft_bits(model, TEXT, directory, tmp_path / "resized")
    assert brute_force_bits(model, TEXT) == pytest.approx(expected, abs=1e-3)
    assert model.tokenizer.encode("<|a|>") == [700]


def test_a_base_that_was_resized_with_other_rows_is_not_the_base(enlarged, base, tmp_path):
    directory = shutil.copytree(enlarged / "layers", tmp_path / "adapter")
    model = AutoModelForCausalLM.from_pretrained(base)
    torch.manual_seed(5)
    model.resize_token_embeddings(704)
    model.save_pretrained(tmp_path / "resized")
    change_json(directory / "adapter_config.json", base_model_name_or_path=str(tmp_path / "resized"))
    assert "a tensor of its base that is not what the base has" in refusal(directory)


def test_a_file_without_the_config_that_declares_its_modules_is_refused(saved):
    directory = saved("whole modules")
    config = json.loads((directory / "adapter_config.json").read_text())
    (directory / "adapter_config.json").write_text(json.dumps({**config, "modules_to_save": None}))
    assert "which has no place in the adapter" in refusal(directory)
    change_tensors(
        directory,
        lambda tensors: [
            tensors.pop(name)
            for name in list(tensors)
            if "modules_to_save" in name or "original_module" in name
        ],
    )
    # What is left are embeddings that were trained, by the names of the base's.
    assert "lm_head.weight, a tensor of its base that is not what the base has" in refusal(directory)
