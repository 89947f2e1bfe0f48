"""Which results does a run hold? Finds the files of all audits below some directories, and says what is not there.

Results that tell of different models are different runs. What belongs to no model by itself (a training record, a manifest) goes
to the run whose results stand below it, or that was measured with it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from coalmine.audits.directories import audited_model, beside
from coalmine.audits.exposure.results import read_exposures
from coalmine.audits.extraction.results import Verified, read_extraction, read_verified
from coalmine.audits.membership.results import read_membership
from coalmine.audits.recitation.results import read_recitation
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.errors import InputError
from coalmine.evidence.run import (
    AUDITS,
    RUN_RECORDS,
    RUN_SCHEMA,
    WATCHES,
    Audit,
    Located,
    Run,
    SeenCanary,
    WatchedMoment,
    WatchedTraining,
)
from coalmine.records.contradictions import count_problems, estimate_problems, refuse_contradictions, twice
from coalmine.records.documents import is_sealed
from coalmine.reports.runs.grouping import runs_by_model
from coalmine.reports.runs.originals import check_manifest
from coalmine.storage.decoding import without_values
from coalmine.storage.files import read_written
from coalmine.training.record import TrainingRecord, read_training

__all__ = [
    "AUDITS",
    "Audit",
    "Located",
    "Run",
    "Verified",
    "WatchedMoment",
    "WatchedTraining",
    "names_of",
    "read_run",
    "read_runs",
]

_OF_TRAINING = ("training.json", "exposure-during-training.json")


def read_run(*paths: str | os.PathLike[str]) -> Run:
    """All results below the given directories (or in the given files), which must be those of one model.

    A file that is damaged, or of another version, is an InputError that names it. A directory without any result is one too:
    there is nothing to report, and nothing that could be called safe.
    """
    runs = read_runs(*paths)
    if len(runs) > 1:
        names = ", ".join(run.name for run in runs)
        raise InputError(
            f"the given paths hold results of {len(runs)} models ({names}); name the directory of one of them"
        )
    return runs[0]


def read_runs(*paths: str | os.PathLike[str]) -> tuple[Run, ...]:
    """The results below the given paths, one run for each model, in the order of the paths."""
    given = tuple(Path(path) for path in paths)
    if not given:
        raise InputError("there is no run to read; name a directory with results, such as that of the model")
    files = [path for place in given for path in _files_below(place)]
    found = Run(paths=given, name="")
    # A file that two of the paths lead to is one result.
    for path in {path.resolve(): path for path in files}.values():
        found = _with_file(found, path)
    if not found.tested and not found.trainings and not found.manifests:
        raise InputError(
            f"no result was found below {', '.join(map(str, given))}; run `coalmine expose` or another audit first"
        )
    _check_manifests(found)
    return tuple(runs_by_model(found))


def _check_manifests(found: Run) -> None:
    """Refuse results that say other things of their canaries than the manifest that they were made with, where it is there."""
    manifests = {one.document.sha256: one.document for one in found.manifests}
    for exposures in found.exposures:
        check_manifest(*exposures, manifests)
    for verified in found.verifications:
        check_manifest(*verified, manifests)
    for members in found.memberships:
        check_manifest(*members, manifests)


def _files_below(place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place
        return
    if not place.is_dir():
        raise InputError(f"{place} does not exist; name a directory with results, or a result")
    for top in (place, *beside(place)):
        for directory, folders, names in os.walk(top):
            # Sorted, so that the same files give the same report wherever they are.
            folders[:] = sorted(folder for folder in folders if not folder.startswith("."))
            yield from (Path(directory) / name for name in sorted(names) if _kind_of(Path(name)) is not None)
    # Given the audit directory alone, what is known of the training is beside it; earlier results in there are not asked for.
    model = audited_model(place)
    if model is not None:
        yield from (model / name for name in _OF_TRAINING if (model / name).is_file())


def _kind_of(path: Path) -> str | None:
    if path.name in _READERS:
        return path.name
    if path.name.startswith("extraction-") and path.suffix == ".json":
        return "extraction.json"
    return None


def _run_record(path: Path) -> dict[str, Any] | None:
    """A run.json; None for one of some other program, which has neither a schema of ours nor a checksum."""
    content = read_written(path, RUN_RECORDS.what)
    if RUN_SCHEMA.encode() not in content and not is_sealed(content):
        return None
    return RUN_RECORDS.read(path)


# File name to the field of Run that it goes to, and how it is read.
_READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "exposure.json": ("exposures", read_exposures),
    "extraction.json": ("extractions", read_extraction),
    "verified.json": ("verifications", read_verified),
    "membership.json": ("memberships", read_membership),
    "recitation.json": ("recitations", read_recitation),
    "training.json": ("trainings", read_training),
    "exposure-during-training.json": ("watches", WATCHES.read),
    "canaries.json": ("manifests", CanarySet.load),
    "run.json": ("records", _run_record),
}


def _with_file(run: Run, path: Path) -> Run:
    kind = _kind_of(path)
    if kind is None:
        names = ", ".join(_READERS)
        raise InputError(f"{path} is not a result that is known here; known are {names}, or a directory")
    name, reader = _READERS[kind]
    document = reader(path)
    if name in {"trainings", "watches"}:
        check_looks(path, document)
    if document is None:
        return run
    return replace(run, **{name: (*getattr(run, name), Located(path, document))})  # type: ignore[arg-type]  # each field is a tuple of such


def check_looks(path: Path, document: TrainingRecord | WatchedTraining) -> None:
    """Refuse what was seen during a training where it is not what a report can read, or cannot be true."""
    try:
        looks = msgspec.convert([moment.seen for moment in document.watched], list[list[SeenCanary]])
    except msgspec.ValidationError as problem:
        raise InputError(
            f"{path} is damaged (what was seen during training: {without_values(str(problem))}); restore it, or train again"
        ) from None
    steps = [moment.step for moment in document.watched]
    refuse_contradictions(path, _look_problems(steps, looks), "the training")


def _look_problems(steps: Sequence[int], looks: Sequence[Sequence[SeenCanary]]) -> Iterator[str]:
    if any(one > other for one, other in itertools.pairwise(steps)):
        yield "what was seen during training is not in the order of its steps"
    for step, seen in zip(steps, looks, strict=True):
        yield from twice(f"step {step}: canary", [one.canary_id for one in seen])
        for one in seen:
            name = f"step {step}: canary {one.canary_id!r}"
            yield from estimate_problems(name, one.estimate, 0)
            yield from count_problems(f"{name}: the number of copies", one.repetitions)


def names_of(runs: Sequence[Run]) -> list[str]:
    """A different name for each run."""
    names = [run.name for run in runs]
    found: list[str] = []
    for place, name in enumerate(names):
        own = name if names.count(name) == 1 else f"{name} ({place + 1})"
        while own in found or (own != name and own in names):
            own += "'"
        found.append(own)
    return found
