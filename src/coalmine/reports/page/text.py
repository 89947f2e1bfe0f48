"""How does text of a run get into a page? Escaped, so that nothing that a model or a manifest says can do anything."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from coalmine.audits.extraction.results import masked
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.errors import FormatError
from coalmine.formats.format import Format
from coalmine.visible import visible


def escaped(text: object) -> str:
    """Text as HTML shows it.

    >>> escaped("<script>alert('x')</script>")
    '&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;'
    """
    return html.escape(visible(str(text)), quote=True)


def prose(text: str) -> str:
    """A sentence of ours, in which `this` is code; what it quotes of a run is escaped.

    >>> prose("Run `coalmine expose <x>`.")
    'Run <code>coalmine expose &lt;x&gt;</code>.'
    """
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped(text))


def embedded_json(document: object) -> str:
    r"""JSON that can stand inside a script element: no character in it can end one.

    >>> embedded_json({"a": "</script>"})
    '{"a":"\\u003c/script\\u003e"}'
    """
    text = msgspec.json.encode(document).decode()
    for character in ("<", ">", "&", "\u2028", "\u2029"):
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def all_visible(document: Any) -> Any:
    r"""The same document with every text in it visible, also where it is a name.

    >>> all_visible({"a": ["\x07", 1, None]})
    {'a': ['\\x07', 1, None]}
    """
    if isinstance(document, str):
        return document if document.isprintable() else visible(document)
    if isinstance(document, dict):
        return {visible(name): all_visible(value) for name, value in document.items()}
    if isinstance(document, list | tuple):
        return [all_visible(value) for value in document]
    return document


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, caption: str) -> str:
    """A plain table; numbers are aligned to the right."""
    head = "".join(f'<th scope="col">{escaped(name)}</th>' for name in columns)
    body = "".join(
        "<tr>"
        + "".join(f"<td{' class=number' if _is_number(cell) else ''}>{shown(cell)}</td>" for cell in row)
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escaped(caption)}"><table>'
        f'<caption class="unseen">{escaped(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def shown(cell: object) -> str:
    """A cell as a reader sees it."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, float):
        return f"{cell:,.4g}" if abs(cell) < 1 else f"{cell:,.2f}"
    return escaped(cell)


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def hidden_member(text: str, template: str, canaries: CanarySet | None) -> str:
    """A member of a format with all but what every member shares hidden; all of it where the format is not known, or only a list."""
    same = (
        [] if canaries is None else [one for one in canaries.formats.items() if one[1].template == template]
    )
    if canaries is not None and any(format_id in canaries.listed for format_id, _ in same):
        return hidden(text)
    formats = [form for _, form in same]
    try:
        form = formats[0] if formats else Format(template)
    except FormatError:
        return hidden(text)
    return masked(text, form) if text.startswith(form.prefix) else hidden(text)


def hidden(text: str) -> str:
    """Text of which only the length shows."""
    return "•" * len(text)
