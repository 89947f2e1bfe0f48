"""`record_of`: where every number of a report comes from: the model, the commands, the versions and the files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from coalmine.evidence.details import Detail
from coalmine.evidence.run import Run
from coalmine.evidence.words import hidden
from coalmine.records.run_record import RUN_RECORDS

# Options whose value is, or may be, a part of a secret.
_SECRET_OPTIONS = frozenset({"--given"})


def record_of(run: Run, of_audits: Sequence[Detail], *, reveal: bool) -> list[Detail]:
    """The tables of the record, with those that the audits add to it."""
    tables = [
        Detail(
            section="",
            title="Model",
            columns=("fact", "value"),
            rows=[(name, _without_keys(_fact(value))) for name, value in (run.model or {}).items()],
            caption="How the model describes itself",
        ),
        _commands(run, reveal=reveal),
        *of_audits,
        Detail(
            section="",
            title="Files",
            columns=("file", "kind"),
            rows=[
                (run.shown(one.path), kind.schema)
                for part in (run, run.secrets)
                if part is not None
                for kind, these in part.documents.items()
                for one in these
            ],
            caption="Files that this report was made from",
        ),
    ]
    return [one for one in tables if one.rows]


def _commands(run: Run, *, reveal: bool) -> Detail:
    records = [one.document for one in run.all(RUN_RECORDS)]
    versions = {f"{name} {number}" for record in records for name, number in _versions(record)}
    return Detail(
        section="",
        title="Commands",
        note=f"Versions: {', '.join(sorted(versions))}.",
        columns=("command", "started", "seconds", "seed"),
        rows=[
            (
                _command(record, reveal=reveal),
                record.get("started_at"),
                record.get("elapsed_seconds"),
                record.get("seed"),
            )
            for record in records
        ],
        caption="Commands that made these results",
    )


def _command(record: dict[str, Any], *, reveal: bool) -> str:
    """The command as it was given, without the part of a secret that it was told."""
    given = record.get("command")
    words = [str(word) for word in given] if isinstance(given, list) else []
    if not reveal:
        for place, word in enumerate(words):
            name, equals, value = word.partition("=")
            if name in _SECRET_OPTIONS and equals:
                words[place] = f"{name}={hidden(value)}"
            elif word in _SECRET_OPTIONS and place + 1 < len(words):
                words[place + 1] = hidden(words[place + 1])
    return " ".join(words if reveal else map(_without_keys, words))


def _without_keys(text: str) -> str:
    """Text in which no address has a password or a query, either of which may be a key.

    >>> _without_keys("https://me:secret@host/v1?key=secret")
    'https://•@host/v1?•'
    """
    return re.sub(r"(://[^\s?#]*)\?[^\s#]+", r"\1?•", re.sub(r"://[^\s/?#@]*@", "://•@", text))


def _versions(record: dict[str, Any]) -> list[tuple[str, str]]:
    found = record.get("versions")
    return [(str(name), str(number)) for name, number in found.items()] if isinstance(found, dict) else []


def _fact(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 400 else text[:400] + " …"
