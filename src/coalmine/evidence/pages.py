"""What pages and pictures are made with: escaping templates, scripts that may run, JSON that does nothing, and figures as PNG."""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import os
import re
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from markupsafe import Markup, escape

from coalmine.errors import InputError, MissingExtraError
from coalmine.evidence.charts import Chart, as_one
from coalmine.storage.files import write_bytes
from coalmine.visible import visible

if TYPE_CHECKING:
    from jinja2 import Environment

# The name that the page calls; without it in the script, every figure would silently stay empty.
_NEEDED = "vegaEmbed"


def templates(package: str) -> Environment:
    """The templates of a package. Every value is made visible and escaped, unless it is Markup of our own making."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    parent, _, folder = package.rpartition(".")
    found = Environment(
        loader=PackageLoader(parent, folder),
        autoescape=True,
        finalize=escaped,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"prose": prose, "embedded": embedded_json}
    return found


def escaped(value: object) -> Markup:
    """A value as HTML shows it, with invisible characters made visible.

    >>> print(escaped("<script>alert('x')</script>"))
    &lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;
    """
    return value if isinstance(value, Markup) else escape(visible(str(value)))


def prose(text: str) -> Markup:
    """A sentence of ours, in which `this` is code; what it quotes from a run is escaped.

    >>> print(prose("Run `coalmine expose <x>`."))
    Run <code>coalmine expose &lt;x&gt;</code>.
    """
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escaped(text))))  # noqa: S704 - escaped before


def embedded_json(document: object) -> Markup:
    r"""JSON for a script element: no character in it can end the element.

    >>> print(embedded_json({"a": "</script>"}))
    {"a":"\u003c/script\u003e"}
    """
    text = msgspec.json.encode(document).decode()
    for character in ("<", ">", "&", "\u2028", "\u2029"):
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 - no character of markup is left


def all_visible(document: Any) -> Any:
    r"""The same document with every text in it visible, including the names of fields.

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


def content_policy(scripts: Sequence[str]) -> str:
    """Only these scripts run, whatever else might get into a page, and nothing may be loaded from anywhere."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in scripts
    )
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


@functools.cache
def drawing_script() -> str | None:
    """Vega, Vega-Lite and Vega-Embed as one script, from vl-convert; None if the extra "figures" is not installed.

    Putting them together takes seconds, so the script is kept in the user's cache if that can be written.
    """
    try:
        import vl_convert
    except ImportError:
        return None
    # RuntimeError: there is no home; UnicodeDecodeError: the cached script is damaged.
    with contextlib.suppress(OSError, RuntimeError, UnicodeDecodeError):
        kept = _kept().read_text(encoding="utf-8")
        if _NEEDED in kept:
            return kept
    script = str(vl_convert.javascript_bundle())  # type: ignore[call-arg]  # its stub forgets the default
    with contextlib.suppress(OSError, RuntimeError, InputError):
        write_bytes(_kept(), script.encode())
    return script


def _kept() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    cache = Path(home) if home else Path.home() / ".cache"
    return cache / "coalmine" / f"vega-embed-{version('vl-convert-python')}.js"


PNG_SCALE = 2


def png_of(chart: Chart) -> bytes:
    """A figure on its usual axes, for papers and slides."""
    try:
        import vl_convert
    except ImportError:
        raise MissingExtraError("drawing a figure", "vl-convert-python", "figures") from None
    return bytes(vl_convert.vegalite_to_png(as_one([chart]), scale=PNG_SCALE, show_warnings=False))
