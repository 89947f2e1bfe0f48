"""Importing canaries that another tool planted: memaudit, TensorFlow Privacy's secret sharer, or a table of texts.

- memaudit: `memaudit-manifest.json`, what its `inject` returned.
- TensorFlow Privacy: a `SecretsSet` as JSON (`dataclasses.asdict`), with its pattern and vocabulary.
- a table (CSV, JSON Lines or a JSON list of objects) with columns `text`, `in_out`, and where they differ `copies`.
"""

from __future__ import annotations

import os
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coalmine.corpus.planting.foreign_files import (
    COPIES_COLUMNS,
    SIDE_COLUMNS,
    ForeignTable,
    Probability,
    copies_of,
    number_of_copies,
    read_foreign,
    shaped,
    side_of,
)
from coalmine.corpus.planting.manifest import CanarySet, numbered
from coalmine.corpus.planting.options import ImportOptions
from coalmine.errors import FormatError, InputError, ManifestError
from coalmine.formats.format import Format

TEXT_COLUMNS = ("text", "canary", "secret", "sequence")
ID_COLUMNS = ("canary_id", "id", "name")
# The fields that a SecretsSet of TensorFlow Privacy is known by.
_SECRETS_SET_FIELDS = {"config", "secrets", "references"}
# What memaudit 0.2 writes before a secret, by the kind of record that it makes.
_MEMAUDIT_PREFIXES = {
    "text": "MEMAUDIT RECOVERY PHRASE: ",
    "prompt_completion": "Your recovery phrase is ",
    "messages": "Your recovery phrase is ",
}


class _MemauditCanary(msgspec.Struct, frozen=True):
    id: str
    secret: str
    role: str
    included: bool
    repetitions: int


class _MemauditManifest(msgspec.Struct, frozen=True):
    """What is read of memaudit-manifest.json."""

    fmt: str
    include_prob: Probability
    canaries: tuple[_MemauditCanary, ...]


class _Properties(msgspec.Struct, frozen=True):
    pattern: str | None = None
    vocab: tuple[str, ...] | None = None


class _SecretConfig(msgspec.Struct, frozen=True):
    properties: _Properties | None = None


class _SecretsSet(msgspec.Struct, frozen=True):
    """What is read of a SecretsSet."""

    config: _SecretConfig | None
    secrets: dict[str, tuple[str, ...]]
    references: tuple[str, ...]


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """Canaries of another tool, and what was assumed about them."""

    canaries: CanarySet
    # The tool that wrote the file, as far as its structure shows.
    tool: str
    # One sentence each; none of them shows a secret.
    notes: tuple[str, ...]


class _FoundCanaries(NamedTuple):
    """What a file says, before it is a set of canaries."""

    tool: str
    # (id, text, copies, planted)
    canaries: Sequence[tuple[str | None, str, int, bool]]
    references: Sequence[str]
    withhold: float | None
    secret: Format | None
    notes: tuple[str, ...] = ()


def import_canaries(
    file: str | os.PathLike[str],
    *,
    options: ImportOptions | None = None,
    **changes: Any,
) -> Imported:
    r"""The canaries in a file of another tool, with the copies that each had or was meant to have.

    Without a format, the texts are kept as a list of their own: they can be compared with each other, by `membership` and by exposure
    among references, but no space is known that they were drawn from, so there is no rank in it, and nothing to extract.

    Args:
        file: its content decides what kind it is.
        options: what the file does not say: the format of all texts, and the probability of the coin.
        changes: fields of `ImportOptions` by name, such as `format="pin {digits:2}"` or `withhold=0.5`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = Path(folder, "canaries.csv")
    ...     _ = table.write_text("text,in_out,copies\npin 12,in,4\npin 93,out,4\n")
    ...     imported = import_canaries(table, format="pin {digits:2}", withhold=0.5)
    >>> [(canary.text, canary.times_trained_on) for canary in imported.canaries]
    [('pin 12', 4), ('pin 93', 0)]
    """
    chosen = ImportOptions.of(options, changes)
    given = Format(chosen.format) if isinstance(chosen.format, str) else chosen.format
    place = Path(file)
    return _imported(place, _with_coin(place, _read(place), chosen.withhold), given)


def _with_coin(path: Path, found: _FoundCanaries, withhold: float | None) -> _FoundCanaries:
    """What a file says, with the probability that was given where it says none."""
    if withhold is None:
        return found
    if found.withhold not in {None, withhold}:
        raise InputError(
            f"{path} says that a coin withheld with probability {found.withhold:g}, and {withhold:g} was given; leave it out"
        )
    return found._replace(withhold=withhold)


def _imported(path: Path, found: _FoundCanaries, given: Format | None) -> Imported:
    notes = list(found.notes)
    form = found.secret if given is None else given
    listed = form is None
    if form is None:
        form = _list_of(path, [*(text for _, text, _, _ in found.canaries), *found.references])
        notes.append(
            "no format is known, so the texts are a list: membership and exposure among references can be measured, but ranks among all "
            "possible secrets and extraction cannot; give --format if the texts were drawn from one"
        )
    if found.withhold is None:
        notes.append(
            "the file does not say that a coin decided which canaries were planted, so one training run shows nothing about epsilon; give "
            "--withhold if there was one"
        )
    try:
        canaries = CanarySet(
            numbered(found.canaries),
            {"f0": form},
            references={"f0": list(found.references)},
            withhold=found.withhold,
            listed=["f0"] if listed else [],
        )
    except ManifestError as error:
        raise ManifestError(f"{path}: {error}") from None
    return Imported(canaries=canaries, tool=found.tool, notes=tuple(notes))


def _read(path: Path) -> _FoundCanaries:
    document = read_foreign(path, "the file of canaries")
    if isinstance(document, ForeignTable) and document.rows[0].cells.keys() >= _SECRETS_SET_FIELDS:
        if len(document.rows) > 1:
            raise InputError(
                f"{path} has {len(document.rows)} sets of secrets; put each into a file of its own"
            )
        return _from_secrets_set(path, document.rows[0].cells)
    if isinstance(document, ForeignTable):
        return _from_table(document)
    if isinstance(document, dict):
        if "canaries" in document and "include_prob" in document:
            return _from_memaudit(path, document)
        if document.keys() >= _SECRETS_SET_FIELDS:
            return _from_secrets_set(path, document)
        if str(document.get("schema", "")).startswith("coalmine."):
            raise InputError(f"{path} is a file of coalmine itself; use it as it is")
    raise InputError(
        f"{path} is neither a manifest of memaudit, nor a SecretsSet of TensorFlow Privacy, nor a table; give a CSV with the columns "
        "text, in_out and copies"
    )


def _from_table(table: ForeignTable) -> _FoundCanaries:
    text = table.needed(TEXT_COLUMNS, "the texts")
    side = table.needed(SIDE_COLUMNS, "what was trained on")
    copies = table.column(COPIES_COLUMNS, "the number of copies")
    names = table.column(ID_COLUMNS, "ids")
    canaries, references = [], []
    for row in table.rows:
        written = row.cells[text]
        if not isinstance(written, str) or not written:
            raise InputError(f"{row.where} of {table.path} has no text in the column {text}; leave it out")
        where = side_of(row, side, table.path)
        if where == "reference":
            references.append(written)
        else:
            name = None if names is None else str(row.cells[names])
            canaries.append((name, written, copies_of(row, copies, table.path), where == "in"))
    notes = () if copies is not None else ("no column says how many copies, so each counts as one",)
    return _FoundCanaries("a table", canaries, references, None, None, notes)


def _from_memaudit(path: Path, document: Mapping[str, Any]) -> _FoundCanaries:
    found = shaped(path, document, _MemauditManifest, "a manifest of memaudit")
    if found.fmt not in _MEMAUDIT_PREFIXES:
        raise InputError(
            f"{path} has records of a kind that is not known (its fmt); give a CSV with the texts as they were trained on"
        )
    prefix = _MEMAUDIT_PREFIXES[found.fmt]
    references = [prefix + one.secret for one in found.canaries if one.role == "control"]
    canaries = [
        (one.id, prefix + one.secret, one.repetitions, one.included)
        for one in found.canaries
        if one.role != "control"
    ]
    answers = (
        f"the records were {found.fmt}, and what the model read before the answer depends on the trainer's template; here each text is "
        "the answer alone"
    )
    notes = () if found.fmt == "text" else (answers,)
    return _FoundCanaries("memaudit", canaries, references, 1.0 - found.include_prob, None, notes)


def _from_secrets_set(path: Path, document: Mapping[str, Any]) -> _FoundCanaries:
    """Of TensorFlow Privacy: secrets by how often they were inserted, and references that were not."""
    found = shaped(path, document, _SecretsSet, "a SecretsSet of TensorFlow Privacy")
    canaries = [
        (None, text, number_of_copies(path, copies), True)
        for copies, texts in found.secrets.items()
        for text in texts
    ]
    secret = None
    properties = None if found.config is None else found.config.properties
    if properties is not None and properties.pattern is not None and properties.vocab is not None:
        secret = _format_of_pattern(properties.pattern, properties.vocab)
    # A text with 0 copies was not inserted.
    references = [*found.references, *(text for _, text, copies, _ in canaries if copies == 0)]
    return _FoundCanaries("TensorFlow Privacy", [one for one in canaries if one[2]], references, None, secret)


def _format_of_pattern(pattern: str, vocabulary: Sequence[str]) -> Format | None:
    """The format of a pattern such as "my pin is {}{}", each place of which holds one of the vocabulary.

    >>> _format_of_pattern("my pin is {}{}", list("0123456789")).template
    'my pin is {digits:1}{digits:1}'
    """
    plain = all(not set(word) & set("{}|") for word in vocabulary)
    hole = "{digits:1}" if sorted(vocabulary) == list(string.digits) else f"{{choice:{'|'.join(vocabulary)}}}"
    try:
        parts = [
            _escaped(literal) + ("" if name is None else hole)
            for literal, name, _, _ in string.Formatter().parse(pattern)
        ]
        return Format("".join(parts)) if plain else None
    except (ValueError, FormatError):
        return None


def _list_of(path: Path, texts: Sequence[str]) -> Format:
    """A format that makes these texts and no others."""
    if len(set(texts)) < 2:
        raise ManifestError(
            f"{path} has {len(set(texts))} different texts, too few to be compared with each other; give more"
        )
    # The template goes into tables and reports, so what the texts have in common, which may be most of a secret, is not in it.
    return Format("{word:1}", words=sorted(set(texts)))


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
