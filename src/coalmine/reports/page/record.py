"""Where did every number of a report come from? The model, the commands, the formats and the files, as a part of the page."""

from __future__ import annotations

import re
from typing import Any

from coalmine.reports.page.text import escaped, hidden, table
from coalmine.reports.runs.reading import Located, Run

# Options whose value is, or may be, a part of a secret.
_TELLS_SECRETS = frozenset({"--given"})


def record_part(run: Run, *, reveal: bool) -> str:
    """Where every number came from: files, commands, versions, hashes."""
    model = run.model or {}
    facts = [(name, _without_keys(_fact(value))) for name, value in model.items()]
    files = [
        (run.shown(one.path), getattr(one.document, "schema", "") or _schema(one))
        for group in (
            run.exposures,
            run.extractions,
            run.verifications,
            run.memberships,
            run.recitations,
            run.trainings,
            run.watches,
            run.manifests,
            run.records,
        )
        for one in group
    ]
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
        for one in run.records
    ]
    if commands:
        columns: tuple[str, ...] = ("command", "started", "seconds", "seed")
        parts.append(
            "<h4>Commands</h4>" + table(columns, commands, caption="Commands that made these results")
        )
        versions = {f"{name} {number}" for one in run.records for name, number in _versions(one.document)}
        parts.append(f'<p class="quiet">Versions: {escaped(", ".join(sorted(versions)))}.</p>')
    if run.exposure is not None:
        methods = [
            (one.format_id, one.template, one.size, one.method, one.why) for one in run.exposure.formats
        ]
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


def _schema(one: Located[Any]) -> str:
    if isinstance(one.document, dict):
        return str(one.document.get("schema", ""))
    return "coalmine.canaries/1"


def _fact(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 400 else text[:400] + " …"
