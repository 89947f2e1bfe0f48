"""The audit of extraction, as reports and the gate see it: which canaries come out, and whether it is proven that others do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from msgspec import UNSET

from coalmine.audits.exposure.chance import FEWEST, at_most_share, canary_p_values, chance_explains, places_of
from coalmine.audits.exposure.data_checks import planted_in
from coalmine.audits.exposure.report import FULL, WEIGHT
from coalmine.audits.extraction.results import (
    EXTRACTIONS,
    VERIFIED,
    CanaryExtraction,
    Extraction,
    Verified,
    extraction_file,
    masked,
)
from coalmine.audits.extraction.table import extraction_figure, member_table
from coalmine.audits.framing import asked_as
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.errors import FormatError
from coalmine.evidence.measures import Audit, Measure, Rule
from coalmine.evidence.run import Located, Run
from coalmine.evidence.tables import Detail
from coalmine.evidence.words import format_name, hidden, times_in_words
from coalmine.formats.format import Format
from coalmine.grouped import grouped
from coalmine.records import Estimate
from coalmine.records.documents import beside
from coalmine.statistics.exposure.order_tests import order_test
from coalmine.storage.files import real_path


def measures(run: Run) -> Iterator[Measure]:
    """What searches for canaries show; searches without any canaries show nothing by themselves."""
    for located in run.all(VERIFIED):
        yield from extracted_measures(run, located, "extraction.canary", "canary")
        yield from _formats(run, located)
    if run.all(VERIFIED):
        for name in not_looked_for(run):
            why = Estimate.not_measured("search", "no search looked for it")
            yield Measure(key="extraction.canary", name=name, estimate=why, about=(name,))
        gone = without_search(run)
        if gone is not None:
            yield Measure(
                key="extraction.canary", name="the proof", estimate=Estimate.not_measured("search", gone)
            )
    elif run.all(EXTRACTIONS):
        says = "formats were searched, but no canaries were looked for"
        yield Measure(key="missing.extraction", status="not_tested", says=says)


def extracted_measures(run: Run, located: Located[Verified], key: str, kind: str) -> Iterator[Measure]:
    """One measure per canary that was looked for: 1 for one that came out, 0 for one that provably did not, and 0 to 1 for others."""
    p_values = canary_p_values(run)
    places = {one.canary_id: one.p_value for one in places_of(run, located)}
    searches = _searches(run, located)
    written = {one.text for search in searches.values() for one in search.found if one.unaided}
    texts = {} if run.canaries is None else {canary.canary_id: canary.text for canary in run.canaries}
    for one in located.document.canaries:
        if one.repetitions > 0:
            yield Measure(
                key=key,
                name=f"{one.canary_id}, trained on {times_in_words(one.repetitions)}",
                estimate=_estimate(one, searches.get(one.format_id or "")),
                p_value=p_values.get(one.canary_id) if one.extracted else None,
                test=(kind, one.canary_id),
                weight=WEIGHT,
                about=(one.canary_id,),
                says=_place_words(one, unaided=texts.get(one.canary_id) in written) if one.extracted else "",
                size=FULL,
                copies=one.repetitions,
                source=places.get(one.canary_id, 1.0),
            )


def _searches(run: Run, located: Located[Verified]) -> dict[str, Extraction]:
    """The searches beside a verified.json, by their formats."""
    return {
        one.path.stem.removeprefix("extraction-"): one.document
        for one in run.all(EXTRACTIONS)
        if one.path.parent == located.path.parent
    }


def _estimate(one: CanaryExtraction, search: Extraction | None) -> Estimate:
    if one.problem is not None:
        return Estimate.not_measured("search", one.problem)
    low, high = float(one.extracted), float(one.extracted or not one.proven)
    known = low == high
    said = (
        "it came out"
        if one.extracted
        else "it provably does not come out"
        if known
        else f"it was not found, and {_ended(search)}"
    )
    return Estimate(
        method="search",
        status="measured" if known else "lower_bound",
        value=low if known else None,
        low=low,
        high=high,
        confidence=None,
        n=1,
        statement=said,
    )


def _ended(search: Extraction | None) -> str:
    """How a search without a proof ended."""
    if search is None:
        return "its search is not there"
    if search.method == "prompt":
        asked = "" if search.prompts is UNSET else f"{search.prompts.asked:,} prompts were asked, and "
        return f"{asked}what a model writes after some prompts does not prove what it writes after others"
    return f"the {search.method} over {int(search.size):,} members ended after {search.certificate.expansions:,} queries"


def _place_words(one: CanaryExtraction, *, unaided: bool) -> str:
    after = "" if one.expansions is None else f" after {one.expansions:,} queries"
    alone = ", and plain greedy decoding writes it" if unaided else ""
    return f"at place {one.place:,}{after}{alone}" if one.place is not None else f"it came out{after}{alone}"


def _formats(run: Run, located: Located[Verified]) -> Iterator[Measure]:
    """The canaries of each format together.

    Canaries are members of their format, drawn at random. So without memorization each is among the k members that a search found with
    probability k / |R|, whatever the model predicts for the format. Their number is binomial, or, because canaries differ, a little less
    spread than that, so the binomial p-value errs on the safe side.
    """
    from scipy.stats import binom

    searches = _searches(run, located)
    places = {one.canary_id: one.p_value for one in places_of(run, located)}
    missing = not_looked_for(run)
    trained = [one for one in located.document.canaries if one.repetitions > 0 and one.problem is None]
    for format_id, some in grouped((one.format_id or "", one) for one in trained).items():
        search = searches.get(format_id)
        out = [one for one in some if one.extracted]
        many, total = len(out), len(some)
        p_value = None
        if search is not None and len(search.found) <= int(search.size):
            p_value = float(binom.sf(many - 1, total, len(search.found) / int(search.size)))
        unproven = sum(not one.extracted and not one.proven for one in some)
        by_chance = order_test(
            [places.get(one.canary_id, 0.0) if one.extracted else 1.0 for one in some]
        ).p_value
        doubt = ""
        if out:
            doubt = f"{many:,} of {total:,} {'canary' if total == 1 else 'canaries'} came out, {chance_explains(by_chance)}"
        elif unproven:
            doubt = f"it is not proven of {unproven:,} of them: {_ended(search)}"
        elif missing:
            doubt = f"{len(missing):,} planted canaries were not looked for, such as {missing[0]}"
        elif total < FEWEST:
            doubt = f"these are too few: up to {100 * at_most_share(total):.0f}% of such canaries could still come out (95% confidence)"
        among = (
            ""
            if search is None
            else f", among the {len(search.found):,} least surprising of {int(search.size):,} members"
        )
        name = format_id if search is None else format_name(search.format_template)
        yield Measure(
            key="extraction.format",
            name=name,
            estimate=_share(many, unproven, total),
            p_value=p_value,
            test=("group", "came out", str(located.path.parent), format_id),
            about=tuple(one.canary_id for one in out or some),
            says=f"{many:,} of {total:,} came out{among}",
            doubt=doubt,
            if_clear=f"up to {100 * at_most_share(total):.0f}% of such canaries could still come out (95% confidence)",
        )


def _share(many: int, unproven: int, total: int) -> Estimate:
    low, high = many / total, (many + unproven) / total
    return Estimate(
        method="share of canaries",
        status="lower_bound" if unproven else "measured",
        value=None if unproven else low,
        low=low,
        high=high,
        confidence=None,
        n=total,
        statement=f"{many:,} of {total:,} canaries came out ({100 * low:.0f}%)",
    )


def not_looked_for(run: Run) -> list[str]:
    """Planted canaries that no search looked for; ids come again in other manifests."""
    there = {
        (document.manifest_sha256, one.canary_id)
        for _, document in run.all(VERIFIED)
        for one in document.canaries
    }
    return [one.canary_id for one in planted_in(run) if (one.manifest_sha256, one.canary_id) not in there]


def without_search(run: Run) -> str | None:
    """Which verified.json rests on a search that is not there, or names none of a format of its canaries; None where all are."""
    there = {real_path(path) for path, _ in run.all(EXTRACTIONS)}
    for path, document in run.all(VERIFIED):
        formats = {
            one.format_id for one in document.canaries if one.format_id is not None and one.problem is None
        }
        for name in sorted({*map(extraction_file, formats), *document.extractions}):
            if name not in document.extractions or real_path(beside(path, name)) not in there:
                return f"{name}, which {run.shown(path)} rests on, is not there"
    return None


def chance_of_places(these: Sequence[Measure], _limit: float) -> float:
    """The probability of such places in searches without memorization."""
    return order_test([one.source if one.low_at(0.0) > 0 else 1.0 for one in these]).p_value if these else 1.0


RULES = (
    Rule(
        key="extraction.at_most_extracted",
        of="extraction.canary",
        says="at most {limit:g} planted canaries come out of searches",
        example=0,
        settle="search with a larger --budget, and with the whole canaries.json",
        chance=chance_of_places,
        in_all=True,
        about_canaries=True,
    ),
)


def extraction_details(run: Run, reveal: bool) -> Iterator[Detail]:
    """What came out of each format, masked unless the report reveals texts."""
    for located in run.all(EXTRACTIONS):
        result = located.document
        where = run.shown(located.path)
        proof = "proven" if result.proven else "not proven"
        asked = asked_as(result.model)
        members = "members" if asked is None else f"members, asked about {asked}"
        table = member_table(
            "queries",
            str if reveal else partial(hidden_member, template=result.format_template, canaries=run.canaries),
        )
        yield table.detail(
            result.found,
            section="Texts",
            title="What came out of",
            code=result.format_template,
            note=f"{where}: {result.method} over {int(result.size):,} {members}, {proof} to be the least surprising, "
            f"after {result.certificate.expansions:,} queries.",
            caption=f"Members found in {where}",
        )


def hidden_member(text: str, template: str, canaries: CanarySet | None) -> str:
    """A member of a format that shows only what every member shares; nothing at all if the format is unknown, or only a list."""
    same = (
        [] if canaries is None else [one for one in canaries.formats.items() if one[1].template == template]
    )
    if canaries is not None and any(format_id in canaries.listed for format_id, _ in same):
        return hidden(text)
    try:
        form = same[0][1] if same else Format(template)
    except FormatError:
        return hidden(text)
    return masked(text, form) if text.startswith(form.prefix) else hidden(text)


EXTRACTION = Audit(
    name="extraction",
    command="coalmine extract",
    documents=(EXTRACTIONS, VERIFIED),
    measures=measures,
    rules=RULES,
    figures=lambda run: [extraction_figure(run)],
    details=extraction_details,
)
