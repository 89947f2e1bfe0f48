"""All audits, one line each; other packages register theirs through the entry point group `coalmine.audits`."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from coalmine.audits.comparison.report import COMPARISON
from coalmine.audits.defenses.report import DEFENSES
from coalmine.audits.disagreement.records import CROSSCHECKS
from coalmine.audits.exposure.report import EXPOSURE
from coalmine.audits.extraction.report import EXTRACTION
from coalmine.audits.membership.report import MEMBERSHIP
from coalmine.audits.provenance.report import PROVENANCE
from coalmine.audits.recitation.report import RECITATION
from coalmine.audits.secrets.report import SECRETS
from coalmine.audits.survival.report import SURVIVAL
from coalmine.audits.watching.report import WATCHING
from coalmine.audits.whole.report import STEPS
from coalmine.errors import InputError
from coalmine.evidence.measures import Audit
from coalmine.evidence.run import Run

GROUP = "coalmine.audits"
OWN = (EXPOSURE, EXTRACTION, SURVIVAL, WATCHING, MEMBERSHIP, SECRETS, RECITATION, PROVENANCE, STEPS, DEFENSES)
COMPARISONS = (COMPARISON,)
# Results about a corpus and not about a model, so that no report is about them; models beside them are not audited.
OF_CORPORA = (CROSSCHECKS,)


@cache
def audits() -> tuple[Audit, ...]:
    """Our own audits, then those of other packages by the names of their entry points."""
    found = list(OWN)
    for entry in sorted(entry_points(group=GROUP), key=lambda one: one.name):
        try:
            audit = entry.load()
        except Exception as problem:
            raise InputError(
                f"the audit {entry.name!r} of another package could not be loaded ({type(problem).__name__}: {problem}); update that "
                "package, or remove it"
            ) from problem
        if not isinstance(audit, Audit):
            raise InputError(
                f"the entry point {entry.name!r} of {GROUP} is not an Audit, but {type(audit).__name__}; it must name one"
            )
        if audit.name in {one.name for one in found}:
            raise InputError(
                f"there are two audits named {audit.name!r}, one from {entry.value}; update that package, or remove it"
            )
        found.append(audit)
    return tuple(found)


def audited(run: Run) -> tuple[str, ...]:
    """The names of the audits that a run has results of.

    >>> import tempfile
    >>> from coalmine.audits import membership_of_scores, read_run
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = membership_of_scores(range(80, 180), range(100)).save(folder)
    ...     audited(read_run(folder))
    ('membership',)
    """
    return tuple(audit.name for audit in _missed() if audit.tested_in(run))


def not_audited(run: Run) -> tuple[str, ...]:
    """The names of the audits that a run has no results of."""
    there = audited(run)
    return tuple(audit.name for audit in _missed() if audit.name not in there)


def _missed() -> list[Audit]:
    """The audits that a report misses if they were not run."""
    return [audit for audit in audits() if audit.is_missed]
