"""Byte-pair encodings of sentencepiece, such as those of Llama 2 and Mistral, as tokenizers of the tokenizers library.

What transformers converts them to differs in the mark before the first word and in rows of spaces.
"""

from __future__ import annotations

from typing import Any


def as_backend(pieces: Any, *, marks_first_word: bool) -> Any:
    """The merges of a sentencepiece processor, in the tokenizers library.

    Whether a word at the beginning gets a mark, as it does after a space, is a setting of the model that the processor does not tell. What
    a model does to characters before that (such as NFKC) is left out, so the result must be compared with the processor.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

    names = [pieces.id_to_piece(token) for token in range(pieces.get_piece_size())]
    bytewise = [token for token in range(len(names)) if pieces.is_byte(token)]
    others = {token for token in range(len(names)) if pieces.is_control(token) or pieces.is_unused(token)}
    scores = {
        name: pieces.get_score(token)
        for token, name in enumerate(names)
        if token not in {pieces.unk_id(), *bytewise} | others
    }
    backend = Tokenizer(
        models.BPE(
            vocab={name: token for token, name in enumerate(names)},
            merges=_merges(scores),
            unk_token=names[pieces.unk_id()],
            fuse_unk=True,
            byte_fallback=bool(bytewise),
        )
    )
    spaces = normalizers.Replace(" ", "▁")
    backend.normalizer = (
        normalizers.Sequence([normalizers.Prepend("▁"), spaces]) if marks_first_word else spaces
    )
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, *([decoders.Strip(" ", 1, 0)] if marks_first_word else [])])
    special = [names[token] for token in sorted({pieces.unk_id(), *others})]
    backend.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in special])
    return backend


def special_roles(pieces: Any) -> dict[str, str]:
    """The tokens that a processor has for the beginning and the end of a text, and for what is unknown, as transformers names them."""
    ids = {"bos_token": pieces.bos_id(), "eos_token": pieces.eos_id(), "unk_token": pieces.unk_id()}
    return {role: pieces.id_to_piece(token) for role, token in ids.items() if token >= 0}


def _merges(scores: dict[str, float]) -> list[tuple[str, str]]:
    """Every pair of pieces that makes another, those that are merged first at the beginning."""
    return [
        (name[:cut], name[cut:])
        for name in sorted(scores, key=lambda name: -scores[name])
        for cut in range(1, len(name))
        if name[:cut] in scores and name[cut:] in scores
    ]
