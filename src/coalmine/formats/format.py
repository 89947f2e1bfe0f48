"""Secret formats: text with holes, the set of all strings it can make, and uniform draws from that set."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from coalmine.errors import FormatError, InputError, NotMeasurableError
from coalmine.formats.automaton import Automaton, TooManyMembersError, in_words
from coalmine.formats.finding import Finder
from coalmine.formats.fragments import BLANK, MAX_STATES, Fragments, TooLargeError
from coalmine.formats.holes import HoleContext, fillings_of
from coalmine.formats.template import Hole, LiteralText, Piece, pieces_of
from coalmine.randomness import integers


class Match(msgspec.Struct, frozen=True):
    """A member found in running text: `text` occurs from `start` up to but not including `end`, in characters.

    >>> next(Format("{digits:4}").finditer("my pin is 0042"))
    Match(start=10, end=14, text='0042')
    """

    start: int
    end: int
    text: str


@dataclass(frozen=True, repr=False)
class Format:
    """A secret format: literal text with holes, and with it the secret space R of the distinct strings it can make.

    Members are ordered by code point, a prefix before its extensions, and numbered from 0. Two ways to fill the holes that
    make the same string are one member. The holes are `{digits:n}`, `{letters:n}` (a-z), `{hex:n}` (0-9a-f), `{alnum:n}`
    (0-9a-z), `{ssn}`, `{card}` (sixteen digits with a Luhn check digit), `{luhn:r+**-**}` and `{mod97:r+**-**}` (digits with
    that checksum), `{phone}` (NXX-NXX-XXXX), `{uuid}` (version 4),
    `{word:n}` (words of `words` joined by spaces), `{unseen:n}` (texts of `words` that never occur in the training data),
    `{choice:a|b|c}` and `{re:...}` (a regular expression for a finite set); `{{` and `}}` are literal braces.

    Attributes:
        template: the format as it was written.
        words: what `{word:n}` or `{unseen:n}` draws from, or None.
        automaton: the members as an automaton over characters.

    >>> secret = Format("my pin is {digits:4}")
    >>> secret.size
    10000
    >>> secret.at(42), secret.index("my pin is 0042")
    ('my pin is 0042', 42)
    >>> secret.sample(2, seed=0) == secret.sample(2, seed=0)
    True
    """

    template: str
    words: Sequence[str] | None = field(default=None, kw_only=True)
    automaton: Automaton = field(init=False, compare=False)
    _pieces: tuple[Piece, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.template, str):
            raise InputError(
                f"a format must be a string, got a {type(self.template).__name__}; give a template"
            )
        object.__setattr__(self, "words", _checked_words(self.words))
        pieces = pieces_of(self.template)
        object.__setattr__(self, "_pieces", pieces)
        object.__setattr__(self, "automaton", _compiled(self.template, pieces, self.words))
        if self.size == 1:
            first = next((piece.position for piece in pieces if isinstance(piece, Hole)), 0)
            raise FormatError(
                "the format makes only one string, so there is nothing to guess",
                self.template,
                first,
                "give it a hole with at least two fillings, such as {digits:9}",
            )

    def __repr__(self) -> str:
        words = "" if self.words is None else f", words=<{len(self.words)} words>"
        return f"Format({self.template!r}{words})"

    @property
    def size(self) -> int:
        """|R|: the exact number of members."""
        return self.automaton.counts[0]

    @property
    def holes(self) -> tuple[str, ...]:
        """The text between the braces of each hole, as written.

        >>> Format("{ssn} {digits:4}").holes
        ('ssn', 'digits:4')
        """
        return tuple(piece.spec for piece in self._pieces if isinstance(piece, Hole))

    @cached_property
    def prefix(self) -> str:
        """The longest string that every member begins with."""
        return self.automaton.prefix

    @property
    def min_length(self) -> int:
        """The length of the shortest member, in characters."""
        return self._lengths[0]

    @property
    def max_length(self) -> int:
        """The length of the longest member, in characters."""
        return self._lengths[1]

    def at(self, index: int) -> str:
        """The member with this number; InputError unless it is at least 0 and less than `size`."""
        return self.automaton.at(index)

    def index(self, text: str) -> int:
        """The number of a member; InputError if `text` is not a member."""
        return self.automaton.index(text)

    def __iter__(self) -> Iterator[str]:
        return iter(self.automaton)

    def __contains__(self, text: object) -> bool:
        return text in self.automaton

    def same_members(self, other: Format) -> bool:
        """Whether another format makes the same strings, however it is written.

        >>> Format("{choice:a|b}{digits:1}").same_members(Format("{re:[ab][0-9]}"))
        True
        """
        return self.automaton.same_members(other.automaton)

    def sample(self, n: int, seed: int, *, replace: bool = True) -> list[str]:
        """`n` members drawn uniformly, in the order in which they were drawn; a larger `n` begins with the same ones.

        Without replacement all are distinct; more of them than there are members is a NotMeasurableError.
        """
        return [self.at(index) for index in self.sample_indices(n, seed, replace=replace)]

    def sample_indices(self, n: int, seed: int, *, replace: bool = True) -> list[int]:
        """The numbers of the members that `sample` draws.

        >>> sorted(Format("{digits:1}").sample_indices(10, seed=0, replace=False))
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
        """
        n = operator.index(n)
        if n < 0:
            raise InputError(f"the number of draws must be at least 0, got {n}; give a larger one")
        generator = integers(seed, "format", self.template)
        if replace:
            return [generator.randrange(self.size) for _ in range(n)]
        if n > self.size:
            raise NotMeasurableError(
                f"{in_words(n)} distinct members cannot be drawn from {self!r}, which has {in_words(self.size)}; "
                "draw fewer, or use a larger format"
            )
        # The first n steps of a Fisher-Yates shuffle of all numbers, of which only those that moved are stored.
        moved: dict[int, int] = {}
        drawn = []
        for place in range(n):
            other = generator.randrange(place, self.size)
            drawn.append(moved.get(other, other))
            moved[other] = moved.pop(place, place)
        return drawn

    def finditer(self, text: str) -> Iterator[Match]:
        """The members that occur in running text: leftmost, then longest, without overlaps.

        The text around a member does not matter: nine digits are found in the first nine of ten. The empty string is never
        reported, even if it is a member.

        >>> [match.text for match in Format("{ssn}").finditer("not 000-12-3456 but 123-45-6789.")]
        ['123-45-6789']
        """
        for start, end in self._finder.spans(text):
            yield Match(start, end, text[start:end])

    def fill(self, fillings: Sequence[str]) -> str:
        """The member with one string in each hole, in order; InputError for a string that its hole cannot hold.

        >>> Format("{choice:Ann|Bob} has {digits:2}").fill(["Bob", "07"])
        'Bob has 07'
        """
        if isinstance(fillings, str) or len(fillings) != len(self.holes):
            given = "a single string" if isinstance(fillings, str) else f"{len(fillings)}"
            raise InputError(
                f"{self!r} has {len(self.holes)} holes, got {given}; give a list with one string per hole"
            )
        for number, (filling, spec) in enumerate(zip(fillings, self.holes, strict=True), 1):
            if filling not in self._hole_automata[spec]:
                raise InputError(
                    f"filling {number} of {self!r} does not fit its hole, {{{spec}}}; give a string that the hole can make"
                )
        remaining = iter(fillings)
        return "".join(
            piece.text if isinstance(piece, LiteralText) else next(remaining) for piece in self._pieces
        )

    def fillings(self, text: str) -> tuple[str, ...]:
        """One string per hole such that `fill` makes `text`; InputError if `text` is not a member.

        Where there are several ways, the first hole takes as little as it can, then the second, and so on.

        >>> Format("{re:a{1,3}}{re:a{1,3}}").fillings("aaaa")
        ('a', 'aaa')
        """
        return tuple(text[begin:end] for begin, end in self.hole_spans(text))

    def hole_spans(self, text: str) -> tuple[tuple[int, int], ...]:
        """Where each hole of a member begins and ends, in characters, for the fillings that `fillings` gives.

        >>> Format("pin {digits:4}, {choice:yes|no}").hole_spans("pin 0451, no")
        ((4, 8), (10, 12))
        """
        self.index(text)  # raises, and names the first character that does not fit
        # For each piece, the positions in the text where it may begin, given the pieces before it; then, from the back,
        # only those from which the rest can be made.
        begins = [{0}]
        for piece in self._pieces:
            begins.append({end for begin in begins[-1] for end in self._ends(piece, text, begin)})
        begins[-1] &= {len(text)}
        for place in reversed(range(len(self._pieces))):
            begins[place] = {
                begin
                for begin in begins[place]
                if not begins[place + 1].isdisjoint(self._ends(self._pieces[place], text, begin))
            }
        position, spans = 0, []
        for piece, follow in zip(self._pieces, begins[1:], strict=True):
            end = min(follow.intersection(self._ends(piece, text, position)))
            if isinstance(piece, Hole):
                spans.append((position, end))
            position = end
        return tuple(spans)

    @cached_property
    def _lengths(self) -> tuple[int, int]:
        return self.automaton.lengths

    @cached_property
    def _finder(self) -> Finder:
        return Finder(self.automaton)

    @cached_property
    def _hole_automata(self) -> dict[str, Automaton]:
        return {
            piece.spec: _compiled(self.template, (piece,), self.words)
            for piece in self._pieces
            if isinstance(piece, Hole)
        }

    def _ends(self, piece: Piece, text: str, begin: int) -> list[int]:
        """The positions where a piece that begins at `begin` may end, in ascending order."""
        if isinstance(piece, LiteralText):
            return [begin + len(piece.text)] if text.startswith(piece.text, begin) else []
        automaton = self._hole_automata[piece.spec]
        state: int | None = automaton.start
        ends = []
        for position in range(begin, len(text) + 1):
            if state in automaton.accepting:
                ends.append(position)
            if position == len(text) or state is None:
                break
            state = automaton.next(state, text[position])
        return ends


def _checked_words(words: Sequence[str] | None) -> tuple[str, ...] | None:
    if words is None:
        return None
    if isinstance(words, str) or not all(isinstance(word, str) for word in words):
        raise InputError(
            f"a word list must be a list of strings, got a {type(words).__name__}; give words=['...', '...']"
        )
    return tuple(words)


def _compiled(template: str, pieces: tuple[Piece, ...], words: Sequence[str] | None) -> Automaton:
    fragments = Fragments()
    result = BLANK
    known: dict[str, int] = {}
    # Checked in reading order, so that the error is about the first mistake.
    holes = [piece for piece in pieces if isinstance(piece, Hole)]
    if not holes:
        raise FormatError(
            "there is no hole",
            template,
            0,
            "write a hole, such as {digits:9}",
        )
    listed = {hole.name: hole.position for hole in holes if hole.name in {"word", "unseen"}}
    if len(listed) > 1:
        raise FormatError(
            "a format cannot have both 'word' and 'unseen' holes, because it has one list of words",
            template,
            max(listed.values()),
            "use {choice:a|b} for the words, or two formats",
        )
    current = holes[0]
    try:
        for current in holes:
            if current.spec not in known:
                place = HoleContext(current, template, words if words is None else tuple(words), fragments)
                known[current.spec] = fillings_of(place)
        for piece in reversed(pieces):
            if isinstance(piece, LiteralText):
                result = fragments.literal(piece.text, result)
            else:
                current = piece
                result = fragments.joined(known[piece.spec], result)
        return fragments.automaton(result)
    except TooLargeError:
        raise FormatError(
            f"a hole needs an automaton of more than {MAX_STATES:,} states, or about as much work",
            template,
            current.position,
            "use fewer or shorter fillings, or put literal text between holes whose fillings begin alike",
        ) from None
    except TooManyMembersError:
        raise FormatError(
            "the format makes more strings than can be counted exactly in memory",
            template,
            current.position,
            "use a smaller length",
        ) from None
