"""All audits, one line each; other packages register theirs through the entry point group `coalmine.audits`."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from coalmine.audits.exposure.audit import EXPOSURE
from coalmine.audits.extraction.audit import EXTRACTION
from coalmine.audits.membership.audit import MEMBERSHIP
from coalmine.audits.recitation.audit import RECITATION
from coalmine.audits.watching.audit import WATCHING
from coalmine.errors import InputError
from coalmine.evidence.audit import Audit, NotTested
from coalmine.evidence.run import Run

GROUP = "coalmine.audits"
# Not built yet; reports say that it was not tested.
PROVENANCE = Audit(
    name="provenance",
    command="",
    not_tested=NotTested("CM905", "Whose data the model was trained on was not looked at."),
)
OWN = (EXPOSURE, EXTRACTION, WATCHING, MEMBERSHIP, RECITATION, PROVENANCE)


@cache
def audits() -> tuple[Audit, ...]:
    """Our own audits, then those of other packages by the names of their entry points."""
    found = {audit.name: audit for audit in OWN}
    for entry in sorted(entry_points(group=GROUP), key=lambda one: one.name):
        try:
            audit = entry.load()
        except Exception as problem:
            raise InputError(
                f"the audit {entry.name!r} of another package could not be loaded ({type(problem).__name__}: {problem}); update that package, "
                "or remove it"
            ) from problem
        if not isinstance(audit, Audit):
            raise InputError(
                f"the entry point {entry.name!r} of {GROUP} is not an Audit, but {type(audit).__name__}; it must name one"
            )
        if audit.name in found:
            raise InputError(
                f"there are two audits named {audit.name!r}, the second from {entry.value}; remove one of the packages"
            )
        found[audit.name] = audit
    return tuple(found.values())


def audited(run: Run) -> tuple[str, ...]:
    """The names of the audits that a run has results of."""
    return tuple(audit.name for audit in audits() if audit.tested_in(run))


def not_audited(run: Run) -> tuple[str, ...]:
    """The names of the audits that a run has no results of."""
    there = audited(run)
    return tuple(audit.name for audit in audits() if audit.name not in there)
