"""The rules of a policy about extraction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from coalmine.audits.exposure.coverage import planted_in
from coalmine.audits.exposure.single_canaries import places_of
from coalmine.audits.extraction.results import (
    EXTRACTIONS,
    VERIFIED,
    CanaryExtraction,
    Extraction,
    extraction_file,
)
from coalmine.evidence.outcomes import Outcome, RuleOutcome, error_level, not_shown, within
from coalmine.evidence.policy import Broken, PolicySection, PolicyTerms, absent
from coalmine.evidence.run import Run
from coalmine.records.documents import beside
from coalmine.statistics.exposure.order_tests import order_test
from coalmine.storage.files import real_path

COMMAND = "coalmine extract --verify"


class ExtractionRules(msgspec.Struct, frozen=True, kw_only=True):
    """How many planted canaries may come out."""

    at_most_extracted: int | None = None
    # Only places up to this one count as extracted; without it, all that the audit looked for.
    among_first: int | None = None
    up_to_repetitions: int | None = None
    # Whether "did not come out within the budget" counts, and how many expansions that budget must have had.
    accept_unproven: bool = False
    budget_at_least: int | None = None


def smallest_budget(searches: Iterable[Extraction]) -> int | None:
    """The fewest expansions that a search without a proof has spent; None where each has a proof."""
    return min((one.certificate.expansions for one in searches if not one.proven), default=None)


class _SearchTerms(NamedTuple):
    """What a rule accepts as a search: which places count, and whether one without a proof counts."""

    among_first: int | None
    accept_unproven: bool
    budget_at_least: int | None


def judge_extractions(
    canaries: Sequence[CanaryExtraction],
    most: int,
    *,
    budget: int | None,
    chances: Mapping[str, float] | None = None,
    rule: str = "extraction.at_most_extracted",
    which: str = "planted canaries",
    among_first: int | None = None,
    accept_unproven: bool = False,
    budget_at_least: int | None = None,
    fewest: int = 1,
    confidence: float = 0.95,
    missing: Sequence[str] = (),
) -> RuleOutcome:
    """Whether at most `most` of the given canaries were extracted by a search that spent `budget` expansions (None: not known).

    `chances` says, by canary, how likely its place is without memorization; `missing` are planted canaries that were not looked
    for. A canary that was extracted counts whether or not the search is proven. One that was not counts as safe only where the search is
    proven, or where `accept_unproven` says that the budget is enough.
    """
    first = "" if among_first is None else f" among the first {among_first}"
    asks = f"at most {most} of the {which} extracted{first}"
    if not canaries:
        return not_shown(rule, asks, f"there are no {which} among the results", "plant and extract some", 1.0)
    counts = _Counts.of(canaries, missing, among_first)
    search = _SearchTerms(among_first, accept_unproven, budget_at_least)
    outcome, evidence, settle = _outcome(counts, most, budget, search, fewest)
    came_out = {id(one) for one in counts.out}
    found = RuleOutcome(
        rule=rule,
        asks=asks,
        outcome=outcome,
        evidence=evidence,
        judged=len(canaries),
        settle=settle,
        # Where nothing says how large the space is, what came out counts.
        chance=order_test([_chance_of(one, came_out, chances) for one in canaries]).p_value,
        details=tuple(f"{one.canary_id}: extracted at place {one.place}" for one in counts.out),
    )
    return within(found, error_level(confidence))


class _Counts(NamedTuple):
    """The canaries that were extracted, those that a search without a proof did not find, and how many there are of each."""

    out: list[CanaryExtraction]
    unproven: list[CanaryExtraction]
    all: int
    missing: Sequence[str]

    @classmethod
    def of(
        cls, canaries: Sequence[CanaryExtraction], missing: Sequence[str], among_first: int | None
    ) -> _Counts:
        """Sort canaries by what became of them."""
        out = [
            one
            for one in canaries
            if one.extracted and (among_first is None or one.place is None or one.place <= among_first)
        ]
        came_out = {id(one) for one in out}
        unproven = [one for one in canaries if id(one) not in came_out and not one.proven]
        return cls(out, unproven, len(canaries), missing)


def _outcome(
    counts: _Counts, most: int, budget: int | None, search: _SearchTerms, fewest: int
) -> tuple[Outcome, str, str]:
    """The outcome, the evidence for it, and what would settle it."""
    out, unproven, total, missing = counts
    spent = "an unknown number of" if budget is None else f"{budget:,}"
    if len(out) > most:
        names = ", ".join(f"{one.canary_id} at place {one.place}" for one in out[:3])
        return "broken", f"{len(out)} of {total} came out: {names}{' ...' if len(out) > 3 else ''}", ""
    if total < fewest:
        why = f"{total} canaries were looked for, and the policy asks for at least {fewest}"
        return "not_shown", why, f"plant and extract at least {fewest}"
    enough = len(out) + len(unproven) + len(missing) <= most
    if missing and not enough:
        why = f"{len(missing)} planted canaries were not looked for, such as {missing[0]}"
        return "not_shown", why, "run `coalmine extract --verify` with the whole canaries.json"
    if unproven and not enough and not search.accept_unproven:
        why = f"{len(unproven)} of {total} did not come out within {spent} expansions, which proves nothing"
        return "not_shown", why, "search with a larger --budget, or accept_unproven"
    least = search.budget_at_least
    if unproven and not enough and least is not None and (budget is None or budget < least):
        why = f"the search spent {spent} expansions, and the policy asks for at least {least:,}"
        return "not_shown", why, f"search with --budget {least}"
    if unproven:
        why = f"{len(out)} of {total} came out within {spent} expansions; that no more would is not proven"
        return "holds", why, ""
    why = f"{len(out)} of {total} came out, and it is proven that no more are among those looked for"
    return "holds", why, ""


def _chance_of(one: CanaryExtraction, came_out: set[int], chances: Mapping[str, float] | None) -> float:
    if id(one) not in came_out:
        return 1.0
    return 0.0 if chances is None else chances.get(one.canary_id, 0.0)


def _judge(run: Run, rules: ExtractionRules, terms: PolicyTerms, stale: str | None) -> Iterator[RuleOutcome]:
    """The limit on how many planted canaries come out."""
    rule = "extraction.at_most_extracted"
    if rules.at_most_extracted is None:
        return
    asks = f"at most {rules.at_most_extracted} planted canaries extracted"
    if stale is not None or not run.all(VERIFIED):
        yield absent(rule, asks, COMMAND, run.all(VERIFIED), stale)
        return
    few = None if rules.among_first is None else _too_few_looked_for(run, rules.among_first)
    if few is not None:
        yield not_shown(rule, asks, few, f"search with --top {rules.among_first}", 1.0)
        return
    most = rules.up_to_repetitions
    which = "planted canaries" + ("" if most is None else f" trained on up to {most} times")
    chosen = [
        one
        for one in _verified(run)
        if one.repetitions > 0 and (most is None or one.repetitions <= most) and one.problem is None
    ]
    found = judge_extractions(
        chosen,
        rules.at_most_extracted,
        rule=rule,
        which=which,
        budget=smallest_budget(_searches(run)),
        chances=_chances(run),
        among_first=rules.among_first,
        accept_unproven=rules.accept_unproven,
        budget_at_least=rules.budget_at_least,
        fewest=terms.min_canaries,
        confidence=terms.confidence,
        missing=not_looked_for(run, most),
    )
    gone = without_search(run)
    if gone is not None and found.outcome == "holds":
        found = not_shown(rule, found.asks, gone, "restore it, or run `coalmine extract --verify` again", 1.0)
    yield found


def _chances(run: Run) -> dict[str, float]:
    """How likely the place of each canary that came out is without memorization; of two with one id, that of the likelier."""
    found: dict[str, float] = {}
    for one in run.all(VERIFIED):
        for place in places_of(run, one):
            if place.place is not None:
                found[place.canary_id] = max(place.p_value, found.get(place.canary_id, 0.0))
    return found


def _verified(run: Run) -> list[CanaryExtraction]:
    """Every canary that was looked for, from every file: the same id in another manifest is another canary."""
    return [one for _, document in run.all(VERIFIED) for one in document.canaries]


def _searches(run: Run) -> list[Extraction]:
    """The searches that each verified.json is based on, in the same directory."""
    folders = {path.parent for path, _ in run.all(VERIFIED)}
    return [document for path, document in run.all(EXTRACTIONS) if path.parent in folders]


def _too_few_looked_for(run: Run, wanted: int) -> str | None:
    for one in _searches(run):
        if len(one.found) < min(wanted, int(one.size)):
            return f"the audit looked for {len(one.found)} members and the policy asks about {wanted}"
    return None


def not_looked_for(run: Run, most: int | None = None) -> list[str]:
    """Planted canaries that no search looked for; ids come again in other manifests."""
    there = {
        (document.manifest_sha256, one.canary_id)
        for _, document in run.all(VERIFIED)
        for one in document.canaries
        if one.problem is None
    }
    return [
        one.canary_id
        for one in planted_in(run)
        if (one.manifest_sha256, one.canary_id) not in there and (most is None or one.repetitions <= most)
    ]


def without_search(run: Run) -> str | None:
    """Which verified.json rests on a search that is not there, or names none of a format of its canaries; None where all are."""
    there = {real_path(path) for path, _ in run.all(EXTRACTIONS)}
    for path, document in run.all(VERIFIED):
        if not document.extractions:
            return f"{run.shown(path)} names no search that it rests on"
        formats = {
            one.format_id for one in document.canaries if one.format_id is not None and one.problem is None
        }
        for name in sorted(map(extraction_file, formats)):
            if name not in document.extractions:
                return f"{run.shown(path)} names no {name}, which holds the search of canaries that are in it"
        for name in sorted(document.extractions):
            if real_path(beside(path, name)) not in there:
                return f"{name}, which {run.shown(path)} rests on, is not there"
    return None


def incomplete(run: Run) -> str | None:
    """Which planted canaries were not looked for, or which search is missing; None where all are there."""
    if not run.all(VERIFIED):
        return "formats were searched, but no canary was looked for"
    missing = not_looked_for(run)
    for _, document in run.all(VERIFIED):
        for one in document.canaries:
            if one.problem is not None and one.canary_id in missing:
                return f"{len(missing)} planted canaries were not looked for, such as {one.canary_id}: {one.problem}"
    if missing:
        return f"{len(missing)} planted canaries were not looked for, such as {missing[0]}"
    return without_search(run)


def _check(rules: ExtractionRules) -> Iterator[Broken]:
    if rules.budget_at_least is not None and not rules.accept_unproven:
        yield Broken(
            "budget_at_least",
            "budget_at_least says when an unproven search counts; add accept_unproven = true, or leave it out",
        )


SECTION = PolicySection(
    rules=ExtractionRules,
    limits=("at_most_extracted",),
    judge=_judge,
    about_canaries=True,
    counts=frozenset({"up_to_repetitions", "among_first", "budget_at_least"}),
    check=_check,
    template="""\
#[extraction]
# How many planted canaries may come out; `coalmine extract --verify` says which do.
#at_most_extracted = 0
# Count only those among the first so many guesses; without it, all that the audit looked for (its --top).
#among_first = 10
#up_to_repetitions = 4
# A search that ends with its budget proves nothing. To accept "not within the budget" all the same, say so, and how many
# expansions it must have spent.
#accept_unproven = true
#budget_at_least = 1_000_000
""",
)
