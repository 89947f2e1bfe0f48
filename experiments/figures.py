"""Draws the figures of the documents from the results of the experiments, without a model.

python experiments/figures.py
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import altair as alt
from provenance_figures import draw_provenance

from coalmine.storage.files import whole_file

RESULTS = Path(__file__).parent / "results"
FIGURES = Path(__file__).parents[1] / "docs" / "figures"
# Errors of 0 have no place on a logarithmic axis: they are drawn on a line below the smallest of the others.
ZERO_BITS, SMALLEST_BITS, LARGEST_BITS = 0.001, 0.002, 60
# Name, color and dash of each series, in the order of the legend; colors are apart for readers who see red and green alike.
SERIES = {
    "guided": ("#0072B2", [1, 0]),
    "guided after 1,000 expansions": ("#56B4E9", [1, 0]),
    "bounded": ("#000000", [1, 0]),
    "exact": ("#000000", [1, 0]),
    "sampled": ("#D55E00", [1, 0]),
    "references": ("#E69F00", [5, 3]),
    "extrapolated": ("#CC79A7", [1, 0]),
}
PANELS_A_ROW = 4
# Of the simulated schedules: sweep, column across, its title, column of the lines, title of the panel.
SWEEPS = (
    ("workers", "workers", "workers", "unit_seconds", "more workers, no failures"),
    (
        "failures",
        "failures_per_worker_hour",
        "failures per worker and hour",
        "unit_seconds",
        "1,000 workers that fail",
    ),
    (
        "bandwidth",
        "gigabits_per_second",
        "Gbit/s to the driver",
        "result_bytes",
        "1,000 workers, units of 10 s",
    ),
)
ENGINE = "ray"
LEGENDS = {"unit_seconds": "seconds per unit", "result_bytes": "bytes per unit, and per result"}
LINES = {
    "unit_seconds": {0.1: "#D55E00", 1.0: "#E69F00", 10.0: "#0072B2", 60.0: "#56B4E9", 600.0: "#000000"},
    "result_bytes": {1e4: "#0072B2", 1e6: "#E69F00", 1e8: "#000000"},
}
LABELS = {"unit_seconds": "datum.value", "result_bytes": "format(datum.value, ',')"}
FONT = "Helvetica, Arial, sans-serif"


def draw_estimators(results: Path, figures: Path, png: Path | None = None) -> None:
    """Error against tokens read, a panel for each rank: estimators.svg in `figures`, and on request a .png to look at."""
    points = _curves(results)
    ranks = sorted({point["rank"] for point in points})
    rows = [
        alt.hconcat(*(_panel(points, rank, first=place == 0) for place, rank in enumerate(part)), spacing=14)
        for part in (ranks[start : start + PANELS_A_ROW] for start in range(0, len(ranks), PANELS_A_ROW))
    ]
    # The last row has room beside its panels for the legend.
    rows[-1] = alt.hconcat(rows[-1], _legend(), spacing=40)
    chart = styled(alt.vconcat(*rows, spacing=18))
    save(chart, "estimators", figures, png)


def draw_scheduling(results: Path, figures: Path, png: Path | None = None) -> None:
    """How much of their time workers compute, against their number, their failures and the network: scheduling.svg in `figures`."""
    with open(results, encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["engine"] == ENGINE]
    panels = []
    for place, (sweep, x, title, series, label) in enumerate(SWEEPS):
        own = [
            {"x": float(row[x]), "share": float(row["efficiency"]), "series": float(row[series])}
            for row in rows
            if row["sweep"] == sweep and float(row[x]) > 0  # a logarithmic axis has no 0
        ]
        base = alt.Chart(alt.Data(values=own), width=250, height=200, title=label)
        across = alt.X(
            "x:Q",
            scale=alt.Scale(type="log", nice=False),
            axis=alt.Axis(title=title, values=[10.0**power for power in range(-2, 5)], format=","),
        )
        up = alt.Y(
            "share:Q",
            scale=alt.Scale(domain=[0, 1], clamp=True),
            axis=alt.Axis(
                title="share of their time that workers compute" if place == 0 else None, format="%"
            ),
        )
        styles = {
            one: color for one, color in LINES[series].items() if any(row["series"] == one for row in own)
        }
        color = alt.Color(
            "series:O",
            scale=alt.Scale(domain=list(styles), range=list(styles.values())),
            legend=alt.Legend(title=LEGENDS[series], orient="bottom", labelExpr=LABELS[series]),
        )
        panels.append(
            alt.layer(
                base.mark_line(strokeWidth=1.8).encode(across, up, color),
                base.mark_point(filled=True, size=22, opacity=1).encode(across, up, color),
            )
        )
    chart = alt.hconcat(*panels, spacing=24).resolve_scale(color="independent")
    save(styled(chart), "scheduling", figures, png)


def save(chart: Any, name: str, figures: Path, png: Path | None) -> None:
    """Write a chart as .svg, and as .png where a directory for it is given."""
    for kind, folder in (("svg", figures), ("png", png)):
        if folder is not None:
            with whole_file(folder / f"{name}.{kind}") as temporary:
                chart.save(str(temporary), format=kind, scale_factor=2 if kind == "png" else 1)


def styled(chart: Any) -> Any:
    """A chart with the font and the colors of all figures of the documents."""
    return chart.configure(
        font=FONT,
        background="white",
        aria=False,  # the page says what the figure shows; a label for each point would only make the file larger
        view={"stroke": "#cccccc"},
        axis={"gridColor": "#eeeeee", "labelFontSize": 11, "titleFontSize": 12, "titleFontWeight": "normal"},
        title={"fontSize": 13, "fontWeight": "bold", "anchor": "start", "frame": "group", "offset": 6},
    )


def _curves(results: Path) -> list[dict[str, Any]]:
    points = []
    with open(results, encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            if row["part"] != "curves":
                continue
            error = float(row["rms_error_bits"])
            searched = row["method"] == "guided" and int(row["budget"]) > 1
            points.append(
                {
                    "series": "guided after 1,000 expansions" if searched else row["method"],
                    "rank": int(row["rank"]),
                    "tokens": float(row["tokens"]),
                    # What is left of 0 after logarithms is rounding.
                    "error": ZERO_BITS if error < 1e-6 else max(error, SMALLEST_BITS),
                }
            )
    return points


def _panel(points: list[dict[str, Any]], rank: int, *, first: bool) -> Any:
    own = [point for point in points if point["rank"] == rank]
    base = alt.Chart(alt.Data(values=own), width=190, height=190, title=f"rank {_rounded(rank):,}")
    x = alt.X(
        "tokens:Q",
        scale=alt.Scale(type="log", domain=[50, 1_000_000], nice=False),
        axis=alt.Axis(
            values=[100, 1_000, 10_000, 100_000, 1_000_000],
            labelExpr="datum.value >= 1e6 ? '1M' : datum.value >= 1e3 ? datum.value / 1e3 + 'k' : datum.value",
            title="tokens read by the model",
        ),
    )
    y = alt.Y(
        "error:Q",
        scale=alt.Scale(type="log", domain=[ZERO_BITS * 0.8, LARGEST_BITS], nice=False),
        axis=alt.Axis(
            values=[ZERO_BITS, 0.01, 0.1, 1, 10],
            labelExpr=f"datum.value <= {ZERO_BITS} ? '0' : datum.value",
            title="error (bits, root mean square)" if first else None,
            labels=first,
            ticks=first,
        ),
    )
    color = alt.Color("series:N", scale=_scale(0), legend=None)
    dash = alt.StrokeDash("series:N", scale=_scale(1), legend=None)
    lines = (
        base.transform_filter("datum.series != 'exact'").mark_line(strokeWidth=1.8).encode(x, y, color, dash)
    )
    dots = base.transform_filter("datum.series != 'exact'").mark_point(filled=True, size=22, opacity=1)
    one = base.transform_filter("datum.series == 'exact'").mark_point(
        filled=True, size=110, shape="diamond", opacity=1
    )
    return alt.layer(lines, dots.encode(x, y, color), one.encode(x, y, color))


def _legend() -> Any:
    """Drawn as a chart, because the legend of a concatenation stands where it widens the whole."""
    entries = [{"series": name, "place": place} for place, name in enumerate(SERIES)]
    base = alt.Chart(alt.Data(values=entries), width=180, height=190).encode(y=alt.Y("place:O", axis=None))
    ends = base.transform_filter("datum.series != 'exact'").transform_calculate(left="0", right="1")
    none = alt.X("left:Q", axis=None, scale=alt.Scale(domain=[0, 7]))
    color = alt.Color("series:N", scale=_scale(0), legend=None)
    lines = ends.mark_rule(strokeWidth=2.2).encode(
        x=none,
        x2="right:Q",
        color=color,
        strokeDash=alt.StrokeDash("series:N", scale=_scale(1), legend=None),
    )
    middle = alt.X("left:Q", axis=None, scale=alt.Scale(domain=[0, 7]))
    diamond = (
        base.transform_filter("datum.series == 'exact'")
        .transform_calculate(left="0.5")
        .mark_point(filled=True, size=110, shape="diamond", opacity=1)
        .encode(x=middle, color=color)
    )
    names = (
        base.transform_calculate(left="1.4")
        .mark_text(align="left", fontSize=12)
        .encode(x=middle, text="series:N")
    )
    return alt.layer(lines, diamond, names).properties(view={"stroke": None})


def _scale(which: int) -> Any:
    return alt.Scale(domain=list(SERIES), range=[style[which] for style in SERIES.values()])


def _rounded(rank: int) -> int:
    """Ties make a rank such as 500,002 of what was meant to be 500,000."""
    digits = len(str(rank))
    return round(rank, 2 - digits) if digits > 3 else rank


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--png", type=Path, help="directory for a .png to look at")
    folder = parser.parse_args().png
    draw_estimators(RESULTS / "estimators.csv", FIGURES, folder)
    draw_scheduling(RESULTS / "scheduling.csv", FIGURES, folder)
    draw_provenance(RESULTS, FIGURES, folder)
