"""`read_run` and `read_runs`: the results of all audits, read back from their files."""

from __future__ import annotations

import os

from coalmine.audits.registry import OF_CORPORA, audits
from coalmine.errors import InputError
from coalmine.evidence import reading
from coalmine.evidence.run import Run


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
