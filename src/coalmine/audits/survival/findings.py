"""The findings about survival: canaries that never reached the loss, about which an exposure says nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coalmine.corpus.survival.causes import in_words
from coalmine.corpus.survival.results import SURVIVALS, CanarySurvival, Survival
from coalmine.evidence.directories import model_of_result
from coalmine.evidence.findings import NAMED, Catalog, Entry, Finding
from coalmine.evidence.run import Located, Run

CATALOG = Catalog(
    {
        "CM507": Entry(
            "Canaries never reached the loss",
            "Their exposure says nothing about the model, and a low one is not good news. Change the settings that remove them, "
            "check again with `coalmine survive`, and train again.",
            if_not_measured="Check the canaries that were measured with `coalmine survive`.",
            if_clear="Nothing to do: every planted canary was trained on.",
            discredits="good news",
            verdict="some canaries never reached the loss, or may not have, so that low numbers say nothing about them.",
        ),
        "CM508": Entry(
            "Canaries reached the loss another number of times than planted",
            "Exposures are reported by how often a canary was planted. Read them as those of canaries with the copies that are named here.",
        ),
        "CM509": Entry(
            "Canaries were trained on in another place than they are measured in",
            "Their exposure is that of a turn which training never wrote, and a low one is not good news. Train on rows of messages, with "
            "roles named user, assistant and system, and with the chat template of the tokenizer that is saved with the model.",
            discredits="good news",
            verdict="canaries were trained on without the header of the chat template, and are measured after it.",
        ),
    }
)
finding = CATALOG.finding


def doubts_about_canaries(run: Run) -> str | None:
    """Why rules about canaries that hold say nothing: some canaries of these results never reached the loss."""
    measured = run.measured_manifests
    for _, found in _relied_on(run):
        if measured and found.manifest_sha256 not in measured:
            continue
        planted = [one for one in found.canaries if one.repetitions]
        if found.never:
            never = f"{len(found.never):,} of {len(planted):,} planted canaries never reached the loss"
            return f"{never}, so that low numbers say nothing about them"
        if found.rows_unread:
            return f"the training ended before it read {found.rows_unread:,} of its rows, so that low numbers may say nothing"
        if found.elsewhere:
            return (
                f"{len(found.elsewhere):,} of {len(planted):,} planted canaries were not trained on after the header that they are "
                "measured after, so that low numbers say nothing about them"
            )
    return None


def survival_findings(run: Run) -> Iterator[Finding]:
    """What the survival checks of a run show, each about the canaries of its manifest."""
    relied_on = _relied_on(run)
    measured = run.measured_manifests
    for path, found in relied_on:
        if measured and found.manifest_sha256 not in measured:
            evidence = f"The survival check in {run.shown(path)} is about other canaries than the results, and says nothing about them."
            yield finding(
                "CM507", "info", "not_measured", evidence, title="The survival check is of other canaries"
            )
        else:
            yield from _of_one(found)


def _relied_on(run: Run) -> Sequence[Located[Survival]]:
    """The checks of the training itself, in the model's audit directory; else rehearsals, which are wherever they were written."""
    found = run.all(SURVIVALS)
    return [one for one in found if model_of_result(one.path) is not None] or found


def _of_one(found: Survival) -> Iterator[Finding]:
    planted = [one for one in found.canaries if one.repetitions]
    never = [one for one in planted if not one.reached]
    if never:
        evidence = (
            f"{len(never):,} of {len(planted):,} planted canaries never reached the loss with their whole secret"
            f"{_in(found)}: {_named(never)}. {_why(never)}"
        )
        yield finding("CM507", "high", "found", evidence.strip(), subject=[one.canary_id for one in never])
    elif planted and found.rows_unread:
        evidence = (
            f"Every one of {len(planted):,} planted canaries is in the rows{_in(found)}, but the training ends before it reads "
            f"{found.rows_unread:,} of them, which may be those of some canaries."
        )
        yield finding("CM507", "high", "found", evidence, title="Canaries may never have reached the loss")
    elif planted:
        planned, times = sum(one.repetitions for one in planted), sum(one.reached for one in planted)
        evidence = f"Every one of {len(planted):,} planted canaries reached the loss{_in(found)}, with {times:,} of {planned:,} copies."
        yield finding("CM507", "pass", "clear", evidence, title="Every planted canary reached the loss")
    if found.elsewhere:
        evidence = (
            f"{len(found.elsewhere):,} of {len(planted):,} planted canaries reached the loss{_in(found)} only where the header that the "
            "chat template writes before their turn was not before them: rows of prompts and completions that are texts have none, and "
            "other names of roles give another one."
        )
        yield finding("CM509", "high", "found", evidence, subject=found.elsewhere)
    others = [one for one in found.canaries if one.reached != one.repetitions and one not in never]
    if others:
        withheld = [one for one in others if not one.repetitions]
        said = (
            f" {len(withheld):,} of them were withheld, and should not be there at all." if withheld else ""
        )
        copies = ", ".join(
            f"{one.canary_id} {one.reached:,} instead of {one.repetitions:,}" for one in others[:NAMED]
        )
        more = f" and {len(others) - NAMED:,} more" if len(others) > NAMED else ""
        evidence = f"{len(others):,} canaries reached the loss another number of times than planted: {copies}{more}.{said} {_why(others)}"
        yield finding("CM508", "medium", "found", evidence.strip(), subject=[one.canary_id for one in others])


def _in(found: Survival) -> str:
    return f" (checked in {found.trainer})" if found.trainer else ""


def _named(canaries: Sequence[CanarySurvival]) -> str:
    more = f" and {len(canaries) - NAMED:,} more" if len(canaries) > NAMED else ""
    return ", ".join(one.canary_id for one in canaries[:NAMED]) + more


def _why(canaries: Sequence[CanarySurvival]) -> str:
    """What removed their copies, in a sentence; empty where it was not asked."""
    totals: dict[str, int] = {}
    for one in canaries:
        for cause, copies in one.removed.items():
            totals[cause] = totals.get(cause, 0) + copies
    said = in_words(totals)  # type: ignore[arg-type]  # the causes of `removed`
    return f"Of their copies, {said}." if said else ""
