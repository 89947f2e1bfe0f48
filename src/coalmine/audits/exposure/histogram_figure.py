"""The figure of log-perplexities: a histogram of the members of each format, its skew-normal fit, and a line per canary.

After Figure 3 of The Secret Sharer, Carlini, Liu, Erlingsson, Kos and Song, 2019, arXiv:1802.08232.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure.candidate_scores import read_candidates
from coalmine.audits.exposure.format_panels import names_of_formats
from coalmine.audits.exposure.results import EXPOSURES, Exposures, scores_beside
from coalmine.errors import NotMeasurableError
from coalmine.evidence.charts import Axis, Chart, Marks, Rows, copies_colors, rounded
from coalmine.evidence.run import Run
from coalmine.evidence.words import times_in_words
from coalmine.randomness import arrays
from coalmine.statistics.exposure.skew_normal import SkewNormal
from coalmine.statistics.exposure.skew_normal_fit import FEWEST_SCORES, fit_skew_normal

BINS = 60
MOST_LINES = 60
# A curve for the eye needs no more scores than this.
MOST_FITTED = 20_000
# Guided draws are not here: they were drawn for their scores.
_UNIFORM = ("member", "sample", "reference")
_KINDS = {
    "member": "all {:,} members",
    "sample": "{:,} members drawn at random",
    "reference": "{:,} references",
}


class UniformScores(NamedTuple):
    """Log-perplexities in bits of members of one format that were drawn the same way."""

    format_id: str
    kind: str
    bits: NDArray[np.float64]


def read_uniform_scores(path: Path) -> list[UniformScores]:
    """The scores of a scores.parquet that represent their format; only the columns that are needed are read."""
    candidates = read_candidates(path, indices=False)
    return [
        UniformScores(one.format_id, one.kind, one.log_perplexities_bits)
        for kind in _UNIFORM
        for one in candidates
        if one.kind == kind
    ]


def largest_scores(run: Run) -> dict[str, tuple[Exposures, UniformScores]]:
    """The largest set of scores for each format that has any, with the exposures that it was written with."""
    best: dict[str, tuple[Exposures, UniformScores]] = {}
    for located in run.all(EXPOSURES):
        path = scores_beside(located.path)
        for scores in [] if path is None else read_uniform_scores(path):
            if scores.format_id not in best or len(scores.bits) > len(best[scores.format_id][1].bits):
                best[scores.format_id] = (located.document, scores)
    return dict(sorted(best.items()))


def histogram_figure(run: Run) -> Chart | None:
    """One histogram per format with scored members; of several sets of scores, the largest."""
    names, bars, curves, lines = names_of_formats(run), Rows(), Rows(), Rows()
    notes: dict[str, str] = {}
    best = largest_scores(run)
    for format_id, (document, scores) in best.items():
        bits = scores.bits[np.isfinite(scores.bits)]
        if len(bits) < 2:
            continue
        name = names[format_id]
        counts, edges = np.histogram(bits, bins=BINS)
        bars += [
            {
                "format": name,
                "from (bits)": rounded(edges[place]),
                "to (bits)": rounded(edges[place + 1]),
                "members": int(count),
            }
            for place, count in enumerate(counts)
        ]
        curve, whence = _curve(run, format_id, bits)
        own, left_out = _lines(document, format_id, name)
        lines += own
        low = min([edges[0], *(line["log-perplexity (bits)"] for line in own)])
        curves += _curve_rows(
            name, curve, float(low), float(edges[-1]), len(bits) * float(edges[1] - edges[0])
        )
        about = _KINDS[scores.kind].format(len(bits))
        notes[name] = f"{about[0].upper()}{about[1:]}{whence}.{left_out}"
    if not bars:
        return None
    return Chart(
        id="log-perplexity",
        title="Log-perplexity of members and canaries",
        caption="Each line is a canary: the further left of the bulk, the better remembered.",
        rows=bars,
        columns=("format", "from (bits)", "to (bits)", "members"),
        x=Axis(column="from (bits)", title="log-perplexity (bits)", grid=False),
        y=Axis(column="members", title="members per bin", scales=("linear", "symlog")),
        marks=(
            Marks(kind="bars", x_to="to (bits)", shows=("from (bits)", "to (bits)", "members")),
            Marks(kind="line", rows=curves, x="bits"),
            Marks(
                kind="rule",
                rows=lines,
                x="log-perplexity (bits)",
                y="",
                shows=("canary", "trained on", "log-perplexity (bits)"),
            ),
        ),
        color="trained on",
        colors=copies_colors(one.repetitions for document, _ in best.values() for one in document.results),
        legend="canaries trained on",
        panel="format",
        notes=notes,
        height=260,
    )


def _curve(run: Run, format_id: str, bits: NDArray[np.float64]) -> tuple[SkewNormal | None, str]:
    for located in run.all(EXPOSURES):
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


def _curve_rows(name: str, curve: SkewNormal | None, low: float, high: float, mass: float) -> Rows:
    if curve is None:
        return []
    places = np.linspace(low, high, 160)
    heights = np.exp(np.asarray(curve.log_pdf(places))) * mass
    return [
        {"format": name, "bits": rounded(x), "members": rounded(y)}
        for x, y in zip(places, heights, strict=True)
    ]


def _lines(document: Exposures, format_id: str, name: str) -> tuple[Rows, str]:
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
            "format": name,
            "canary": one.canary_id,
            "log-perplexity (bits)": rounded(one.log_perplexity_bits),
            "trained on": times_in_words(one.repetitions),
        }
        for one in shown
    ], left_out
