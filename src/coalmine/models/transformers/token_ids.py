"""Checks that a tokenizer's ids are unique, that the model has a row for each, and that a text has the same tokens each time."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from coalmine.errors import ModelError
from coalmine.models.transformers.model_files import (
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    VOCABULARY_FILE,
    read_object,
)

# Far more than any vocabulary has, and few enough to list the text of each.
_MOST_IDS = 1 << 24


def check_ids(backend: Any, rows: int | None = None, where: str = "the tokenizer") -> int:
    """The number of ids, which is one more than the highest; a ModelError if two tokens share one, if the model has fewer rows, or if
    texts are cut at random.

    A model may have more rows than there are ids: vocabularies are padded to round numbers.
    """
    size = _checked(where, backend.get_vocab(with_added_tokens=True).values())
    if rows is not None and size > rows:
        raise ModelError(
            f"{where} has ids up to {size - 1:,}, and the model has rows for {rows:,} tokens only; use the tokenizer that the model was "
            "trained with"
        )
    dropout = getattr(getattr(backend, "model", None), "dropout", None)
    if dropout:
        raise ModelError(
            f"{where} cuts the same text into other tokens each time (BPE dropout of {dropout:g}), so that no two runs would agree; set "
            f"dropout to null in its {TOKENIZER_FILE}"
        )
    return size


def check_vocabulary(directory: Path) -> None:
    """The same for a tokenizer's file, before a library reads it: some libraries list every id up to the highest, or never finish."""
    path, plain = directory / TOKENIZER_FILE, directory / VOCABULARY_FILE
    if path.is_file():
        model = read_object(path).get("model")
        words = model.get("vocab") if isinstance(model, dict) else None
    elif plain.is_file():
        path, words = plain, read_object(plain)
    else:
        return
    if isinstance(words, dict):
        _checked(str(path), (token for token in words.values() if isinstance(token, int)))


def check_written_ids(directory: Path, backend: Any) -> None:
    """Check that the ids in a tokenizer's files are those that the library gives the tokens.

    The library silently renumbers added tokens if their ids are taken or leave a gap.
    """
    path = directory / TOKENIZER_FILE
    if path.is_file():
        for token in _listed(read_object(path).get("added_tokens")):
            if isinstance(token, dict):
                _check(path, token.get("id"), token.get("content"), backend, gaps=True)
    path = directory / TOKENIZER_CONFIG_FILE
    if path.is_file():
        added = read_object(path).get("added_tokens_decoder")
        for written, token in added.items() if isinstance(added, dict) else ():
            if written.isdecimal() and isinstance(token, dict):
                _check(path, int(written), token.get("content"), backend, gaps=False)


def _check(path: Path, token: object, text: object, backend: Any, *, gaps: bool) -> None:
    if not isinstance(token, int) or not isinstance(text, str) or not 0 <= token < 1 << 32:
        return  # the library has refused or ignored it
    other = backend.id_to_token(token)
    if other is not None and other != text:
        raise ModelError(_shared(str(path), token))
    read_as = backend.token_to_id(text)
    if gaps and read_as != token:
        raise ModelError(
            f"{path} gives an added token the id {token}, and the tokenizers library reads it as {read_as}; save the tokenizer again"
        )


def _checked(where: str, ids: Iterable[int]) -> int:
    """One more than the highest id; a ModelError if two are the same, or if there are too many to list."""
    highest = -1
    for one, next_one in itertools.pairwise([-1, *sorted(ids)]):
        if one == next_one:
            raise ModelError(_shared(where, one))
        highest = next_one
    if highest >= _MOST_IDS:
        raise ModelError(
            f"{where} has ids up to {highest:,}, which is more than any vocabulary has; save the tokenizer again"
        )
    return highest + 1


def _shared(where: str, token: int) -> str:
    return (
        f"{where} gives the id {token} to two different tokens, so that a model cannot distinguish their texts; use the tokenizer that the "
        "model was trained with"
    )


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
