"""The options that several commands have, and what is made of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from coalmine.cli.taking import Argument, Arguments, Part
from coalmine.corpus.files.documents import Fields
from coalmine.corpus.files.kinds import KINDS, suffixes_in_words
from coalmine.engines.options import EngineOptions
from coalmine.errors import InputError
from coalmine.models.options import LoadOptions
from coalmine.records.options import SEED, Option, Options

if TYPE_CHECKING:
    from coalmine.formats.format import Format

Chosen = TypeVar("Chosen", bound=Options)
Seed = Annotated[int, SEED]
CORPUS = Argument(
    "CORPUS",
    f"Training data: {suffixes_in_words(KINDS, notes=True)}; also .gz, .zst; or a directory of part files, or of a saved "
    "datasets.Dataset.",
)
Corpus = Annotated[Path, CORPUS]
Overwrite = Annotated[bool, Option("Replace what an earlier run wrote to --out.")]
Words = Annotated[
    Path | None,
    Option(
        "For {word:n}: a file with one word per line, or a word model's directory; for {unseen:n}: its canaries.json."
    ),
]
Where = Annotated[
    str,
    Argument(
        "MODEL",
        "A model's directory (of `coalmine train`, transformers or PEFT) or .gguf file, an endpoint's URL, a TOML file that "
        "describes one, python:module:function, which runs that function to make the model, or NAME:WHERE for an adapter that a package "
        "registers.",
    ),
]
# How models are loaded, and where the work runs, as most commands offer it.
LoadedModel = Annotated[LoadOptions, Part(("device", "precision"), title="How the model is loaded")]
Running = Annotated[EngineOptions, Part(("engine",), title="Where the work runs", rest=False)]
Source = Annotated[str | None, Option("For a model of pairs: the one source that every text is given.")]
Reveal = Annotated[bool, Option("Show the secrets and names themselves; without it they are masked.")]
Training = Annotated[
    list[str] | None,
    Option(
        "NAME=VALUE, any other option of the training, as Python has it, such as hidden=64; may be given many times."
    ),
]


class CorpusFields(Arguments, frozen=True, kw_only=True):
    """Which fields of a corpus hold what."""

    field: Annotated[
        list[str] | None,
        Option(
            f"ROLE=FIELD, which field of a row ({', '.join(kind.suffix for kind in KINDS if kind.has_fields)}) is its text, user, source "
            "or target (of pairs) or date; or rows=KIND: text, messages, prompt, conversations or instruction. May be given many times."
        ),
    ] = None

    def fields(self, **usual: Any) -> Fields:
        """The fields, as Python takes them; `usual` are those that are taken without being named."""
        found = usual
        for text in self.field or ():
            role, _, name = text.partition("=")
            if not name or role not in Fields.__struct_fields__:
                roles = ", ".join(Fields.__struct_fields__)
                raise InputError(
                    f"--field takes a role and the name of its field, such as user=author, got {text!r}; roles are {roles}"
                )
            found[role] = name
        return Fields(**found)

    def into(self, options: Chosen) -> Chosen:
        """Options of something that reads a corpus, with these fields."""
        return msgspec.structs.replace(options, fields=self.fields())


def format_from(template: str, words: list[str] | None) -> Format:
    """A secret format, with the words of `--words` if it needs them."""
    from coalmine.formats.format import Format

    return Format(template, words=words if "{word:" in template or "{unseen:" in template else None)


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
    return [word for line in lines_of(path, "the list of words") if (word := line.strip())]


def lines_of(path: Path, what: str) -> list[str]:
    """The lines of a file that are not empty."""
    from coalmine.storage.files import read_text

    # As corpora are read: carriage returns do not belong to a text.
    lines = (line.removesuffix("\r") for line in read_text(path, what).split("\n"))
    return [line for line in lines if line]
