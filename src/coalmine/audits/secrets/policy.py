"""The rules of a policy about secrets of the training data."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from coalmine.audits.exposure.policy import judge_exposures, measured_canaries
from coalmine.audits.exposure.results import EXPOSURES
from coalmine.audits.exposure.single_canaries import places_of
from coalmine.audits.extraction.policy import judge_extractions, smallest_budget
from coalmine.audits.extraction.results import EXTRACTIONS, VERIFIED
from coalmine.audits.secrets.findings import unsettled
from coalmine.evidence.outcomes import RuleOutcome, not_shown
from coalmine.evidence.policy import PolicySection, PolicyTerms, absent
from coalmine.evidence.run import Run

_EXPOSE, _EXTRACT = "coalmine expose MODEL secrets.json", "coalmine extract MODEL --verify secrets.json"
_WHICH = "secrets of the training data"


class SecretRules(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on secrets that are already in the training data."""

    # The exposure of each, in bits.
    at_most: float | None = None
    at_most_extracted: int | None = None


def _judge(run: Run, rules: SecretRules, terms: PolicyTerms, stale: str | None) -> Iterator[RuleOutcome]:
    results = Run(paths=run.paths, name=run.name) if run.secrets is None else run.secrets
    found = []
    if rules.at_most is not None:
        found.append(_exposures(results, rules.at_most, terms, stale))
    if rules.at_most_extracted is not None:
        found.append(_extractions(results, rules.at_most_extracted, terms, stale))
    untested = unsettled(results)
    for one in found:
        if one.outcome == "holds" and untested is not None:
            settle = "plant canaries of this kind in conversations, and measure those"
            yield not_shown(one.rule, one.asks, f"{one.evidence}. But {untested}", settle, one.chance)
        else:
            yield one


def _exposures(run: Run, limit: float, terms: PolicyTerms, stale: str | None) -> RuleOutcome:
    rule, asks = "secrets.at_most", f"exposure of {_WHICH} at most {limit:g} bits"
    if stale is not None or not run.all(EXPOSURES):
        return absent(rule, asks, _EXPOSE, run.all(EXPOSURES), stale)
    return judge_exposures(
        measured_canaries(run),
        limit,
        rule=rule,
        which=_WHICH,
        what="secrets",
        confidence=terms.confidence,
        fewest=terms.min_canaries,
    )


def _extractions(run: Run, most: int, terms: PolicyTerms, stale: str | None) -> RuleOutcome:
    rule, asks = "secrets.at_most_extracted", f"at most {most} {_WHICH} extracted"
    if stale is not None or not run.all(VERIFIED):
        return absent(rule, asks, _EXTRACT, run.all(VERIFIED), stale)
    chances = {place.canary_id: place.p_value for one in run.all(VERIFIED) for place in places_of(run, one)}
    canaries = [one for _, document in run.all(VERIFIED) for one in document.canaries if one.repetitions > 0]
    return judge_extractions(
        canaries,
        most,
        rule=rule,
        which=_WHICH,
        budget=smallest_budget(document for _, document in run.all(EXTRACTIONS)),
        chances=chances,
        fewest=terms.min_canaries,
        confidence=terms.confidence,
    )


SECTION = PolicySection(
    rules=SecretRules,
    limits=("at_most", "at_most_extracted"),
    judge=_judge,
    template="""\
#[secrets]
# Secrets that `coalmine scan` found in the training data: the exposure of each in bits, and how many may come out. The last four
# digits of a phone number have 13.3 bits at most.
#at_most = 10.0
#at_most_extracted = 0
""",
)
