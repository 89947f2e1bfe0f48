"""Survival of canaries in preprocessing: how many planted copies reach the loss, by the tokens of their holes."""

from __future__ import annotations

import bisect
import copy
import itertools
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from coalmine.corpus.planting.manifest import CanarySet, as_canary_set
from coalmine.corpus.planting.occurrences import OccurrenceSearch
from coalmine.errors import InputError, ModelError, NotMeasurableError
from coalmine.models.transformers.slow_tokenizers import read_tokenizer
from coalmine.models.transformers.subwords import SubwordTokenizer
from coalmine.records import Canary

SCHEMA = "coalmine.survival/1"
# The label with which transformers and torch leave a token out of the loss.
IGNORED = -100
# In place of a token without text, such as a separator or padding. No UTF-8 text has this byte, so no match spans it.
_NO_TEXT = b"\xff"
# How many canaries a message names one by one.
SHOWN = 10


class CanarySurvival(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the copies of one canary; counts are copies among the rows that were read."""

    canary_id: str
    # How many copies should be there: 0 for a withheld canary.
    repetitions: int
    # Whole in one row, with all tokens of its holes in the loss. The text around the holes is known to everyone.
    reached: int
    # Whole in one row, with some tokens of its holes in the loss and some not.
    partly: int = 0
    # Whole in one row, with no token of its holes in the loss.
    masked: int
    # Begins in one row and ends in the next.
    split: int
    # Of those that reached the loss: at the start of a row, where the first token is not predicted from anything.
    at_row_start: int
    # Of those that reached the loss: tokenized differently from the canary alone, which is how an audit scores it.
    other_tokens: int
    # Whether the tokenizer changes the planted text, such as to lower case.
    altered: bool
    # Tokens that hold any part of a hole, over all copies that are whole in one row, and how many of them are in the loss.
    hole_tokens: int = 0
    hole_tokens_in_loss: int = 0

    @property
    def missing(self) -> int:
        """Copies that were not found whole: cut off, dropped or changed."""
        return max(0, self.repetitions - self.reached - self.partly - self.masked - self.split)

    @property
    def share_in_loss(self) -> float | None:
        """The share of the tokens of its holes that are in the loss; None where no copy is whole in one row."""
        return self.hole_tokens_in_loss / self.hole_tokens if self.hole_tokens else None


class Survival(msgspec.Struct, frozen=True, kw_only=True):
    """What the preprocessing left of the canaries, in the order of the manifest.

    >>> Survival(canaries=[], rows=8, tokens=64, tokens_in_loss=56, warnings=[]).ok
    True
    """

    schema: str = SCHEMA
    canaries: list[CanarySurvival]
    rows: int
    tokens: int
    tokens_in_loss: int
    # One sentence each; none of them shows a secret.
    warnings: list[str]

    @property
    def never(self) -> list[str]:
        """The planted canaries whose secret never reaches the loss whole."""
        return [entry.canary_id for entry in self.canaries if entry.repetitions and not entry.reached]

    @property
    def ok(self) -> bool:
        """Whether each canary reaches the loss as often as it was planted, and no withheld one does."""
        return all(entry.reached == entry.repetitions for entry in self.canaries)

    def __str__(self) -> str:
        """A short summary: one line in all, one per warning, and one for each of the first canaries that lost copies."""
        planted = [entry for entry in self.canaries if entry.repetitions]
        copies = sum(entry.repetitions for entry in planted)
        reached = sum(entry.reached for entry in planted)
        size = f"{self.rows:,} rows, {self.tokens:,} tokens, {self.tokens_in_loss:,} in the loss"
        lines = [
            f"{reached:,} of {copies:,} copies of {len(planted)} planted canaries reach the loss ({size})."
        ]
        lines += [f"- {warning}" for warning in self.warnings]
        lost = [entry for entry in planted if entry.reached < entry.repetitions]
        lines += [
            f"  {entry.canary_id}: {entry.reached} of {entry.repetitions} reach the loss; "
            f"{_partly_in_words(entry)}{entry.masked} masked, {entry.split} split, {entry.missing} missing"
            for entry in lost[:SHOWN]
        ]
        lines += [f"  and {len(lost) - SHOWN} more"] if len(lost) > SHOWN else []
        return "\n".join(lines)


class _Row(NamedTuple):
    tokens: list[int]
    in_loss: list[bool]


class _CopyCounts:
    """The copies of one canary so far, by the names that `CanarySurvival` has for them."""

    def __init__(self) -> None:
        self.reached = self.partly = self.masked = self.split = self.at_row_start = self.other_tokens = 0
        self.hole_tokens = self.hole_tokens_in_loss = 0


class _Form(NamedTuple):
    """A canary as the tokenizer encodes it."""

    # Its tokens when it is encoded alone.
    alone: list[int]
    # Where its holes begin and end, in bytes.
    holes: list[tuple[int, int]]


def check_survival(
    canaries: CanarySet | str | os.PathLike[str], batches: Iterable[Any], tokenizer: Any
) -> Survival:
    """How many copies of each canary reach the loss, in one pass over what the model will be trained on.

    A copy reaches the loss if all tokens that hold a part of its holes do, that is, of the secret. Labels of the text around
    the holes do not matter: the model still reads a prompt that is left out of the loss.

    A copy is found by its text, however it is tokenized: as a part of the bytes that the tokens of a row spell. So a leading
    space, a newline or a neighbor that merges with its first token hides nothing. If the tokenizer changes the text (such as
    upper case), the changed text is searched for. Problems are warnings and never stop a training.

    Args:
        canaries: the manifest of the planted corpus, or the set of canaries.
        batches: one epoch of examples or batches, each a mapping with `input_ids` and, where there are any, `labels` (aligned
            with `input_ids`, as transformers has them; -100 is left out of the loss) and `attention_mask`; lists or tensors.
            Without labels every token that is attended to is taken to be in the loss.
        tokenizer: the fast tokenizer of the model.

    >>> examples = trainer.get_train_dataloader()  # doctest: +SKIP
    >>> print(check_survival("planted/canaries.json", examples, tokenizer))  # doctest: +SKIP
    336 of 336 copies of 48 planted canaries reach the loss (1,204 rows, 77,056 tokens, 75,852 in the loss).
    """
    counter = _CopyCounter(as_canary_set(canaries), tokenizer)
    for row in itertools.chain.from_iterable(map(_rows, batches)):
        counter.add(row)
    found = counter.survival()
    if found.never:
        warnings.warn(f"canaries never reach the loss: {_named(found.never)}", stacklevel=2)
    return found


class _CopyCounter:
    """One pass over the rows that a model will be trained on."""

    def __init__(self, canaries: CanarySet, tokenizer: Any) -> None:
        reader = _reader(tokenizer)
        self.canaries = canaries
        self.pieces = [_NO_TEXT if piece is None else piece for piece in reader.pieces(first=False)]
        self.forms, self.unwritable = _forms(canaries, reader, tokenizer)
        self.search = OccurrenceSearch([list(self.forms)] if self.forms else [])
        self.longest = max((len(form.encode()) for form in self.forms), default=0)
        self.known = {
            form: _Form(reader.encode(form), _holes(canaries, form, names))
            for form, names in self.forms.items()
        }
        self.counts = {canary.canary_id: _CopyCounts() for canary in canaries}
        self.rows = self.tokens = self.tokens_in_loss = 0
        # The end of the row before.
        self.tail = b""

    def add(self, row: _Row) -> None:
        """Look at the next row."""
        self.rows, self.tokens = self.rows + 1, self.tokens + len(row.tokens)
        self.tokens_in_loss += sum(row.in_loss[1:])  # nothing predicts the first
        pieces, tail = self.pieces, self.tail
        written = [pieces[token] if 0 <= token < len(pieces) else _NO_TEXT for token in row.tokens]
        text = b"".join(written)
        for start, end, form in self.search.longest(text):
            for canary_id in self.forms[form]:
                _count(self.counts[canary_id], row, written, start, end, self.known[form])
        # Only a canary that begins before the border between two rows and ends after it was split by it.
        for start, end, form in self.search.longest(tail + text[: self.longest]):
            if start < len(tail) < end:
                for canary_id in self.forms[form]:
                    self.counts[canary_id].split += 1
        self.tail = (tail + text)[-self.longest :] if self.longest else b""

    def survival(self) -> Survival:
        """What was found in all rows."""
        if self.rows == 0:
            raise InputError("there are no rows to examine; give the examples that the model is trained on")
        by_id, forms = self.canaries.by_id, self.forms
        altered = {name for form, names in forms.items() for name in names if by_id(name).text != form}
        entries = [_entry(canary, self.counts[canary.canary_id], altered) for canary in self.canaries]
        return Survival(
            canaries=entries,
            rows=self.rows,
            tokens=self.tokens,
            tokens_in_loss=self.tokens_in_loss,
            warnings=_warnings(entries, forms, self.unwritable),
        )


def _holes(canaries: CanarySet, form: str, names: Sequence[str]) -> list[tuple[int, int]]:
    """Where the holes of a canary begin and end in what the tokenizer makes of it, in bytes."""
    spans = set()
    for name in names:
        canary = canaries.by_id(name)
        if len(form) != len(canary.text):
            # Which part of it is the secret can no longer be determined.
            return [(0, len(form.encode()))]
        secret = canaries.format_of(canary)
        # In a list of texts each is one hole, and what they all begin with is not secret.
        shared = len(secret.prefix) if canary.format_id in canaries.listed else 0
        spans |= {(max(begin, shared), end) for begin, end in secret.hole_spans(canary.text)}
    # A hole can be filled with nothing.
    return [(len(form[:begin].encode()), len(form[:end].encode())) for begin, end in spans if begin < end]


def _reader(tokenizer: Any) -> SubwordTokenizer:
    backend = read_tokenizer(tokenizer).backend
    # A call with truncation or padding leaves them switched on for later calls, and canaries must be encoded whole.
    backend = copy.deepcopy(backend)
    backend.no_truncation()
    backend.no_padding()
    return SubwordTokenizer(backend, size=len(tokenizer), separator=0)


def _forms(
    canaries: CanarySet, reader: SubwordTokenizer, tokenizer: Any
) -> tuple[dict[str, list[str]], list[str]]:
    """Each text to search for, with the canaries that have it; and the canaries that the tokenizer cannot encode at all."""
    forms: dict[str, list[str]] = {}
    unwritable = []
    for canary in canaries:
        try:
            tokens = reader.encode(canary.text)
        except ModelError:
            unwritable.append(canary.canary_id)
            continue
        form = reader.decode(tokens)
        if form != read_tokenizer(tokenizer).backend.decode(tokens, skip_special_tokens=False):
            raise NotMeasurableError(
                "the tokens of this tokenizer do not join to the text that they encode, so canaries cannot be found in them; "
                "look for the canaries in decoded examples"
            )
        if form:
            forms.setdefault(form, []).append(canary.canary_id)
        else:
            unwritable.append(canary.canary_id)
    return forms, unwritable


def _rows(batch: Any) -> Iterator[_Row]:
    """The rows of an example or a batch."""
    if not isinstance(batch, Mapping) or "input_ids" not in batch:
        raise InputError(
            f"an example must be a mapping with input_ids, got {type(batch).__name__}; give what the data loader yields"
        )
    tokens = _nested(batch["input_ids"])
    labels = _nested(batch.get("labels"), like=tokens)
    mask = _nested(batch.get("attention_mask"), like=tokens)
    for place, row in enumerate(tokens):
        if labels is None:
            attended = mask[place] if mask is not None else [1] * len(row)
            _same_length(row, attended, "attention_mask")
            yield _Row(row, [bool(one) for one in attended])
        else:
            _same_length(row, labels[place], "labels")
            _check_aligned(row, labels[place])
            # A label that is another token trains another text.
            yield _Row(row, [label == token for token, label in zip(row, labels[place], strict=True)])


def _nested(values: Any, *, like: list[list[int]] | None = None) -> Any:
    """Lists of lists from a list, an array or a tensor of one or two dimensions, or from a list of those."""
    if values is None:
        return None
    plain = values.tolist() if hasattr(values, "tolist") else list(values)
    if plain and hasattr(plain[0], "tolist"):
        plain = [part.tolist() for part in plain]
    rows = plain if plain and isinstance(plain[0], Sequence) else [plain]
    if like is not None and len(rows) != len(like):
        raise InputError(
            f"a batch has {len(like)} rows of input_ids but {len(rows)} of labels or masks; pair them"
        )
    return rows


def _same_length(row: list[int], other: list[int], name: str) -> None:
    if len(row) != len(other):
        raise InputError(f"a row has {len(row)} input_ids but {len(other)} {name}; give one for each token")


def _check_aligned(row: list[int], labels: list[int]) -> None:
    """Raise an InputError for labels that are shifted by one already: read as aligned, they would hide every canary."""
    aligned = all(label in {IGNORED, token} for token, label in zip(row, labels, strict=True))
    taught = [place for place, label in enumerate(labels[:-1]) if label != IGNORED]
    if not aligned and len(taught) > 1 and all(labels[place] == row[place + 1] for place in taught):
        raise InputError(
            "labels are shifted by one against input_ids; give them aligned, as transformers has them"
        )


def _count(counts: _CopyCounts, row: _Row, written: list[bytes], start: int, end: int, form: _Form) -> None:
    """Count a copy that takes up the bytes from `start` to `end` of a row."""
    ends = list(itertools.accumulate(len(piece) for piece in written))
    first, last = _tokens_at(ends, start, end)
    hole_tokens: set[int] = set()
    for begin, stop in form.holes:
        low, high = _tokens_at(ends, start + begin, start + stop)
        hole_tokens.update(place for place in range(low, high + 1) if written[place])
    # Nothing predicts the first token of a row, whatever its label is.
    in_loss = sum(row.in_loss[place] and place > 0 for place in hole_tokens)
    counts.hole_tokens += len(hole_tokens)
    counts.hole_tokens_in_loss += in_loss
    if in_loss < len(hole_tokens):
        counts.partly += in_loss > 0
        counts.masked += in_loss == 0
        return
    counts.reached += 1
    counts.at_row_start += first == 0
    counts.other_tokens += row.tokens[first : last + 1] != form.alone


def _tokens_at(ends: list[int], start: int, end: int) -> tuple[int, int]:
    """The first and the last token that hold any of the bytes from `start` to `end`, where `ends` are the ends of all tokens."""
    return bisect.bisect_right(ends, start), bisect.bisect_left(ends, end)


def _entry(canary: Canary, counts: _CopyCounts, altered: set[str]) -> CanarySurvival:
    name, times = canary.canary_id, canary.times_trained_on
    return CanarySurvival(canary_id=name, repetitions=times, altered=name in altered, **vars(counts))


def _warnings(entries: list[CanarySurvival], forms: dict[str, list[str]], unwritable: list[str]) -> list[str]:
    planted = [entry for entry in entries if entry.repetitions]
    alike = [name for names in forms.values() if len(names) > 1 for name in names]
    kinds = [
        ("never reach the loss whole", [e for e in planted if not e.reached]),
        ("reach the loss less often than planted", [e for e in planted if 0 < e.reached < e.repetitions]),
        ("reach the loss with a part of their secret only", [e for e in planted if e.partly]),
        ("reach the loss more often than planted", [e for e in planted if e.reached > e.repetitions]),
        ("are withheld and reach the loss anyway", [e for e in entries if not e.repetitions and e.reached]),
        ("are changed by the tokenizer, so an audit scores the changed text", [e for e in entries if e.altered]),
        ("are tokenized differently from what an audit scores", [e for e in planted if e.other_tokens]),
        ("begin a row, so their first token is not trained on", [e for e in planted if e.at_row_start]),
    ]  # fmt: skip
    named = [(what, [entry.canary_id for entry in found]) for what, found in kinds]
    named += [
        ("cannot be written by the tokenizer", unwritable),
        ("are the same text to the tokenizer, and each counts copies of the other", alike),
    ]
    return [f"{len(names)} of the canaries {what}: {_named(names)}" for what, names in named if names]


def _partly_in_words(entry: CanarySurvival) -> str:
    if not entry.partly:
        return ""
    share = 100 * (entry.share_in_loss or 0.0)
    return f"{entry.partly} partly ({share:.0f}% of the secret's tokens are in the loss), "


def _named(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
