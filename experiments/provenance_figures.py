"""The figures of the provenance paper, drawn from the rows of `provenance_paper.py`: queries, outputs, noise, words and ablation."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
from provenance_tables import LISTING, PAPER_OUTPUTS, STATISTICS, TASKS, TOPS

# Colors are apart for readers who see red and green alike.
COLORS = dict(zip(STATISTICS, ("#0072B2", "#D55E00", "#E69F00", "#CC79A7", "#000000"), strict=True))
SIDES = {"members": "#D55E00", "non-members": "#0072B2"}
WIDTH, HEIGHT = 210, 190
Row = Mapping[str, Any]


def draw_provenance(results: Path, figures: Path, png: Path | None = None) -> None:
    """All figures whose rows are there."""
    from figures import save, styled

    tasks = [name for name in TASKS if (results / f"provenance-{name}.csv").is_file()]
    rows = {name: _rows(results / f"provenance-{name}.csv") for name in tasks}
    facts = {name: json.loads((results / f"provenance-{name}.json").read_text()) for name in tasks}
    charts = {
        "provenance-queries": _queries(rows),
        "provenance-outputs": _outputs(rows),
        "provenance-noise": _noise(rows),
        "provenance-words": _words(facts["words"]["headline"]),
    }
    if any(one.get("ablation") for one in facts.values()):
        charts["provenance-ablation"] = _ablation({name: one.get("ablation") for name, one in facts.items()})
    for name, chart in charts.items():
        save(styled(chart), name, figures, png)


def _rows(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def _panel(
    points: Sequence[Row], title: str, x: Any, y: Any, colors: Mapping[str, str], *, legend: str | None = None
) -> Any:
    """Lines with dots, one for each series; a second family of lines is dashed."""
    base = alt.Chart(alt.Data(values=list(points)), width=WIDTH, height=HEIGHT, title=title)
    color = alt.Color(
        "series:N",
        scale=alt.Scale(domain=list(colors), range=list(colors.values())),
        legend=alt.Legend(title=None, orient="bottom", columns=3) if legend is None else None,
    )
    dash = alt.StrokeDash(
        "dashed:N", scale=alt.Scale(domain=[False, True], range=[[1, 0], [4, 3]]), legend=None
    )
    return alt.layer(
        base.mark_line(strokeWidth=1.8).encode(x, y, color, dash),
        base.mark_point(filled=True, size=22, opacity=1).encode(x, y, color),
    )


def _auc(first: bool, title: str = "AUC") -> Any:
    return alt.Y(
        "y:Q", scale=alt.Scale(domain=[0.35, 1.0], clamp=True), axis=alt.Axis(title=title if first else None)
    )


def _log(title: str, values: Sequence[int]) -> Any:
    return alt.X(
        "x:Q",
        scale=alt.Scale(type="log", nice=False),
        axis=alt.Axis(title=title, values=list(values), format=","),
    )


def _queries(rows: Mapping[str, Sequence[Row]]) -> Any:
    """Figure 3: a row of panels per task, one for each rule by which texts are chosen."""
    lines = []
    for task, own in rows.items():
        panels = []
        for place, rule in enumerate(("frequency-sum", "index-sum", "random")):
            points = [
                {
                    "x": int(row["setting"].split()[1]),
                    "y": float(row["auc"]),
                    "series": row["statistic"],
                    "dashed": False,
                }
                for row in own
                if row["part"] == "queries" and row["setting"].split()[0] == rule
            ]
            panels.append(
                _panel(
                    points,
                    f"{task}, {rule}",
                    _log("texts per user", (1, 2, 4, 8, 16, 32)),
                    _auc(place == 0),
                    COLORS,
                )
            )
        if any(row["part"] == "queries" for row in own):
            lines.append(alt.hconcat(*panels, spacing=18))
    return alt.vconcat(*lines, spacing=18)


def _outputs(rows: Mapping[str, Sequence[Row]]) -> Any:
    """Table 3: the AUC by how many words are listed, beside the paper's."""
    panels: list[Any] = []
    for task, own in rows.items():
        for kind in ("same", "cross"):
            points = [
                {
                    "x": int(row["setting"].split()[1]),
                    "y": float(row["auc"]),
                    "series": row["statistic"],
                    "dashed": False,
                }
                for row in own
                if row["part"] == f"outputs, {kind} domain"
            ]
            if not points:
                continue
            points += [
                {"x": top, "y": auc, "series": "in the paper", "dashed": True}
                for top, auc in zip(TOPS, PAPER_OUTPUTS[task, kind], strict=True)
            ]
            colors = {LISTING[0]: COLORS[LISTING[0]], LISTING[1]: "#009E73", "in the paper": "#777777"}
            x = _log("words that the model lists", (1, 10, 100, 1000))
            panels.append(_panel(points, f"{task}, {kind} domain", x, _auc(not panels), colors))
    return alt.hconcat(*panels, spacing=18)


def _noise(rows: Mapping[str, Sequence[Row]]) -> Any:
    """Figure 4: AUC, and the recall of the classifier's sign, by the share of texts that were not trained on."""
    panels: list[Any] = []
    x = alt.X("x:Q", axis=alt.Axis(title="share of texts that were not trained on", format="%"))
    for task, own in rows.items():
        noise = [row for row in own if row["part"] == "noise"]
        if not noise:
            continue
        points = [
            {
                "x": float(row["setting"].split()[1]),
                "y": float(row["auc"]),
                "series": row["statistic"],
                "dashed": False,
            }
            for row in noise
        ]
        panels.append(_panel(points, f"{task}: AUC", x, _auc(not panels), COLORS))
        signs = [
            {"x": float(row["setting"].split()[1]), "y": float(row[name]), "series": name, "dashed": False}
            for row in noise
            for name in ("recall", "precision")
            if row[name]
        ]
        colors = {"recall": "#0072B2", "precision": "#E69F00"}
        y = alt.Y("y:Q", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(title=None))
        panels.append(_panel(signs, f"{task}: the classifier's sign", x, y, colors))
    return alt.hconcat(*panels, spacing=18).resolve_scale(color="independent")


def _words(facts: Row) -> Any:
    """Figures 5 and 6: log-probabilities of frequent and of rare words, and the ranks of words by their frequency."""
    sides = {"suspects": "members", "non-members": "non-members"}
    points: list[Row] = [
        {**point, "series": sides[point["group"]], "dashed": False} for point in facts["words"]
    ]
    panels: list[Any] = []
    for place, kind in enumerate(("frequent", "rare")):
        own = [
            {**point, "x": (point["x"] + point["to"]) / 2}
            for point in points
            if (point["figure"], point["words"]) == ("log-probabilities", kind)
        ]
        title = "the most frequent fifth of words" if kind == "frequent" else "all other words"
        x = alt.X("x:Q", axis=alt.Axis(title="log2 probability"))
        y = alt.Y("y:Q", axis=alt.Axis(title="share of words" if place == 0 else None, format="%"))
        panels.append(_panel(own, title, x, y, SIDES))
    points = [point for point in points if point["figure"] == "ranks"]
    x = alt.X("x:Q", axis=alt.Axis(title="place in the table of frequencies", format="%"))
    ranks = _panel(
        points, "rank by frequency", x, alt.Y("y:Q", axis=alt.Axis(title="mean rank in predictions")), SIDES
    )
    return alt.hconcat(*panels, ranks, spacing=18)


def _ablation(curves: Mapping[str, Sequence[Row] | None]) -> Any:
    """Figure 7: accuracy by the share of hidden units that are silenced."""
    panels: list[Any] = []
    for task, curve in curves.items():
        if not curve:
            continue
        series = {"frequent": "most frequent tenth of words", "rare": "other words"}
        points = [{**point, "series": series[point["words"]], "dashed": False} for point in curve]
        colors = {"most frequent tenth of words": "#0072B2", "other words": "#D55E00"}
        x = alt.X("x:Q", axis=alt.Axis(title="share of hidden units silenced", format="%"))
        y = alt.Y(
            "y:Q", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(title="accuracy" if not panels else None)
        )
        panels.append(_panel(points, task, x, y, colors))
    return alt.hconcat(*panels, spacing=18)
