"""Where does the page get what draws its figures? From vl-convert, which carries Vega; made once, and kept for the next report."""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import os
from collections.abc import Sequence
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from coalmine.errors import InputError
from coalmine.storage.files import write_bytes

# The name that the page calls; a script without it would leave every figure empty without a word.
_NEEDED = "vegaEmbed"


@functools.cache
def drawing_script() -> str | None:
    """Vega, Vega-Lite and Vega-Embed as one script; None where the extra "figures" is not installed.

    Putting them together takes seconds, so the script is kept in the user's cache. A cache that cannot be written is no cache.
    """
    try:
        import vl_convert
    except ImportError:
        return None
    # RuntimeError: there is no home; UnicodeDecodeError: what was kept is damaged.
    with contextlib.suppress(OSError, RuntimeError, UnicodeDecodeError):
        kept = _kept().read_text(encoding="utf-8")
        if _NEEDED in kept:
            return kept
    script = str(vl_convert.javascript_bundle())  # type: ignore[call-arg]  # its stub forgets the default
    with contextlib.suppress(OSError, RuntimeError, InputError):
        write_bytes(_kept(), script.encode())
    return script


def content_policy(scripts: Sequence[str]) -> str:
    """Only these scripts run, whatever else might get into a page, and nothing may be loaded from anywhere."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in scripts
    )
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def page_file(name: str) -> str:
    """A style sheet or script of the page."""
    return files("coalmine.reports").joinpath("page", name).read_text(encoding="utf-8")


def _kept() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    cache = Path(home) if home else Path.home() / ".cache"
    return cache / "coalmine" / f"vega-embed-{version('vl-convert-python')}.js"
