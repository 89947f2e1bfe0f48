"""Where did every number of a report come from? The model, the commands, the formats and the files, as a part of the page."""

from __future__ import annotations

import re
from typing import Any

from coalmine.audits.exposure.results import EXPOSURES
from coalmine.evidence.run import Run
from coalmine.records.run_record import RUN_RECORDS
from coalmine.reports.page.text import escaped, hidden, table

# Options whose value is, or may be, a part of a secret.
_TELLS_SECRETS = frozenset({"--given"})


def record_part(run: Run, *, reveal: bool) -> str:
    """Where every number came from: files, commands, versions, hashes."""
    model = run.model or {}
    facts = [(name, _without_keys(_fact(value))) for name, value in model.items()]
    files = [(run.shown(one.path), kind.schema) for kind, these in run.documents.items() for one in these]
    parts = []
    if facts:
        parts.append(
            "<h4>Model</h4>" + table(("fact", "value"), facts, caption="What the model says of itself")
        )
    commands = [
        (
            _command(one.document, reveal=reveal),
            one.document.get("started_at"),
            one.document.get("elapsed_seconds"),
            one.document.get("seed"),
        )
        for one in run.all(RUN_RECORDS)
    ]
    if commands:
        columns: tuple[str, ...] = ("command", "started", "seconds", "seed")
        parts.append(
            "<h4>Commands</h4>" + table(columns, commands, caption="Commands that made these results")
        )
        versions = {
            f"{name} {number}" for one in run.all(RUN_RECORDS) for name, number in _versions(one.document)
        }
        parts.append(f'<p class="quiet">Versions: {escaped(", ".join(sorted(versions)))}.</p>')
    exposure = run.first(EXPOSURES)
    if exposure is not None:
        methods = [(one.format_id, one.template, one.size, one.method, one.why) for one in exposure.formats]
        columns = ("format", "template", "members", "method", "because")
        parts.append(
            "<h4>Formats</h4>" + table(columns, methods, caption="Formats and how they were measured")
        )
    parts.append(
        "<h4>Files</h4>" + table(("file", "kind"), files, caption="Files that this report was made from")
    )
    return "".join(parts)


def _command(record: dict[str, Any], *, reveal: bool) -> str:
    """The command as it was given, without the part of a secret that it was told."""
    given = record.get("command")
    words = [str(word) for word in given] if isinstance(given, list) else []
    if not reveal:
        for place, word in enumerate(words):
            name, equals, value = word.partition("=")
            if name in _TELLS_SECRETS and equals:
                words[place] = f"{name}={hidden(value)}"
            elif word in _TELLS_SECRETS and place + 1 < len(words):
                words[place + 1] = hidden(words[place + 1])
    return " ".join(words if reveal else map(_without_keys, words))


def _without_keys(text: str) -> str:
    """Text in which no address carries a password or a query, either of which may be a key.

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
