"""`Chart`: a figure as data: its rows, its two axes, and the marks that are drawn; all figures of pages and files are charts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from coalmine.evidence.words import times_in_words
from coalmine.formats.naming import unique_names

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
# Colors that readers with red-green color blindness can distinguish. All colors of figures keep a contrast of 3 on light and dark paper.
PALETTE = ("#0b84c6", "#d5642b", "#149a75", "#b8579a", "#b48a00", "#7b6fd0", "#5f7f8c", "#c23b4e")
# What comes in an order is colored along this line, from few to many.
RAMP = ("#1f83c4", "#6d70d6", "#ad58bd", "#cf4a7e", "#d2602b", "#a98500")
INK, FAINT, BAND, RULE = "#55606b", "#d9dee3", "#8a949e", "#7a858f"
# What a legend has room for on a phone of 390 px beside the labels of the axis, in px; and a letter in it, and what is beside a name.
LEGEND_WIDTH, LETTER_WIDTH, SYMBOL_WIDTH = 268, 6.6, 28
LONGEST_NAME = int((LEGEND_WIDTH - SYMBOL_WIDTH) / LETTER_WIDTH)
PNG_WIDTH = 720

Spec = dict[str, Any]
Rows = list[dict[str, Any]]
Cell = str | int | float | bool | None
Scale = Literal["linear", "log", "names"]
Kind = Literal["points", "line", "steps", "area", "band", "bars", "ticks", "rule"]
_KINDS: dict[Kind, Spec] = {
    "points": {"type": "point", "filled": True, "size": 60, "opacity": 0.9},
    "line": {"type": "line", "strokeWidth": 2, "point": {"size": 40}},
    "steps": {
        "type": "line",
        "interpolate": "step-after",
        "strokeWidth": 2,
        "point": {"size": 40, "opacity": 0},
    },
    "area": {"type": "area", "opacity": 0.14},
    "band": {"type": "rect", "opacity": 0.22},
    "bars": {"type": "bar", "opacity": 0.55, "binSpacing": 1},
    "ticks": {"type": "tick", "thickness": 2, "opacity": 0.6, "bandSize": 34},
    "rule": {"type": "rule", "strokeWidth": 1.5},
}


class Axis(msgspec.Struct, frozen=True, kw_only=True):
    """What is on an axis.

    With the scale "names", each name has a place, in which `beside` is a column of places between -1 and 1; a label is
    broken at ' | '. `domain` has the ends of the axis, and `format` is a format of d3.

    >>> Axis(column="broken", scale="log").channel("broken")["scale"]
    {'type': 'log', 'nice': False, 'padding': 12}
    """

    column: str
    title: str | None = None
    scale: Scale = "linear"
    domain: tuple[float, float] | None = None
    format: str = ""
    grid: bool = True
    beside: str = ""

    def channel(self, field: str) -> Spec:
        """The channel of a field on this axis."""
        title = self.column if self.title is None else self.title
        look: Spec = {"grid": self.grid, **({"format": self.format} if self.format else {})}
        if self.scale == "names":
            look |= {"labelLimit": 0, "labelAngle": 0, "labelOverlap": True}
            look |= {"labelExpr": "split(datum.label, ' | ')"}
            return {"field": field, "type": "nominal", "title": title, "sort": None, "axis": look}
        look["tickCount"] = 6
        ends: Spec = {"padding": 12} if self.scale == "log" else {"padding": 12, "zero": False}
        if self.domain is not None:
            ends = {"domain": list(self.domain), "clamp": True}
        return {
            "field": field,
            "type": "quantitative",
            "title": title,
            "scale": {"type": self.scale, "nice": False, **ends},
            "axis": look,
        }


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """Marks for rows, which are those of the chart unless they are given; rows without its column of colors are drawn in gray.

    `x` and `y` name the columns that the marks are at, where these are not the ones of the axes, and are empty where they have no place
    there; `x_to` and `y_to` those that they reach to. `shows` are the columns that a reader sees when pointing at one.

    >>> Marks(kind="rule", y="least", y_to="most").dashed
    False
    """

    kind: Kind
    rows: Rows | None = None
    x: str | None = None
    y: str | None = None
    x_to: str = ""
    y_to: str = ""
    shows: tuple[str, ...] = ()
    dashed: bool = False
    order: str = ""


class Panel(NamedTuple):
    """One drawing of a chart, such as that of one format."""

    title: str
    note: str
    spec: Spec
    datasets: dict[str, Rows]


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """A figure with the numbers that it shows.

    Attributes:
        id: what pages and files call it.
        caption: what it shows and how to read it.
        rows: what is drawn, a row per mark.
        columns: those that its table shows, of `rows`, or of `data` where that has more than is drawn.
        color: the column that decides the color, with the colors in `colors`, in their order; by default, those of the palette.
        legend: the title of the colors; empty where the axis names them already.
        shape: the column that decides the shape of points, with the shapes in `shapes`.
        leads: whether it may be the one picture of the first screen; the first that may is shown there.
        panel: the column of which each value has a drawing of its own, with a note in `notes`.

    >>> toys = [{"toy": "duck", "broken": 1}, {"toy": "ball", "broken": 3}]
    >>> chart = Chart(
    ...     id="toys",
    ...     title="Toys",
    ...     caption="How many broke.",
    ...     rows=toys,
    ...     columns=("toy", "broken"),
    ...     x=Axis(column="broken"),
    ...     y=Axis(column="toy", scale="names"),
    ...     marks=(Marks(kind="points"),),
    ... )
    >>> chart.table
    (('duck', 1), ('ball', 3))
    """

    id: str
    title: str
    caption: str
    rows: Rows
    columns: tuple[str, ...]
    data: tuple[tuple[Cell, ...], ...] = ()
    x: Axis
    y: Axis
    marks: tuple[Marks, ...]
    color: str = ""
    colors: dict[str, str] = {}
    legend: str | None = None
    shape: str = ""
    shapes: dict[str, str] = {}
    panel: str = ""
    notes: dict[str, str] = {}
    height: int = 280
    leads: bool = False

    @property
    def table(self) -> tuple[tuple[Cell, ...], ...]:
        """The numbers, a tuple per row with the cells of `columns`."""
        return self.data or tuple(tuple(row.get(name) for name in self.columns) for row in self.rows)

    @property
    def panels(self) -> list[Panel]:
        """The drawings, one for each value of the column of panels."""
        named = [str(row[self.panel]) for row in self.rows] if self.panel else [""]
        return [self._panel(name) for name in dict.fromkeys([*self.notes, *named] if self.panel else named)]

    def _panel(self, name: str) -> Panel:
        datasets: dict[str, Rows] = {}
        layers: list[Spec] = []
        for place, one in enumerate(self.marks):
            every = self.rows if one.rows is None else one.rows
            rows = [row for row in every if not self.panel or str(row.get(self.panel, name)) == name]
            if rows:
                key = next((key for key, others in datasets.items() if others == rows), f"rows-{place}")
                datasets[key] = rows
                layers.append(self._layer(key, one, rows))
        return Panel(name, self.notes.get(name, ""), self._spec(layers), datasets)

    def _layer(self, dataset: str, marks: Marks, rows: Rows) -> Spec:
        encoding: Spec = {}
        ways = (("x", self.x, marks.x, marks.x_to), ("y", self.y, marks.y, marks.y_to))
        for name, axis, at, to in ways:
            field = axis.column if at is None else at
            if not field:
                continue
            encoding[name] = axis.channel(field)
            if to:
                encoding[f"{name}2"] = {"field": to}
            if axis.beside and axis.beside in rows[0]:
                places = {"type": "quantitative", "scale": {"domain": [-1, 1]}}
                encoding[f"{name}Offset"] = {"field": axis.beside, **places}
        look = dict(_KINDS[marks.kind])
        if marks.kind == "bars":
            encoding["x"] |= {"bin": {"binned": True}}
            encoding["y"] |= {"stack": None}
        if self.color and self.color in rows[0]:
            encoding["color"] = self._colors()
            if self.shape and marks.kind == "points":
                encoding["shape"] = _nominal(self.shape, self.shapes, None)
                encoding["shape"]["legend"] |= {"symbolFillColor": RULE, "symbolStrokeColor": RULE}
        else:
            look |= {"color": RULE}
            look.pop("point", None)
        if marks.dashed:
            look |= {"strokeDash": [5, 4], "opacity": 0.9}
            look.pop("point", None)
        if marks.shows:
            encoding["tooltip"] = [{"field": one, "title": one} for one in marks.shows]
        else:
            look["aria"] = False
        if marks.order:
            encoding["order"] = {"field": marks.order, "type": "quantitative"}
        return {
            "data": {"name": dataset},
            "mark": look | {"clip": marks.kind != "points"},
            "encoding": encoding,
        }

    def _colors(self) -> Spec:
        # All marks of a drawing share a legend, so it has the names of all of them.
        every = [*self.rows, *(row for one in self.marks for row in one.rows or ())]
        shown = list(dict.fromkeys(str(row[self.color]) for row in every if self.color in row))
        colors = self.colors or named_colors(shown)
        return _nominal(self.color, {name: colors[name] for name in colors if name in shown}, self.legend)

    def _spec(self, layers: list[Spec]) -> Spec:
        x, y = (one.column if one.title is None else one.title for one in (self.x, self.y))
        return {
            "$schema": SCHEMA,
            "description": f"{self.title}: {y or 'names'} by {x}.",
            "width": "container",
            "height": self.height,
            "autosize": {"type": "fit-x", "contains": "padding"},
            "config": CONFIG,
            "layer": layers,
        }


_TEXT: Spec = {
    "labelColor": INK,
    "titleColor": INK,
    "labelFontSize": 12,
    "titleFontSize": 12,
    "titleFontWeight": "normal",
}
CONFIG: Spec = {
    "background": None,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {"gridColor": FAINT, "domainColor": INK, "tickColor": INK, "labelSeparation": 6, **_TEXT},
    "legend": {
        "labelLimit": LEGEND_WIDTH,
        "titleLimit": LEGEND_WIDTH,
        "orient": "top",
        # One legend below another, so that none is pushed over the edge.
        "layout": {"top": {"direction": "vertical", "anchor": "start", "margin": 4}},
        **_TEXT,
    },
    "range": {"category": list(PALETTE)},
}


def as_one(charts: Sequence[Chart], *, columns: int = 1, width: int = PNG_WIDTH) -> Spec:
    """The panels of charts on their usual axes as one drawing on white paper, each this wide in px, `columns` of them in a row."""
    views: list[Spec] = []
    datasets: dict[str, Rows] = {}
    every = [(chart, panel) for chart in charts for panel in chart.panels]
    for place, (chart, panel) in enumerate(every):
        datasets |= {f"{name}-{place}": rows for name, rows in panel.datasets.items()}
        layers = [one | {"data": {"name": f"{one['data']['name']}-{place}"}} for one in panel.spec["layer"]]
        title = panel.title or (chart.title if len(charts) > 1 else "")
        views.append({"width": width, "height": chart.height, "layer": layers, "title": title})
    return {
        "$schema": SCHEMA,
        "description": " ".join(chart.caption for chart in charts),
        "config": CONFIG | {"background": "white"},
        "concat": views,
        "columns": columns,
        "spacing": 24,
        "datasets": datasets,
    }


def intervals(low: str, high: str) -> Marks:
    """The marks of intervals between two columns, along the vertical axis."""
    return Marks(kind="rule", y=low, y_to=high)


def ordered_colors(count: int) -> list[str]:
    """This many different colors along the ramp from few to many.

    >>> ordered_colors(3)
    ['#1f83c4', '#be519e', '#a98500']
    """
    colors = []
    for place in range(count):
        along = place * (len(RAMP) - 1) / max(1, count - 1)
        begin = min(int(along), len(RAMP) - 2)
        pairs = zip(bytes.fromhex(RAMP[begin][1:]), bytes.fromhex(RAMP[begin + 1][1:]), strict=True)
        mixed = [round(one + (other - one) * (along - begin)) for one, other in pairs]
        colors.append("#{:02x}{:02x}{:02x}".format(*mixed))
    return colors


def named_colors(names: Sequence[str]) -> dict[str, str]:
    """A color for each name; along the ramp if there are more names than colors in the palette."""
    colors = PALETTE[: len(names)] if len(names) <= len(PALETTE) else ordered_colors(len(names))
    return dict(zip(names, colors, strict=True))


def copies_colors(copies: Iterable[int]) -> dict[str, str]:
    """A color for each number of copies in words, from few to many; canaries that were never trained on are gray.

    >>> copies_colors([4, 0, 1])
    {'never': '#8a949e', 'once': '#1f83c4', '4 times': '#a98500'}
    """
    every = set(copies)
    trained = sorted(times for times in every if times)
    never = {times_in_words(0): BAND} if 0 in every else {}
    return never | dict(zip(map(times_in_words, trained), ordered_colors(len(trained)), strict=True))


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Each name, shortened to fit a legend; no two are the same.

    >>> list(short_names(["model", "a model with a very long name, 1", "a model with a very long name, 2"]).values())
    ['model', 'a model with a very long name, 1', 'a model with a very long name, 2']
    """
    templates = {str(place): name for place, name in enumerate(dict.fromkeys(names), 1)}
    return dict(zip(templates.values(), unique_names(templates, LONGEST_NAME).values(), strict=True))


def rounded(number: float | None, digits: int = 4) -> float | None:
    """A number with as many digits as a page needs, which keeps the file small.

    >>> rounded(1.23456789), rounded(None)
    (1.2346, None)
    """
    return None if number is None else round(float(number), digits)


def thinned(count: int, most: int) -> list[int]:
    """Places of at most `most` of `count` things in order, evenly spread, the first and the last among them.

    >>> thinned(10, 4), thinned(3, 4)
    ([0, 3, 6, 9], [0, 1, 2])
    """
    if count <= most:
        return list(range(count))
    return [round(place * (count - 1) / (most - 1)) for place in range(most)]


def _nominal(column: str, values: dict[str, str], title: str | None) -> Spec:
    """The channel of a column whose values have these colors or shapes, with a legend in as many columns as a phone has room for."""
    longest = max((len(name) for name in values), default=1)
    columns = max(1, int(LEGEND_WIDTH / (SYMBOL_WIDTH + LETTER_WIDTH * longest)))
    return {
        "field": column,
        "type": "nominal",
        "title": title,
        "sort": list(values),
        "scale": {"domain": list(values), "range": list(values.values())},
        "legend": None if title == "" else {"symbolOpacity": 1, "columns": columns},
    }
