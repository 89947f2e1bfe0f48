"""What membership shows: how well members can be told from others, what that says about epsilon, a table, sentences and two figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from coalmine.audits.exposure.display import names_of_formats
from coalmine.audits.exposure.report import planted_in
from coalmine.audits.exposure.results import EXPOSURES, read_candidates, scores_beside
from coalmine.audits.membership.populations import ScoredPopulation, populations
from coalmine.audits.membership.records import MEMBERSHIPS, Membership, Population
from coalmine.errors import NotMeasurableError
from coalmine.evidence.charts import Axis, Chart, Marks, Rows, copies_colors, rounded
from coalmine.evidence.measures import Audit, Measure, Rule
from coalmine.evidence.run import Run
from coalmine.evidence.tables import Column, Detail, Table
from coalmine.evidence.words import format_name, times_in_words
from coalmine.grouped import grouped
from coalmine.records import Estimate
from coalmine.records.estimate import chance_text, rounded_down
from coalmine.records.privacy import claim_of_model
from coalmine.statistics.roc import RateEstimate, tpr_band
from coalmine.visible import visible

# What the p-value of all tests of all populations together must be at most before one of them is called memorized.
SURPRISING = 0.025
# Below this a bound on epsilon shows nothing.
_LEAST = 0.005
# False-positive rates at which a curve is drawn, and the curves of a panel, at most.
MOST_STEPS, MOST_CURVES = 80, 8
_FPR, _TPR = "false-positive rate", "true-positive rate"


def _rate(one: Population, fpr: float) -> RateEstimate | None:
    return next((rate for rate in one.tpr_at_fpr if rate.fpr == fpr), None)


POPULATIONS: Table[Population] = Table(
    (
        Column("population", lambda one: one.name),
        Column("in", lambda one: one.in_count),
        Column("out", lambda one: one.out_count),
        Column("median exposure (bits)", lambda one: one.exposure, short=""),
        Column("p of guessing", lambda one: one.guessing_p_value, "p", short=""),
        Column("AUC", lambda one: one.auc),
        Column("TPR at 10% FPR", lambda one: _rate(one, 0.1), "%", short=""),
        Column("TPR at 1% FPR", lambda one: _rate(one, 0.01), "%", short="TPR at\n1% FPR"),
        Column("TPR at 0.1% FPR", lambda one: _rate(one, 0.001), "%", short=""),
        Column("epsilon", lambda one: one.best.canary),
        Column("for one copy", lambda one: one.best.one_copy, short=""),
        Column("if scores are independent", lambda one: one.independent and one.independent.canary, short=""),
    )
)


def membership_in_plain_words(result: Membership) -> list[str]:
    """What the numbers mean, one line per population, what the bounds rest on, and the verdict on a claim if there is one."""
    lines = []
    for one in result.single:
        p_value, best = min(1.0, len(result.single) * one.p_value), one.best.canary
        if p_value <= SURPRISING:
            words = f"memorized (p = {chance_text(p_value)})"
            measured = [rate for rate in one.tpr_at_fpr if rate.value is not None]
            # A lower limit of 0 says little; the lowest false-positive rate that has more is the one to quote.
            for rate in [rate for rate in measured if (rate.low or 0.0) > 0.0][-1:] or measured[:1]:
                share = f"{100 * (rate.value or 0.0):.0f}%"
                words += f". At a {100 * (rate.fpr or 0.0):g}% false-positive rate, an attacker identifies {share} of them"
        elif one.no_answer is not None:
            words = f"these scores cannot show whether canaries were memorized: {one.no_answer}"
        else:
            # Scores of few canaries show nothing whatever the model knows, so that they show nothing is not innocence.
            words = f"these scores do not show memorization (p = {p_value:.2f})"
        if best.low is not None:
            words += f". {_epsilon(one).capitalize()}"
        lines.append(visible(f"Planted {one.name}: {words}."))
    bounds = [one.best.canary for one in result.single]
    missing = dict.fromkeys(bound.statement for bound in bounds if bound.low is None)
    lines += [visible(f"Epsilon is not measured: {reason}.") for reason in missing]
    needed = dict.fromkeys(text for bound in bounds if bound.low is not None for text in bound.assumptions)
    if needed:
        lines.append(f"Epsilon is bounded {_level(result)}, if {visible('; '.join(needed))}.")
    if result.verdict is not None:
        lines.append(f"Verdict: {visible(result.verdict.statement)}.")
    return lines


def _epsilon(one: Population) -> str:
    """What is shown about epsilon, and what could have been."""
    low, copy = one.best.canary.low or 0.0, one.best.one_copy
    words = "nothing about epsilon can be shown"
    if low >= _LEAST:
        words = f"epsilon is at least {rounded_down(low)}"
        if one.copies > 1 and copy is not None:
            words += f", and at least {rounded_down(copy.low or 0.0)} for one copy"
    return f"{words}; the most this many scores could prove is {rounded_down(one.epsilon_ceiling)}"


def _level(result: Membership) -> str:
    return f"at delta {result.settings.delta:g} with {100 * result.settings.confidence:g}% confidence"


def measures(run: Run) -> Iterator[Measure]:
    """The area, the true-positive rates and epsilon of each population, and the verdict on each claim."""
    for number, (_, document) in enumerate(run.all(MEMBERSHIPS)):
        single = document.single or list(document.populations)
        for one in single:
            yield from _population(document, one, single, str(number))
        yield from _claim(document, single, str(number))
    yield from _missing(run)
    if all(document.verdict is None for _, document in run.all(MEMBERSHIPS)):
        claim = claim_of_model(run.model or {})
        for _, record in () if claim else run.trainings:
            claim = record.privacy.described() if record.privacy else claim
        says = (
            ""
            if claim is None
            else f"the model claims an epsilon of {claim.epsilon:.3g} at delta {claim.delta:g} for one {claim.unit}, which was not judged"
        )
        yield Measure(key="membership.claim", status="not_tested", says=says)


def _population(
    document: Membership, one: Population, single: list[Population], number: str
) -> Iterator[Measure]:
    """What the scores of a population show."""
    # A name has the template already if there are several formats.
    form = "" if one.template is None or "," in one.name else f" ({format_name(one.template)})"
    shared: dict[str, Any] = {
        "name": f"planted {one.name}{form}, {one.in_count:,} against {one.out_count:,}",
        "about": one.canary_ids,
        "doubt": one.no_answer or "",
        "n": one.in_count,
        "copies": one.copies,
    }
    test = ("membership", number, one.name)
    yield Measure(
        key="membership.auc", estimate=one.auc, p_value=one.guessing_p_value, test=(*test, "area"), **shared
    )
    rates = dict(zip(one.tpr_at_fpr, one.tpr_p_values or (None,) * len(one.tpr_at_fpr), strict=True))
    # Only the lowest rate that was measured is a test of the report; the rule is about one rate, whichever is the lowest.
    measured = [("membership.tpr", rate) for rate in rates if rate.status == "measured"][-1:]
    for key, rate in (*measured, *(("membership.tpr_1", rate) for rate in rates if rate.fpr == 0.01)):
        tested = key == "membership.tpr"
        yield Measure(
            key=key, estimate=rate, p_value=rates[rate], is_test=tested, test=(*test, "rate"), **shared
        )
    # A population that could not have shown a violation does not matter where one of its format with no more copies could.
    alike = [other for other in single if other.format_id == one.format_id and other.copies <= one.copies]
    yield Measure(
        key="membership.epsilon",
        estimate=one.best.one_copy or Estimate.not_measured("none", "there is no bound for one copy"),
        p_value=one.epsilon_p_value,
        test=(*test, "epsilon"),
        says=f"{_epsilon(one)} ({_level(document)}; {one.best.canary.method})",
        size=one.best.canary.low or 0.0,
        ceiling=max(other.one_copy_ceiling for other in alike),
        **shared,
    )


def _claim(document: Membership, single: list[Population], number: str) -> Iterator[Measure]:
    """The verdict on a claimed epsilon."""
    verdict = document.verdict
    if verdict is None:
        return
    own = claim_of_model(document.model)
    violated = verdict.outcome == "violated"
    doubt = next((one.no_answer for one in single if one.no_answer is not None), "")
    if violated:
        doubt = "given everything that this report tests, it may be chance"
    elif own is not None and (own.epsilon < verdict.claimed_epsilon or own.delta < verdict.claimed_delta):
        doubt = f"the model itself claims an epsilon of {own.epsilon:.4g} at delta {own.delta:g}"
    elif verdict.outcome != "consistent":
        doubt = "the audit has too little power to judge it"
    yield Measure(
        key="membership.claim",
        name="the claimed epsilon",
        estimate=Estimate.not_measured("verdict", verdict.statement)
        if verdict.outcome == "too little power"
        else None,
        # A verdict at a higher confidence than that of a report accuses nobody by itself.
        p_value=verdict.p_value if violated else 1.0,
        test=("claim", number),
        says=verdict.statement,
        doubt=doubt,
        size=float(violated),
    )


def _missing(run: Run) -> Iterator[Measure]:
    """Canaries that were planted and that membership says nothing about, or not about all of them."""
    # A table of scores, which has no manifest, covers no canaries.
    documents = [document for _, document in run.all(MEMBERSHIPS) if document.manifest_sha256 is not None]
    there = {
        (document.manifest_sha256, one.format_id, one.copies): one.in_count
        for document in documents
        for one in document.single
    }
    names, planted = names_of_formats(run), planted_in(run) if documents else []
    if documents and not planted:
        why = "neither its exposures nor its canaries.json were given, so what was planted is not known"
        unknown = Estimate.not_measured("none", why)
        yield Measure(key="membership.missing", name="the manifest", estimate=unknown)
    kinds = Counter((one.manifest_sha256, one.format_id, one.planned) for one in planted)
    for key, number in sorted(kinds.items()):
        known = there.get(key, 0)
        if known < number:
            why = f"membership has scores of {known:,} of {number:,} canaries of it"
            name = f"{names[key[1]]}, trained on {times_in_words(key[2])}"
            lacking = Estimate.not_measured("none", why)
            yield Measure(key="membership.missing", name=name, estimate=lacking, copies=key[2])


def _rule(key: str, of: str, says: str, example: float, **parts: Any) -> Rule:
    settle = "plant more canaries, once each, and withhold half of them by a coin"
    parts = {"also": ("membership.missing",), **parts}
    return Rule(
        key=f"membership.{key}",
        of=f"membership.{of}",
        says=says,
        example=example,
        settle=settle,
        about_canaries=True,
        **parts,
    )


RULES = (
    _rule("auc_at_most", "auc", "the AUC of each population at most {limit:g}", 0.6, most=1.0),
    _rule(
        "tpr_at_fpr_1_percent_at_most",
        "tpr_1",
        "the true-positive rate at a false-positive rate of 1% at most {limit:g}",
        0.05,
        most=1.0,
    ),
    _rule(
        "epsilon_at_most",
        "epsilon",
        "no audit proves an epsilon of one copy above {limit:g}",
        8.0,
        by_violation=True,
        also=("membership.missing", "membership.claim"),
    ),
)


def _roc(run: Run) -> Chart | None:
    """The curve and band of each number of copies; None where there is nothing to compare, or nothing to compare it with."""
    names, rows, guessing = names_of_formats(run), Rows(), Rows()
    copies: set[int] = set()
    for format_id, every in _compared(run).items():
        name, others = names[format_id], len(every[0].scores.out_scores)
        for one in every[:MOST_CURVES]:
            copies.add(one.copies)
            rows += [{"format": name, "trained on": times_in_words(one.copies), **row} for row in _curve(one)]
        guessing += [
            {"format": name, "drawn": share, _TPR: share} for share in (rounded(0.5 / others, 7), 1.0)
        ]
    if not rows:
        return None
    scale: dict[str, Any] = {"scale": "log", "format": "~g", "grid": False}
    lowest = min([0.01, *(row[_TPR] for row in rows if row[_TPR] > 0)]) / 2
    return Chart(
        id="roc",
        title="Telling planted canaries from others",
        caption="The share of planted canaries that the scores identify, against the share of others that they mistake for planted, by "
        "how often the canaries were trained on. A band holds the true-positive rate at each false-positive rate with 95% confidence, "
        "the error of the threshold included; the dashed line is guessing. A false-positive rate of 0 is drawn at half of the smallest "
        "that can be seen.",
        rows=rows,
        columns=("format", "trained on", _FPR, _TPR, "low", "high"),
        x=Axis(column="drawn", title=_FPR, domain=(min(row["drawn"] for row in guessing), 1), **scale),
        y=Axis(column=_TPR, domain=(lowest, 1), **scale),
        marks=(
            Marks(kind="line", rows=guessing, dashed=True),
            Marks(kind="area", y="low", y_to="high"),
            Marks(kind="steps", shows=("trained on", _FPR, _TPR)),
        ),
        color="trained on",
        colors=copies_colors(copies),
        legend="trained on",
        panel="format",
    )


def _compared(run: Run) -> dict[str, list[ScoredPopulation]]:
    """The populations of each format whose scores were kept; of several results, those that are compared with most."""
    best: dict[str, list[ScoredPopulation]] = {}
    for located in run.all(EXPOSURES):
        path = scores_beside(located.path)
        source = msgspec.structs.replace(located.document).beside(
            () if path is None else read_candidates(path)
        )
        try:
            found = populations(source)[0] if source.candidates else []
        except NotMeasurableError:
            continue
        for format_id, some in grouped((str(one.format_id), one) for one in found if not one.pooled).items():
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
    low, high = tpr_band(own, others, np.minimum(drawn, 1 - 1e-9), 0.95)
    for place, threshold in enumerate(thresholds):
        yield {
            _FPR: rounded(fprs[place], 7),
            "drawn": rounded(drawn[place], 7),
            _TPR: rounded(float(np.mean(own > threshold))),
            "low": rounded(low[place]),
            "high": rounded(high[place]),
        }


def _details(run: Run, _reveal: bool) -> Iterator[Detail]:
    """The numbers of each population."""
    for path, document in run.all(MEMBERSHIPS):
        yield POPULATIONS.detail(
            document.populations,
            section="Membership",
            title=run.shown(path),
            caption="How well an attacker who has a list of candidates tells canaries that were planted from others",
            note=f"An AUC of 0.5 is guessing. Epsilon is bounded {_level(document)}, for a canary as a whole.",
        )


MEMBERSHIP = Audit(
    name="membership",
    command="coalmine membership",
    documents=(MEMBERSHIPS,),
    measures=measures,
    rules=RULES,
    figures=lambda run: [_roc(run)],
    details=_details,
)
