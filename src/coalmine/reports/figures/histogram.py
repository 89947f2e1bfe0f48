"""How surprising are the canaries beside other members of their format? The histogram of log-perplexity, its skew-normal fit and the
canaries' lines (Secret Sharer, Figure 3).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure_results import ExposureDocument
from coalmine.errors import InputError, MissingExtraError, NotMeasurableError
from coalmine.randomness import arrays
from coalmine.reports.exposure_table import times_in_words
from coalmine.reports.figures.style import BAND, Figure, Spec, axis, colors_of, named, rounded, spec, tooltips
from coalmine.reports.runs.reading import Located, Run
from coalmine.statistics.skew_normal import SkewNormal
from coalmine.statistics.skew_normal_fit import FEWEST_SCORES, fit_skew_normal

BINS = 60
MOST_LINES = 60
# A curve for the eye needs no more scores than this.
MOST_FITTED = 20_000
# Guided draws are not here: they were drawn for their scores.
_UNIFORM = ("member", "sample", "reference")
_KINDS = {"member": "all members", "sample": "members drawn at random", "reference": "references"}


class UniformScores(NamedTuple):
    """Log-perplexities in bits of members that were drawn alike, of one format."""

    format_id: str
    kind: str
    bits: NDArray[np.float64]


def read_uniform_scores(path: Path) -> list[UniformScores]:
    """The scores of a scores.parquet that stand for their format, without the columns that nobody asked for."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError("reading scores.parquet", "pyarrow", "tables") from None
    try:
        table = pq.read_table(path, columns=["format_id", "kind", "log_perplexity_bits"])
    except (pa.ArrowException, KeyError, OSError) as problem:
        raise InputError(
            f"{path} is not a scores.parquet of `coalmine expose` ({problem}); run it again"
        ) from None
    columns = [
        table[name].combine_chunks().cast(pa.string()).dictionary_encode() for name in ("format_id", "kind")
    ]
    bits = np.asarray(table["log_perplexity_bits"])
    if bits.dtype != np.float64 or np.isnan(bits).any():
        raise InputError(
            f"{path} is not a scores.parquet of `coalmine expose` (a score in it is not a number); run it again"
        )
    codes = [np.asarray(column.indices) for column in columns]
    names = [column.dictionary.to_pylist() for column in columns]
    found = []
    for form, format_id in enumerate(names[0]):
        for kind in _UNIFORM:
            if kind in names[1]:
                rows = (codes[0] == form) & (codes[1] == names[1].index(kind))
                if rows.any():
                    found.append(UniformScores(format_id, kind, bits[rows]))
    return found


def histogram_figures(run: Run) -> Iterator[Figure]:
    """A histogram for each format that some audit scored members of; the largest set of scores where there are several."""
    best: dict[str, tuple[Located[ExposureDocument], UniformScores]] = {}
    for located in run.exposures:
        path = run.scores_path(located)
        for scores in [] if path is None else read_uniform_scores(path):
            if scores.format_id not in best or len(scores.bits) > len(best[scores.format_id][1].bits):
                best[scores.format_id] = (located, scores)
    for number, (format_id, (located, scores)) in enumerate(sorted(best.items()), 1):
        figure = _figure(run, located.document, format_id, scores, number if len(best) > 1 else None)
        if figure is not None:
            yield figure


def _figure(
    run: Run, document: ExposureDocument, format_id: str, scores: UniformScores, number: int | None
) -> Figure | None:
    bits = scores.bits[np.isfinite(scores.bits)]
    if len(bits) < 2:
        return None
    counts, edges = np.histogram(bits, bins=BINS)
    bars = [
        {"from": rounded(edges[place]), "to": rounded(edges[place + 1]), "members": int(count)}
        for place, count in enumerate(counts)
    ]
    curve, whence = _curve(run, format_id, bits)
    lines, left_out = _lines(document, format_id)
    low = min([edges[0], *(line["bits"] for line in lines)])
    drawn = _curve_points(curve, float(low), float(edges[-1]), len(bits) * float(edges[1] - edges[0]))
    about = f"{len(bits):,} {_KINDS[scores.kind]} of format {format_id}"
    caption = f"Log-perplexities of {about}{whence}. The lines are canaries: the further left of the bulk, the better remembered.{left_out}"
    description = f"Histogram of the log-perplexity of {about}, with the canaries as lines."
    return Figure(
        figure_id="log-perplexity" if number is None else f"log-perplexity-{number}",
        title=f"Log-perplexity of members and canaries{'' if number is None else f' of {format_id}'}",
        caption=caption,
        specs={
            name: _drawing(lines, description, scale=scale, curve=bool(drawn))
            for name, scale in (("linear count", "linear"), ("log count", "symlog"))
        },
        datasets={"bars": bars, "curve": drawn, "lines": lines},
        columns=("from (bits)", "to (bits)", "members"),
        rows=tuple((bar["from"], bar["to"], bar["members"]) for bar in bars),
    )


def _curve(run: Run, format_id: str, bits: NDArray[np.float64]) -> tuple[SkewNormal | None, str]:
    for located in run.exposures:
        fit = located.document.tail_fits.get(format_id)
        if fit is not None:
            tested = "rejected" if fit.rejected else "not rejected"
            return (
                fit.curve,
                f", with the skew-normal curve of `expose`, which its test has {tested} (p = {fit.ks_p_value:.2g})",
            )
    if len(bits) < FEWEST_SCORES:
        return None, ""
    some = bits
    if len(bits) > MOST_FITTED:
        some = arrays(0, "report", "histogram", format_id).choice(bits, MOST_FITTED, replace=False)
    try:
        curve = fit_skew_normal(some)
    except NotMeasurableError:
        return None, ""
    return curve, ", with a skew-normal curve for the eye that no test was made of"


def _curve_points(curve: SkewNormal | None, low: float, high: float, mass: float) -> list[dict[str, Any]]:
    if curve is None:
        return []
    places = np.linspace(low, high, 160)
    heights = np.exp(np.asarray(curve.log_pdf(places))) * mass
    return [{"bits": rounded(x), "members": rounded(y)} for x, y in zip(places, heights, strict=True)]


def _lines(document: ExposureDocument, format_id: str) -> tuple[list[dict[str, Any]], str]:
    canaries = [
        one
        for one in document.results
        if one.format_id == format_id
        and one.known_log_perplexity_bits is not None
        and np.isfinite(one.log_perplexity_bits)
    ]
    canaries.sort(key=lambda one: one.log_perplexity_bits)
    shown = canaries[:MOST_LINES]
    left_out = (
        f" The {MOST_LINES} least surprising of {len(canaries):,} canaries are drawn."
        if len(shown) < len(canaries)
        else ""
    )
    return [
        {
            "canary": one.canary_id,
            "bits": rounded(one.log_perplexity_bits),
            "trained on": times_in_words(one.repetitions),
            "times": one.repetitions,
        }
        for one in shown
    ], left_out


def _drawing(lines: list[dict[str, Any]], description: str, *, scale: str, curve: bool) -> Spec:
    order = [times_in_words(times) for times in sorted({line["times"] for line in lines})]
    x: Spec = {"scale": {"zero": False, "nice": False, "padding": 12}, "axis": {"grid": False}}
    y = axis("members", "members a bin", scale={"type": scale, "domainMin": 0})
    layers: list[Spec] = [
        {
            "data": named("bars"),
            "mark": {"type": "bar", "color": BAND, "opacity": 0.55, "binSpacing": 1},
            "encoding": {
                "x": axis("from", "log-perplexity (bits)", bin="binned", **x),
                "x2": {"field": "to"},
                "y": y,
                "tooltip": tooltips(**{"from": "from (bits)"}, to="to (bits)", members="members"),
            },
        },
        {
            "data": named("lines"),
            "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.85},
            "encoding": {
                "x": axis("bits", "log-perplexity (bits)", **x),
                "color": colors_of(order, "canaries trained on", "trained on"),
                "tooltip": tooltips(
                    canary="canary", **{"trained on": "trained on"}, bits="log-perplexity (bits)"
                ),
            },
        },
    ]
    if curve:
        layers.insert(
            1,
            {
                "data": named("curve"),
                "mark": {
                    "type": "line",
                    "color": "#000000",
                    "opacity": 0.55,
                    "strokeWidth": 1.5,
                    "aria": False,
                },
                "encoding": {"x": axis("bits", "log-perplexity (bits)", **x), "y": y},
            },
        )
    return spec(layers, description=description)
