"""Where does the page get what draws its figures? From vl-convert, which carries Vega; made once, and kept for the next report."""

from __future__ import annotations

import contextlib
import functools
import os
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from coalmine.errors import InputError
from coalmine.files import write_bytes


@functools.cache
def drawing_script() -> str | None:
    """Vega, Vega-Lite and Vega-Embed as one script; None where the extra "figures" is not installed.

    Putting them together takes seconds, so the script is kept in the user's cache. A cache that cannot be written is no cache.
    """
    try:
        import vl_convert
    except ImportError:
        return None
    kept = _cache() / f"vega-embed-{version('vl-convert-python')}.js"
    try:
        return kept.read_text(encoding="utf-8")
    except OSError:
        script = str(vl_convert.javascript_bundle())  # type: ignore[call-arg]  # its stub forgets the default
    with contextlib.suppress(OSError, InputError):
        write_bytes(kept, script.encode())
    return script


def page_file(name: str) -> str:
    """A style sheet or script of the page."""
    return files("coalmine.reports").joinpath("page", name).read_text(encoding="utf-8")


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "coalmine"
