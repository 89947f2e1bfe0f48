"""Tokenizers that are not of the tokenizers library: converted where the result is the same, else read as they are.

A conversion is not trusted: it must make the same tokens of some six hundred texts. Where it does not, the tokenizer itself is asked for
every text.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from coalmine.errors import ModelError
from coalmine.models.transformers.libraries import as_model_error, quiet
from coalmine.models.transformers.sentence_pieces import as_backend
from coalmine.models.transformers.subwords import SubwordTokenizer

# Spaces at the beginning and in rows, line breaks, digits of several scripts, characters of one to four bytes, code, contractions.
_TEXTS = (
    "a", "0", "7", "12", "my pin is 4921", "My SSN is 078-05-1120", " leading", "  two leading", "trailing ", "two  spaces   three",
    "a\nb", "a\n\nb\n", "\n", "\ttab\t\ttabs", "line\r\nline", "12345678901234567890", "1,234.50 and 1.234,50", "3 14 159 2653 58979",
    "0x1F600", "\uff21\uff22 \uff11\uff12", "٣٤٥ १२३", "naïve café", "cafe\u0301", "你好世界", "мой пароль", "☕ 👩\u200d👧 🇩🇪", "ﬁ ½ ²",
    "I'll SHE'S don't", "camelCase snake_case", "def f(x):\n    return x ** 2  # ok", "a@b.example", "https://a.example/b?c=1&d=2",
    "<html>&amp;</html>", '{"key": [1, 2.5e-3, null]}', "...!?--—", "x" * 60, "MiXeD CaSe", "a\u00a0b", "▁a ▁ b",
    "Tel. +1 (415) 555-0132.", "é", "ñ", "☃",
)  # fmt: skip
# Tokens that joined to a text must give it back, or what tokens spell is not known.
_SPELLED = ("my pin is 4921", "a", "the value of x is 12", "0 1 2")
_SAVE = "save it again as a tokenizer.json, which is what save_pretrained of a fast tokenizer writes"


class Reading(NamedTuple):
    """A tokenizer with the interface of the tokenizers library, and how it came to be where it is not the model's own file."""

    backend: Any
    how: str | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """For the record of a run; nothing for a tokenizer that is read from its own tokenizer.json."""
        return {} if self.how is None else {"tokenizer": self.how}


# From a tokenizer of transformers to how it is read.
_READ: WeakKeyDictionary[Any, tuple[int, Reading]] = WeakKeyDictionary()


def read_tokenizer(tokenizer: Any) -> Reading:
    """How a tokenizer of transformers is read, fast or slow; a ModelError says why it cannot be."""
    known = _READ.get(tokenizer) if hasattr(tokenizer, "encode") else None
    if known is not None and known[0] == len(tokenizer):
        return known[1]
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        return Reading(backend)
    if not all(hasattr(tokenizer, name) for name in ("encode", "convert_ids_to_tokens", "__len__")):
        raise ModelError(
            f"{type(tokenizer).__name__} is not a tokenizer of transformers; load one with AutoTokenizer"
        )
    name = type(tokenizer).__name__
    converted = _converted(tokenizer)
    if converted is not None:
        found = Reading(converted, f"converted from {name}")
    else:
        found = Reading(SlowBackend(tokenizer), f"read through {name}")
        _check_spelling(found.backend, name)
    return note_reading(tokenizer, found)


def note_reading(tokenizer: Any, reading: Reading) -> Reading:
    """Remember how a tokenizer is read."""
    _READ[tokenizer] = (len(tokenizer), reading)
    return reading


def probe_texts() -> list[str]:
    """Texts on which two ways to read a tokenizer are compared: hand-picked ones, and numbers and words drawn at random."""
    generator = random.Random(0)
    found = list(_TEXTS)
    for place in range(540):
        digits = "".join(generator.choices("0123456789", k=1 + place % 18))
        grouped = "-".join(digits[start : start + 3] for start in range(0, len(digits), 3))
        letters = "".join(generator.choices("abcdefghijklmnopqrstuvwxyzABCDEé ", k=1 + place % 11))
        found.append(
            (
                f"my pin is {digits}",
                f"{letters}{digits}.",
                f"{grouped} {letters}",
                f"{digits}{letters}\n{digits}",
            )[place % 4]
        )
    return found


def are_equal(backend: Any, texts: Sequence[str], wanted: Sequence[Sequence[int]]) -> bool:
    """Whether a tokenizer makes the wanted tokens of each text."""
    return all(
        list(expected) == list(backend.encode(text, add_special_tokens=False).ids)
        for text, expected in zip(texts, wanted, strict=True)
    )


class SlowBackend:
    """The part of the tokenizers library's interface that models are read with, over a tokenizer that is written in Python.

    >>> SlowBackend(GPTSw3Tokenizer("spiece.model")).encode("a 12").ids  # doctest: +SKIP
    [270, 28, 29]
    """

    truncation = None
    padding = None

    def __init__(self, tokenizer: Any, around: tuple[list[int], list[int]] | None = None) -> None:
        """`around` are the special tokens before and after a text, where they are not those of the tokenizer."""
        self._tokenizer, self._around = tokenizer, around
        with as_model_error(f"the tokens of {type(tokenizer).__name__} cannot be listed", _SAVE):
            size = len(tokenizer)
            self._names: list[str] = [str(name) for name in tokenizer.convert_ids_to_tokens(range(size))]
            self._added = {
                int(token): str(text)
                for token, text in getattr(tokenizer, "added_tokens_decoder", {}).items()
            }
        self._names += [""] * (max(self._added, default=-1) + 1 - size)
        for token, text in self._added.items():
            self._names[token] = text
        self._ids: dict[str, int] = {}
        for token, name in enumerate(self._names):
            self._ids.setdefault(name, token)

    def __deepcopy__(self, _: dict[int, Any]) -> SlowBackend:
        return self  # nothing of it changes

    def encode(self, text: str, *, add_special_tokens: bool = True) -> _Encoded:
        """The tokens of a text."""
        plain = self._encoded(text, special=False)
        before, after = ([], []) if not add_special_tokens else self._around or self._added_to(text, plain)
        ids = [*before, *plain, *after]
        mask = [1] * len(before) + [0] * len(plain) + [1] * len(after)
        return _Encoded(ids, [self._names[token] for token in ids], mask)

    def _added_to(self, text: str, plain: list[int]) -> tuple[list[int], list[int]]:
        return special_around(self._encoded(text, special=True), plain)

    def _encoded(self, text: str, *, special: bool) -> list[int]:
        return [int(token) for token in self._tokenizer.encode(text, add_special_tokens=special)]

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of some tokens."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=skip_special_tokens))

    def id_to_token(self, token: int) -> str | None:
        """A token as it is written in the vocabulary."""
        return (self._names[token] or None) if 0 <= token < len(self._names) else None

    def token_to_id(self, name: str) -> int | None:
        """The token that is written like this."""
        return self._ids.get(name)

    def get_vocab(self, *, with_added_tokens: bool = True) -> dict[str, int]:
        """All tokens."""
        return {
            name: token
            for name, token in self._ids.items()
            if name and (with_added_tokens or token not in self._added)
        }

    def to_str(self) -> str:
        """What a tokenizer.json would say of it."""
        fallback = "<0x0A>" in self._ids and "<0xFF>" in self._ids
        unknown = getattr(self._tokenizer, "unk_token", None)
        model = {"type": "Slow", "byte_fallback": fallback, "unk_token": unknown and str(unknown)}
        added = [{"id": token, "content": text} for token, text in sorted(self._added.items())]
        return json.dumps({"model": model, "decoder": None, "added_tokens": added})

    def no_truncation(self) -> None:
        """Texts are never cut."""

    def no_padding(self) -> None:
        """Texts are never padded."""


def special_around(whole: list[int], plain: list[int]) -> tuple[list[int], list[int]]:
    """What is before and after the tokens of a text among these and special ones.

    >>> special_around([101, 7, 8, 102], [7, 8])
    ([101], [102])
    """
    for start in range(len(whole) - len(plain) + 1):
        if whole[start : start + len(plain)] == plain:
            return whole[:start], whole[start + len(plain) :]
    return [], []


class _Encoded(NamedTuple):
    ids: list[int]
    tokens: list[str]
    special_tokens_mask: list[int]


def _converted(tokenizer: Any) -> Any:
    """The tokenizer in the tokenizers library where transformers can convert it and the result makes the same tokens; else None."""
    texts = [*probe_texts(), *(str(text) for text in getattr(tokenizer, "added_tokens_decoder", {}).values())]
    with as_model_error(f"{type(tokenizer).__name__} cannot encode a text", _SAVE):
        wanted = [list(tokenizer.encode(text, add_special_tokens=False)) for text in texts]
    ways: list[Callable[[Any], Any]] = [
        _by_its_class,
        partial(_as_sentencepiece, marks_first_word=True),
        partial(_as_sentencepiece, marks_first_word=False),
    ]
    for convert in ways:
        try:
            with quiet():
                backend = convert(tokenizer)
                if backend is not None and are_equal(backend, texts, wanted):
                    return backend
        except Exception:  # noqa: BLE001, S112 - whatever a converter raises, the tokenizer itself is read
            continue
    return None


def _by_its_class(tokenizer: Any) -> Any:
    from transformers.convert_slow_tokenizer import SLOW_TO_FAST_CONVERTERS, convert_slow_tokenizer

    known = type(tokenizer).__name__ in SLOW_TO_FAST_CONVERTERS
    return convert_slow_tokenizer(tokenizer) if known else None


def _as_sentencepiece(tokenizer: Any, *, marks_first_word: bool) -> Any:
    """A tokenizer over a sentencepiece model, with its added tokens."""
    from tokenizers import AddedToken

    pieces = getattr(tokenizer, "sp_model", None)
    if pieces is None:
        return None
    backend = as_backend(pieces, marks_first_word=marks_first_word)
    added = [str(text) for _, text in sorted(tokenizer.added_tokens_decoder.items())]
    backend.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in added])
    return backend


def _check_spelling(backend: SlowBackend, name: str) -> None:
    """Refuse a tokenizer whose tokens are not written as sentencepiece writes them: what they spell would be wrong."""
    with as_model_error(f"the tokens of {name} cannot be read", _SAVE):
        unknown = backend.token_to_id(str(json.loads(backend.to_str())["model"]["unk_token"]))
        reader = SubwordTokenizer(backend, size=max(backend.get_vocab().values()) + 1, separator=-1)
        spelled = [
            reader.decode(tokens) == text
            for text in _SPELLED
            if unknown not in (tokens := reader.whole(text))
        ]
    if not spelled or not all(spelled):
        raise ModelError(
            f"{name} is not a fast tokenizer, cannot be converted to one that makes the same tokens, and writes its tokens in a way that "
            f"is not known here; {_SAVE}"
        )
