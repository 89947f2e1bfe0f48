"""All audits, one line each, and the results of all read back; other packages register theirs through the entry point group of `GROUP`."""

from __future__ import annotations

import os
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
from coalmine.evidence import reading
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
            audit: Audit = entry.load()
            is_known = audit.name in {one.name for one in found}
        except Exception as problem:
            raise InputError(
                f"the audit {entry.name!r} of another package could not be loaded ({type(problem).__name__}: {problem}); update that "
                "package, or remove it"
            ) from problem
        if is_known:
            raise InputError(
                f"there are two audits named {audit.name!r}, one from {entry.value}; update that package, or remove it"
            )
        found.append(audit)
    return tuple(found)


def audited(run: Run) -> tuple[str, ...]:
    """The names of the audits that a run has results of.

    >>> audited(Run(paths=(), name="model"))
    ()
    """
    return tuple(audit.name for audit in audits() if audit.is_missed and audit.tested_in(run))


def not_audited(run: Run) -> tuple[str, ...]:
    """The names of the audits that a run has no results of, and that a report misses."""
    return tuple(audit.name for audit in audits() if audit.is_missed and not audit.tested_in(run))


def read_run(*paths: str | os.PathLike[str]) -> Run:
    """All results below the given directories (or in the given files), which must be about one model.

    A file that is damaged, or of another version, is an InputError that names it, and so is a directory without any result.

    >>> import tempfile
    >>> from coalmine import membership_of_scores
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = membership_of_scores(range(80, 180), range(100)).save(folder)
    ...     read_run(folder).measured_manifests
    frozenset()
    """
    runs = read_runs(*paths)
    if len(runs) > 1:
        names = ", ".join(run.name for run in runs)
        raise InputError(
            f"the given paths hold results of {len(runs)} models ({names}); name the directory of one of them"
        )
    return runs[0]


def read_runs(*paths: str | os.PathLike[str]) -> tuple[Run, ...]:
    """The results below the given paths, one run per model, in the order of the paths.

    >>> import tempfile
    >>> from coalmine import membership_of_scores
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = membership_of_scores(range(80, 180), range(100)).save(folder)
    ...     len(read_runs(folder))
    1
    """
    return reading.read_runs(paths, audits(), OF_CORPORA)
