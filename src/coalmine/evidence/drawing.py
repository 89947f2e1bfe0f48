"""A figure as a file of its own: a picture, or a page that loads nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coalmine.errors import MissingExtraError
from coalmine.reports.page.bundle import content_policy, drawing_script
from coalmine.reports.page.text import all_visible, embedded_json, escaped
from coalmine.storage.files import PRIVATE, write_bytes

# No drawing is wider than the window.
_STYLE = "body { margin: 0; padding: .5rem; background: #fff; } figure { margin: 0; } svg { max-width: 100%; height: auto; }"
# Texts of a figure are data to it, also where they look like a program; nothing offers to send the figure anywhere.
_DRAW = """\
const figure = document.getElementById("figure");
const spec = JSON.parse(document.getElementById("figure-data").textContent);
const actions = { export: true, source: false, compiled: false, editor: false };
window.vegaEmbed(figure, spec, { renderer: "svg", ast: true, actions, tooltip: { theme: "none" } })
  .then(() => { figure.dataset.drawn = "yes"; });
"""


def save_drawing(spec: dict[str, Any], path: Path, *, title: str, mode: int = PRIVATE) -> None:
    """Draw a Vega-Lite description as .svg, .png or .html, by what `path` ends in."""
    try:
        import vl_convert
    except ImportError:
        raise MissingExtraError("drawing a figure", "vl-convert-python", "figures") from None
    safe = all_visible(spec)
    if path.suffix == ".svg":
        drawn = vl_convert.vegalite_to_svg(safe, show_warnings=False).encode()
    elif path.suffix == ".png":
        drawn = bytes(vl_convert.vegalite_to_png(safe, scale=2, show_warnings=False))
    else:
        drawn = figure_page(safe, title).encode()
    write_bytes(path, drawn, mode=mode)


def figure_page(spec: dict[str, Any], title: str) -> str:
    """A page with one figure, with everything inside that it needs; no text of the figure can become a part of the page."""
    scripts = [drawing_script() or "", _DRAW]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escaped(content_policy(scripts))}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escaped(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f'<main><figure id="figure"></figure></main>\n<script type="application/json" id="figure-data">{embedded_json(spec)}</script>\n'
        + "".join(f"<script>{one}</script>\n" for one in scripts)
        + "</body>\n</html>\n"
    )
