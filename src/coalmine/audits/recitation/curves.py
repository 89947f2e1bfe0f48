"""`draw_recitation`: recitation as a file: the share by repetitions, context and model size, with intervals and fitted lines."""

from __future__ import annotations

from pathlib import Path

from coalmine.audits.recitation.figures import recitation_charts
from coalmine.audits.recitation.results import Recitation
from coalmine.evidence.charts import as_one
from coalmine.evidence.drawing import save_drawing

FIGURE_NAME = "recitation"
FIGURE_FILES = (f"{FIGURE_NAME}.html", f"{FIGURE_NAME}.svg")


def draw_recitation(
    result: Recitation, directory: Path, *, kinds: tuple[str, ...] = ("html", "svg")
) -> list[Path]:
    """Write recitation.html and recitation.svg; a .png only if `kinds` names it."""
    paths = [directory / f"{FIGURE_NAME}.{kind}" for kind in kinds]
    for path in paths:
        # A picture is for paper, and a page may be read on a phone.
        charts = recitation_charts(result, whatever=True)
        drawing = as_one(charts, columns=1 if path.suffix == ".html" else 3, width=250)
        save_drawing(drawing, path, title=f"Recitation of {', '.join(facts.name for facts in result.models)}")
    return paths
