"""Which results does a run hold? Finds the files of all audits below some directories, and says what is not there.

Results that tell of different models are different runs. What belongs to no model by itself (a training record, a manifest) goes
to the run whose results stand below it, or that was measured with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from coalmine.audits.directories import audited_model, beside
from coalmine.audits.exposure_results import read_exposures
from coalmine.audits.extraction_results import SCHEMA as EXTRACTION_SCHEMA
from coalmine.audits.extraction_results import VERIFIED_SCHEMA, Extraction
from coalmine.audits.membership_results import read_membership
from coalmine.audits.recitation_results import SCHEMA as RECITATION_SCHEMA
from coalmine.audits.recitation_results import Recitation
from coalmine.corpus.manifest import CanarySet
from coalmine.errors import InputError
from coalmine.files import read_bytes
from coalmine.reports.runs.grouping import runs_by_model
from coalmine.reports.runs.records import (
    AUDITS,
    WATCHED_SCHEMA,
    Audit,
    Located,
    Run,
    SeenCanary,
    Verified,
    WatchedMoment,
    WatchedTraining,
)
from coalmine.training.record import SCHEMA as TRAINING_SCHEMA
from coalmine.training.record import TrainingRecord

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

_RUN_SCHEMA = "coalmine.run/1"
_OF_TRAINING = ("training.json", "exposure-during-training.json")
Document = TypeVar("Document")


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
    return tuple(runs_by_model(found))


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


def _decoder(schema: str, kind: type[Document], what: str) -> Callable[[Path], Document]:
    def read(path: Path) -> Document:
        try:
            found = msgspec.json.decode(read_bytes(path, what), type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            raise InputError(f"{path} is damaged ({problem}); restore it, or make {what} again") from None
        if getattr(found, "schema", schema) != schema:
            raise InputError(
                f"{path} has the schema {found.schema!r}, but this version reads {schema!r}; make {what} again"  # type: ignore[attr-defined]  # asked for with getattr above
            )
        return found

    return read


def _run_record(path: Path) -> dict[str, Any]:
    return _decoder("", dict, "the record of a run")(path)


# File name to the field of Run that it goes to, and how it is read.
_READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "exposure.json": ("exposures", read_exposures),
    "extraction.json": ("extractions", _decoder(EXTRACTION_SCHEMA, Extraction, "the extraction")),
    "verified.json": ("verifications", _decoder(VERIFIED_SCHEMA, Verified, "the verified extraction")),
    "membership.json": ("memberships", read_membership),
    "recitation.json": ("recitations", _decoder(RECITATION_SCHEMA, Recitation, "the recitation")),
    "training.json": ("trainings", _decoder(TRAINING_SCHEMA, TrainingRecord, "the training")),
    "exposure-during-training.json": (
        "watches",
        _decoder(WATCHED_SCHEMA, WatchedTraining, "the exposure during training"),
    ),
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
        _check_looks(path, document)
    if name == "records" and document.get("schema") != _RUN_SCHEMA:
        return run  # a run.json of some other program
    return replace(run, **{name: (*getattr(run, name), Located(path, document))})  # type: ignore[arg-type]  # each field is a tuple of such


def _check_looks(path: Path, document: TrainingRecord | WatchedTraining) -> None:
    try:
        msgspec.convert([moment.seen for moment in document.watched], list[list[SeenCanary]])
    except msgspec.ValidationError as problem:
        raise InputError(
            f"{path} is damaged (what was seen during training: {problem}); restore it, or train again"
        ) from None


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
