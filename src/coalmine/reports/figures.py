"""Which figures does a report have? Each of those for which the results are there, of each run, and one over all runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coalmine.audits.comparison.utility_figure import compared, utility_figure
from coalmine.audits.registry import audits
from coalmine.errors import MissingExtraError
from coalmine.evidence.figures import Figure, Spec
from coalmine.evidence.run import Run

__all__ = ["Figure", "figure_png", "figures_of", "utility_figures"]

PNG_WIDTH, PNG_SCALE = 720, 2


def figures_of(run: Run) -> list[Figure]:
    """The figures of one run."""
    return [figure for audit in audits() for figure in audit.figures(run)]


def utility_figures(runs: Sequence[Run]) -> list[Figure]:
    """The figures that compare runs."""
    comparison = compared(runs)
    figure = None if comparison is None else utility_figure(comparison)
    return [] if figure is None else [figure]


def figure_png(figure: Figure) -> bytes:
    """A figure in its usual drawing, for papers and slides."""
    try:
        import vl_convert
    except ImportError:
        raise MissingExtraError("drawing a figure", "vl-convert-python", "figures") from None
    drawing = as_one(figure)
    drawing["config"] = drawing["config"] | {"background": "white"}
    return bytes(vl_convert.vegalite_to_png(drawing, scale=PNG_SCALE, show_warnings=False))


def as_one(figure: Figure) -> Spec:
    """The panels of a figure below each other, in their usual drawing, as wide as a paper."""
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
