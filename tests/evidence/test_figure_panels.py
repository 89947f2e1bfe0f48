"""Figures with a panel per format: named by template, nothing mixed, and colors that can be told apart."""

import pytest

from coalmine import read_run
from coalmine.evidence.charts import (
    BAND,
    LONGEST_NAME,
    PALETTE,
    RAMP,
    RULE,
    copies_colors,
    ordered_colors,
    short_names,
)
from coalmine.reports.conclusion import figures_of
from reports.large_runs import save_large_run

TEMPLATES = {"f0": "my pin is {digits:2}", "f1": "box {digits:1} in hall {digits:2}"}
COPIES = tuple(range(1, 20))
PAPERS = ("#ffffff", "#14181c")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    directory = tmp_path_factory.mktemp("panels")
    save_large_run(directory, templates=TEMPLATES, copies=COPIES, each=1, references=20)
    return read_run(directory)


@pytest.fixture(scope="module")
def figures(run):
    return {figure.id: figure for figure in figures_of(run)}


def luminance(color):
    parts = [part / 255 for part in bytes.fromhex(color[1:])]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    low, high = sorted(luminance(color) for color in (one, other))
    return (high + 0.05) / (low + 0.05)


PER_FORMAT = (
    "exposure-by-repetitions",
    "exposure-and-extraction",
    "exposure-during-training",
    "roc",
)


@pytest.mark.parametrize("name", PER_FORMAT)
def test_each_format_has_a_panel_with_its_template(figures, name):
    figure = figures[name]
    assert sorted(panel.title for panel in figure.panels) == sorted(TEMPLATES.values())
    place = figure.columns.index("format")
    assert {row[place] for row in figure.table} == set(TEMPLATES.values())


def colors_in(node):
    """The colors of every nominal scale below a part of a description."""
    if isinstance(node, dict):
        scale = node.get("color", {}).get("scale") if isinstance(node.get("color"), dict) else None
        yield from () if scale is None else [(scale["domain"], scale["range"])]
        for part in node.values():
            yield from colors_in(part)
    elif isinstance(node, list):
        for part in node:
            yield from colors_in(part)


def test_no_color_is_used_twice_in_a_panel(figures):
    for figure in figures.values():
        for panel in figure.panels:
            for names, colors in colors_in(panel.spec):
                assert len(names) == len(colors) == len(set(colors)), figure.id


def test_more_copies_are_further_along_the_same_line_in_every_figure(figures):
    expected = copies_colors([0, *COPIES])
    for name in PER_FORMAT:
        (names, colors), *_ = list(colors_in(figures[name].panels[0].spec)) or [((), ())]
        shown = dict(zip(names, colors, strict=True))
        for times in COPIES:
            word = "once" if times == 1 else f"{times} times"
            if name != "roc":  # draws some of so many curves
                assert shown.get(word, expected[word]) == expected[word], name
    assert list(expected.values()) == [BAND, *ordered_colors(len(COPIES))]


def test_colors_are_seen_on_both_papers():
    drawn = {*PALETTE, *RAMP, BAND, RULE, *ordered_colors(19), *ordered_colors(7)}
    assert [(color, paper) for color in drawn for paper in PAPERS if contrast(color, paper) < 3] == []


def test_long_names_are_shortened_and_stay_apart():
    names = [f"{'a very long name ' * 4}{number}{' of a model' * 4}" for number in range(3)]
    short = short_names([*names, "model"])
    assert short["model"] == "model"
    assert len(set(short.values())) == 4
    assert all(len(name) <= LONGEST_NAME for name in short.values())
