"""Colors of figures can be told apart from the paper."""

from coalmine.evidence.charts import BAND, PALETTE, RAMP, RULE, ordered_colors

PAPERS = ("#ffffff", "#14181c")


def luminance(color):
    parts = [part / 255 for part in bytes.fromhex(color[1:])]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    low, high = sorted(luminance(color) for color in (one, other))
    return (high + 0.05) / (low + 0.05)


def test_colors_are_seen_on_both_papers():
    drawn = {*PALETTE, *RAMP, BAND, RULE, *ordered_colors(19), *ordered_colors(7)}
    assert [(color, paper) for color in drawn for paper in PAPERS if contrast(color, paper) < 3] == []
