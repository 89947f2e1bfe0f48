"""LoRA adapters: read without merging, with the base model as reference at no extra memory."""

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model

from coalmine import CanarySet, Format, expose, load_model
from coalmine.errors import ModelError
from coalmine.models import check_model
from models.tiny_transformers import byte_level, tiny
from oracles import brute_force_bits

TEXTS = ["the random number is 2812", "a", "the value of x"]


@pytest.fixture
def adapted(tmp_path):
    """A base model at rest, and beside it an adapter that changes it."""
    tokenizer = byte_level()
    base = tiny("gpt2", len(tokenizer), dtype=torch.float32)
    base.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    base.name_or_path = str(tmp_path / "base")
    config = LoraConfig(
        r=4, target_modules=["c_attn"], fan_in_fan_out=True, base_model_name_or_path=str(tmp_path / "base")
    )
    model = get_peft_model(base, config)
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.randn_like(parameter) * 0.3)
    model.save_pretrained(tmp_path / "adapter")
    return tmp_path


def test_the_adapter_is_read_unmerged_and_conforms(adapted):
    model = load_model(adapted / "adapter")
    assert isinstance(model._network.model, PeftModel)
    assert check_model(model, TEXTS) == []
    assert model.describe()["adapter_in_use"] is True


def test_the_reference_is_the_base_model_with_the_same_weights(adapted):
    model, base = load_model(adapted / "adapter"), load_model(adapted / "base")
    reference = model.reference
    assert check_model(reference, TEXTS) == []
    for text in TEXTS:
        assert brute_force_bits(reference, text) == pytest.approx(brute_force_bits(base, text), abs=1e-4)
        assert abs(brute_force_bits(model, text) - brute_force_bits(base, text)) > 0.01
    assert reference._network.model is model._network.model
    assert base.reference is None


def test_an_adapter_is_audited_beside_its_base(adapted):
    model = load_model(adapted / "adapter")
    form = Format("the random number is {digits:2}")
    canaries = CanarySet.of(form, form.sample(3, seed=0, replace=False))
    own, without = (expose(each, canaries) for each in (model, model.reference))
    assert [result.canary_id for result in own] == [result.canary_id for result in without]
    assert [result.log_perplexity_bits for result in own] != [
        result.log_perplexity_bits for result in without
    ]


def test_a_base_that_is_not_here_is_not_fetched(adapted):
    config = adapted / "adapter" / "adapter_config.json"
    config.write_text(config.read_text().replace(str(adapted / "base"), "somebody/some-model"))
    with pytest.raises(ModelError, match="nothing is fetched"):
        load_model(adapted / "adapter")
