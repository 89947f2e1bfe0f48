"""The findings about extraction: which canaries come out of the model, how, and whether it is proven that others do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET

from coalmine.audits.exposure.chance import FEWEST, at_most_share, chance_explains, chance_in_words, share
from coalmine.audits.exposure.single_canaries import places_of
from coalmine.audits.extraction.extracted_together import CAME_OUT, CameOut, came_out
from coalmine.audits.extraction.policy import not_looked_for
from coalmine.audits.extraction.results import EXTRACTIONS, VERIFIED, CanaryExtraction, Extraction, Verified
from coalmine.audits.extraction.table import prompts_in_words
from coalmine.evidence.budget import Decisions
from coalmine.evidence.findings import NAMED, Catalog, Entry, Finding
from coalmine.evidence.run import Located, Run
from coalmine.evidence.words import format_name, times_in_words
from coalmine.records import Estimate
from coalmine.statistics.exposure.order_tests import order_test

CATALOG = Catalog(
    {
        "CM201": Entry(
            "Canaries can be extracted",
            "Anyone who can query the model can read these out of it. Do not release it; remove or redact "
            "what is sensitive and repeated, and train again.",
        ),
        "CM202": Entry(
            "No canary comes out",
            "Nothing to do against this search. It says nothing about an attacker who knows part of the "
            "secret: try `coalmine extract --given`.",
            if_not_measured="Plant more canaries, and extract again.",
            first_step=True,
        ),
        "CM203": Entry(
            "The search for canaries was not finished",
            "Run the same command with a larger --budget to resume. Prompting never proves anything: ask with more prompts "
            "(--prompts), or search the model itself. Where a format could not be searched, correct what the evidence names first.",
            first_step=True,
        ),
        "CM204": Entry(
            "The model writes a canary by itself",
            "Plain greedy decoding is enough to get this secret. Do not release the model; no filter on rare "
            "queries will help.",
            if_not_tested="Add the canaries.json to the paths of the report.",
        ),
        "CM206": Entry(
            "What the model completes a format with",
            "Compare what came out (--reveal shows it) with the secrets that may be in your data; coalmine "
            "cannot know which of them are real.",
        ),
        "CM902": Entry(
            "Extraction was not tested",
            "Run `coalmine extract MODEL --verify canaries.json`.",
            first_step=True,
        ),
    }
)
finding = CATALOG.finding


def extraction_findings(run: Run, decided: Decisions) -> Iterator[Finding]:
    """Findings about canaries that were looked for, and about formats that were searched without any."""
    for verified in run.all(VERIFIED):
        yield from _verified(run, verified, decided)
    folders = {one.path.parent for one in run.all(VERIFIED)}
    for located in run.all(EXTRACTIONS):
        if located.path.parent not in folders:
            yield _searched(run, located)


def _verified(run: Run, located: Located[Verified], decided: Decisions) -> Iterator[Finding]:
    every = [one for one in located.document.canaries if one.repetitions > 0]
    unsearched = [one for one in every if one.problem is not None]
    trained = [one for one in every if one.problem is None]
    out = sorted((one for one in trained if one.extracted), key=lambda one: (one.place or 0, one.canary_id))
    open_ones = [one for one in trained if not one.extracted and not one.proven]
    searches = [one.document for one in run.all(EXTRACTIONS) if one.path.parent == located.path.parent]
    if out:
        yield from _came_out(run, located, out, len(trained), decided)
    if open_ones:
        evidence = (
            f"{len(open_ones):,} of {len(trained):,} canaries that were trained on were not found, and it is not proven that they "
            f"would not be: {_certificates(searches)}."
        )
        yield finding("CM203", "info", "not_measured", evidence, subject=_ids(open_ones))
    if unsearched:
        reasons = "; ".join(dict.fromkeys(one.problem or "" for one in unsearched))
        evidence = f"{len(unsearched):,} of {len(every):,} canaries that were trained on could not be looked for: {reasons}."
        title = "Some formats could not be searched"
        yield finding("CM203", "info", "not_measured", evidence, subject=_ids(unsearched), title=title)
    missing = not_looked_for(run)
    if trained and not out and missing:
        evidence = f"{len(missing):,} canaries that were planted were not looked for, such as {missing[0]}."
        title = "Some canaries were not looked for"
        yield finding("CM203", "info", "not_measured", evidence, subject=missing, title=title)
    elif trained and not out and not open_ones:
        yield _none_out(trained, searches)


def _came_out(
    run: Run, located: Located[Verified], out: Sequence[CanaryExtraction], trained: int, decided: Decisions
) -> Iterator[Finding]:
    # The same number wherever the page says how many came out.
    counted = share(len(out), trained, "that were trained on came out of the model")
    shown = [one for one in out if decided.shown("canary", one.canary_id)]
    if shown:
        which = "" if len(shown) == len(out) else f", and {len(shown):,} of them are shown individually"
        evidence = f"{counted.statement}{which}: {_some(shown)}."
        yield finding("CM201", "critical", "found", evidence, estimates=[counted], subject=_ids(shown))
        searches = [one.document for one in run.all(EXTRACTIONS) if one.path.parent == located.path.parent]
        yield from _unaided(run, shown, searches)
    joint = [one for one in came_out(run, located) if decided.shown("group", CAME_OUT, one.format_id)]
    formats = {one.format_id for one in joint}
    rest = [one for one in out if one not in shown]
    together = [one for one in rest if one.format_id in formats]
    if together:
        yield _together(together, joint, counted)
    by_chance = [one for one in rest if one.format_id not in formats]
    if by_chance:
        yield _by_chance(run, located, by_chance, counted)


def _together(these: Sequence[CanaryExtraction], counts: Sequence[CameOut], counted: Estimate) -> Finding:
    """Canaries none of which is shown individually, if more came out than chance gives."""
    words = "; ".join(
        f"{one.extracted:,} of {one.trained:,} of the format {format_name(one.template)} came out; chance gives "
        f"{one.expected:.2g} on average, and as many with probability {chance_in_words(one.p_value)}"
        for one in counts
    )
    evidence = (
        f"Not individually, but together: {words}. Among them: {_some(these)}. In all, {counted.statement}."
    )
    title = "More canaries came out than chance explains"
    return finding("CM201", "high", "found", evidence, estimates=[counted], subject=_ids(these), title=title)


def _by_chance(
    run: Run, located: Located[Verified], these: Sequence[CanaryExtraction], counted: Estimate
) -> Finding:
    names = {one.canary_id for one in these}
    # The chance of these: the others are shown by themselves.
    p_values = [
        one.p_value if one.canary_id in names else 1.0
        for one in places_of(run, located)
        if one.repetitions > 0
    ]
    which = (
        ""
        if len(these) == round((counted.value or 0.0) * counted.n)
        else f", and {len(these):,} of them in a way"
    )
    evidence = (
        f"{counted.statement}{which}, {chance_explains(order_test(p_values).p_value)}: {_some(these)}. "
        "So this search alone does not show memorization."
    )
    title = "Canaries came out, which chance may explain"
    return finding("CM201", "info", "found", evidence, estimates=[counted], subject=_ids(these), title=title)


def _ids(these: Sequence[CanaryExtraction]) -> list[str]:
    return [one.canary_id for one in these]


def _some(these: Sequence[CanaryExtraction]) -> str:
    more = f"; and {len(these) - NAMED:,} more" if len(these) > NAMED else ""
    return "; ".join(_named(one) for one in these[:NAMED]) + more


def _none_out(trained: Sequence[CanaryExtraction], searches: Sequence[Extraction]) -> Finding:
    tops = sorted({len(one.found) for one in searches})
    among = (
        f"the {tops[0]:,} least surprising members of their format"
        if len(tops) == 1
        else "the members that were asked for"
    )
    limit = f"up to {100 * at_most_share(len(trained)):.0f}% of such canaries could still come out (95% confidence)"
    estimate = share(0, len(trained), "that were trained on came out of the model")
    evidence = f"It is proven that none of {len(trained):,} canaries is among {among}; even so, {limit}."
    if len(trained) < FEWEST:
        title = "No canary came out, but there are too few to say more"
        return finding("CM202", "info", "not_measured", evidence, estimates=[estimate], title=title)
    return finding("CM202", "pass", "clear", evidence, estimates=[estimate])


def _named(one: CanaryExtraction) -> str:
    after = "" if one.expansions is None else f" after {one.expansions:,} queries"
    return f"{one.canary_id}, trained on {times_in_words(one.repetitions)}, at place {one.place}{after}"


def _certificates(searches: Sequence[Extraction]) -> str:
    ended = [one for one in searches if not one.proven]
    if not ended:
        return "the search has no certificate"
    return "; ".join(_ended(one) for one in ended)


def _ended(one: Extraction) -> str:
    """How a search without a proof ended."""
    if one.method == "prompt":
        said = "" if one.prompts is UNSET else f"{prompts_in_words(one.prompts)}, and "
        return f"{said}what a model writes after some prompts does not prove what it writes after others"
    return (
        f"the {one.method} over {int(one.size):,} members ended after {one.certificate.expansions:,} queries"
    )


def _unaided(run: Run, out: Sequence[CanaryExtraction], searches: Sequence[Extraction]) -> Iterator[Finding]:
    """Canaries that greedy decoding writes; the texts of the manifest say which of those found they are."""
    written = {one.text for search in searches for one in search.found if one.unaided}
    if not written:
        return
    if run.canaries is None:
        evidence = (
            f"Greedy decoding writes {len(written):,} of the members that were found, and {len(out):,} of those found are canaries. "
            "Which of them are the same is not known without the canaries.json, which was not given."
        )
        yield finding("CM204", "info", "not_tested", evidence)
        return
    texts = {canary.canary_id: canary.text for canary in run.canaries}
    these = [one.canary_id for one in out if texts.get(one.canary_id) in written]
    if these:
        evidence = f"Given only the beginning of the format, greedy decoding writes {', '.join(these[:NAMED])} without any search."
        yield finding("CM204", "critical", "found", evidence, subject=these)


def _searched(run: Run, located: Located[Extraction]) -> Finding:
    result = located.document
    where = run.shown(located.path)
    if not result.found:
        evidence = f"{where}: nothing came out by {result.method}, which does not show that nothing is there."
        return finding("CM206", "info", "not_measured", evidence, subject=[where])
    unaided = sum(bool(one.unaided) for one in result.found)
    proof = (
        "proven to be the least surprising"
        if result.proven
        else "without proof that no other is less surprising"
    )
    evidence = (
        f"{where}: {len(result.found):,} of {int(result.size):,} members were found by {result.method}, {proof}; greedy decoding writes "
        f"{unaided:,} of them by itself. The model alone does not show whether they are secrets."
    )
    return finding("CM206", "info", "found", evidence, subject=[where])
