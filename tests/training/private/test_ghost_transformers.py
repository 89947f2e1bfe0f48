"""Ghost clipping of causal models of Hugging Face, in full and with LoRA, against the loop over units."""

import peft
import pytest
import torch
import transformers

from coalmine.training.private.clipping.clipping import clipping_for
from training.private.clipped import VOCABULARY, assert_ghost_is_loop, kinds, summed, token_batch

UNITS = ([0, 0, 1, 3, 3, 4], 5)
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 16,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
WIDE = {"intermediate_size": 12, **SHAPE}
CONFIGS = {
    # Tied embeddings, learned positions that all rows share, transposed linear layers and dropout.
    "gpt2": transformers.GPT2Config(**SHAPE),
    "llama": transformers.LlamaConfig(**WIDE),
    "llama tied": transformers.LlamaConfig(tie_word_embeddings=True, **WIDE),
    # Norms of each head.
    "qwen3": transformers.Qwen3Config(num_key_value_heads=1, head_dim=4, **WIDE),
}


def model_of(config, kind=torch.float64):
    torch.manual_seed(2)
    return transformers.AutoModelForCausalLM.from_config(config).to(kind).train()


def losses_of(model):
    tokens, expected = token_batch(6, 7)
    mask = torch.ones_like(tokens)
    mask[1, 5:] = 0
    return lambda: summed(model(input_ids=tokens, attention_mask=mask, use_cache=False).logits, expected)


@kinds
@pytest.mark.parametrize("name", CONFIGS)
def test_models_in_full(name, kind):
    model = model_of(CONFIGS[name], kind)
    assert_ghost_is_loop(model, losses_of(model), *UNITS)


@pytest.mark.parametrize(("name", "targets"), [("gpt2", ["c_attn", "c_fc"]), ("llama", "all-linear")])
def test_adapters_of_lora(name, targets):
    adapters = peft.LoraConfig(
        r=3,
        target_modules=targets,
        lora_dropout=0.2,
        init_lora_weights=False,
        fan_in_fan_out=name == "gpt2",
    )
    model = peft.get_peft_model(model_of(CONFIGS[name]), adapters)
    assert_ghost_is_loop(model, losses_of(model), *UNITS)
    trained = [name for name, weight in model.named_parameters() if weight.grad is not None]
    assert trained
    assert all("lora_" in name for name in trained)


def test_positions_that_are_given_as_a_view_of_one_row():
    model = model_of(CONFIGS["gpt2"])
    tokens, expected = token_batch(6, 7)
    positions = torch.arange(7).expand(6, -1)
    assert_ghost_is_loop(
        model,
        lambda: summed(model(input_ids=tokens, position_ids=positions, use_cache=False).logits, expected),
        *UNITS,
    )


def test_a_layer_with_code_of_its_own_is_named():
    clipping = clipping_for(model_of(transformers.OPTConfig(ffn_dim=12, word_embed_proj_dim=8, **SHAPE)))
    assert clipping.name == "loop"
    assert (
        clipping.reason
        == "OPTLearnedPositionalEmbedding is not a known layer (model.decoder.embed_positions)"
    )
