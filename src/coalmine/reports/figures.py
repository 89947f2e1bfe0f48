"""The figures of a report: those of each run, those that compare runs, and each as a PNG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coalmine.audits.registry import COMPARISONS, audits
from coalmine.errors import MissingExtraError
from coalmine.evidence.figures import Figure, Spec
from coalmine.evidence.run import Run

__all__ = ["Figure", "comparing_figures", "figure_png", "figures_of"]

PNG_WIDTH, PNG_SCALE = 720, 2


def figures_of(run: Run) -> list[Figure]:
    """The figures of one run."""
    return [figure for audit in audits() for figure in audit.figures(run) if figure is not None]


def comparing_figures(runs: Sequence[Run]) -> list[Figure]:
    """The figures that compare runs."""
    found = (one.across(runs) for one in COMPARISONS)
    return [figure for one in found if one is not None for figure in one.figures]


def figure_png(figure: Figure) -> bytes:
    """A figure on its usual axes, for papers and slides."""
    try:
        import vl_convert
    except ImportError:
        raise MissingExtraError("drawing a figure", "vl-convert-python", "figures") from None
    drawing = as_one(figure)
    drawing["config"] = drawing["config"] | {"background": "white"}
    return bytes(vl_convert.vegalite_to_png(drawing, scale=PNG_SCALE, show_warnings=False))


def as_one(figure: Figure) -> Spec:
    """The panels of a figure below each other, on their usual axes, as wide as a paper."""
    views: list[Spec] = []
    datasets: dict[str, Any] = {}
    whole: Spec = {}
    for place, panel in enumerate(figure.panels):
        drawing = dict(next(iter(panel.specs.values())))
        whole = {name: drawing.pop(name) for name in ("$schema", "config", "description")}
        # What a reader could choose is the same for all panels.
        whole |= {"params": drawing.pop("params")} if "params" in drawing else {}
        datasets |= {f"{name}-{place}": rows for name, rows in panel.datasets.items()}
        layers = [
            layer | {"data": {"name": f"{layer['data']['name']}-{place}"}}
            if "name" in layer["data"]
            else layer
            for layer in drawing.pop("layer")
        ]
        # A page has a width to fill, a file needs one of its own.
        drawing |= {"width": PNG_WIDTH, "layer": layers}
        del drawing["autosize"]
        views.append(drawing | ({"title": panel.title} if panel.title else {}))
    return whole | {
        "vconcat": views,
        "datasets": datasets,
        "resolve": {"scale": {"color": "independent", "shape": "independent"}},
    }
