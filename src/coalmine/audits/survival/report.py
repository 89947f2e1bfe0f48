"""What reports and the gate learn from survival checks: canaries that never reached the loss, about which an exposure says nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coalmine.corpus.survival.results import SURVIVALS, CanarySurvival, Survival
from coalmine.evidence.directories import model_of_result
from coalmine.evidence.measures import Audit, Measure
from coalmine.evidence.run import Run

NAMED = 5


def measures(run: Run) -> Iterator[Measure]:
    """What the survival checks of a run show, each about the canaries of its manifest.

    Those of the training itself, in the model's audit directory, count; else rehearsals, which are wherever they were written.
    """
    found = run.all(SURVIVALS)
    for path, document in [one for one in found if model_of_result(one.path) is not None] or found:
        if run.measured_manifests and document.manifest_sha256 not in run.measured_manifests:
            says = f"the survival check in {run.shown(path)} is about other canaries than the results"
            yield Measure(key="survival.never", status="not_measured", says=says)
        else:
            yield from _measures(document)


def _measures(found: Survival) -> Iterator[Measure]:
    planted = [one for one in found.canaries if one.repetitions]
    never = [one for one in planted if not one.reached]
    where = f" (checked in {found.trainer})" if found.trainer else ""
    if never:
        names = _some([one.canary_id for one in never])
        says = f"{len(never):,} of {len(planted):,} planted canaries never reached the loss with their whole secret{where}: {names}"
        yield Measure(key="survival.never", status="found", says=says, about=_ids(never))
    elif planted and found.rows_unread:
        says = (
            f"every one of {len(planted):,} planted canaries is in the rows{where}, but the training ends before it reads "
            f"{found.rows_unread:,} of them, which may be those of some canaries"
        )
        yield Measure(key="survival.never", status="found", says=says)
    elif planted:
        planned, times = sum(one.repetitions for one in planted), sum(one.reached for one in planted)
        says = f"every one of {len(planted):,} planted canaries reached the loss{where}, with {times:,} of {planned:,} copies"
        yield Measure(key="survival.never", status="clear", says=says)
    if found.elsewhere:
        says = (
            f"{len(found.elsewhere):,} of {len(planted):,} planted canaries reached the loss{where} only where the header that the chat "
            "template writes before their turn was not before them: rows of prompts and completions that are texts have none, and other "
            "names of roles give another one"
        )
        yield Measure(key="survival.elsewhere", status="found", says=says, about=tuple(found.elsewhere))
    others = [one for one in found.canaries if one.reached != one.repetitions and one not in never]
    if others:
        copies = _some([f"{one.canary_id} {one.reached:,} instead of {one.repetitions:,}" for one in others])
        withheld = sum(not one.repetitions for one in others)
        mistake = f"; {withheld:,} of them were withheld, and should not be there at all" if withheld else ""
        says = f"{len(others):,} canaries reached the loss another number of times than planted: {copies}{mistake}"
        yield Measure(key="survival.copies", status="found", says=says, about=_ids(others))


def _ids(canaries: Sequence[CanarySurvival]) -> tuple[str, ...]:
    return tuple(one.canary_id for one in canaries)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


SURVIVAL = Audit(
    name="survival",
    command="coalmine lab survive",
    # What was trained elsewhere cannot be checked any more, so that no report misses it.
    is_missed=False,
    documents=(SURVIVALS,),
    measures=measures,
)
