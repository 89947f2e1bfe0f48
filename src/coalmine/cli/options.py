"""The options that every command has, declared once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coalmine.errors import InputError

if TYPE_CHECKING:
    from coalmine.corpus.files.documents import Fields

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output and nothing else there.")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Show no progress and no table; errors still show.")
]
Seed = Annotated[
    int, typer.Option("--seed", min=0, help="The root of all randomness: the same seed gives the same files.")
]
TextField = Annotated[
    str, typer.Option("--text-field", help="Which field holds the text (.jsonl, .csv, .parquet).")
]
UserField = Annotated[str | None, typer.Option("--user-field", help="Which field says whose text it is.")]
SourceField = Annotated[
    str | None, typer.Option("--source-field", help="For pairs: the field of the source side.")
]
TargetField = Annotated[
    str | None, typer.Option("--target-field", help="For pairs: the field of the target side.")
]


def whole_numbers(text: str, option: str) -> list[int]:
    """A list such as "1,4,16" from the command line.

    >>> whole_numbers("1,4,16", "--repeat")
    [1, 4, 16]
    """
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"{option} takes whole numbers with commas between, such as 1,4,16, got {text!r}"
        ) from None


def fields_from(text: str, user: str | None, source: str | None, target: str | None) -> Fields:
    """The fields of a corpus as the four options name them."""
    from coalmine.corpus.files.documents import Fields

    return Fields(text=text, user=user, source=source, target=target)


def words_from(path: Path | None) -> list[str] | None:
    """The words for {word:n}: a file with one a line, or the vocabulary of a word model's directory."""
    if path is None:
        return None
    if path.is_dir():
        from coalmine.models.reference.checkpoint import vocabulary_words

        return vocabulary_words(path)
    from coalmine.storage.files import read_bytes

    try:
        text = read_bytes(path, "the list of words").decode()
    except UnicodeDecodeError as problem:
        raise InputError(
            f"the list of words {path} is not UTF-8 ({problem.reason} at byte {problem.start})"
        ) from None
    return [word for line in text.splitlines() if (word := line.strip())]
