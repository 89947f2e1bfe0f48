"""What was tested and what was not, as reports see it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from coalmine.audits.whole.records import REVIEWS, Review, StepRecord
from coalmine.evidence.measures import Audit, Measure
from coalmine.evidence.run import Run
from coalmine.evidence.tables import Column, Detail, Table
from coalmine.grouped import grouped

# What the table calls each outcome.
_WORDS = {
    "done": "tested",
    "no_time": "not tested: no time",
    "not_applicable": "not tested",
    "planned": "not tested yet",
    "running": "not finished",
}
STEPS_TABLE = Table[StepRecord](
    (
        Column("step", lambda one: one.title),
        Column("outcome", lambda one: _WORDS[one.status]),
        Column("what was asked", lambda one: one.size),
        Column("because", lambda one: one.why or one.cut, short=""),
        Column("planned (s)", lambda one: round(one.expected_seconds)),
        Column("took (s)", lambda one: None if one.seconds is None else round(one.seconds)),
    )
)


def measures(run: Run) -> Iterator[Measure]:
    """Why other audits have no results, what was not run, and what was run on less than could have been."""
    for _, document in run.all(REVIEWS):
        why = {audit: one for one in reversed(document.steps) if not one.tested for audit in one.audits}
        for audit, one in why.items():
            yield Measure(key=f"missing.{audit}", status="not_tested", says=_in_words([(one.why, one.title)]))
        left_out = [(one.why, one.title) for one in document.steps if one.why and not one.tested]
        if left_out:
            says = f"{len(left_out):,} of {len(document.steps):,} steps were not run. {_in_words(left_out)}"
            about = tuple(title for _, title in left_out)
            yield Measure(key="steps.left_out", status="not_tested", says=says, about=about)
        cut = [(one.cut, one.title) for one in document.steps if one.tested and one.cut]
        if cut:
            about = tuple(title for _, title in cut)
            yield Measure(key="steps.cut", status="not_tested", says=_in_words(cut), about=about)


def _in_words(reasons: Iterable[tuple[str, str]]) -> str:
    """What is to be said about steps by their titles, with those together of which the same is."""
    return "; ".join(f"{', '.join(titles)}: {why}" for why, titles in grouped(reasons).items())


def _details(run: Run, reveal: bool) -> Iterator[Detail]:
    """All steps, and what became of them."""
    del reveal
    for _, document in run.all(REVIEWS):
        yield STEPS_TABLE.detail(
            document.steps,
            section="What was tested",
            title="",
            note=_time_in_words(document),
            caption="The steps of the audit",
        )


def _time_in_words(document: Review) -> str:
    took = document.prepared_seconds + sum(one.seconds or 0.0 for one in document.steps)
    said = f"{document.minutes:g} minutes were given, and the steps took {took / 60:.1f}."
    return " ".join([said, *(f"{one[:1].upper()}{one[1:]}." for one in document.warnings)])


STEPS = Audit(
    name="steps",
    command="coalmine audit",
    # It asks the model nothing: a report without it misses nothing.
    is_missed=False,
    documents=(REVIEWS,),
    measures=measures,
    details=_details,
)
