"""The options that several commands have, and what is made of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import typer

from coalmine.cli.taking import Arguments
from coalmine.corpus.files.kinds import KINDS, suffixes_in_words
from coalmine.errors import InputError
from coalmine.models.options import LoadOptions
from coalmine.records.options import SEED, Option, Options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coalmine.corpus.files.documents import Fields
    from coalmine.formats.format import Format

Chosen = TypeVar("Chosen", bound=Options)
Seed = Annotated[int, typer.Option("--seed", min=SEED.least, help=SEED.help)]
_CORPUS_HELP = (
    f"Training data: {suffixes_in_words(KINDS, notes=True)}; also .gz, .zst; "
    "or a directory of part files, or of a saved datasets.Dataset."
)
Corpus = Annotated[Path, typer.Argument(help=_CORPUS_HELP)]
OptionalCorpus = Annotated[Path | None, typer.Argument(help=_CORPUS_HELP)]
Overwrite = Annotated[bool, Option("Replace what an earlier run wrote to --out.")]
Words = Annotated[
    Path | None,
    Option(
        "For {word:n}: a file with one word per line, or a word model's directory; for {unseen:n}: its canaries.json."
    ),
]


def out_option(says: str) -> Any:
    """The option `--out` of a command, with what it says about where results go."""
    return typer.Option("--out", "-o", help=says)


Where = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A model's directory (of `coalmine train`, transformers or PEFT) or .gguf file, an endpoint's URL, a TOML file that "
        "describes one, python:module:function, which runs that function to make the model, or NAME:WHERE for an adapter that a package "
        "registers.",
    ),
]


class Loading(Arguments, frozen=True, kw_only=True):
    """How a model is loaded that scores texts, and for a model of pairs which source it is given."""

    options: LoadOptions
    source: Annotated[
        str | None, Option("For a model of pairs: the one source that every text is given.")
    ] = None


def format_option(says: str) -> Any:
    """The option `--format` of a command that takes secret formats."""
    return typer.Option("--format", "-f", help=says)


class TextFields(Arguments, frozen=True, kw_only=True):
    """Which fields of a corpus hold what."""

    text_field: Annotated[
        str,
        Option(
            f"Which field holds the text ({', '.join(kind.suffix for kind in KINDS if kind.has_fields)})."
        ),
    ] = "text"
    source_field: Annotated[str | None, Option("For pairs: the field of the source side.")] = None
    target_field: Annotated[str | None, Option("For pairs: the field of the target side.")] = None
    rows: Annotated[
        str,
        Option(
            "What a row holds: auto (the first one decides), text, messages, prompt, conversations or instruction."
        ),
    ] = "auto"

    def fields(self) -> Fields:
        """The fields, as Python takes them."""
        from coalmine.corpus.files.documents import ROWS, Fields

        if self.rows not in ("auto", *ROWS):
            raise InputError(f"--rows should be auto, {', '.join(ROWS)}, got {self.rows!r}")
        rows: Any = msgspec.UNSET if self.rows == "auto" else self.rows
        return Fields(text=self.text_field, source=self.source_field, target=self.target_field, rows=rows)

    def into(self, options: Chosen) -> Chosen:
        """Options of something that reads a corpus, with these fields."""
        return msgspec.structs.replace(options, fields=self.fields())


class CorpusFields(TextFields, frozen=True, kw_only=True):
    """Which fields of a corpus hold what, with whose text it is."""

    user_field: Annotated[str | None, Option("Which field says whose text it is.")] = None

    def fields(self) -> Fields:
        """The fields, as Python takes them."""
        return msgspec.structs.replace(super().fields(), user=self.user_field)


def formats_from(templates: Iterable[str], words: list[str] | None) -> list[Format]:
    """Secret formats, with the words of `--words` for those that need them."""
    from coalmine.formats.format import Format

    listed = ("{word:", "{unseen:")
    return [
        Format(template, words=words if any(hole in template for hole in listed) else None)
        for template in templates
    ]


def words_from(path: Path | None) -> list[str] | None:
    """The words for {word:n} or {unseen:n}: a file with one per line, the vocabulary of a word model's directory, or a canaries.json."""
    if path is None:
        return None
    if path.suffix == ".json":
        from coalmine.corpus.planting.manifest import CanarySet

        return sorted({word for form in CanarySet.load(path).formats.values() for word in form.words or ()})
    if path.is_dir():
        from coalmine.models.reference.checkpoint import vocabulary_words

        return vocabulary_words(path)
    from coalmine.storage.files import read_text

    return [word for line in read_text(path, "the list of words").splitlines() if (word := line.strip())]
