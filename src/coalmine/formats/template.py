"""Parsing of templates into literal text and holes, with their positions."""

from __future__ import annotations

from dataclasses import dataclass

from coalmine.errors import FormatError
from coalmine.formats.regex import tokens


@dataclass(frozen=True)
class LiteralText:
    """Text that every member has as written."""

    text: str


@dataclass(frozen=True)
class Hole:
    """A hole that is filled.

    Attributes:
        spec: the text between the braces, as written.
        position: the offset of the opening brace in the template.
    """

    spec: str
    position: int

    @property
    def name(self) -> str:
        """The kind of the hole: the text before the colon."""
        return self.spec.partition(":")[0]

    @property
    def argument(self) -> str | None:
        """The text after the colon, or None if there is no colon."""
        _, colon, argument = self.spec.partition(":")
        return argument if colon else None

    @property
    def name_position(self) -> int:
        """The offset of the name in the template."""
        return self.position + 1

    @property
    def argument_position(self) -> int:
        """The offset in the template of the text after the colon, or of the closing brace if there is no colon."""
        return self.position + 1 + len(self.name) + (":" in self.spec)


Piece = LiteralText | Hole


def pieces_of(template: str) -> tuple[Piece, ...]:
    """The pieces of a template, in order; `{{` and `}}` are one brace each.

    >>> [getattr(piece, "spec", piece) for piece in pieces_of("{{pin}} {digits:4}")]
    [LiteralText(text='{pin} '), 'digits:4']
    """
    pieces: list[Piece] = []
    literal: list[str] = []
    position = 0
    while position < len(template):
        character = template[position]
        if character not in "{}":
            literal.append(character)
            position += 1
        elif template.startswith(character, position + 1):
            literal.append(character)
            position += 2
        elif character == "}":
            raise FormatError(
                "a closing brace without a hole", template, position, "write }} for the character itself"
            )
        else:
            if literal:
                pieces.append(LiteralText("".join(literal)))
                literal = []
            end = _end_of_hole(template, position)
            pieces.append(Hole(template[position + 1 : end], position))
            position = end + 1
    if literal:
        pieces.append(LiteralText("".join(literal)))
    return tuple(pieces)


def _end_of_hole(template: str, position: int) -> int:
    """The offset of the brace that closes the hole opened at `position`."""
    if template.startswith("{re:", position):
        return _end_of_regex(template, position)
    for end in range(position + 1, len(template)):
        if template[end] == "}":
            return end
        if template[end] == "{":
            raise FormatError(
                "a brace opens inside a hole",
                template,
                end,
                "close the hole first, or use a re hole if a filling has braces",
            )
    raise _never_closed(template, position)


def _end_of_regex(template: str, position: int) -> int:
    depth = 0
    for token in tokens(template, position + len("{re:")):
        if token.kind == "open class":
            raise FormatError(
                "a character class is never closed", template, token.start, "write ] where it ends"
            )
        if token.kind == "character" and token.text == "{":
            depth += 1
        elif token.kind == "character" and token.text == "}":
            if depth == 0:
                return token.start
            depth -= 1
    raise _never_closed(template, position)


def _never_closed(template: str, position: int) -> FormatError:
    return FormatError(
        "a hole is never closed", template, position, "write } where it ends, or {{ for the character itself"
    )
