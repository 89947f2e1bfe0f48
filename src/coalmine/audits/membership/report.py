"""What reports and the gate learn from membership: how well members can be told from others, and what that says about epsilon."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from coalmine.audits.exposure.data_checks import planted_in
from coalmine.audits.exposure.display import names_of_formats
from coalmine.audits.membership.display import membership_figures
from coalmine.audits.membership.records import MEMBERSHIPS, Membership, Population
from coalmine.evidence.measures import Audit, Measure, Rule
from coalmine.evidence.run import Run
from coalmine.evidence.words import format_name, times_in_words
from coalmine.records import Estimate
from coalmine.records.estimate import rounded_down
from coalmine.records.privacy import DescribedClaim, claim_of_model

# The false-positive rate of the rule about rates.
_FPR = 0.01
# Below this a bound on epsilon shows nothing.
_LEAST = 0.005
MORE = "plant more canaries, once each, and withhold half of them by a coin"


def measures(run: Run) -> Iterator[Measure]:
    """The area, the true-positive rates and epsilon of each population, and the verdict on each claim."""
    for number, (_, document) in enumerate(run.all(MEMBERSHIPS)):
        single = [one for one in document.populations if not one.pooled] or list(document.populations)
        for one in single:
            yield from _population(document, one, single, str(number))
        yield from _claim(document, single, number)
    yield from _missing(run)
    if all(document.verdict is None for _, document in run.all(MEMBERSHIPS)):
        claim = _claim_of_training(run)
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
    name = f"planted {_name(one)}, {one.in_count:,} against {one.out_count:,}"
    about, key = one.canary_ids, (number, one.name)
    doubt = one.no_answer or ""
    yield Measure(
        key="membership.auc",
        name=name,
        estimate=one.auc,
        p_value=one.guessing.p_value,
        test=("membership", *key, "area"),
        about=about,
        doubt=doubt,
        n=one.in_count,
        copies=one.copies,
    )
    p_values = one.tpr_p_values or (None,) * len(one.tpr_at_fpr)
    measured = [rate for rate in one.tpr_at_fpr if rate.status == "measured"]
    for rate, p_value in zip(one.tpr_at_fpr, p_values, strict=True):
        # Only the lowest rate that was measured is a test of the report; the rule is about one rate, whichever is the lowest.
        for rate_key, tested in (("membership.tpr", rate in measured[-1:]), ("membership.tpr_1", False)):
            if tested or (rate_key == "membership.tpr_1" and rate.fpr == _FPR):
                yield Measure(
                    key=rate_key,
                    name=name,
                    estimate=rate,
                    p_value=p_value,
                    is_test=tested,
                    test=("membership", *key, "rate"),
                    about=about,
                    doubt=doubt,
                    n=one.in_count,
                    copies=one.copies,
                )
    missing = [rate.statement for rate in one.tpr_at_fpr if rate.status != "measured"]
    if missing:
        yield Measure(key="membership.rates", name=name, status="not_measured", says="; ".join(missing))
    yield _epsilon(document, one, single, name, about, key)


def _epsilon(
    document: Membership,
    one: Population,
    single: list[Population],
    name: str,
    about: tuple[str, ...],
    key: tuple[str, str],
) -> Measure:
    bound, copy = one.best.canary, one.best.one_copy
    low = bound.low or 0.0
    level = f"{100 * document.settings.confidence:g}% confidence, delta {document.settings.delta:g}; {bound.method}"
    each = (
        f", and at least {rounded_down(copy.low or 0.0)} for one copy"
        if one.copies > 1 and copy is not None
        else ""
    )
    says = (
        f"epsilon is at least {rounded_down(low)}{each} ({level})"
        if low >= _LEAST
        else f"nothing about epsilon can be shown ({level})"
    )
    # A population that could not have shown a violation does not matter where one of its format with no more copies could.
    ceilings = [
        other.one_copy_ceiling
        for other in single
        if other.format_id == one.format_id and other.copies <= one.copies
    ]
    return Measure(
        key="membership.epsilon",
        name=name,
        estimate=Estimate.not_measured("none", "there is no bound for one copy") if copy is None else copy,
        p_value=one.epsilon_p_value,
        test=("membership", *key, "epsilon"),
        about=about,
        says=f"{says}; the most this many scores could prove is {rounded_down(one.epsilon_ceiling)}",
        doubt=one.no_answer or "",
        size=low,
        n=one.in_count,
        copies=one.copies,
        ceiling=max(ceilings),
    )


def _claim(document: Membership, single: list[Population], number: int) -> Iterator[Measure]:
    """The verdict on a claimed epsilon."""
    verdict = document.verdict
    if verdict is None:
        return
    power = (
        ""
        if verdict.power is None
        else f" (power {verdict.power:.2f} against epsilon {verdict.alternative_epsilon:g})"
    )
    own = claim_of_model(document.model)
    violated = verdict.outcome == "violated"
    doubt = next((one.no_answer for one in single if one.no_answer is not None), "")
    if violated:
        doubt = "given everything that this report tests, it may be chance"
    elif own is not None and (own.epsilon < verdict.claimed_epsilon or own.delta < verdict.claimed_delta):
        doubt = f"the model itself claims an epsilon of {own.epsilon:.4g} at delta {own.delta:g}"
    elif verdict.outcome != "consistent":
        doubt = "the audit has too little power to judge it"
    weak = verdict.outcome == "too little power"
    yield Measure(
        key="membership.claim",
        name="the claimed epsilon",
        estimate=Estimate.not_measured("verdict", verdict.statement) if weak else None,
        # A verdict at a higher confidence than that of a report accuses nobody by itself.
        p_value=verdict.p_value if violated else 1.0,
        test=("claim", str(number)),
        says=f"{verdict.statement}{power}",
        doubt=doubt,
        size=float(violated),
    )


def _missing(run: Run) -> Iterator[Measure]:
    """Canaries that were planted and that membership says nothing about, or not about all of them."""
    # A table of scores, which has no manifest, covers no canaries.
    documents = [document for _, document in run.all(MEMBERSHIPS) if document.manifest_sha256 is not None]
    if not documents:
        return
    there = {
        (document.manifest_sha256, one.format_id, one.copies): one.in_count
        for document in documents
        for one in document.populations
        if not one.pooled
    }
    names, planted = names_of_formats(run), planted_in(run)
    if not planted:
        why = "neither its exposures nor its canaries.json were given, so what was planted is not known"
        yield Measure(
            key="membership.missing", name="the manifest", estimate=Estimate.not_measured("none", why)
        )
    kinds = Counter((one.manifest_sha256, one.format_id, one.planned) for one in planted)
    for key, number in sorted(kinds.items()):
        known = there.get(key, 0)
        if known < number:
            yield Measure(
                key="membership.missing",
                name=f"{names[key[1]]}, trained on {times_in_words(key[2])}",
                estimate=Estimate.not_measured(
                    "none", f"membership has scores of {known:,} of {number:,} canaries of it"
                ),
                copies=key[2],
            )


def _name(one: Population) -> str:
    """A population with the template of its format, which its name already has if there are several formats."""
    if one.template is None or "," in one.name:
        return one.name
    return f"{one.name} ({format_name(one.template)})"


def _claim_of_training(run: Run) -> DescribedClaim | None:
    """What the model of a run claims, by its results or by the record of its training."""
    claim = claim_of_model(run.model or {})
    for _, record in () if claim else run.trainings:
        claim = record.privacy.described() if record.privacy else claim
    return claim


RULES = (
    Rule(
        key="membership.auc_at_most",
        of="membership.auc",
        says="the AUC of each population at most {limit:g}",
        example=0.6,
        most=1.0,
        settle="plant and withhold more canaries, and draw more references",
        also=("membership.missing",),
        about_canaries=True,
    ),
    Rule(
        key="membership.tpr_at_fpr_1_percent_at_most",
        of="membership.tpr_1",
        says="the true-positive rate at a false-positive rate of 1% at most {limit:g}",
        example=0.05,
        most=1.0,
        settle="plant and withhold more canaries, and draw more references",
        also=("membership.missing",),
        about_canaries=True,
    ),
    Rule(
        key="membership.epsilon_at_most",
        of="membership.epsilon",
        says="no audit proves an epsilon of one copy above {limit:g}",
        example=8.0,
        settle=MORE,
        by_violation=True,
        also=("membership.missing", "membership.claim"),
        about_canaries=True,
    ),
)

MEMBERSHIP = Audit(
    name="membership",
    command="coalmine membership",
    documents=(MEMBERSHIPS,),
    measures=measures,
    rules=RULES,
    figures=membership_figures,
)
