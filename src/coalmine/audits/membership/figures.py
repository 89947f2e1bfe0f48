"""The figures of membership: the ROC on logarithmic axes with its bands, one panel per format, and the bounds on epsilon."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure.format_panels import names_of_formats
from coalmine.audits.exposure.histogram_figure import UniformScores, largest_scores
from coalmine.audits.exposure.results import Exposures
from coalmine.audits.membership.results import MEMBERSHIPS, Membership, Population
from coalmine.evidence.charts import PALETTE, Axis, Chart, Marks, Rows, copies_colors, intervals, rounded
from coalmine.evidence.run import Run
from coalmine.evidence.words import FormatNames, format_names, times_in_words
from coalmine.statistics.roc import tpr_band

FloatArray = NDArray[np.float64]
# False positive rates at which a curve and its band are drawn, at most.
MOST_STEPS, BAND_STEPS = 120, 25
MOST_CURVES = 8
CONFIDENCE = 0.95
_FPR, _TPR = "false-positive rate", "true-positive rate"
# A label of an axis is broken here, in letters.
LABEL_WIDTH = 17
_EPSILON_COLUMNS = (
    "format",
    "planted",
    "method",
    "epsilon at least",
    "upper end",
    "kind",
    "for one copy",
    "most that could be shown",
)


def membership_figures(run: Run) -> Iterator[Chart]:
    """The ROC of each format that has scores, and the bounds on epsilon if `membership` was run."""
    roc = _roc(run)
    if roc is not None:
        yield roc
    members = run.first(MEMBERSHIPS)
    if members is not None:
        epsilon = epsilon_figure(members, names_of_formats(run))
        if epsilon is not None:
            yield epsilon


def _roc(run: Run) -> Chart | None:
    """The curve and band of each number of copies; None where there is nothing to compare, or nothing to compare it with."""
    names, curves, bands, guessing = names_of_formats(run), Rows(), Rows(), Rows()
    notes: dict[str, str] = {}
    copies: set[int] = set()
    for format_id, (document, scores) in largest_scores(run).items():
        others, own = _scores(document, scores)
        if not len(others) or not own:
            continue
        name = names[format_id]
        drawn = list(own)[:: max(1, -(-len(own) // MOST_CURVES))]
        copies.update(drawn)
        here = [row for times in drawn for row in _curve(name, own[times], others, times)]
        curves += here
        bands += [row for times in drawn for row in _band(name, own[times], others, times)]
        guessing += [
            {"format": name, "drawn": rounded(p, 7), _TPR: rounded(p, 7)}
            for p in np.logspace(np.log10(0.5 / len(others)), 0, 40)
        ]
        left_out = (
            "" if len(drawn) == len(own) else f" {len(drawn)} of {len(own)} numbers of copies are drawn."
        )
        notes[name] = f"Against {len(others):,} that were not trained on.{left_out}{_alike(here, drawn)}"
    if not curves:
        return None
    return Chart(
        id="roc",
        title="Telling planted canaries from others",
        caption="The share of planted canaries that the scores identify, against the share of others that they mistake for planted, by "
        "how often the canaries were trained on. A band holds the true-positive rate at each false-positive rate with "
        f"{100 * CONFIDENCE:g}% confidence, the error of the threshold included; the dashed line is guessing. A false-positive rate "
        "of 0 is drawn at half of the smallest that can be seen.",
        rows=curves,
        columns=("format", "trained on", _FPR, _TPR, "low", "high"),
        data=tuple(
            (row["format"], row["trained on"], row[_FPR], row.get(_TPR), row.get("low"), row.get("high"))
            for row in (*curves, *bands)
        ),
        x=Axis(
            column="drawn",
            title=_FPR,
            scales=("log", "linear"),
            domain=(min(row["drawn"] for row in guessing), 1),
            format="~g",
            grid=False,
        ),
        y=Axis(
            column=_TPR,
            scales=("log", "linear"),
            domain=(min([0.01, *(row[_TPR] for row in curves if row[_TPR] > 0)]) / 2, 1),
            format="~g",
            grid=False,
        ),
        marks=(
            Marks(kind="line", rows=guessing, dashed=True),
            Marks(kind="area", rows=bands, y="low", y_to="high"),
            Marks(kind="steps", shows=("trained on", _FPR, _TPR, "canaries")),
        ),
        color="trained on",
        colors=copies_colors(copies),
        legend="trained on",
        panel="format",
        notes=notes,
    )


def _alike(curves: Rows, copies: list[int]) -> str:
    """Which curves coincide, so that only the last of them is visible."""
    courses: dict[tuple[tuple[float, float], ...], list[str]] = {}
    for times in map(times_in_words, copies):
        highest: dict[float, float] = {}
        for row in curves:
            if row["trained on"] == times:
                highest[row[_FPR]] = max(row[_TPR], highest.get(row[_FPR], 0.0))
        courses.setdefault(tuple(highest.items()), []).append(times)
    same = [f"{', '.join(some[:-1])} and {some[-1]}" for some in courses.values() if len(some) > 1]
    return "".join(f" The curves of {names} are the same." for names in same)


def _scores(document: Exposures, scores: UniformScores) -> tuple[FloatArray, dict[int, FloatArray]]:
    """The sorted scores of what was not trained on, and those of planted canaries by their number of copies."""
    here = [
        result
        for result in document.results
        if result.format_id == scores.format_id and result.known_log_perplexity_bits is not None
    ]
    planted = np.array([-r.log_perplexity_bits for r in here if r.planted])
    withheld = np.array([-r.log_perplexity_bits for r in here if not r.planted])
    others = np.sort(-scores.bits)
    # All members hold the canaries: withheld ones are among the others already, and planted ones are taken out.
    others = (
        _without(others, planted) if scores.kind == "member" else np.sort(np.concatenate([others, withheld]))
    )
    copies = sorted({r.repetitions for r in here if r.planted})
    return others, {
        times: np.sort([-r.log_perplexity_bits for r in here if r.planted and r.repetitions == times])
        for times in copies
    }


def _without(everyone: FloatArray, some: FloatArray) -> FloatArray:
    """Sorted scores without the closest one to each of some, each taken out once."""
    taken: set[int] = set()
    for score, place in zip(some.tolist(), np.searchsorted(everyone, some).tolist(), strict=True):
        below, above = place - 1, place
        while below in taken:
            below -= 1
        while above in taken:
            above += 1
        near = [at for at in (below, above) if 0 <= at < len(everyone)]
        if near:
            taken.add(min(near, key=lambda at: abs(float(everyone[at]) - score)))
    return np.delete(everyone, sorted(taken))


def _curve(name: str, own: FloatArray, others: FloatArray, times: int) -> Rows:
    n = len(others)
    thresholds = np.append(np.unique(np.concatenate([own, _quantiles(others)]))[::-1], -np.inf)
    fpr = (n - np.searchsorted(others, thresholds, side="right")) / n
    hits = len(own) - np.searchsorted(own, thresholds, side="right")
    return [
        {
            "format": name,
            "trained on": times_in_words(times),
            _FPR: rounded(fpr[place], 7),
            "drawn": rounded(max(float(fpr[place]), 0.5 / n), 7),
            _TPR: rounded(hits[place] / len(own)),
            "canaries": len(own),
        }
        for place in _corners(fpr, hits)
    ]


def _band(name: str, own: FloatArray, others: FloatArray, times: int) -> Rows:
    """Limits at rates that are evenly spread on a logarithmic axis; below one of the others nothing can be said."""
    n = len(others)
    rates = np.unique(np.round(np.logspace(np.log10(min(0.5, 1.0 / n)), 0.0, BAND_STEPS)[:-1], 7))
    low, high = tpr_band(own, others, rates, CONFIDENCE)
    return [
        {
            "format": name,
            "trained on": times_in_words(times),
            _FPR: rounded(rate, 7),
            "drawn": rounded(rate, 7),
            "low": rounded(low[place]),
            "high": rounded(high[place]),
        }
        for place, rate in enumerate(rates)
    ]


def _quantiles(others: FloatArray) -> FloatArray:
    """Thresholds at false-positive rates that are evenly spread on a logarithmic axis."""
    n = len(others)
    ranks = np.unique(np.round(np.logspace(0, np.log10(n), MOST_STEPS)).astype(int))
    return np.asarray(others[n - ranks])


def _corners(fpr: FloatArray, hits: NDArray[np.int64]) -> list[int]:
    """Places where the curve turns, at most so many that it can be drawn."""
    changed = [0]
    for place in range(1, len(fpr)):
        if fpr[place] != fpr[changed[-1]] or hits[place] != hits[changed[-1]]:
            changed.append(place)
    if len(changed) <= 2 * MOST_STEPS:
        return changed
    step = len(changed) / (2 * MOST_STEPS)
    return sorted({changed[int(place * step)] for place in range(2 * MOST_STEPS)} | {changed[-1]})


def epsilon_figure(document: Membership, known: FormatNames | None = None) -> Chart | None:
    """What each method shows about epsilon, for each population; None where none shows anything. A claim is about one copy, and so are
    bounds beside it.

    `known` are names of formats that the run has; those of the populations themselves are taken otherwise.
    """
    names = known or format_names(
        {one.format_id: one.template for one in document.populations if one.format_id and one.template}
    )
    rows = [row for population in document.populations for row in _bounds(document, population, names)]
    if not rows:
        return None
    claim = document.verdict
    said = (
        ""
        if claim is None
        else f" The dashed line is the claimed epsilon of {claim.claimed_epsilon:g}: {claim.words}."
    )
    whole = "a canary as a whole" if claim is None else "one copy of a canary"
    claims: Rows = [] if claim is None else [{"claimed epsilon": claim.claimed_epsilon}]
    ends = [float(row["upper end"] or 0.0) for row in rows] + [row["claimed epsilon"] for row in claims]
    return Chart(
        id="epsilon",
        title="Lower bounds on epsilon" + ("" if claim is None else ", and the claimed epsilon"),
        caption=f"What each method shows about epsilon at delta {document.delta:g}, for {whole}, at {100 * document.confidence:g}% "
        "confidence (the Bayesian interval, where there is one, is credible instead). A triangle is a lower limit; the circle of the "
        f"median is a point estimate and not a bound.{said}",
        rows=rows,
        columns=_EPSILON_COLUMNS,
        x=Axis(column="epsilon at least", title="epsilon", domain=(0, 1.05 * max([1.0, *ends]))),
        y=Axis(column="label", title="", scales=("names",), beside="planted"),
        marks=(
            intervals("epsilon at least", "upper end", x=True),
            Marks(kind="points", shows=tuple(name for name in _EPSILON_COLUMNS[1:] if name != "kind")),
            Marks(
                kind="rule", rows=claims, x="claimed epsilon", y="", dashed=True, shows=("claimed epsilon",)
            ),
        ),
        color="planted",
        colors=copies_colors(one.copies for one in document.populations if not one.pooled)
        | {row["planted"]: PALETTE[2] for row in rows if row["pooled"]},
        legend="planted",
        shape="kind",
        shapes={"lower limit": "triangle-right", "point estimate": "circle"},
        panel="format",
        height=max(
            160,
            13 * len(rows) // len({row["format"] for row in rows}) + 20,
            60 * len({row["label"] for row in rows}),
        ),
    )


def _bounds(document: Membership, population: Population, names: FormatNames) -> Rows:
    claimed = document.verdict is not None
    named = "" if population.format_id is None else names[population.format_id]
    rows: Rows = []
    beside = () if population.independent is None else (population.independent,)
    for bound in (*population.epsilon, *beside, population.best):
        estimate = bound.one_copy if claimed else bound.canary
        if estimate is None or estimate.status == "not_measured":
            continue
        at = estimate.value if estimate.low is None else estimate.low
        rows.append(
            {
                "format": named,
                "planted": "pooled" if population.pooled else times_in_words(population.copies),
                "pooled": population.pooled,
                "method": estimate.method,
                "label": " | ".join(textwrap.wrap(estimate.method, LABEL_WIDTH)),
                "epsilon at least": rounded(at),
                "upper end": rounded(at if estimate.high is None else estimate.high),
                "kind": "point estimate" if estimate.low is None else "lower limit",
                "for one copy": rounded(bound.one_copy.low if bound.one_copy is not None else None),
                "most that could be shown": rounded(
                    population.one_copy_ceiling if claimed else population.epsilon_ceiling
                ),
            }
        )
    return rows
