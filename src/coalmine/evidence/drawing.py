"""Figures as files of their own: pictures, or pages that load nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from markupsafe import Markup

from coalmine.errors import MissingExtraError
from coalmine.evidence.charts import Chart, as_one
from coalmine.evidence.pages import all_visible, content_policy, drawing_script, templates
from coalmine.storage.files import PRIVATE, write_bytes

# Texts of a figure are data to it, even if they look like a program; nothing offers to send the figure anywhere.
_DRAW = """\
const figure = document.getElementById("figure");
const spec = JSON.parse(document.getElementById("figure-data").textContent);
const actions = { export: true, source: false, compiled: false, editor: false };
window.vegaEmbed(figure, spec, { renderer: "svg", ast: true, actions, tooltip: { theme: "none" } })
  .then(() => { figure.dataset.drawn = "yes"; });
"""


PNG_SCALE = 2


def png_of(chart: Chart) -> bytes:
    """A figure on its usual axes, for papers and slides."""
    return bytes(_converter().vegalite_to_png(as_one([chart]), scale=PNG_SCALE, show_warnings=False))


def _converter() -> Any:
    try:
        import vl_convert
    except ImportError:
        raise MissingExtraError("drawing a figure", "vl-convert-python", "figures") from None
    return vl_convert


def save_drawing(spec: dict[str, Any], path: Path, *, title: str, mode: int = PRIVATE) -> None:
    """Draw a Vega-Lite specification as .svg, .png or .html, depending on the suffix of `path`."""
    converter, safe = _converter(), all_visible(spec)
    if path.suffix == ".svg":
        drawn = converter.vegalite_to_svg(safe, show_warnings=False).encode()
    elif path.suffix == ".png":
        drawn = bytes(converter.vegalite_to_png(safe, scale=PNG_SCALE, show_warnings=False))
    else:
        drawn = figure_page(safe, title).encode()
    write_bytes(path, drawn, mode=mode)


def figure_page(spec: dict[str, Any], title: str) -> str:
    """A page with one figure and everything that it needs; no text of the figure can become a part of the page."""
    scripts = [drawing_script() or "", _DRAW]
    return (
        templates("coalmine.evidence")
        .get_template("figure.html")
        .render(
            policy=content_policy(scripts),
            title=title,
            spec=spec,
            scripts=[Markup(one) for one in scripts],  # noqa: S704 - our own
        )
    )
