"""Tokenizers of checkpoints without a tokenizer.json: from files of sentencepiece, tiktoken and Tekken, proven equal to what those read."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from coalmine.errors import CoalmineError, MissingExtraError, ModelError
from coalmine.models.transformers import byte_ranks, sentence_pieces
from coalmine.models.transformers.byte_ranks import ByteRanks, encoded_by_tiktoken, read_tekken, read_tiktoken
from coalmine.models.transformers.libraries import as_model_error
from coalmine.models.transformers.model_files import (
    CONFIG_FILE,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    described_by,
    read_object,
)
from coalmine.models.transformers.sentence_pieces import special_roles
from coalmine.models.transformers.slow_tokenizers import (
    Reading,
    SlowBackend,
    are_equal,
    note_reading,
    probe_texts,
    read_tokenizer,
    special_around,
)

_TEKKEN = "tekken.json"
_PIECES = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "spm.model")
_SAVE = f"save the tokenizer again, with its {TOKENIZER_FILE}"


def tokenizer_of_file(directory: Path, load: Callable[[Path], Any]) -> Any:
    """The tokenizer in a directory's sentencepiece, tiktoken or Tekken file; None where there is none of these.

    `load` is how transformers would read the directory.
    """
    if (directory / _TEKKEN).is_file():
        return _of_ranks(directory, _TEKKEN, "Tekken", read_tekken(directory / _TEKKEN))
    path = next((directory / name for name in _PIECES if (directory / name).is_file()), None)
    if path is None:
        return None
    pieces = _sentencepiece(path)
    if pieces is None:
        return _of_ranks(directory, path.name, "tiktoken", read_tiktoken(path))
    return _of_pieces(directory, path.name, pieces, load)


def _of_ranks(directory: Path, name: str, kind: str, found: ByteRanks) -> Any:
    """A tokenizer of ranked byte strings, with the settings of the directory."""
    backend, texts = byte_ranks.as_backend(found), probe_texts()
    if not are_equal(backend, texts, encoded_by_tiktoken(found, texts)):
        raise ModelError(
            f"{directory / name} cannot be converted to a tokenizer that makes the same tokens as tiktoken; {_SAVE}"
        )
    roles = {"bos_token": found.bos, "eos_token": found.eos}
    return _with_settings(directory, name, backend, roles, f"converted from {kind} ({name})")


def _sentencepiece(path: Path) -> Any:
    """The sentencepiece model in a file; None for a file of another kind."""
    if _is_text(path):
        return None
    try:
        import sentencepiece
    except ImportError:
        raise MissingExtraError(f"the sentencepiece model {path}", "sentencepiece", "transformers") from None
    pieces = sentencepiece.SentencePieceProcessor()
    with as_model_error(f"{path} cannot be read as a sentencepiece model", _SAVE):
        pieces.LoadFromSerializedProto(path.read_bytes())
    return pieces


def _is_text(path: Path) -> bool:
    """Whether a file begins with a line in ASCII, as tiktoken's do; a sentencepiece model begins with the tag of a message."""
    with path.open("rb") as file:
        start = file.read(64)
    return bool(start) and start.isascii() and start[:1] != b"\n" and b"\0" not in start


def _of_pieces(directory: Path, name: str, pieces: Any, load: Callable[[Path], Any]) -> Any:
    """A tokenizer over a sentencepiece model: converted, if the result makes the same tokens, else as it is."""
    texts = probe_texts()
    wanted = [pieces.encode(text) for text in texts]
    how = f"converted from sentencepiece ({name})"
    tokenizer = _loaded(directory, load)
    if tokenizer is not None:
        backend = read_tokenizer(tokenizer).backend
        shift = _shift(backend, pieces)
        special = {
            pieces.piece_to_id(one): backend.token_to_id(one) for one in special_roles(pieces).values()
        }
        renumbered = [[special.get(token, token + shift) for token in tokens] for tokens in wanted]
        if are_equal(backend, texts, renumbered):
            note_reading(tokenizer, Reading(backend, how))
            return tokenizer
        if shift:
            raise ModelError(
                f"the tokenizer of {directory} numbers tokens otherwise than its {name} and makes other tokens of some texts; {_SAVE}"
            )
    for marks_first_word in (True, False):
        with as_model_error(f"the tokenizer of {directory} cannot be converted", _SAVE):
            backend = sentence_pieces.as_backend(pieces, marks_first_word=marks_first_word)
            same = are_equal(backend, texts, wanted)
        if same:
            return _with_settings(directory, name, backend, special_roles(pieces), how)
    return _as_it_is(directory, name, pieces, tokenizer)


def _loaded(directory: Path, load: Callable[[Path], Any]) -> Any:
    """What transformers makes of a directory; None where it fails, since the file itself was read already."""
    try:
        return load(directory)
    except CoalmineError:
        return None


def _shift(backend: Any, pieces: Any) -> int:
    """How far the ids of ordinary pieces are from those in the file."""
    last = pieces.get_piece_size() - 1
    found = backend.token_to_id(pieces.id_to_piece(last))
    return 0 if found is None else int(found) - last


def _with_settings(directory: Path, name: str, backend: Any, roles: dict[str, str], how: str) -> Any:
    """A tokenizer of transformers around one of the tokenizers library, with the settings of a directory."""
    from transformers import PreTrainedTokenizerFast

    with (
        _copied(directory, without=name) as folder,
        as_model_error(f"the tokenizer of {directory} cannot be loaded", _SAVE),
    ):
        backend.save(str(folder / TOKENIZER_FILE))
        tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(
            folder, local_files_only=True, **_unset(directory, roles)
        )
    note_reading(tokenizer, Reading(tokenizer.backend_tokenizer, how))
    return tokenizer


def _as_it_is(directory: Path, name: str, pieces: Any, loaded: Any) -> Any:
    """The tokenizer that asks sentencepiece for every text, with what transformers adds to it (`loaded`, if there is one)."""
    from transformers.tokenization_utils_sentencepiece import SentencePieceBackend

    size = pieces.get_piece_size()
    named: dict[str, Any] = dict(special_roles(pieces))
    added = {token: pieces.id_to_piece(token) for token in range(size) if pieces.is_control(token)}
    further = getattr(loaded, "added_tokens_decoder", {})
    added |= {token: str(text) for token, text in sorted(further.items()) if token >= size}
    if extra := [text for text in added.values() if text not in named.values()]:
        named["extra_special_tokens"] = extra
    with (
        _copied(directory, without=name) as folder,
        as_model_error(f"the tokenizer of {directory} cannot be loaded", _SAVE),
    ):
        shutil.copyfile(directory / name, folder / _PIECES[0])
        tokenizer: Any = SentencePieceBackend.from_pretrained(
            folder, local_files_only=True, **_unset(directory, named)
        )
        around = (
            None
            if loaded is None
            else special_around(loaded.encode("a"), loaded.encode("a", add_special_tokens=False))
        )
    backend = SlowBackend(tokenizer, around)
    if any(backend.token_to_id(text) != token for token, text in added.items()):
        raise ModelError(
            f"the added tokens of {directory} cannot be given their ids next to its {name}; {_SAVE}"
        )
    note_reading(tokenizer, Reading(backend, f"read through sentencepiece ({name})"))
    return tokenizer


@contextlib.contextmanager
def _copied(directory: Path, *, without: str) -> Iterator[Path]:
    """A directory for as long as a tokenizer is loaded, with the settings of another."""
    with TemporaryDirectory() as folder:
        for path in described_by(directory):
            if path.name not in {without, CONFIG_FILE}:
                shutil.copyfile(path, Path(folder) / path.name)
        yield Path(folder)


def _unset(directory: Path, usual: dict[str, Any]) -> dict[str, Any]:
    """The usual settings, without those that a directory's tokenizer_config.json has."""
    path = directory / TOKENIZER_CONFIG_FILE
    settings = read_object(path) if path.is_file() else {}
    return {role: value for role, value in usual.items() if settings.get(role) is None}
