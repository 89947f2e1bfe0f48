"""What the first screen of a report says about exposure."""

from __future__ import annotations

from collections.abc import Sequence

from coalmine.audits.exposure.catalog import COME_FIRST
from coalmine.audits.exposure.chance import is_relied_on, share
from coalmine.evidence.findings import Finding, first
from coalmine.evidence.replies import MEMORIZED, Reply
from coalmine.records import Estimate


def exposure_reply(findings: Sequence[Finding]) -> Reply:
    """Whether the canaries were memorized, as far as their exposures show."""
    shown = [one for code in ("CM101", "CM102") if (one := first(findings, code, "found")) is not None]
    if shown:
        return _memorized(findings, shown)
    together = first(findings, "CM103", "found")
    if together is not None:
        return Reply(
            MEMORIZED,
            "Yes, together" if together.severity == "high" else "In part",
            together.evidence,
            "bad" if together.severity == "high" else "warn",
            remembered_clause(strongly=together.severity == "high"),
        )
    if first(findings, "CM901", "not_tested") is not None:
        clause = "Whether the model memorized the canaries was not tested"
        return Reply(MEMORIZED, "Not tested", "No exposures were measured.", "open", clause, tested=False)
    come_first = next((one for one in findings if one.title == COME_FIRST), None)
    if come_first is not None:
        clause = f"{come_first.evidence.partition(':')[0]},"
        return Reply(MEMORIZED, "Cannot be said", come_first.evidence, "open", clause)
    unmeasured = first(findings, "CM911", "not_measured") or first(findings, "CM104", "not_measured")
    if unmeasured is not None:
        return Reply(MEMORIZED, "Cannot be said", unmeasured.evidence, "open")
    clear = first(findings, "CM104", "clear")
    if clear is not None:
        clause = "There is no evidence that the model memorized the canaries"
        return Reply(MEMORIZED, "Not that can be seen", clear.evidence, "good", clause)
    return Reply(MEMORIZED, "Cannot be said", "No canary that was trained on was measured.", "open")


def remembered_clause(*, strongly: bool) -> str:
    """The clause of the verdict about canaries that are shown to be remembered, but not one by one."""
    return "The model memorized canaries" if strongly else "The model remembers its canaries in part"


def _memorized(findings: Sequence[Finding], shown: Sequence[Finding]) -> Reply:
    hits = sum(hits_of(one.estimates[0]) for one in shown)
    total = shown[0].estimates[0].n
    rest = first(findings, "CM911", "not_measured")
    if rest is not None and all(map(is_relied_on, rest.estimates)):
        # Their intervals are too wide, but all of them count in the total.
        rest = None
    which = "that were trained on" if rest is None else "that were trained on and measured"
    statement = share(hits, total, f"{which} {'is' if hits == 1 else 'are'} memorized").statement
    full = hits_of(shown[0].estimates[0]) if shown[0].code == "CM101" else 0
    if full:
        statement += f"; {full:,} of them {'is' if full == 1 else 'are'} among the model's first two guesses"
    measured = "" if rest is None else " measured"
    clause = f"The model memorized {hits:,} of {total:,}{measured} canaries"
    answer = f"Yes: {hits:,} of {total:,}{measured}"
    # Which of the others are memorized is not known, so they have no number.
    if first(findings, "CM103", "found") is not None:
        statement += f". {'It is' if hits == 1 else 'These are'} shown individually, and others only together"
        clause += ", each shown individually, and others that are shown only together,"
        answer += ", and others together"
    return Reply(
        MEMORIZED,
        answer,
        f"{statement}.{'' if rest is None else f' {rest.evidence}'}",
        "bad",
        clause,
    )


def hits_of(found: Estimate) -> int:
    """How many canaries a share counts."""
    return round((found.value or 0.0) * found.n)
