"""`CopyCounter`: one pass over the rows of a training, which counts the copies of each canary by the tokens of their holes."""

from __future__ import annotations

import bisect
import copy
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from coalmine.corpus.planting.manifest import CanarySet
from coalmine.corpus.planting.occurrences import OccurrenceSearch
from coalmine.corpus.survival.headers import TurnHeader, turn_header
from coalmine.corpus.survival.results import SHOWN, CanarySurvival, Survival
from coalmine.corpus.survival.rows import LossRow, loss_rows
from coalmine.errors import InputError, ModelError, NotMeasurableError, NoTokenError
from coalmine.models.transformers.slow_tokenizers import read_tokenizer
from coalmine.models.transformers.subwords import SubwordTokenizer
from coalmine.records import Canary

# In place of a token without text, such as a separator or padding. No UTF-8 text has this byte, so no match spans it.
_NO_TEXT = b"\xff"


class _CopyCounts:
    """The copies of one canary so far, by the names that `CanarySurvival` has for them."""

    def __init__(self) -> None:
        self.reached = self.partly = self.masked = self.split = 0
        self.at_row_start = self.other_tokens = self.other_header = 0
        self.hole_tokens = self.hole_tokens_in_loss = 0


class _Form(NamedTuple):
    """A canary as the tokenizer encodes it."""

    # Its tokens as an audit scores them; None where the chat template does not write it.
    scored: list[int] | None
    # Where its holes begin and end, in bytes.
    holes: list[tuple[int, int]]


class CopyCounter:
    """Counts the copies of canaries in the rows that it is given, in the order in which they were cut."""

    def __init__(self, canaries: CanarySet, tokenizer: Any) -> None:
        reader = _reader(tokenizer)
        self.canaries = canaries
        self.header = turn_header(canaries.frame, tokenizer, reader)
        self.pieces = [_NO_TEXT if piece is None else piece for piece in reader.pieces(first=False)]
        self.forms, self.unwritable = _forms(canaries, reader, tokenizer)
        self.search = OccurrenceSearch([list(self.forms)] if self.forms else [])
        self.longest = max((len(form.encode()) for form in self.forms), default=0)
        self.known = {
            form: _Form(_scored(form, reader, self.header), _holes(canaries, form, names))
            for form, names in self.forms.items()
        }
        self.counts = {canary.canary_id: _CopyCounts() for canary in self.canaries}
        self.rows = self.tokens = self.tokens_in_loss = 0
        # The end of the row before.
        self.tail = b""

    def add_batch(self, batch: Any) -> None:
        """Look at the rows of an example or a batch."""
        for row in loss_rows(batch):
            self.add(row)

    def add(self, row: LossRow) -> None:
        """Look at the next row."""
        self.rows, self.tokens = self.rows + 1, self.tokens + len(row.tokens)
        self.tokens_in_loss += sum(row.in_loss[1:])  # nothing predicts the first
        pieces, tail = self.pieces, self.tail
        written = [pieces[token] if 0 <= token < len(pieces) else _NO_TEXT for token in row.tokens]
        text = b"".join(written)
        for start, end, form in self.search.longest(text):
            for canary_id in self.forms[form]:
                _count(self.counts[canary_id], row, written, start, end, self.known[form], header=self.header)
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
            manifest_sha256=self.canaries.sha256,
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


def _scored(form: str, reader: SubwordTokenizer, header: TurnHeader | None) -> list[int] | None:
    """The tokens of a canary as an audit scores them: alone, or after the header of its turn."""
    if header is None:
        return reader.encode(form)
    try:
        return None if header.reader is None else header.reader.encode(form)
    except NoTokenError:
        return None


def _count(
    counts: _CopyCounts,
    row: LossRow,
    written: list[bytes],
    start: int,
    end: int,
    form: _Form,
    *,
    header: TurnHeader | None,
) -> None:
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
    counts.other_tokens += row.tokens[first : last + 1] != form.scored
    counts.other_header += header is not None and not header.ends(row.tokens[:first])


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
        ("are not after the header that the chat template writes before their turn, where an audit scores them",
         [e for e in planted if e.other_header]),
        ("begin a row, so their first token is not trained on", [e for e in planted if e.at_row_start]),
    ]  # fmt: skip
    named = [(what, [entry.canary_id for entry in found]) for what, found in kinds]
    named += [
        ("cannot be written by the tokenizer", unwritable),
        ("are the same text to the tokenizer, and each counts copies of the other", alike),
    ]
    return [f"{len(names)} of the canaries {what}: {listed(names)}" for what, names in named if names]


def listed(names: list[str]) -> str:
    """The first names of a list, and how many more there are."""
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
