"""Finding secrets of many kinds in bytes: one pass of google-re2 and a look at each @, then the rules of each kind where they match."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from coalmine.corpus.files.documents import BOUNDARY
from coalmine.corpus.secrets.folding import Folded
from coalmine.corpus.secrets.identifiers import needs
from coalmine.corpus.secrets.kind import SecretKind

# Bytes that a secret can have; a block of a private key is the longest.
LONGEST_SECRET = 12 << 10
# Bytes before a match that decide whether it is one, or belong to it.
_BEFORE = 80
_PIECE = 1 << 20
# The automaton has room for all states that text can lead to, so that it never falls back to a slower one.
_AUTOMATON_BYTES = 256 << 20
_CONTINUATION = 0b1000_0000
_JOINS = b".-"
# Digits that are two blanks apart are a table, if the row has more of them; three or four digits after a card are something else.
_COLUMNS, _COLUMN_BEFORE, _COLUMN = (
    re.compile(b"[0-9]  [0-9]"),
    re.compile(rb"[0-9] {2,}\Z"),
    re.compile(b" {2,}[0-9]{4}"),
)
# What is said about this many texts, each of so many bytes at most, is kept.
_MOST_KEPT, _LONGEST_KEPT = 20_000, 320


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A text that has the shape of a secret. Offsets are in bytes of UTF-8."""

    kind: SecretKind
    start: int
    end: int
    # As it is written, and in its plain form; None if it breaks a rule of its kind, so that it is not a secret.
    text: str
    value: str | None
    # Whether it is a well-known example.
    specimen: bool


# The fields of a Candidate, where there are too many to make an object of each.
Found = tuple[SecretKind, int, int, str, str | None, bool]


class SecretFinder:
    """Finds secrets of some kinds in text, in time that is proportional to its length.

    >>> from coalmine.corpus.secrets.kinds import chosen_kinds
    >>> finder = SecretFinder(chosen_kinds(["ssn", "email"]))
    >>> [(one.kind.name, one.text, one.specimen) for one in finder.find(b"mail bob@x.org, not 078-05-1120 or 000-12-3456")]
    [('email', 'bob@x.org', False), ('ssn', '078-05-1120', True)]
    """

    def __init__(self, kinds: Sequence[SecretKind]) -> None:
        self.kinds = tuple(kinds)
        self._rare = [
            (_Matcher(kind), re.compile(kind.pattern.encode())) for kind in kinds if kind.by_rare_byte
        ]
        self._others = [_Matcher(kind) for kind in kinds if not kind.by_rare_byte]
        together = "|".join(f"(?:{one.kind.pattern})" for one in self._others)
        self._finditer = _compiled(together, captures=False).finditer if self._others else None
        # By the two bytes that a match begins with, so that few kinds are tried.
        self._matchers: dict[bytes, tuple[_Matcher, ...]] = {}

    def find(self, content: bytes) -> list[Candidate]:
        """All secrets in UTF-8 text, in order; none overlaps another, and none extends over the byte 0xFF, which ends a document."""
        return [one for one in self.candidates([content]) if one.value is not None]

    def candidates(self, pieces: Iterable[bytes]) -> Iterator[Candidate]:
        """Everything that has the shape of a secret, in one text that comes in pieces; those that fail their check included."""
        for batch in self.batches(pieces):
            for found in batch:
                yield Candidate(*found)

    def batches(self, pieces: Iterable[bytes]) -> Iterator[list[Found]]:
        """The same, those of a piece together."""
        begin, waiting, reach, known = 0, b"", 0, 0
        for piece in _cut(pieces):
            content = waiting + piece
            # What begins before this is known as a whole, and what follows is looked at with the next piece. No secret extends over
            # the end of a document, so a piece that ends with one needs no other.
            is_whole = content.endswith(BOUNDARY)
            limit = len(content) if is_whole else _at_character(content, len(content) - LONGEST_SECRET)
            # What begins before `known` was looked at with the piece before this one, where more of the text before it was seen.
            batch, reach = self._candidates(content, begin, begin + limit, max(reach, known))
            yield batch
            known = begin + limit
            kept = limit if is_whole else _at_character(content, limit - _BEFORE)
            begin, waiting = begin + kept, content[kept:]
        yield self._candidates(waiting, begin, begin + len(waiting), max(reach, known))[0]

    def _candidates(self, original: bytes, offset: int, limit: int, reach: int) -> tuple[list[Found], int]:
        """What begins from `reach` on and before `limit` in a part of a text, in order, and where the last secret ends."""
        folded = Folded(original)
        found = sorted(self._matches(folded.content))
        firsts, lasts = folded.originals([one[0] for one in found], [-one[1] for one in found])
        candidates: list[Found] = []
        for (_, _, _, known), begin, end in zip(found, firsts, lasts, strict=True):
            kind, length, text, value, specimen = known
            first, last = offset + begin, offset + end
            if first >= limit:
                break
            # Of secrets that overlap only the first counts, and what failed inside of one does not.
            if first < reach:
                continue
            # Nothing in it was folded if it is as long as before.
            if not folded.is_same and (end - begin != length or not text.isascii()):
                text = original[begin:end].decode("utf-8", "replace")
            if value is not None:
                reach = last
            candidates.append((kind, first, last, text, value, specimen))
        return candidates, reach

    def _matches(self, content: bytes) -> list[_Match]:
        """What has the shape of a secret, with its kind; what has passed its check may overlap other such."""
        all_found: list[_Match] = []
        for matcher, pattern in self._rare:
            all_found += matcher.all_at(content, pattern.finditer(content), len(all_found))
        matches = self._finditer(content, 0) if self._finditer else iter(())
        while (found := next(matches, None)) is not None:
            start, end = found.span()
            beginning = content[start : start + 2]
            matchers = self._matchers.get(beginning) or self._matchers_of(beginning)
            reach = start + 1
            for matcher in matchers:
                one = matcher.at(content, start, end if len(matchers) == 1 else None, len(all_found))
                if one is not None:
                    all_found.append(one)
                    if one[3].value is not None:
                        reach = -one[1]
                        break
            if reach != end and self._finditer:
                matches = self._finditer(content, reach)
        return all_found

    def _matchers_of(self, beginning: bytes) -> tuple[_Matcher, ...]:
        possible = tuple(one for one in self._others if one.begins(beginning))
        self._matchers[beginning] = possible
        return possible


class _Judgment(NamedTuple):
    """What a kind says about a text: the part that has its shape, the plain form if that passes, and whether it is well known."""

    kind: SecretKind
    length: int
    text: str
    value: str | None
    specimen: bool


# Where it begins, and the negative of where it ends, so that of those that begin together the longest comes first; how many were found
# before it; and what its kind says.
_Match = tuple[int, int, int, _Judgment]


class _Matcher:
    """Whether there is a secret of one kind where something was found."""

    def __init__(self, kind: SecretKind) -> None:
        self.kind, self._is_number = kind, kind.is_number
        self.begins = re.compile(kind.begins.encode("latin-1")).match
        self._known: dict[bytes, _Judgment] = {}
        # At one place, `re` needs a tenth of the time that it takes to call google-re2.
        compiled = re.compile(kind.pattern.encode())
        self._match, self._has_context = compiled.match, compiled.groups > 0
        self._after: Any = None if kind.after is None else _compiled(kind.after).match
        self._before = None if kind.before is None else re.compile(kind.before.encode("latin-1")).match
        self._not_after = re.compile(f"[{kind.alphabet}]".encode()) if kind.is_whole_run else None

    def at(self, content: bytes, begin: int, end: int | None, number: int) -> _Match | None:
        """Where it is, and what; None if nothing has the shape.

        `end` is given if it is known that the pattern of this kind matches up to there.
        """
        if end is None or self._has_context:
            match = self._match(content, begin)
            if match is None:
                return None
            begin, end = match.span(1 if self._has_context and match.span(1) != (-1, -1) else 0)
        if self._before is not None:
            found = self._before(content[begin - _BEFORE if begin > _BEFORE else 0 : begin][::-1])
            if found is None:
                return None
            begin -= found.end()
        if self._after is not None:
            end = self._open_end(content, begin, end)
        raw = content[begin:end]
        known = self._known.get(raw) or self._judged(raw)
        # What follows a part of a match is something else by the rules of its kind.
        is_whole = known[1] == len(raw)
        if not known[1] or (
            self._is_number and _is_part_of_longer(content, begin, end if is_whole else None)
        ):
            return None
        return begin, -begin - known[1], number, known

    def all_at(self, content: bytes, matches: Iterable[re.Match[bytes]], number: int) -> list[_Match]:
        """`at` where the pattern of this kind matches."""
        before, known_of = self._before, self._known.get
        if before is None or self._has_context or self._after is not None or self._is_number:
            spans = enumerate((match.span() for match in matches), number)
            return [one for place, span in spans if (one := self.at(content, *span, place)) is not None]
        # The same in fewer steps, because addresses are by far the most frequent secrets.
        all_found: list[_Match] = []
        for match in matches:
            begin, end = match.span()
            found = before(content[begin - _BEFORE if begin > _BEFORE else 0 : begin][::-1])
            if found is None:
                continue
            begin -= found.end()
            raw = content[begin:end]
            known = known_of(raw) or self._judged(raw)
            if known[1]:
                all_found.append((begin, -begin - known[1], number, known))
        return all_found

    def _judged(self, raw: bytes) -> _Judgment:
        """What the kind says; kept, because most secrets occur several times."""
        kind, text = self.kind, raw.decode("utf-8", "surrogateescape")
        part = kind.part(text)
        if part is None:
            known = _Judgment(kind, 0, "", None, False)
        else:
            length = len(part.encode("utf-8", "surrogateescape"))
            value = kind.check(part)
            known = _Judgment(kind, length, part, value, value is not None and kind.is_specimen(value))
        if len(raw) <= _LONGEST_KEPT:
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            self._known[raw] = known
        return known

    def _open_end(self, content: bytes, begin: int, end: int) -> int:
        """Where a secret ends that goes on as long as its characters do."""
        if self._not_after is not None and begin and self._not_after.match(content, begin - 1):
            return end
        found = self._after(content, end, begin + LONGEST_SECRET)
        return int(found.end()) if found else end


def _is_part_of_longer(content: bytes, begin: int, end: int | None) -> bool:
    """Whether a decimal point or a hyphen joins more digits to a number, or it is in a row of them; without `end`, only before it."""
    if begin > 1 and content[begin - 1] in _JOINS and _is_digit(content[begin - 2]):
        return True
    if end is None:
        return False
    if _COLUMNS.search(content, begin, end) and (
        _COLUMN.match(content, end) or _COLUMN_BEFORE.search(content, max(0, begin - _BEFORE), begin)
    ):
        return True
    return end + 1 < len(content) and content[end] in _JOINS and _is_digit(content[end + 1])


def _is_digit(byte: int) -> bool:
    return 48 <= byte <= 57


def _compiled(pattern: str, *, captures: bool = True) -> Any:
    """A regular expression on bytes."""
    try:
        import re2
    except ImportError:
        raise needs("google-re2") from None
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.never_capture = not captures
    options.max_mem = _AUTOMATON_BYTES
    options.log_errors = False
    return re2.compile(pattern.encode("ascii"), options)


def _cut(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces that are not too long."""
    for piece in pieces:
        yield from (piece[at : at + _PIECE] for at in range(0, len(piece), _PIECE))


def _at_character(content: bytes, offset: int) -> int:
    """The offset, or the one before it at which a character begins."""
    offset = max(0, offset)
    while offset and offset < len(content) and content[offset] & 0b1100_0000 == _CONTINUATION:
        offset -= 1
    return offset
