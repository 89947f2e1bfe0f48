"""Where one operator can be changed, and into what: found in the syntax tree, replaced in the text, so that no line moves.

| kind | what is changed |
| --- | --- |
| arithmetic | `+` and `-`, `*` and `/` for each other; `//`, `%` and `**` to `*`; `&` and `|`, `<<` and `>>` for each other; `^` to `|` |
| boundary | `<` and `<=`, `>` and `>=` for each other |
| comparison | `<` and `>=`, `>` and `<=`, `==` and `!=`, `in` and `not in`, `is` and `is not` for each other |
| boolean | `and` and `or` for each other; `not` left out |
| sign | a minus left out |
| number | one more, one less |
| flag | `True` and `False` for each other |
| extreme | `min` and `max`, `any` and `all`, `floor` and `ceil` and their like for each other |
| clip | the two limits of `clip` in the wrong order |

Left alone: what people read (texts, messages of errors, progress), annotations, decorators, and the keywords `strict`, `frozen`,
`slots` and `kw_only`, which only guard against mistakes in the code itself.
"""

from __future__ import annotations

import ast
import bisect
import io
import itertools
import random
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

ARITHMETIC = {
    "+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "*", "**": "*", "&": "|", "|": "&", "<<": ">>", ">>": "<<", "^": "|",
}  # fmt: skip
BOUNDARY = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
OPPOSITE = {
    "<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "==",
    "in": "not in", "not in": "in", "is": "is not", "is not": "is",
}  # fmt: skip
BOOLEAN = {"and": "or", "or": "and"}
EXTREMES = {
    one: other
    for pair in (
        ("min", "max"), ("any", "all"), ("floor", "ceil"), ("minimum", "maximum"), ("argmin", "argmax"), ("amin", "amax"),
    )
    for one, other in (pair, pair[::-1])
}  # fmt: skip
GUARDS = {"strict", "frozen", "slots", "kw_only"}


@dataclass(frozen=True, order=True)
class Mutant:
    """One change; `start` and `end` are places in the text of the file, `line` counts from 1 and `column` from 0."""

    file: str
    line: int
    column: int
    kind: str
    old: str
    new: str
    start: int
    end: int
    source_line: str
    column_in_text: (
        int  # in `source_line`, which begins with the first character of the line that is not a space
    )

    @property
    def marked_line(self) -> str:
        """The line, with what is changed between « and »."""
        text, start = self.source_line, self.column_in_text
        return f"{text[:start]}«{self.old}»{text[start + len(self.old) :]}"

    def applied(self, source: str) -> str:
        """The text of the file with this change."""
        return source[: self.start] + self.new + source[self.end :]


def drawn(mutants: Sequence[Mutant], number: int, seed: int) -> list[Mutant]:
    """Of some mutants a sample, the same for the same seed: uniform over the places that can be changed, then over the changes there.

    Each place draws a ticket by its line, so that a change elsewhere in the code leaves the sample as it is.
    """
    places: dict[tuple[str, int, int], list[Mutant]] = {}
    for mutant in sorted(mutants):
        places.setdefault((mutant.file, mutant.start, mutant.end), []).append(mutant)
    alike: Counter[tuple[str, str]] = Counter()
    tickets = []
    for place, changes in places.items():
        line = (changes[0].file, changes[0].marked_line)
        chance = random.Random(repr((seed, line, alike[line])))
        alike[line] += 1
        tickets.append((chance.random(), place, chance.choice(changes)))
    return [mutant for _, _, mutant in sorted(sorted(tickets)[:number], key=lambda ticket: ticket[1])]


def mutants_of(file: str, source: str) -> list[Mutant]:
    """All changes that can be made to a file, in the order of its text."""
    return sorted(_Finder(file, source).found())


class _Finder:
    def __init__(self, file: str, source: str) -> None:
        self._file, self._source = file, source
        self._lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        self._tokens = [
            (self._starts[token.start[0] - 1] + token.start[1], token.string)
            for token in tokens
            if token.type in {tokenize.OP, tokenize.NAME}
        ]

    def found(self) -> Iterator[Mutant]:
        yield from self._below(ast.parse(self._source))

    def _below(self, node: ast.AST) -> Iterator[Mutant]:
        for child in _mutable_children(node):
            for kind, start, old, new in self._changes(child):
                yield self._mutant(kind, start, old, new)
            yield from self._below(child)

    def _mutant(self, kind: str, start: int, old: str, new: str) -> Mutant:
        line = bisect.bisect_right(self._starts, start)
        column = start - self._starts[line - 1]
        text = self._lines[line - 1]
        indent = len(text) - len(text.lstrip())
        end = start + len(old)
        return Mutant(self._file, line, column, kind, old, new, start, end, text.strip(), column - indent)

    def _changes(self, node: ast.AST) -> Iterator[tuple[str, int, str, str]]:
        match node:
            case ast.BinOp(left=left, right=right) if not (_is_text(left) or _is_text(right)):
                yield from self._replaced(left, right, {"arithmetic": ARITHMETIC})
            case ast.AugAssign(target=target, value=value) if not _is_text(value):
                augmented = {f"{old}=": f"{new}=" for old, new in ARITHMETIC.items()}
                yield from self._replaced(target, value, {"arithmetic": augmented})
            case ast.Compare(left=left, comparators=others):
                for one, other in itertools.pairwise([left, *others]):
                    yield from self._replaced(one, other, {"boundary": BOUNDARY, "comparison": OPPOSITE})
            case ast.BoolOp(values=values):
                for one, other in itertools.pairwise(values):
                    yield from self._replaced(one, other, {"boolean": BOOLEAN})
            case ast.UnaryOp(op=ast.Not() | ast.USub() as operator, operand=operand):
                start, end = self._start(node), self._start(operand)
                written = self._source[start:end]
                kind, sign = ("boolean", "not ") if isinstance(operator, ast.Not) else ("sign", "-")
                yield kind, start, written, written.replace(sign, "", 1)
            case ast.Constant(value=bool() as value):
                yield "flag", self._start(node), str(value), str(not value)
            case ast.Constant(value=int() | float() as value):
                written = self._text(node)
                for number in (value + 1, value - 1):
                    if number != value:  # one more than a very large float is the same number
                        yield (
                            "number",
                            self._start(node),
                            written,
                            f"({number!r})" if number < 0 else repr(number),
                        )
            case ast.Call(func=function, args=arguments):
                yield from self._call(function, arguments)

    def _call(self, function: ast.expr, arguments: list[ast.expr]) -> Iterator[tuple[str, int, str, str]]:
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name in EXTREMES:
            yield "extreme", self._end(function) - len(name), name, EXTREMES[name]
        if name == "clip" and len(arguments) > 1:
            low, high = arguments[-2:]
            between = self._source[self._end(low) : self._start(high)]
            old, new = (
                self._text(low) + between + self._text(high),
                self._text(high) + between + self._text(low),
            )
            yield "clip", self._start(low), old, new

    def _replaced(
        self, left: ast.expr, right: ast.expr, tables: dict[str, dict[str, str]]
    ) -> Iterator[tuple[str, int, str, str]]:
        """The operator between two operands: the one token there that is not a parenthesis, or the two of `not in` and `is not`."""
        low, high = self._end(left), self._start(right)
        first, last = (bisect.bisect_left(self._tokens, (place, "")) for place in (low, high))
        tokens = [(place, text) for place, text in self._tokens[first:last] if text not in {"(", ")"}]
        start, end = tokens[0][0], tokens[-1][0] + len(tokens[-1][1])
        written = self._source[start:end]
        for kind, table in tables.items():
            if written in table:
                yield kind, start, written, table[written]

    def _text(self, node: ast.expr) -> str:
        return self._source[self._start(node) : self._end(node)]

    def _start(self, node: ast.expr) -> int:
        return self._place(node.lineno, node.col_offset)

    def _end(self, node: ast.expr) -> int:
        return self._place(node.end_lineno or 0, node.end_col_offset or 0)

    def _place(self, line: int, utf8_column: int) -> int:
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:utf8_column].decode())


def _mutable_children(node: ast.AST) -> Iterator[ast.AST]:
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "type_params"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_left_alone(child):
                yield child


def _is_left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Raise() | ast.JoinedStr() | ast.Assert():
            return True
        case ast.keyword(arg=name):
            return name in GUARDS
        case ast.Call(func=ast.Attribute(value=receiver, attr="start" | "advance" | "finish")):
            return "progress" in ast.unparse(receiver).lower()
        case _:
            return False


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )
