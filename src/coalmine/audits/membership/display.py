"""What membership shows: the table of its populations, the same in words, the ROC, and the bounds on epsilon."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import numpy as np

from coalmine.audits.exposure.candidate_scores import read_candidates
from coalmine.audits.exposure.display import names_of_formats
from coalmine.audits.exposure.results import EXPOSURES, scores_beside
from coalmine.audits.membership.populations import ScoredExposures, ScoredPopulation, populations
from coalmine.audits.membership.records import MEMBERSHIPS, Membership, Population
from coalmine.errors import NotMeasurableError
from coalmine.evidence.charts import (
    PALETTE,
    Axis,
    Chart,
    Marks,
    Rows,
    copies_colors,
    intervals,
    rounded,
    thinned,
)
from coalmine.evidence.run import Run
from coalmine.evidence.tables import Column, Table
from coalmine.evidence.words import FormatNames, format_names, times_in_words
from coalmine.grouped import grouped
from coalmine.records.estimate import chance_text, rounded_down
from coalmine.records.privacy import claim_of_model
from coalmine.statistics.roc import RateEstimate, tpr_band
from coalmine.visible import visible

# What the p-value of all tests of all populations together must be at most before one of them is called memorized.
SURPRISING = 0.025
# False-positive rates at which a curve is drawn, and the curves of a panel, at most.
MOST_STEPS, MOST_CURVES = 80, 8
CONFIDENCE = 0.95
# A label of an axis is broken here, in letters.
LABEL_WIDTH = 17
_FPR, _TPR = "false-positive rate", "true-positive rate"


def _rate(one: Population, fpr: float) -> RateEstimate | None:
    return next((rate for rate in one.tpr_at_fpr if rate.fpr == fpr), None)


POPULATIONS: Table[Population] = Table(
    (
        Column("population", lambda one: one.name),
        Column("in", lambda one: one.in_count),
        Column("out", lambda one: one.out_count),
        Column("median exposure (bits)", lambda one: one.guessing.median, short=""),
        Column("p of guessing", lambda one: one.guessing.p_value, "p", short=""),
        Column("AUC", lambda one: one.auc),
        Column("TPR at 10% FPR", lambda one: _rate(one, 0.1), "%", short=""),
        Column("TPR at 1% FPR", lambda one: _rate(one, 0.01), "%", short="TPR at\n1% FPR"),
        Column("TPR at 0.1% FPR", lambda one: _rate(one, 0.001), "%", short=""),
        Column("epsilon", lambda one: one.best.canary),
        Column(
            "if scores are independent",
            lambda one: one.independent and one.independent.canary,
            short="",
        ),
    )
)


def membership_in_plain_words(result: Membership) -> list[str]:
    """What the numbers mean, one line per population, and the verdict on a claim if there is one."""
    single = [one for one in result.populations if not one.pooled]
    lines = [f"{visible(_planted(one))}: {_meaning(one, len(single))}" for one in single]
    measured = [one.best.canary for one in single if one.best.canary.status != "not_measured"]
    missing = [one for one in single if one.best.canary.status == "not_measured"]
    for reason, names in grouped((one.best.canary.statement, one.name) for one in missing).items():
        which = "; ".join(names) if len(names) <= 2 else f"{len(names)} populations"
        lines.append(f"Epsilon is not measured ({visible(which)}): {visible(reason)}.")
    needed = dict.fromkeys(text for estimate in measured for text in estimate.assumptions)
    if needed:
        lines.append(f"Epsilon is bounded {_level_words(result)}, if {visible('; '.join(needed))}.")
    lines += [
        f"Calibration, {visible(change.population)}: the median exposure changes from {change.plain_median_bits:.2f} to "
        f"{change.calibrated_median_bits:.2f} bits."
        for change in result.calibration
    ]
    if result.verdict is not None:
        lines.append(f"Verdict: {visible(result.verdict.statement)}.{whose_claim(result)}")
    return lines


def _level_words(result: Membership) -> str:
    return f"at delta {result.settings.delta:g} with {100 * result.settings.confidence:g}% confidence"


def _planted(one: Population) -> str:
    return one.name if one.natural else f"Planted {one.name}"


def whose_claim(result: Membership) -> str:
    """Where the claim that was judged comes from, and what it is for, where the model itself makes it; else nothing."""
    claim, verdict = claim_of_model(result.model), result.verdict
    if claim is None or verdict is None:
        return ""
    if (claim.epsilon, claim.delta) != (verdict.claimed_epsilon, verdict.claimed_delta):
        return ""
    return f" The model's own record of its training claims this, for one {claim.unit}."


def _meaning(one: Population, populations: int) -> str:
    p_value = min(1.0, populations * one.p_value)
    shown = p_value <= SURPRISING
    if shown:
        return " ".join(
            [f"memorized (p = {chance_text(p_value)}).", *_rate_words(one), *_epsilon_words(one, shown)]
        )
    # Scores of few canaries show nothing whatever the model knows, so that they show nothing is not innocence.
    if one.proven:
        best = one.proven[0]
        return (
            f"these scores cannot show memorization (p = {p_value:.2f}), although {len(one.proven)} of {one.in_count:,} canaries have an "
            f"exposure that chance does not explain, {visible(best.canary_id)} one of at least {rounded_down(best.at_least_bits)} bits "
            f"(p = {chance_text(best.p_value)})."
        )
    if one.no_answer is not None:
        return f"these scores cannot show whether canaries were memorized: {one.no_answer}."
    return " ".join(
        [f"these scores do not show memorization (p = {p_value:.2f}).", *_epsilon_words(one, shown)]
    )


def _rate_words(one: Population) -> Iterator[str]:
    measured = [rate for rate in one.tpr_at_fpr if rate.status == "measured"]
    # A lower limit of 0 says little; the lowest false-positive rate that has more is the one to quote.
    telling = [rate for rate in measured if (rate.low or 0.0) > 0.0][-1:] or measured[:1]
    for rate in telling:
        share = f"{100 * (rate.value or 0.0):.0f}%"
        yield f"At a {100 * (rate.fpr or 0.0):g}% false-positive rate, an attacker identifies {share} of them."


def _epsilon_words(one: Population, shown: bool) -> Iterator[str]:
    low, copy = one.best.canary.low, one.best.one_copy
    if low is None:
        return
    each = "" if one.copies == 1 or copy is None else f" ({rounded_down(copy.low or 0.0)} for one copy)"
    said = "Nothing is shown about epsilon"
    if low >= 0.005:
        # The bound of a row has its own 5%; what the audit says has 5% for all rows and tests together.
        by_itself = (
            "Epsilon is at least" if shown else "By itself, this population would give epsilon at least"
        )
        said = f"{by_itself} {rounded_down(low)}{each}"
    yield f"{said}; the most this many scores could prove is {rounded_down(one.epsilon_ceiling)}."


def membership_figures(run: Run) -> Iterator[Chart]:
    """The ROC of each format that has scores, and the bounds on epsilon if `membership` was run."""
    roc = _roc(run)
    if roc is not None:
        yield roc
    members = run.first(MEMBERSHIPS)
    epsilon = None if members is None else epsilon_figure(members, names_of_formats(run))
    if epsilon is not None:
        yield epsilon


def _roc(run: Run) -> Chart | None:
    """The curve and band of each number of copies; None where there is nothing to compare, or nothing to compare it with."""
    names, rows, guessing, notes = names_of_formats(run), Rows(), Rows(), dict[str, str]()
    copies: set[int] = set()
    for format_id, every in _compared(run).items():
        name, others = names[format_id], len(every[0].scores.out_scores)
        for one in (every[place] for place in thinned(len(every), MOST_CURVES)):
            copies.add(one.copies)
            rows += [{"format": name, "trained on": times_in_words(one.copies), **row} for row in _curve(one)]
        notes[name] = f"Against {others:,} that were not trained on."
        steps = np.logspace(np.log10(0.5 / others), 0, 40)
        guessing += [{"format": name, "drawn": rounded(p, 7), _TPR: rounded(p, 7)} for p in steps]
    if not rows:
        return None
    return Chart(
        id="roc",
        title="Telling planted canaries from others",
        caption="The share of planted canaries that the scores identify, against the share of others that they mistake for planted, by "
        "how often the canaries were trained on. A band holds the true-positive rate at each false-positive rate with "
        f"{100 * CONFIDENCE:g}% confidence, the error of the threshold included; the dashed line is guessing. A false-positive rate "
        "of 0 is drawn at half of the smallest that can be seen.",
        rows=rows,
        columns=("format", "trained on", _FPR, _TPR, "low", "high"),
        x=Axis(
            column="drawn",
            title=_FPR,
            scale="log",
            domain=(min(row["drawn"] for row in guessing), 1),
            format="~g",
            grid=False,
        ),
        y=Axis(
            column=_TPR,
            scale="log",
            domain=(min([0.01, *(row[_TPR] for row in rows if row[_TPR] > 0)]) / 2, 1),
            format="~g",
            grid=False,
        ),
        marks=(
            Marks(kind="line", rows=guessing, dashed=True),
            Marks(kind="area", y="low", y_to="high"),
            Marks(kind="steps", shows=("trained on", _FPR, _TPR)),
        ),
        color="trained on",
        colors=copies_colors(copies),
        legend="trained on",
        panel="format",
        notes=notes,
    )


def _compared(run: Run) -> dict[str, list[ScoredPopulation]]:
    """The populations of each format whose scores were kept; of several results, those that are compared with most."""
    best: dict[str, list[ScoredPopulation]] = {}
    for located in run.all(EXPOSURES):
        path = scores_beside(located.path)
        try:
            candidates = () if path is None else tuple(read_candidates(path))
            found, _ = populations(ScoredExposures(located.document, candidates))
        except NotMeasurableError:
            continue
        single = ((str(one.format_id), one) for one in found if candidates and not one.pooled)
        for format_id, some in grouped(single).items():
            before = best.get(format_id)
            if before is None or len(some[0].scores.out_scores) > len(before[0].scores.out_scores):
                best[format_id] = some
    return dict(sorted(best.items()))


def _curve(one: ScoredPopulation) -> Iterator[dict[str, float | None]]:
    """The rates above thresholds that so many of the others exceed, with the limits of the true-positive rate there."""
    own, others = one.scores
    n, ordered = len(others), np.append(np.sort(others)[::-1], -np.inf)
    counts = np.unique([0, *np.round(np.logspace(0, np.log10(n), MOST_STEPS)).astype(int)])
    thresholds = np.unique(ordered[counts])[::-1]
    fprs = np.array([np.mean(others > threshold) for threshold in thresholds])
    drawn = np.maximum(fprs, 0.5 / n)
    low, high = tpr_band(own, others, np.minimum(drawn, 1 - 1e-9), CONFIDENCE)
    for place, threshold in enumerate(thresholds):
        yield {
            _FPR: rounded(fprs[place], 7),
            "drawn": rounded(drawn[place], 7),
            _TPR: rounded(float(np.mean(own > threshold))),
            "low": rounded(low[place]),
            "high": rounded(high[place]),
        }


def epsilon_figure(document: Membership, known: FormatNames | None = None) -> Chart | None:
    """What each method shows about epsilon, for each population; None where none shows anything. A claim is about one copy, and so are
    bounds beside it.

    `known` are names of formats that the run has; those of the populations themselves are taken otherwise.
    """
    names = known or format_names(
        {one.format_id: one.template for one in document.populations if one.format_id and one.template}
    )
    claim = document.verdict
    rows = [row for one in document.populations for row in _bounds(one, names, of_copy=claim is not None)]
    if not rows:
        return None
    claims: Rows = [] if claim is None else [{"claimed epsilon": claim.claimed_epsilon}]
    said = (
        ""
        if claim is None
        else f" The dashed line is the claimed epsilon of {claim.claimed_epsilon:g}: {claim.words}."
    )
    whole = "a canary as a whole" if claim is None else "one copy of a canary"
    panels = len({row["format"] for row in rows})
    ends = [float(row["upper end"] or 0.0) for row in rows] + [row["claimed epsilon"] for row in claims]
    columns = (
        "format",
        "planted",
        "method",
        "epsilon at least",
        "upper end",
        "kind",
        "most that could be shown",
    )
    return Chart(
        id="epsilon",
        title="Lower bounds on epsilon" + ("" if claim is None else ", and the claimed epsilon"),
        caption=f"What each method shows about epsilon for {whole}, {_level_words(document)} "
        "(the Bayesian interval, where there is one, is credible instead). A triangle is a lower limit; the circle of the "
        f"median is a point estimate and not a bound.{said}",
        rows=rows,
        columns=columns,
        x=Axis(column="epsilon at least", title="epsilon", domain=(0, 1.05 * max([1.0, *ends]))),
        y=Axis(column="label", title="", scale="names", beside="planted"),
        marks=(
            intervals("epsilon at least", "upper end", x=True),
            Marks(kind="points", shows=columns[1:]),
            Marks(
                kind="rule", rows=claims, x="claimed epsilon", y="", dashed=True, shows=("claimed epsilon",)
            ),
        ),
        color="planted",
        colors=copies_colors(one.copies for one in document.populations if not one.pooled)
        | {"pooled": PALETTE[2]},
        legend="planted",
        shape="kind",
        shapes={"lower limit": "triangle-right", "point estimate": "circle"},
        panel="format",
        height=max(160, 13 * len(rows) // panels + 20, 60 * len({row["label"] for row in rows})),
    )


def _bounds(one: Population, names: FormatNames, *, of_copy: bool) -> Iterator[dict[str, Any]]:
    beside = () if one.independent is None else (one.independent,)
    for bound in (*one.epsilon, *beside, one.best):
        estimate = bound.one_copy if of_copy else bound.canary
        if estimate is None or estimate.status == "not_measured":
            continue
        at = estimate.value if estimate.low is None else estimate.low
        yield {
            "format": "" if one.format_id is None else names[one.format_id],
            "planted": "pooled" if one.pooled else times_in_words(one.copies),
            "method": estimate.method,
            "label": " | ".join(textwrap.wrap(estimate.method, LABEL_WIDTH)),
            "epsilon at least": rounded(at),
            "upper end": rounded(at if estimate.high is None else estimate.high),
            "kind": "point estimate" if estimate.low is None else "lower limit",
            "most that could be shown": rounded(one.one_copy_ceiling if of_copy else one.epsilon_ceiling),
        }
