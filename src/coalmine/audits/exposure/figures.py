"""The figures of exposure: each canary against its repetitions, and against the log-perplexities of the members of its format.

After Figures 1, 3, 4 and 6 of The Secret Sharer: Evaluating and Testing Unintended Memorization in Neural Networks, Carlini, Liu,
Erlingsson, Kos and Song, 2019, arXiv:1802.08232.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure.candidate_scores import CandidateScores, read_candidates
from coalmine.audits.exposure.results import EXPOSURES, ExposureResult, Exposures, scores_beside
from coalmine.audits.exposure.table import canary_table, height, most_exposed_first
from coalmine.errors import NotMeasurableError
from coalmine.evidence.charts import Axis, Chart, Marks, Rows, copies_colors, intervals, rounded, thinned
from coalmine.evidence.run import Run
from coalmine.evidence.words import FormatNames, format_names, times_in_words
from coalmine.grouped import grouped
from coalmine.randomness import arrays
from coalmine.statistics.exposure.skew_normal import SkewNormal
from coalmine.statistics.exposure.skew_normal_fit import FEWEST_SCORES, fit_skew_normal

FIGURE_ID = "exposure-by-repetitions"
# More points than this cannot be distinguished, and make the page slow.
MOST_POINTS = 2_000
# Without memorization, 95 of 100 canaries stay below this many bits.
GUESSING_BITS = math.log2(20)
BINS, MOST_LINES = 60, 60
# A curve for the eye needs no more scores than this.
MOST_FITTED = 20_000
# Scores that represent their format, and what they are. Guided draws are not here: they were drawn for their scores.
_UNIFORM = {
    "member": "All {:,} members",
    "sample": "{:,} members drawn at random",
    "reference": "{:,} references",
}


def names_of_formats(run: Run) -> FormatNames:
    """The names of all formats that the results or the manifest of a run describe."""
    templates: dict[str, str] = {}
    if run.canaries is not None:
        templates |= {format_id: form.template for format_id, form in run.canaries.formats.items()}
    for located in reversed(run.all(EXPOSURES)):
        templates |= {facts.format_id: facts.template for facts in located.document.formats}
    return format_names(templates)


def formats_of_canaries(run: Run) -> dict[str, str]:
    """The `format_id` of each canary that the results or the manifest have."""
    planted = {canary.canary_id: canary.format_id for canary in run.canaries or ()}
    measured = (result for located in reversed(run.all(EXPOSURES)) for result in located.document.results)
    return planted | {result.canary_id: result.format_id for result in measured}


def exposure_figure(run: Run) -> Chart | None:
    """Exposure against repetitions; None if there are no exposures."""
    document = run.first(EXPOSURES)
    return None if document is None or not document.results else exposure_figure_of(document)


def exposure_figure_of(
    document: Exposures, *, figure_id: str = FIGURE_ID, what: tuple[str, str] = ("canary", "canaries")
) -> Chart:
    """The figure of some exposures, a panel per format; `what` is what one of these and several are called."""
    one, several = what
    names = format_names(document.formats)
    measured = sorted(
        (result for result in document.results if result.estimate.status != "not_measured"),
        key=lambda result: (result.repetitions, height(result)),
    )
    drawn = [measured[place] for place in thinned(len(measured), MOST_POINTS)]
    shown = ""
    if len(drawn) < len(measured):
        shown = f" {len(drawn):,} of {len(measured):,} {several} are drawn, spread evenly over their exposures; all are in the data."
    if unmeasured := len(document.results) - len(measured):
        shown += f" {unmeasured:,} of {len(document.results):,} {several} could not be measured, and have no point."
    most = grouped((names[result.format_id], result.most_possible_bits) for result in document.results)
    rows: Rows = [
        {
            "canary": result.canary_id,
            "trained on": times_in_words(times),
            "format": names[result.format_id],
            # Side by side, so that equal exposures do not hide each other.
            "beside": 0.0 if len(some) == 1 else rounded(place / (len(some) - 1) - 0.5, 3),
            "bits": rounded(height(result), 3),
            "low": rounded(result.estimate.low, 3),
            "high": rounded(height(result) if result.estimate.high is None else result.estimate.high, 3),
            "exposure (bits)": result.estimate.text(),
            "known": "at least" if result.estimate.status == "lower_bound" else "measured",
        }
        for (_, times), some in grouped(((one.format_id, one.repetitions), one) for one in drawn).items()
        for place, result in enumerate(some)
    ]
    columns, data = canary_table(names).data(most_exposed_first(document))
    return Chart(
        id=figure_id,
        title="Exposure against repetitions"
        if figure_id == FIGURE_ID
        else f"Exposure of {several} against copies",
        caption=f"Each point is a {one} with its interval; a triangle is a lower bound, because the {one} beat everything it was "
        f"compared with. The gray band holds 95 of 100 {several} of a model that memorized nothing. The dashed line is the maximum."
        + shown,
        rows=rows,
        columns=columns,
        data=tuple(data),
        x=Axis(column="trained on", title="times trained on", scale="names", grid=False, beside="beside"),
        y=Axis(
            column="bits", title="exposure (bits)", domain=(0, max(1.04 * max(map(max, most.values())), 1))
        ),
        marks=(
            Marks(kind="band", rows=[{"from": 0, "to": rounded(GUESSING_BITS)}], x="", y="from", y_to="to"),
            Marks(
                kind="rule",
                rows=[{"format": name, "most": rounded(max(bits))} for name, bits in most.items()],
                x="",
                y="most",
                dashed=True,
            ),
            intervals("low", "high"),
            Marks(kind="points", shows=("canary", "trained on", "exposure (bits)")),
        ),
        color="trained on",
        colors=copies_colors(result.repetitions for result in document.results),
        legend="",
        shape="known",
        shapes={"measured": "circle", "at least": "triangle-up"},
        panel="format",
        notes={
            name: f"{len(bits):,} {several}; the maximum is {max(bits):.1f} bits."
            for name, bits in most.items()
        },
        height=300,
        leads=True,
    )


def largest_scores(run: Run) -> dict[str, tuple[Exposures, CandidateScores]]:
    """The largest set of scores that represents each format that has any, with the exposures that it was written with."""
    best: dict[str, tuple[Exposures, CandidateScores]] = {}
    for located in run.all(EXPOSURES):
        path = scores_beside(located.path)
        kept = [] if path is None else read_candidates(path, indices=False)
        for scores in (one for kind in _UNIFORM for one in kept if one.kind == kind):
            known = best.get(scores.format_id)
            if known is None or len(scores.log_perplexities_bits) > len(known[1].log_perplexities_bits):
                best[scores.format_id] = (located.document, scores)
    return dict(sorted(best.items()))


def histogram_figure(run: Run) -> Chart | None:
    """One histogram per format with scored members, with a skew-normal curve and a line per canary; of several sets, the largest."""
    names, bars, curves, lines = names_of_formats(run), Rows(), Rows(), Rows()
    notes: dict[str, str] = {}
    best = largest_scores(run)
    for format_id, (document, scores) in best.items():
        bits = scores.log_perplexities_bits[np.isfinite(scores.log_perplexities_bits)]
        if len(bits) < 2:
            continue
        name = names[format_id]
        counts, edges = np.histogram(bits, bins=BINS)
        bars += [
            {"format": name, "from (bits)": rounded(low), "to (bits)": rounded(high), "members": int(count)}
            for low, high, count in zip(edges, edges[1:], counts, strict=False)
        ]
        canaries = sorted(
            (one for one in document.results if one.format_id == format_id and _is_drawn(one)),
            key=lambda one: one.log_perplexity_bits,
        )
        shown = canaries[:MOST_LINES]
        lines += [
            {
                "format": name,
                "canary": one.canary_id,
                "log-perplexity (bits)": rounded(one.log_perplexity_bits),
                "trained on": times_in_words(one.repetitions),
            }
            for one in shown
        ]
        notes[name] = f"{_UNIFORM[scores.kind].format(len(bits))}."
        if len(shown) < len(canaries):
            notes[name] += f" The {MOST_LINES} least surprising of {len(canaries):,} canaries are drawn."
        curve, said = _curve(run, format_id, bits)
        notes[name] += said
        if curve is not None:
            lowest = min([edges[0], *(one.log_perplexity_bits for one in shown)])
            places = np.linspace(lowest, edges[-1], 160)
            heights = np.exp(np.asarray(curve.log_pdf(places))) * len(bits) * (edges[1] - edges[0])
            curves += [
                {"format": name, "bits": rounded(x), "members": rounded(y)}
                for x, y in zip(places, heights, strict=True)
            ]
    if not bars:
        return None
    return Chart(
        id="log-perplexity",
        title="Log-perplexity of members and canaries",
        caption="Each line is a canary: the further left of the bulk, the better remembered.",
        rows=bars,
        columns=("format", "from (bits)", "to (bits)", "members"),
        x=Axis(column="from (bits)", title="log-perplexity (bits)", grid=False),
        y=Axis(column="members", title="members per bin", scale="linear"),
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


def _is_drawn(one: ExposureResult) -> bool:
    return one.known_log_perplexity_bits is not None and math.isfinite(one.log_perplexity_bits)


def _curve(run: Run, format_id: str, bits: NDArray[np.float64]) -> tuple[SkewNormal | None, str]:
    """The curve that `expose` fitted, or one for the eye, and a sentence about it."""
    for located in run.all(EXPOSURES):
        fit = located.document.tail_fits.get(format_id)
        if fit is not None:
            tested = "rejected" if fit.rejected else "not rejected"
            return (
                fit.curve,
                f" The skew-normal curve is that of `expose`, which its test has {tested} (p = {fit.ks_p_value:.2g}).",
            )
    if len(bits) < FEWEST_SCORES:
        return None, ""
    if len(bits) > MOST_FITTED:
        bits = arrays(0, "report", "histogram", format_id).choice(bits, MOST_FITTED, replace=False)
    try:
        return fit_skew_normal(bits), " The skew-normal curve is for the eye; no test was made of it."
    except NotMeasurableError:
        return None, ""
