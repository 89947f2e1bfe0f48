"""Tiny GGUF files of Llama-like models, written with the package gguf as converters write them."""

import gguf
import numpy as np
import torch

from models.tiny_transformers import END

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_tensors(model, kind=gguf.GGMLQuantizationType.Q8_0):
    """The tensors of a model by their names in a GGUF file: matrices of a kind of quantized numbers, vectors plain."""
    found = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        array = weight.detach().float().numpy()
        short = name.removesuffix(".weight").removeprefix("model.layers.")
        layer, _, part = short.partition(".")
        for heads, key in (
            (model.config.num_attention_heads, "q_proj"),
            (model.config.num_key_value_heads, "k_proj"),
        ):
            if short.endswith(key):  # pairs of a rotation are neighbors
                array = array.reshape(heads, 2, -1, array.shape[1]).swapaxes(1, 2).reshape(array.shape)
        own = NAMES[short] if short in NAMES else f"blk.{layer}.{NAMES[part]}"
        found[f"{own}.weight"] = (array, kind if _has_blocks(array) else gguf.GGMLQuantizationType.F32)
    return found


def _has_blocks(array):
    """Numbers are quantized in blocks of 32; converters leave vectors and other rows plain."""
    return array.ndim == 2 and array.shape[1] % 32 == 0


def rounded(model, kind=gguf.GGMLQuantizationType.Q8_0):
    """Round the matrices of a model to what a GGUF file of a kind keeps of them."""
    with torch.no_grad():
        for weight in model.parameters():
            if _has_blocks(weight):
                kept = gguf.dequantize(gguf.quantize(weight.float().numpy(), kind), kind)
                weight.copy_(torch.from_numpy(kept))
    return model


def write_gguf(path, model, tokenizer, *, tensors=None, architecture="llama", **changes):
    """Write a model and its byte-level tokenizer; `changes` are settings of the header that differ."""
    writer = gguf.GGUFWriter(path, architecture)
    config = model.config
    settings = {
        "block_count": config.num_hidden_layers, "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size, "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads, "attention.head_count_kv": config.num_key_value_heads,
        "vocab_size": config.vocab_size, "rope.dimension_count": config.head_dim,
    }  # fmt: skip
    for name, value in {**settings, **changes.pop("settings", {})}.items():
        writer.add_uint32(f"{architecture}.{name}", value)
    writer.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", config.rms_norm_eps)
    writer.add_float32(f"{architecture}.rope.freq_base", config.rope_parameters["rope_theta"])
    vocabulary = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(changes.pop("pre", "gpt-2"))
    writer.add_token_list(vocabulary)
    writer.add_token_types([3 if token in {END, "<|im_start|>", "<|im_end|>"} else 1 for token in vocabulary])
    if tokenizer.chat_template:
        writer.add_chat_template(tokenizer.chat_template)
    writer.add_token_merges(changes.pop("merges"))
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    for name, (array, kind) in (gguf_tensors(model) if tensors is None else tensors).items():
        plain = kind in {gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16}
        packed = (
            array.astype(np.float16 if kind == gguf.GGMLQuantizationType.F16 else np.float32)
            if plain
            else gguf.quantize(array, kind)
        )
        writer.add_tensor(name, packed, raw_dtype=None if plain else kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
