"""What extraction shows: which canaries come out, whether it is proven that others do not, tables, sentences and a figure.

The figure is after Figures 10 and 11 of The Secret Sharer, Carlini, Liu, Erlingsson, Kos and Song, 2019, arXiv:1802.08232.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from coalmine.audits.exposure.chance import FEWEST, at_most_share, canary_p_values, chance_explains, places_of
from coalmine.audits.exposure.display import (
    MOST_POINTS,
    MOST_SECRETS,
    height,
    names_of_formats,
    under_names,
)
from coalmine.audits.exposure.report import FULL, WEIGHT, planted_in
from coalmine.audits.exposure.results import EXPOSURES
from coalmine.audits.extraction.results import (
    EXTRACTIONS,
    VERIFIED,
    CanaryExtraction,
    Extracted,
    Extraction,
    Verified,
)
from coalmine.audits.framing import asked_as
from coalmine.evidence.charts import PALETTE, Axis, Chart, Marks, Rows, rounded, thinned
from coalmine.evidence.measures import Audit, Measure, Rule
from coalmine.evidence.run import Located, Run
from coalmine.evidence.tables import Column, Detail, Table
from coalmine.evidence.words import format_name, format_names, hidden, times_in_words
from coalmine.grouped import grouped
from coalmine.records import Estimate
from coalmine.statistics.exposure.order_tests import order_test
from coalmine.visible import visible

if TYPE_CHECKING:
    from rich.console import Group

MEMBERS: Table[Extracted] = Table(
    (
        Column("place", lambda one: one.place),
        Column("text", lambda one: one.text),
        Column("log-perplexity (bits)", lambda one: one.log_perplexity_bits),
        Column("found after (expansions)", lambda one: one.expansions),
    )
)


def _outcome(one: CanaryExtraction) -> str:
    if one.problem is not None:
        return "not looked for"
    return "yes" if one.extracted else "no" if one.proven else "not within the budget"


SEARCHED: Table[CanaryExtraction] = Table(
    (
        Column("canary", lambda one: one.canary_id),
        Column("trained on", lambda one: one.repetitions),
        Column("extracted", _outcome),
        Column("place", lambda one: one.place),
        Column("after (expansions)", lambda one: one.expansions),
    )
)


def masked(result: Extraction) -> Extraction:
    """The same result with all hidden but what every member shares; of secrets that were found, all of it."""
    shown = 0 if result.kind is not UNSET else len(result.format.prefix)

    def mask(text: str) -> str:
        return text[:shown] + hidden(text[shown:])

    found = tuple(msgspec.structs.replace(one, text=mask(one.text)) for one in result.found)
    return msgspec.structs.replace(result, found=found, given=mask(result.given), words=None)


def certificate_in_words(result: Extraction) -> str:
    """Why the answer can be believed, or how far, and what a model that has conversations was asked about."""
    certificate, asked = result.certificate, asked_as(result.model)
    done = "members scored" if result.method == "brute" else "expansions"
    spent = f"{certificate.expansions:,} {done} over a space of {int(result.size):,}"
    if certificate.proven:
        words = f"Proven in {spent}: nothing that could be better was left out."
    elif result.prompts is not UNSET:
        failed = f"; {result.prompts.failed:,} more have no answer" if result.prompts.failed else ""
        why = "what it does not write by itself may be found by a search"
        words = f"Not proven: {result.prompts.share.statement}{failed}; {why}."
    else:
        gap = "too few members were found yet"
        if certificate.gap_bits is not None:
            gap = f"a member that costs up to {certificate.gap_bits:.2f} bits less than the last may exist"
        words = f"Not proven in {spent}: {gap}. Run the same command with a larger --budget to resume."
    return words if asked is None else f"{words} Asked about {asked}."


def searched(
    results: Sequence[CanaryExtraction], extractions: Mapping[str, Extraction]
) -> Iterator[Group | str]:
    """A table per format, or per kind of secrets that were found, why the answers can be believed, and what was not looked for."""
    names = format_names({name: one.format_template for name, one in extractions.items()})
    names |= {one.format_id: str(one.kind) for one in results if one.kind is not UNSET}
    ordered = sorted(results, key=lambda one: (-one.repetitions, one.place is None, one.place or 0))
    rows = grouped((names[one.format_id], one) for one in ordered)
    limit = MOST_SECRETS if any(one.kind is not UNSET for one in results) else None
    yield under_names("Format", {name: SEARCHED.terminal(some[:limit]) for name, some in rows.items()})
    for name, some in grouped((names[format_id], one) for format_id, one in extractions.items()).items():
        proven = f"{sum(one.proven for one in some):,} of {len(some):,} searches are proven."
        yield f"{visible(name)}: {certificate_in_words(some[0]) if len(some) == 1 else proven}"
    for reason, lost in grouped((one.problem, one) for one in results if one.problem is not None).items():
        yield visible(f"Not looked for: {len(lost)} canaries, such as {lost[0].canary_id}: {reason}.")


def measures(run: Run) -> Iterator[Measure]:
    """What searches for canaries show; searches without any canaries show nothing by themselves."""
    for located in run.all(VERIFIED):
        yield from extracted_measures(run, located, "extraction.canary", "canary")
        yield from _formats(run, located)
    if run.all(VERIFIED):
        for name in _not_looked_for(run):
            why = Estimate.not_measured("search", "no search looked for it")
            yield Measure(key="extraction.canary", name=name, estimate=why, about=(name,))
    elif run.all(EXTRACTIONS):
        says = "formats were searched, but no canaries were looked for"
        yield Measure(key="missing.extraction", status="not_tested", says=says)


def extracted_measures(run: Run, located: Located[Verified], key: str, kind: str) -> Iterator[Measure]:
    """One measure per canary that was looked for: 1 for one that came out, 0 for one that provably did not, and 0 to 1 for others."""
    p_values, searches = canary_p_values(run), _searches(run, located)
    places = {one.canary_id: one.p_value for one in places_of(run, located)}
    for one in located.document.canaries:
        if one.repetitions > 0:
            after = "" if one.expansions is None else f" after {one.expansions:,} queries"
            yield Measure(
                key=key,
                name=f"{one.canary_id}, trained on {times_in_words(one.repetitions)}",
                estimate=_estimate(one, searches.get(one.format_id)),
                p_value=p_values.get(one.canary_id) if one.extracted else None,
                test=(kind, one.canary_id),
                weight=WEIGHT,
                about=(one.canary_id,),
                says=f"at place {one.place:,}{after}" if one.place is not None else "",
                size=FULL,
                copies=one.repetitions,
                source=places.get(one.canary_id, 1.0),
            )


def _searches(run: Run, located: Located[Verified]) -> dict[str, Extraction]:
    """The searches that a verified.json rests on, by their formats."""
    return {
        one.path.stem.removeprefix("extraction-"): one.document
        for one in run.all(EXTRACTIONS)
        if one.path.parent == located.path.parent and one.path.name in located.document.extractions
    }


def _estimate(one: CanaryExtraction, search: Extraction | None) -> Estimate:
    if one.problem is not None or (search is None and not one.extracted):
        return Estimate.not_measured("search", one.problem or _ended(search))
    words = "it came out" if one.extracted else "it provably does not come out"
    if not one.extracted and not one.proven:
        words = f"it was not found, and {_ended(search)}"
    return _between("search", float(one.extracted), float(one.extracted or not one.proven), 1, words)


def _between(method: str, low: float, high: float, n: int, statement: str) -> Estimate:
    known = low == high
    return Estimate(
        method=method,
        status="measured" if known else "lower_bound",
        value=low if known else None,
        low=low,
        high=high,
        confidence=None,
        n=n,
        statement=statement,
    )


def _ended(search: Extraction | None) -> str:
    """How a search without a proof ended."""
    if search is None:
        return "its search is not there"
    if search.prompts is not UNSET:
        return (
            f"{search.prompts.asked:,} prompts were asked, which does not prove what others would bring out"
        )
    return f"the {search.method} over {int(search.size):,} members ended after {search.certificate.expansions:,} queries"


def _formats(run: Run, located: Located[Verified]) -> Iterator[Measure]:
    """The canaries of each format together.

    Canaries are members of their format, drawn at random. So without memorization each is among the k members that a search found with
    probability k / |R|, whatever the model predicts for the format. Their number is binomial, or, because canaries differ, a little less
    spread than that, so the binomial p-value errs on the safe side.
    """
    from scipy.stats import binom

    searches, missing = _searches(run, located), _not_looked_for(run)
    places = {one.canary_id: one.p_value for one in places_of(run, located)}
    trained = [one for one in located.document.canaries if one.repetitions > 0 and one.problem is None]
    for format_id, some in grouped((one.format_id, one) for one in trained).items():
        search = searches.get(format_id)
        out = [one for one in some if one.extracted]
        many, total = len(out), len(some)
        p_value, name, among = None, format_id, ""
        if search is not None:
            found, size = len(search.found), int(search.size)
            p_value = float(binom.sf(many - 1, total, found / size)) if found <= size else None
            name = format_name(search.format_template)
            among = f", among the {found:,} least surprising of {size:,} members"
        # Nothing is proven by a search that is not there.
        unproven = sum(not one.extracted and (not one.proven or search is None) for one in some)
        left = (
            f"up to {100 * at_most_share(total):.0f}% of such canaries could still come out (95% confidence)"
        )
        doubt = f"these are too few: {left}" if total < FEWEST else ""
        if out:
            ranks = [places.get(one.canary_id, 0.0) if one.extracted else 1.0 for one in some]
            doubt = f"{many:,} of {total:,} came out, {chance_explains(order_test(ranks).p_value)}"
        elif unproven:
            doubt = f"it is not proven of {unproven:,} of them: {_ended(search)}"
        elif missing:
            doubt = f"{len(missing):,} planted canaries were not looked for, such as {missing[0]}"
        yield Measure(
            key="extraction.format",
            name=name,
            estimate=_between(
                "share of canaries",
                many / total,
                (many + unproven) / total,
                total,
                f"{many:,} of {total:,} canaries came out",
            ),
            p_value=p_value,
            test=("group", "came out", str(located.path.parent), format_id),
            about=tuple(one.canary_id for one in out or some),
            says=f"{many:,} of {total:,} came out{among}",
            doubt=doubt,
            if_clear=left,
        )


def _not_looked_for(run: Run) -> list[str]:
    """Planted canaries that no search looked for; ids come again in other manifests."""
    there = {
        (document.manifest_sha256, one.canary_id)
        for _, document in run.all(VERIFIED)
        for one in document.canaries
    }
    return [one.canary_id for one in planted_in(run) if (one.manifest_sha256, one.canary_id) not in there]


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


def _details(run: Run, reveal: bool) -> Iterator[Detail]:
    """What came out of each format, masked unless the report reveals texts."""
    for path, result in run.all(EXTRACTIONS):
        asked = asked_as(result.model)
        members = "members" if asked is None else f"members, asked about {asked}"
        proof = "" if result.proven else "not "
        yield MEMBERS.detail(
            (result if reveal else masked(result)).found,
            section="Texts",
            title="What came out of",
            code=result.format_template,
            note=f"{run.shown(path)}: {result.method} over {int(result.size):,} {members}, {proof}proven to be the "
            f"least surprising, after {result.certificate.expansions:,} queries.",
            caption=f"Members found in {run.shown(path)}",
        )


def _figure(run: Run) -> Chart | None:
    """Queries against exposure, or None if canaries were not searched for or have no exposures."""
    measured = run.first(EXPOSURES)
    if not run.all(VERIFIED) or measured is None:
        return None
    located, names = run.all(VERIFIED)[0], names_of_formats(run)
    spent = {name: one.certificate.expansions for name, one in _searches(run, located).items()}
    exposures = {one.canary_id: one for one in measured.results if one.estimate.status != "not_measured"}
    rows: Rows = [
        {
            "canary": one.canary_id,
            "format": names[one.format_id],
            "exposure (bits)": rounded(height(exposures[one.canary_id])),
            "trained on": times_in_words(one.repetitions),
            "queries": queries,
            "came out": _outcome(one),
            "place": one.place,
        }
        for one in located.document.canaries
        if (queries := one.expansions if one.extracted else spent.get(one.format_id))
        and one.canary_id in exposures
    ]
    if not rows:
        return None
    by_height = sorted(rows, key=lambda row: (str(row["came out"]), float(row["exposure (bits)"])))
    return Chart(
        id="exposure-and-extraction",
        title="Exposure against extraction and its cost",
        caption="Each point is a canary. One that came out is at the number of queries after which it was found; one that did not, at "
        "the number that was spent on its format.",
        rows=[by_height[place] for place in thinned(len(rows), MOST_POINTS)],
        columns=tuple(rows[0]),
        data=tuple(tuple(row.values()) for row in rows),
        x=Axis(column="exposure (bits)", grid=False),
        y=Axis(column="queries", title="queries (log)", scale="log"),
        marks=(
            Marks(kind="points", shows=("canary", "trained on", "came out", "exposure (bits)", "queries")),
        ),
        color="came out",
        colors={
            "yes": PALETTE[1],
            "no": PALETTE[0],
            "not within the budget": PALETTE[6],
            "not looked for": PALETTE[7],
        },
        legend="came out",
        panel="format",
        height=240,
    )


EXTRACTION = Audit(
    name="extraction",
    command="coalmine extract",
    documents=(EXTRACTIONS, VERIFIED),
    measures=measures,
    rules=RULES,
    figures=lambda run: [_figure(run)],
    details=_details,
)
