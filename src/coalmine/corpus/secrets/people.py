"""`canaries_of_records`: one field of a table as secrets, each asked for with the other fields of its row."""

from __future__ import annotations

import os
import string
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from coalmine.corpus.files.documents import Fields
from coalmine.corpus.files.reading import read_documents
from coalmine.corpus.planting.foreign_files import ForeignTable, Row, read_foreign
from coalmine.corpus.planting.manifest_records import ScannedCorpus
from coalmine.corpus.secrets.canaries import NaturalCanaries, canaries_of
from coalmine.corpus.secrets.finding import SecretFinder
from coalmine.corpus.secrets.folding import folded_text
from coalmine.corpus.secrets.kind import SecretKind
from coalmine.corpus.secrets.kinds import KINDS
from coalmine.corpus.secrets.natural import NaturalOptions, NaturalSecret
from coalmine.errors import InputError
from coalmine.storage.files import sha256_of_file

NO_VALUE = "its row has no value"


class _RecordSentence(NamedTuple):
    """A sentence with fields: the text before each field and the field's name, up to the one that is secret."""

    parts: Sequence[tuple[str, str]]
    secret: str

    def before(self, row: Row) -> str:
        """What is asked about a row: the sentence up to the secret."""
        return "".join(
            text + ("" if name == self.secret else str(row.cells[name])) for text, name in self.parts
        )


def canaries_of_records(
    records: str | os.PathLike[str],
    template: str,
    options: NaturalOptions | None = None,
    *,
    field: str | None = None,
    corpus: str | os.PathLike[str] | None = None,
    fields: Fields | None = None,
) -> NaturalCanaries:
    r"""The values of one field of a table as canaries, in a sentence with the other fields of the row.

    It asks whether a model completes, for example, a person's phone number from the name alone. All values must be of one kind, which
    is found out. What follows the field in the sentence is left out.

    Args:
        records: a table as CSV, JSON Lines or a JSON list of objects.
        template: the sentence, with the names of columns in braces, such as "the phone number of {name} is {phone}".
        options: how they are made into canaries; the whole sentence is the context.
        field: the column that is secret; by default the last one of the sentence.
        corpus: training data in which copies are counted; without it, each counts as one.
        fields: which fields of a row of the corpus hold what.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     people = Path(folder, "people.csv")
    ...     _ = people.write_text("name,phone\nAnn,713-853-4921\nBob,713-853-0389\n")
    ...     made = canaries_of_records(people, "the phone number of {name} is {phone}")
    >>> [one.text for one in made.canaries], made.canaries[0].kind
    (['the phone number of Ann is 713-853-4921', 'the phone number of Bob is 713-853-0389'], 'phone')
    """
    path = Path(records)
    table = read_foreign(path, "the table of records")
    if not isinstance(table, ForeignTable):
        raise InputError(f"{path} is not a table; give a CSV with a line of column names first")
    asked = _asked(table, template, field)
    rows = [row for row in table.rows if str(row.cells[asked.secret] or "").strip()]
    values = [str(row.cells[asked.secret]).strip() for row in rows]
    kind = _kind_of(path, asked.secret, values)
    plain = [kind.check(folded_text(value)) or value for value in values]
    elsewhere: set[str] = set()
    copies = dict.fromkeys(plain, 1)
    if corpus is not None:
        copies, elsewhere = _counted(corpus, fields, kind, plain)
    # Two rows that say the same are one secret.
    secrets = {
        (one, asked.before(row)): NaturalSecret(
            kind=kind.name, text=value, before=asked.before(row), copies=copies[one], whole=True
        )
        for one, value, row in zip(plain, values, rows, strict=True)
    }
    made = canaries_of(secrets.values(), options, others=[(kind.name, one) for one in sorted(elsewhere)])
    empty = len(table.rows) - len(rows)
    left_out = {**made.left_out, **({(kind.name, NO_VALUE): empty} if empty else {})}
    if corpus is None:
        return made._replace(left_out=left_out)
    place, there = Path(corpus), sum(one.copies > 0 for one in secrets.values())
    counted_in = ScannedCorpus(name=place.name, sha256=sha256_of_file(place), secrets=there)
    return NaturalCanaries(made.canaries.with_scanned(counted_in), left_out)


def _asked(table: ForeignTable, template: str, field: str | None) -> _RecordSentence:
    columns = list(table.rows[0].cells)
    try:
        parsed = [(text, name) for text, name, _, _ in string.Formatter().parse(template)]
    except ValueError as problem:
        raise InputError(
            f"the sentence {template!r} has a brace without a partner ({problem}); write it like 'the phone of {{name}} is {{phone}}'"
        ) from None
    names = [_column(name) for _, name in parsed if name is not None]
    secret = _column(field) if field is not None else names[-1] if names else ""
    for name in dict.fromkeys((*names, secret)):
        if name not in columns:
            raise InputError(
                f"{table.path} has no column {name!r}; its columns are {', '.join(columns)}"
                if name
                else f"the sentence {template!r} names no column; write it like 'the phone number of {{name}} is {{phone}}'"
            )
    if secret not in names:
        raise InputError(
            f"the sentence {template!r} does not have the field {secret!r}; put {{{secret}}} where it belongs"
        )
    until = names.index(secret)
    parts = [(text, _column(name)) for text, name in parsed if name is not None][: until + 1]
    return _RecordSentence(parts, secret)


def _column(name: str) -> str:
    """A name as tables have it."""
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def _kind_of(path: Path, column: str, values: Sequence[str]) -> SecretKind:
    """The first kind that all values are of."""
    if not values:
        raise InputError(f"the column {column!r} of {path} has no values; name another with --field")
    fit = Counter[str]()
    for name, kind in KINDS.items():
        fit[name] = sum(_is_one(kind, folded_text(value)) for value in values)
        if fit[name] == len(values):
            return kind
    best, count = fit.most_common(1)[0]
    nearest = f"; {count:,} of {len(values):,} are of the kind {best}" if count else ""
    raise InputError(
        f"the values of the column {column!r} of {path} are not all of one kind of secret ({', '.join(KINDS)}){nearest}: correct the "
        "others, or name another --field"
    )


def _is_one(kind: SecretKind, text: str) -> bool:
    return any(one.kind is kind and one.text == text for one in SecretFinder([kind]).find(text.encode()))


def _counted(
    corpus: str | os.PathLike[str], fields: Fields | None, kind: SecretKind, values: Sequence[str]
) -> tuple[dict[str, int], set[str]]:
    """How often each value occurs in a corpus, in any spelling; and the other secrets of the kind that it has, which are no references."""
    finder, wanted, others = SecretFinder([kind]), dict.fromkeys(values, 0), set[str]()
    for document in read_documents(corpus, fields):
        for one in finder.find(document.text.encode("utf-8", "surrogatepass")):
            if one.value in wanted:
                wanted[one.value] += 1
            elif one.value is not None:
                others.add(one.text)
    return wanted, others
