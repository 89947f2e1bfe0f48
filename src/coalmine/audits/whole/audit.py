"""What was tested and what was not, as reports see it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from coalmine.audits.whole.results import NOT_TESTED as LEFT_OUT
from coalmine.audits.whole.results import REVIEWS, Review
from coalmine.evidence.audit import Audit
from coalmine.evidence.details import Detail
from coalmine.evidence.findings import Catalog, Entry, Finding, first
from coalmine.evidence.replies import NOT_TESTED, Reply
from coalmine.evidence.run import Run
from coalmine.grouped import grouped

CATALOG = Catalog(
    {
        "CM900": Entry(
            "Parts of the audit were not run",
            "Give `coalmine audit` what is missing, or more time (--minutes), and run it again with the same --out.",
            first_step=True,
        ),
        "CM920": Entry(
            "Parts of the audit were cut down",
            "Where the answer is not clear enough, run `coalmine audit` with more time (--minutes) and another --out.",
        ),
    }
)
# What the table calls each outcome.
_WORDS = {
    "done": "tested",
    "no_time": "not tested: no time",
    "not_applicable": "not tested",
    "planned": "not tested yet",
    "running": "not finished",
}


def _reasons(run: Run) -> Mapping[str, str]:
    """Why audits have no results, by their names, where no step gave any."""
    found: dict[str, str] = {}
    for _, document in run.all(REVIEWS):
        for one in document.steps:
            for audit in () if one.tested else one.audits:
                found.setdefault(audit, _in_words([(one.why, one.title)]))
    return found


def _in_words(reasons: Iterable[tuple[str, str]]) -> str:
    """What is to be said about steps by their titles, with those together of which the same is."""
    said = []
    for why, (first_title, *others) in grouped(reasons).items():
        titles = [first_title, *(title[:1].lower() + title[1:] for title in others)]
        said.append(f"{', '.join(titles)}: {why}.")
    return " ".join(said)


def _remarks(run: Run) -> Iterator[Finding]:
    """What was not run, and what was run on less than could have been."""
    for _, document in run.all(REVIEWS):
        left_out = [(one.why, one.title) for one in document.steps if one.status in LEFT_OUT]
        if left_out:
            evidence = (
                f"{len(left_out):,} of {len(document.steps):,} steps were not run. {_in_words(left_out)}"
            )
            yield CATALOG.finding(
                "CM900", "info", "not_tested", evidence, subject=[title for _, title in left_out]
            )
        cut = [(one.cut, one.title) for one in document.steps if one.tested and one.cut]
        if cut:
            yield CATALOG.finding(
                "CM920", "info", "found", _in_words(cut), subject=[title for _, title in cut]
            )


def _replies(findings: Sequence[Finding]) -> Iterator[Reply]:
    left_out, cut = first(findings, "CM900", "not_tested"), first(findings, "CM920", "found")
    if left_out is not None:
        how_many, _, why = left_out.evidence.partition(" were not run. ")
        more = "" if cut is None else f" In part: {cut.evidence}"
        yield Reply(NOT_TESTED, how_many, why + more, "open", tested=False)
    elif cut is not None:
        yield Reply(NOT_TESTED, "Parts of some steps", cut.evidence, "open", tested=False)


def _details(run: Run, reveal: bool) -> Iterator[Detail]:
    """All steps, and what became of them."""
    del reveal
    for _, document in run.all(REVIEWS):
        yield Detail(
            section="What was tested",
            title="",
            note=_time_in_words(document),
            columns=("step", "outcome", "what was asked", "because", "planned (s)", "took (s)"),
            rows=[
                (
                    one.title,
                    _WORDS[one.status],
                    one.size,
                    one.why or one.cut,
                    round(one.expected_seconds),
                    None if one.seconds is None else round(one.seconds),
                )
                for one in document.steps
            ],
            caption="The steps of the audit",
        )


def _time_in_words(document: Review) -> str:
    took = document.prepared_seconds + sum(one.seconds or 0.0 for one in document.steps)
    said = f"{document.minutes:g} minutes were given, and the steps took {took / 60:.1f}."
    return " ".join([said, *(f"{one[:1].upper()}{one[1:]}." for one in document.warnings)])


STEPS = Audit(
    name="steps",
    command="coalmine audit",
    catalog=CATALOG,
    # It asks the model nothing: a report without it misses nothing.
    not_tested=None,
    documents=(REVIEWS,),
    reasons=_reasons,
    remarks=_remarks,
    replies=_replies,
    details=_details,
)
