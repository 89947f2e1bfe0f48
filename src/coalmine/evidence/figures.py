"""`Figure`, and what all figures have in common: axes, colors and legends, as Vega-Lite specifications in plain data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from coalmine.evidence.words import times_in_words
from coalmine.formats.naming import format_name
from coalmine.grouped import grouped

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
# Colors that readers with red-green color blindness can distinguish. All colors of figures keep a contrast of 3 on light and dark paper.
PALETTE = ("#0b84c6", "#d5642b", "#149a75", "#b8579a", "#b48a00", "#7b6fd0", "#5f7f8c", "#c23b4e")
# What comes in an order is colored along this line, from few to many.
RAMP = ("#1f83c4", "#6d70d6", "#ad58bd", "#cf4a7e", "#d2602b", "#a98500")
INK, FAINT, BAND, RULE = "#55606b", "#d9dee3", "#8a949e", "#7a858f"
HEIGHT = 300
# What a legend has room for on a phone of 390 px beside the labels of the axis, in px; and a letter in it, and what is beside a name.
LEGEND_WIDTH, LETTER_WIDTH, SYMBOL_WIDTH = 268, 6.6, 28
LONGEST_NAME = int((LEGEND_WIDTH - SYMBOL_WIDTH) / LETTER_WIDTH)

Spec = dict[str, Any]
Points = list[dict[str, Any]]
# The mark of intervals; what it shows is read out with the points.
INTERVAL: Spec = {"type": "rule", "strokeWidth": 1.5, "aria": False}
Cell = str | int | float | bool | None


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """One drawing of a figure, such as that of one format; `specs` draw the same numbers on other axes, the usual ones first.

    >>> point = layer([{"x": 1}], dots(60), x=axis("x", "broken toys"))
    >>> list(Panel(specs={"": spec([point], description="Broken toys.")}).specs)
    ['']
    """

    # What is different from the other panels; empty if there is only one.
    title: str = ""
    note: str = ""
    specs: dict[str, Spec]
    # Rows that several layers and drawings share, by the name that they ask for them by.
    datasets: dict[str, list[dict[str, Any]]] = {}


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure with the numbers that it shows; its panels have the same axes to choose from.

    >>> point = layer([{"x": 1}], dots(60), x=axis("x", "broken toys"))
    >>> panel = Panel(specs={"": spec([point], description="Broken toys.")})
    >>> figure = Figure(
    ...     figure_id="toys", title="Toys", caption="How many broke.", panels=(panel,), columns=("x",), rows=((1,),)
    ... )
    >>> figure.axes
    ['']
    """

    figure_id: str
    title: str
    # What it shows and how to read it.
    caption: str
    panels: tuple[Panel, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def axes(self) -> list[str]:
        """The names of the axes that a reader can choose."""
        return list(self.panels[0].specs)


def spec(layers: Sequence[Spec], *, description: str, height: int = HEIGHT, **parts: Any) -> Spec:
    """Layers over the same axes, as wide as the page: a Vega-Lite specification for a `Panel`.

    >>> point = {"data": data([{"x": 1}]), "mark": "point", "encoding": {"x": axis("x", "broken toys")}}
    >>> spec([point], description="Broken toys.")["width"]
    'container'
    """
    return {
        "$schema": SCHEMA,
        "description": description,
        "width": "container",
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "config": {
            "background": None,
            "font": "system-ui, sans-serif",
            "view": {"stroke": None},
            "axis": {
                "gridColor": FAINT,
                "domainColor": INK,
                "tickColor": INK,
                "labelColor": INK,
                "titleColor": INK,
                "labelFontSize": 12,
                "labelSeparation": 6,
                "titleFontSize": 12,
                "titleFontWeight": "normal",
            },
            "legend": {
                "labelColor": INK,
                "titleColor": INK,
                "labelFontSize": 12,
                "labelLimit": LEGEND_WIDTH,
                "titleFontSize": 12,
                "titleFontWeight": "normal",
                "titleLimit": LEGEND_WIDTH,
                "orient": "top",
                # One legend below another, so that none is pushed over the edge.
                "layout": {"top": {"direction": "vertical", "anchor": "start", "margin": 4}},
            },
            "range": {"category": list(PALETTE)},
        },
        "layer": list(layers),
        **parts,
    }


def side_by_side(drawings: Sequence[Spec], *, columns: int, width: int = 250, height: int = 200) -> Spec:
    """Several drawings of `spec` as one on white paper, each of this size in px, `columns` of them in a row.

    >>> point = layer([{"x": 1}], dots(60), x=axis("x", "broken toys"))
    >>> one = spec([point], description="Broken toys.")
    >>> [panel["width"] for panel in side_by_side([one, one], columns=2)["concat"]]
    [250, 250]
    """
    config = drawings[0]["config"]
    # Below the drawings, where names of any length have room.
    legend = config["legend"] | {"orient": "bottom"}
    return {
        "$schema": SCHEMA,
        "description": " ".join(one["description"] for one in drawings),
        "config": {**config, "background": "white", "legend": legend},
        "concat": [{"width": width, "height": height, "layer": one["layer"]} for one in drawings],
        "columns": columns,
        "spacing": 24,
    }


def data(rows: Sequence[dict[str, Any]]) -> Spec:
    """Rows inside the specification itself.

    >>> data([{"broken": 3}])
    {'values': [{'broken': 3}]}
    """
    return {"values": list(rows)}


def layer(rows: Sequence[dict[str, Any]] | str | None, mark: Spec, *filters: str, **channels: Any) -> Spec:
    """Marks for rows, which are given, or are in the `datasets` of the panel by this name; a channel may be just a field.

    With None, they are those of the whole drawing.

    >>> layer("points", dots(60), x=axis("at", "parameters"), y2="high")["encoding"]["y2"]
    {'field': 'high'}
    """
    found: Spec = {}
    if rows is not None:
        found["data"] = {"name": rows} if isinstance(rows, str) else data(rows)
    if filters:
        found["transform"] = [{"filter": one} for one in filters]
    encoding = {name: {"field": one} if isinstance(one, str) else one for name, one in channels.items()}
    return found | {"mark": mark, "encoding": encoding}


def dots(size: int, **parts: Any) -> Spec:
    """The mark of points."""
    return {"type": "point", "filled": True, "size": size, **parts}


def axis(field: str, title: str, kind: str = "quantitative", **parts: Any) -> Spec:
    """A channel with a title; `scale` and `axis` are merged into it as they are given.

    >>> axis("broken", "broken toys", scale={"zero": False})
    {'field': 'broken', 'type': 'quantitative', 'title': 'broken toys', 'scale': {'zero': False}}
    """
    return {"field": field, "type": kind, "title": title, **parts}


def tooltips(*fields: str | tuple[str, str]) -> list[Spec]:
    """Fields with the titles that a reader sees when pointing at a mark; the title is the field itself where only that is given.

    >>> tooltips("canary", ("bits", "exposure (bits)"))
    [{'field': 'canary', 'title': 'canary'}, {'field': 'bits', 'title': 'exposure (bits)'}]
    """
    pairs = [(one, one) if isinstance(one, str) else one for one in fields]
    return [{"field": field, "title": title} for field, title in pairs]


def by_format(points: Points) -> dict[str, Points]:
    """Points by the name of their format, in the order in which the formats come."""
    return grouped((str(point["format"]), point) for point in points)


def rows_of(points: Points, *fields: str) -> tuple[tuple[Cell, ...], ...]:
    """These fields of each point, as the rows of a figure.

    >>> rows_of([{"canary": "f0-x1-0", "bits": 9.97, "place": 1}], "canary", "bits")
    (('f0-x1-0', 9.97),)
    """
    return tuple(tuple(point[field] for field in fields) for point in points)


def ordered_colors(count: int) -> list[str]:
    """This many different colors along the ramp from few to many.

    >>> ordered_colors(3)
    ['#1f83c4', '#be519e', '#a98500']
    """
    colors = []
    for place in range(count):
        along = place * (len(RAMP) - 1) / max(1, count - 1)
        begin = min(int(along), len(RAMP) - 2)
        pairs = zip(_parts(RAMP[begin]), _parts(RAMP[begin + 1]), strict=True)
        mixed = [round(one + (other - one) * (along - begin)) for one, other in pairs]
        colors.append("#{:02x}{:02x}{:02x}".format(*mixed))
    return colors


def _parts(color: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(color[1:]))


def colors_of(names: Sequence[str], title: str | None, field: str) -> Spec:
    """A color for each name; along the ramp if there are more names than colors in the palette."""
    colors = PALETTE[: len(names)] if len(names) <= len(PALETTE) else ordered_colors(len(names))
    return color_channel(dict(zip(names, colors, strict=True)), title, field)


def copies_colors(copies: Iterable[int]) -> dict[int, str]:
    """A color for each number of copies, from few to many; canaries that were never trained on are gray."""
    trained = sorted({times for times in copies if times})
    return {0: BAND} | dict(zip(trained, ordered_colors(len(trained)), strict=True))


def copies_channel(shown: Iterable[int], colors: dict[int, str], title: str | None, field: str) -> Spec:
    """The channel of numbers of copies in words, for those that are shown."""
    named_colors = {times_in_words(times): colors[times] for times in sorted(set(shown))}
    return color_channel(named_colors, title, field)


def color_channel(colors: dict[str, str], title: str | None, field: str, room: float = LEGEND_WIDTH) -> Spec:
    """The channel of a field whose values have these colors, in this order; `room` is the width of its legend in px."""
    return {
        "field": field,
        "type": "nominal",
        "title": title,
        "sort": list(colors),
        "scale": {"domain": list(colors), "range": list(colors.values())},
        "legend": legend(list(colors), room),
    }


def shape_channel(shapes: dict[str, str], field: str) -> Spec:
    """The channel of a field whose values have these shapes; its legend is of a color that both papers show."""
    return {
        "field": field,
        "type": "nominal",
        "title": None,
        "scale": {"domain": list(shapes), "range": list(shapes.values())},
        "legend": legend(list(shapes)) | {"symbolFillColor": RULE, "symbolStrokeColor": RULE},
    }


def legend(names: Sequence[str], room: float = LEGEND_WIDTH) -> Spec:
    """A legend in as many columns as a phone has room for."""
    longest = max((len(name) for name in names), default=1)
    return {"symbolOpacity": 1, "columns": max(1, int(room / (SYMBOL_WIDTH + LETTER_WIDTH * longest)))}


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Each name, shortened to fit a legend; no two are the same.

    >>> list(short_names(["model", "a model with a very long name, 1", "a model with a very long name, 2"]).values())
    ['model', 'a model with a very long name, 1', 'a model with a very long name, 2']
    """
    short: dict[str, str] = {}
    for name in dict.fromkeys(names):
        shown = format_name(name, LONGEST_NAME)
        if shown in short.values():
            number = f" ({len(short) + 1})"
            shown = format_name(name, LONGEST_NAME - len(number)) + number
        short[name] = shown
    return short


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
