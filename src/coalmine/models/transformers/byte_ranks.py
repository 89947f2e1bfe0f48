"""Tokenizers in files of ranked byte strings, tiktoken's and Tekken's, as tokenizers of the tokenizers library."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Any, NamedTuple

from coalmine.errors import MissingExtraError, ModelError
from coalmine.models.transformers.libraries import as_model_error
from coalmine.models.transformers.model_files import read_object
from coalmine.models.transformers.subwords import byte_level_alphabet

_SAVE = "save the tokenizer again, with its tokenizer.json"
# How Llama 3 and Llama 4 cut a text into words, which is in their code and not in their files.
_LLAMA_3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_LLAMA_4 = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + _ENDING
    + r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + _ENDING
    + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)  # fmt: skip
# Special tokens by their distance from the last ranked one; those without a name are reserved.
_LLAMA_3_SPECIAL = {
    0: "<|begin_of_text|>", 1: "<|end_of_text|>", 4: "<|finetune_right_pad_id|>", 5: "<|step_id|>", 6: "<|start_header_id|>",
    7: "<|end_header_id|>", 8: "<|eom_id|>", 9: "<|eot_id|>", 10: "<|python_tag|>", 11: "<|image|>",
}  # fmt: skip
_LLAMA_4_SPECIAL = {
    0: "<|begin_of_text|>", 1: "<|end_of_text|>", 2: "<|fim_prefix|>", 3: "<|fim_middle|>", 4: "<|fim_suffix|>",
    5: "<|header_start|>", 6: "<|header_end|>", 7: "<|eom|>", 8: "<|eot|>", 9: "<|step|>", 16: "<|python_start|>",
    17: "<|python_end|>", 18: "<|finetune_right_pad|>",
}  # fmt: skip
# From the number of ranked tokens to the pattern, the special tokens, and how many of those there are.
_TIKTOKEN = {128_000: (_LLAMA_3, _LLAMA_3_SPECIAL, 256), 200_000: (_LLAMA_4, _LLAMA_4_SPECIAL, 2048)}
# The special tokens of Tekken files that do not list them.
_TEKKEN_SPECIAL = (
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
    "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
)  # fmt: skip


class ByteRanks(NamedTuple):
    """Byte strings by rank, a lower one being merged earlier, and the pattern that cuts a text into words before that."""

    ranks: dict[bytes, int]
    pattern: str
    first_id: int  # the token with rank 0
    special: dict[str, int]
    bos: str
    eos: str


def read_tiktoken(path: Path) -> ByteRanks:
    """The ranks in a tiktoken file of Llama 3 or Llama 4; the file says neither how texts are cut nor which tokens are special."""
    ranks: dict[bytes, int] = {}
    try:
        for line in path.read_bytes().splitlines():
            written, rank = line.split()
            ranks[base64.b64decode(written, validate=True)] = int(rank)
    except (OSError, ValueError, binascii.Error) as problem:
        raise ModelError(
            f"{path} is neither a sentencepiece nor a tiktoken file ({type(problem).__name__}); {_SAVE}"
        ) from None
    if len(ranks) not in _TIKTOKEN:
        raise ModelError(
            f"{path} holds {len(ranks):,} ranked byte strings and does not say how texts are cut into words before that, which is known "
            f"for Llama 3 and Llama 4 only; {_SAVE}"
        )
    pattern, named, count = _TIKTOKEN[len(ranks)]
    special = {named.get(n, f"<|reserved_special_token_{n}|>"): len(ranks) + n for n in range(count)}
    return ByteRanks(ranks, pattern, 0, special, "<|begin_of_text|>", "<|end_of_text|>")


def read_tekken(path: Path) -> ByteRanks:
    """The ranks in a tekken.json of Mistral; special tokens have the first ids."""
    document = read_object(path)
    try:
        config = document["config"]
        count = int(config["default_num_special_tokens"])
        listed = document["vocab"][: int(config["default_vocab_size"]) - count]
        ranks = {base64.b64decode(one["token_bytes"], validate=True): int(one["rank"]) for one in listed}
        pattern = str(config["pattern"])
        given = document.get("special_tokens") or [
            {"rank": rank, "token_str": name} for rank, name in enumerate(_TEKKEN_SPECIAL)
        ]
        named = {int(one["rank"]): str(one["token_str"]) for one in given}
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise ModelError(
            f"{path} is not a tekken.json of Mistral ({type(problem).__name__}); {_SAVE}"
        ) from None
    special = {named.get(rank, f"<SPECIAL_{rank}>"): rank for rank in range(count)}
    return ByteRanks(ranks, pattern, count, special, "<s>", "</s>")


def as_backend(found: ByteRanks) -> Any:
    """The same tokenizer in the tokenizers library."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    character = {byte: written for written, byte in byte_level_alphabet().items()}
    written = {token: "".join(character[byte] for byte in token) for token in found.ranks}
    names = {written[token]: found.first_id + rank for token, rank in found.ranks.items()}
    with as_model_error("the ranked byte strings of the tokenizer cannot be used", _SAVE):
        model = models.BPE(vocab=names | found.special, merges=_merges(found.ranks, written))
        model.ignore_merges = True  # a word that is one token is that token
        backend = Tokenizer(model)
        words = pre_tokenizers.Split(Regex(found.pattern), behavior="isolated")
        whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([words, whole])
        backend.decoder = decoders.ByteLevel()
        backend.add_special_tokens(
            [AddedToken(name, normalized=False, special=True) for name in found.special]
        )
    return backend


def encoded_by_tiktoken(found: ByteRanks, texts: list[str]) -> list[list[int]]:
    """The tokens that the library tiktoken makes of texts without special tokens."""
    try:
        import tiktoken
    except ImportError:
        raise MissingExtraError("a tokenizer of ranked byte strings", "tiktoken", "transformers") from None
    with as_model_error("tiktoken cannot read the model's tokenizer", _SAVE):
        encoding = tiktoken.Encoding(
            "model", pat_str=found.pattern, mergeable_ranks=found.ranks, special_tokens={}
        )
        return [[found.first_id + rank for rank in encoding.encode_ordinary(text)] for text in texts]


def _merges(ranks: dict[bytes, int], written: dict[bytes, str]) -> list[tuple[str, str]]:
    """Every pair of tokens that makes another, in the order of what they make."""
    return [
        (written[token[:cut]], written[token[cut:]])
        for token in sorted(ranks, key=ranks.__getitem__)
        for cut in range(1, len(token))
        if token[:cut] in ranks and token[cut:] in ranks
    ]
