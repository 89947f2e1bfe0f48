"""The findings about membership and epsilon, by exact tests within the error budget of the report; few scores never mean safe."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from coalmine.audits.exposure.chance import chance_in_words
from coalmine.audits.exposure.results import EXPOSURES
from coalmine.audits.membership.records import MEMBERSHIPS, Membership, Population
from coalmine.evidence.budget import Decisions, Key, Suspicion
from coalmine.evidence.findings import Catalog, Entry, Finding, Severity
from coalmine.evidence.run import Run
from coalmine.evidence.words import format_name
from coalmine.records import Estimate
from coalmine.records.estimate import rounded_down
from coalmine.records.privacy import DescribedClaim, claim_of_model

CATALOG = Catalog(
    {
        "CM301": Entry(
            "Members can be told from non-members",
            "Scores of this model reveal what was in its training data. Do not expose probabilities of "
            "single texts, and train with differential privacy if membership is sensitive.",
            if_not_measured="Plant and withhold more canaries; 20 or more for each number of repetitions.",
            if_clear="Nothing to do for text that occurs this often.",
        ),
        "CM302": Entry(
            "Members can be identified at a low false-positive rate",
            "An attacker who can afford few false positives identifies this share of the canaries. Train "
            "with differential privacy if that is too many.",
            if_not_measured=(
                "Plant more canaries, and draw more references: both make a lower false-positive rate "
                "measurable."
            ),
        ),
        "CM303": Entry(
            "The claimed epsilon",
            "The training is not as private as claimed. Look for the mistake in clipping, noise, sampling or "
            "accounting.",
            if_not_measured=(
                "Plant more canaries, once each, and withhold half of them by coin flips: the power grows with "
                "their number."
            ),
            if_clear=(
                "Nothing to do: the audit would probably have detected a training that leaks twice as much."
            ),
        ),
        "CM304": Entry(
            "A lower bound on epsilon",
            "No proof of privacy can be stronger than this. A low bound proves nothing: more canaries, "
            "planted or withheld by coin flips, raise what can be proven.",
            if_not_measured=(
                "A bound of 0 proves nothing. More canaries, planted once or withheld by coin flips, raise what "
                "can be proven."
            ),
        ),
        "CM903": Entry(
            "Membership was not tested",
            "Run `coalmine expose MODEL canaries.json --method references -o DIR`, then `coalmine membership "
            "DIR`.",
        ),
        "CM907": Entry(
            "A claim of differential privacy was not tested",
            "If the model was trained with differential privacy, run `coalmine membership RESULTS`, with "
            "--claimed-epsilon E where the model has no record of its claim.",
        ),
        "CM912": Entry(
            "Rates at low false-positive rates could not be measured",
            "Draw more references when planting (--references), as many as 10 divided by the false-positive "
            "rate.",
        ),
    }
)
finding = CATALOG.finding


# If the upper limit of the area is below this, scores are called no better than guessing.
HARMLESS_AUC = 0.6


def membership_suspicions(run: Run) -> Iterator[Suspicion]:
    """The area, the true-positive rate and epsilon of each population; and each claim."""
    for number, (_, document) in enumerate(run.all(MEMBERSHIPS)):
        for one in _apart(document):
            yield Suspicion("membership", _key(number, one, "area"), one.guessing.p_value)
            rate = _lowest_rate(one)
            if rate is not None and rate[1] is not None:
                yield Suspicion("membership", _key(number, one, "rate"), rate[1])
            if one.epsilon_p_value is not None:
                yield Suspicion("membership", _key(number, one, "epsilon"), one.epsilon_p_value)
        if document.verdict is not None:
            yield Suspicion("claim", (str(number),), document.verdict.p_value)


def membership_findings(run: Run, decided: Decisions) -> Iterator[Finding]:
    """Findings about each population, and about a claim."""
    for number, (_, document) in enumerate(run.all(MEMBERSHIPS)):
        for one in _apart(document):
            memorized = _memorized_alone(run, one, decided)
            yield _area(
                one, decided.shown("membership", *_key(number, one, "area")), population_name(one), memorized
            )
            yield from _rates(
                one, decided.shown("membership", *_key(number, one, "rate")), population_name(one)
            )
            yield _epsilon(
                one,
                document,
                decided.shown("membership", *_key(number, one, "epsilon")),
                population_name(one),
            )
        yield from _claim(document, decided.shown("claim", str(number)))


def _apart(document: Membership) -> list[Population]:
    """Each single population; those that pool several add nothing new."""
    return [one for one in document.populations if not one.pooled]


def _key(number: int, one: Population, what: str) -> Key:
    # The format and the copies come second and third: `shown_of_population` looks for them there.
    return (str(number), one.format_id or "", str(one.copies), one.name, what)


def shown_of_population(decided: Decisions, format_id: str, copies: int) -> bool:
    """Whether membership or epsilon is shown for the canaries of a format that were planted this many times."""
    return any(
        shown and kind == "membership" and key[1:3] == (format_id, str(copies))
        for (kind, key), shown in decided.tests.items()
    )


def population_name(one: Population) -> str:
    """A population with the template of its format, which its name already has if there are several formats."""
    if one.template is None or "," in one.name:
        return one.name
    return f"{one.name} ({format_name(one.template)})"


def _memorized_alone(run: Run, one: Population, decided: Decisions) -> int:
    """How many canaries of a population are shown individually to be memorized."""
    exposures = run.first(EXPOSURES)
    results = () if exposures is None else exposures.results
    return sum(
        decided.shown("canary", result.canary_id)
        for result in results
        if result.format_id == one.format_id
        and (result.planned_repetitions or result.repetitions) == one.copies
        and result.planted
    )


def _area(one: Population, shown: bool, name: str, memorized: int) -> Finding:
    auc = one.auc
    planted = f"Planted {name}, {one.in_count:,} against {one.out_count:,}"
    evidence = f"{planted}: {auc.statement}; exposures this high occur by chance with probability {one.guessing.p_value:.2g}."
    say = partial(finding, "CM301", estimates=[auc, one.guessing.median], subject=[one.name])
    low, high = auc.low, auc.high
    if auc.status != "measured" or low is None or high is None:
        return say("info", "not_measured", evidence)
    # The exact test decides; the interval of an area is wider than most scores need.
    if shown:
        severity: Severity = "high" if high >= 0.9 else "medium" if high >= 0.7 else "low"
        return say(severity, "found", evidence)
    if memorized:
        evidence += f" This is the area for all of them; {memorized:,} of them {'is' if memorized == 1 else 'are'} memorized."
        return say("info", "not_measured", evidence, title="The area does not show single canaries")
    why = one.no_answer
    if why is not None:
        return say("info", "not_measured", f"{planted}: {why}.", title="Members score lower than non-members")
    if high <= HARMLESS_AUC:
        return say("pass", "clear", evidence, title="Members can hardly be told from non-members")
    title = "Too few scores to say whether members can be told from non-members"
    return say("info", "not_measured", evidence, title=title)


def _lowest_rate(one: Population) -> tuple[Estimate, float | None] | None:
    """The true-positive rate at the lowest false-positive rate that could be measured, with its p-value."""
    p_values = one.tpr_p_values or (None,) * len(one.tpr_at_fpr)
    measured = [pair for pair in zip(one.tpr_at_fpr, p_values, strict=True) if pair[0].status == "measured"]
    return measured[-1] if measured else None


def _rates(one: Population, shown: bool, name: str) -> Iterator[Finding]:
    lowest = _lowest_rate(one)
    missing = [rate for rate in one.tpr_at_fpr if rate.status != "measured"]
    if lowest is not None:
        rate, p_value = lowest
        chance = (
            "" if p_value is None else f"; chance gives as much with probability {chance_in_words(p_value)}"
        )
        say = partial(finding, "CM302", estimates=[rate], subject=[one.name])
        evidence = f"Planted {name}: {rate.statement}{chance}."
        if shown:
            yield say("high" if (rate.high or 0.0) >= 0.5 else "medium", "found", evidence)
        else:
            title = "It is not shown that members can be identified at a low false-positive rate"
            yield say("info", "not_measured", evidence, title=title)
    if missing:
        evidence = f"Planted {name}: {'; '.join(rate.statement for rate in missing)}."
        yield finding("CM912", "info", "not_measured", evidence, estimates=missing, subject=[one.name])


def _epsilon(one: Population, document: Membership, shown: bool, name: str) -> Finding:
    bound = one.best.canary
    low = bound.low or 0.0
    ceiling = f"the most this many scores could prove is {rounded_down(one.epsilon_ceiling)}"
    level = f"{100 * document.confidence:g}% confidence, delta {document.delta:g}"
    say = partial(finding, "CM304", subject=[one.name])
    if bound.status == "not_measured" or low < 0.005:
        evidence = f"Planted {name}: nothing about epsilon can be shown ({level}); {ceiling}."
        return say("info", "not_measured", evidence, estimates=[bound])
    copy = one.best.one_copy
    for_copy = ""
    if one.copies > 1 and copy is not None:
        for_copy = f", and at least {rounded_down(copy.low or 0.0)} for one copy"
    evidence = f"Planted {name}: epsilon is at least {rounded_down(low)}{for_copy} ({level}; {bound.method}); {ceiling}."
    estimates = [bound] if copy is None else [bound, copy]
    if not shown:
        evidence += " Given everything that this report tests, a bound above 0 may be chance."
        return say("info", "not_measured", evidence, estimates=estimates)
    severity: Severity = "high" if low >= 8.0 else "medium" if low >= 1.0 else "low"
    return say(severity, "found", evidence, estimates=estimates)


def _claim(document: Membership, shown: bool) -> Iterator[Finding]:
    verdict = document.verdict
    if verdict is None:
        return
    evidence = f"{verdict.statement[:1].upper()}{verdict.statement[1:]} (p = {verdict.p_value:.2g}"
    evidence += (
        ")."
        if verdict.power is None
        else f"; power {verdict.power:.2f} against epsilon {verdict.alternative_epsilon:g})."
    )
    if verdict.outcome == "violated" and shown:
        yield finding("CM303", "critical", "found", evidence, title="The claimed epsilon is violated")
    elif verdict.outcome == "violated":
        evidence += (
            " That is the test of the claim alone; given everything that this report tests, it may be chance."
        )
        title = "The claimed epsilon may be violated"
        yield finding("CM303", "info", "not_measured", evidence, title=title)
    elif verdict.outcome == "consistent" and (
        why := next(filter(None, (one.no_answer for one in _apart(document))), None)
    ):
        title = "The scores cannot judge the claimed epsilon"
        yield finding("CM303", "info", "not_measured", f"{evidence} But {why}.", title=title)
    elif verdict.outcome == "consistent":
        yield finding(
            "CM303", "pass", "clear", evidence, title="The claimed epsilon is consistent with the audit"
        )
    else:
        title = "The audit has too little power to judge the claimed epsilon"
        yield finding("CM303", "info", "not_measured", evidence, title=title)


def no_claim(run: Run) -> Iterator[Finding]:
    """Whether a claimed epsilon was judged."""
    if any(document.verdict is not None for _, document in run.all(MEMBERSHIPS)):
        return
    claim = _claim_of_training(run)
    evidence = (
        "No claimed epsilon was given, so none was judged."
        if claim is None
        else f"The model claims an epsilon of {claim.epsilon:.3g} at delta {claim.delta:g} for one {claim.unit}, which was not judged."
    )
    yield finding("CM907", "info", "not_tested", evidence)


def _claim_of_training(run: Run) -> DescribedClaim | None:
    """What the model of a run claims, by its results or by the record of its training."""
    claim = claim_of_model(run.model or {})
    for _, record in () if claim else run.trainings:
        claim = record.privacy.described() if record.privacy else claim
    return claim
