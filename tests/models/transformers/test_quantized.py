"""Checkpoints of bitsandbytes: loaded as they are, with the numbers of a plain loop, and refused if they are not what they say."""

import json
import math
import shutil

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from coalmine import finetune, load_model, score_texts
from coalmine.errors import ModelError
from coalmine.models import from_transformers
from coalmine.models.devices import usable_device
from models.tiny_transformers import byte_level, tiny

pytest.importorskip("bitsandbytes")
TEXTS = ["the random number is 281265017", "a", "the value of x is 12"]
LAYER = "model.layers.0.self_attn.q_proj.weight"
KINDS = {
    "nf4": BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4"),
    "halves": BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16
    ),
    "int8": BitsAndBytesConfig(load_in_8bit=True),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A directory with the plain checkpoint and one for each kind of quantized weights."""
    directory = tmp_path_factory.mktemp("models")
    tokenizer = byte_level()
    tiny("llama", len(tokenizer), dtype=torch.float32).save_pretrained(directory / "plain")
    for kind, config in KINDS.items():
        packed = AutoModelForCausalLM.from_pretrained(
            directory / "plain", quantization_config=config, device_map={"": "cpu"}
        )
        packed.save_pretrained(directory / kind)
        tokenizer.save_pretrained(directory / kind)
    return directory


@torch.inference_mode()
def plain_bits(directory, text, adapter=None):
    """The bits of a text by a plain loop. In training mode, which changes nothing without dropout, weights are used as they are stored."""
    network = AutoModelForCausalLM.from_pretrained(directory, device_map={"": "cpu"})
    if adapter is not None:
        network.load_adapter(str(adapter))
    network.train()
    tokenizer = byte_level()
    ids = [tokenizer.bos_token_id, *tokenizer(text, add_special_tokens=False).input_ids]
    logs = network(torch.tensor([ids])).logits[0].float().log_softmax(-1)
    return -sum(float(logs[place, token]) for place, token in enumerate(ids[1:])) / math.log(2)


@pytest.mark.parametrize(
    ("kind", "facts", "computed_in", "off"),
    [
        ("nf4", {"method": "bitsandbytes", "bits": 4, "type": "nf4"}, None, 1e-3),
        ("halves", {"method": "bitsandbytes", "bits": 4, "type": "fp4"}, "bfloat16", 0.2),
        ("int8", {"method": "bitsandbytes", "bits": 8, "type": "int8"}, "int8", 0.2),
    ],
)
def test_scores_are_those_of_a_plain_loop(saved, kind, facts, computed_in, off):
    model = load_model(saved / kind)
    expected = [plain_bits(saved / kind, text) for text in TEXTS]
    assert [score_texts(model, [text])[0] for text in TEXTS] == pytest.approx(expected, abs=off)
    assert score_texts(model, TEXTS) == pytest.approx(expected, abs=max(off, model.resolution_bits))
    described = model.describe()
    assert (described["quantization"], described["precision"]) == (facts, "float32")
    assert described.get("computed_in") == computed_in
    plain = AutoModelForCausalLM.from_pretrained(saved / "plain")
    assert described["parameters"] == plain.num_parameters()
    again = model.load_again()
    assert score_texts(again, TEXTS).tolist() == score_texts(model, TEXTS).tolist()


def test_a_live_model_is_recorded_as_quantized_and_can_be_trained_on(saved):
    network = AutoModelForCausalLM.from_pretrained(saved / "nf4", device_map={"": "cpu"})
    model = from_transformers(network, byte_level())
    before = network.get_parameter(LAYER).detach().clone()
    assert model.describe()["quantization"]["bits"] == 4
    assert score_texts(model, TEXTS) == pytest.approx(score_texts(load_model(saved / "nf4"), TEXTS), abs=1e-3)
    assert torch.equal(
        network.get_parameter(LAYER), before
    )  # which bitsandbytes rearranges on some processors


def test_an_adapter_on_quantized_weights(saved, tmp_path):
    base = AutoModelForCausalLM.from_pretrained(saved / "nf4", device_map={"": "cpu"})
    adapted = get_peft_model(
        base, LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    )
    adapted.save_pretrained(tmp_path)
    model = load_model(tmp_path)
    expected = [plain_bits(saved / "nf4", text, tmp_path) for text in TEXTS]
    assert [score_texts(model, [text])[0] for text in TEXTS] == pytest.approx(expected, abs=1e-3)
    alone = [score_texts(model.reference, [text])[0] for text in TEXTS]
    assert alone == pytest.approx([plain_bits(saved / "nf4", text) for text in TEXTS], abs=1e-3)
    assert abs(expected[0] - alone[0]) > 1
    described = model.describe()
    own = sum(one.numel() for name, one in adapted.named_parameters() if "lora" in name)
    assert described["quantization"]["method"] == "bitsandbytes"
    assert described["parameters"] == load_model(saved / "nf4").describe()["parameters"] + own


def refusal(directory, **options):
    with pytest.raises(ModelError) as refused:
        load_model(directory, **options)
    return str(refused.value)


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("nf4", lambda tensors: tensors.pop(LAYER), "cannot be loaded"),
        ("nf4", lambda tensors: tensors.pop(f"{LAYER}.absmax"), "cannot be loaded"),
        ("nf4", lambda tensors: tensors.update({f"{LAYER}.more": torch.zeros(2)}), "would not be used"),
        ("nf4", lambda tensors: tensors.update({"model.layers.9.q.weight": tensors[LAYER].clone()}), "not be used"),
        ("nf4", lambda tensors: tensors.update({LAYER: tensors[LAYER][:8].clone()}), "cannot"),
        ("int8", lambda tensors: tensors.update({LAYER: tensors[LAYER][:8].clone()}), "another form or shape"),
        ("int8", lambda tensors: tensors.pop(LAYER.replace("weight", "SCB")), "cannot be loaded"),
    ],
)  # fmt: skip
def test_weights_that_are_not_what_they_say_are_refused(saved, tmp_path, kind, change, said):
    directory = tmp_path / "changed"
    shutil.copytree(saved / kind, directory)
    tensors = load_file(directory / "model.safetensors")
    change(tensors)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    assert said in refusal(directory)


def test_only_adapters_are_trained_on_quantized_weights(saved, tmp_path):
    (tmp_path / "corpus.txt").write_text("one line of text\nand another one\n" * 8)
    with pytest.raises(ModelError, match="quantized by bitsandbytes, so they cannot be trained themselves"):
        finetune(saved / "nf4", tmp_path / "corpus.txt", out=tmp_path / "whole")
    tuned = finetune(
        saved / "nf4", tmp_path / "corpus.txt", out=tmp_path / "lora", lora_rank=2, epochs=1, holdout=0.0
    )
    assert tuned.record.options.device == usable_device("auto")
    described = load_model(tmp_path / "lora").describe()
    assert described["quantization"]["bits"] == 4
    assert described["parameters"] == tuned.record.parameters


def test_eight_bits_of_floating_point_are_dequantized(saved, tmp_path):
    """As large models are published: a scale for each block of a matrix."""
    plain, packed = {}, {}
    for name, tensor in load_file(saved / "plain" / "model.safetensors").items():
        plain[name] = packed[name] = tensor.bfloat16()
        if "proj" in name:
            scale = tensor.abs().max() / 448
            packed[name], packed[f"{name}_scale_inv"] = (
                (tensor / scale).to(torch.float8_e4m3fn),
                scale.reshape(1, 1),
            )
            plain[name] = (packed[name].float() * scale).bfloat16()
    for kind, tensors in (("unpacked", plain), ("fp8", packed)):
        shutil.copytree(saved / "plain", tmp_path / kind)
        byte_level().save_pretrained(tmp_path / kind)
        save_file(tensors, tmp_path / kind / "model.safetensors", metadata={"format": "pt"})
    path = tmp_path / "fp8" / "config.json"
    settings = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    path.write_text(
        json.dumps({**json.loads(path.read_text()), "dtype": "bfloat16", "quantization_config": settings})
    )
    model = load_model(tmp_path / "fp8")
    assert (
        score_texts(model, TEXTS).tolist() == score_texts(load_model(tmp_path / "unpacked"), TEXTS).tolist()
    )
    described = model.describe()
    assert described["quantization"] == {"method": "fp8", "bits": 8, "dequantized": True}
    assert described["precision"] == "bfloat16"


@pytest.mark.parametrize("precision", ["float64", "bfloat16"])
def test_no_other_digits_than_there_are(saved, precision):
    assert f"in float32, and not in {precision}" in refusal(saved / "nf4", precision=precision)
