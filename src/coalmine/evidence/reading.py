"""`read_runs`: the results of all audits below some directories, one run per model.

Results about different models are different runs. What is not about a model itself (a training record, a manifest) belongs to the run
whose results are below it, or were measured with it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from coalmine.corpus.planting.manifest import MANIFESTS
from coalmine.errors import InputError
from coalmine.evidence.audit import Audit
from coalmine.evidence.directories import audit_directory, audited_model, beside
from coalmine.evidence.grouping import runs_by_model
from coalmine.evidence.originals import check_manifest
from coalmine.evidence.run import OF_TRAINING, Located, Run
from coalmine.models.reference.checkpoint import WEIGHTS_FILE
from coalmine.models.transformers.model_files import GGUF_ENDING
from coalmine.records.documents import Document
from coalmine.records.run_record import RUN_RECORDS, is_ours
from coalmine.storage.links import real_path, refuse_circle


def documents_of(audits: Sequence[Audit]) -> tuple[Document[Any], ...]:
    """Every kind of document that a run may hold: the results of these audits, then what they come from."""
    results = [kind for audit in audits for kind in audit.documents]
    # What is about a model comes first: it decides which runs there are.
    return (
        *(kind for kind in results if kind.origin.model is not None),
        *OF_TRAINING,
        *(kind for kind in results if kind.origin.model is None),
        MANIFESTS,
        RUN_RECORDS,
    )


def read_runs(
    paths: Sequence[str | os.PathLike[str]], audits: Sequence[Audit], aside: Sequence[Document[Any]] = ()
) -> tuple[Run, ...]:
    """The results of these audits below the given paths, one run per model, in the order of the paths.

    Models that belong to a document of `aside` are left out, as those of the audits' own documents are.

    A file that is damaged, or of another version, is an InputError that names it. A directory without any result is one too:
    there is nothing to report, and nothing that could be called safe.
    """
    given = tuple(Path(path) for path in paths)
    if not given:
        raise InputError("there is no run to read; name a directory with results, such as that of the model")
    kinds = documents_of(audits)
    files = [path for place in given for path in _files_below(place, kinds, aside)]
    found = Run(paths=given, name="", documents=dict.fromkeys(kinds, ()))
    # A file that two of the paths lead to is one result.
    for path in {real_path(path): path for path in files}.values():
        found = _with_file(found, path, kinds)
    if not any(these for kind, these in found.documents.items() if kind is not RUN_RECORDS):
        raise InputError(
            f"no result was found below {', '.join(map(str, given))}; run `coalmine expose` or another audit first"
        )
    manifests = {one.document.sha256: one.document for one in found.all(MANIFESTS)}
    for kind, these in found.documents.items():
        for one in these:
            check_manifest(kind, one, manifests)
    return tuple(runs_by_model(found))


def _files_below(
    place: Path, kinds: Sequence[Document[Any]], aside: Sequence[Document[Any]]
) -> Iterator[Path]:
    is_model = place.is_file() and place.name.lower().endswith(GGUF_ENDING)
    if place.is_file() and not is_model:
        yield place
        return
    refuse_circle(place)
    if not place.is_dir() and not is_model:
        raise InputError(f"{place} does not exist; name a directory with results, or a result")
    refuse_circle(audit_directory(place))
    for top in (place, *beside(place)):
        for directory, folders, names in os.walk(top):
            for name in names:
                refuse_circle(Path(directory) / name)
            # Sorted, so that the same files give the same report wherever they are.
            apart = _of_other_models(names, (*kinds, *aside))
            folders[:] = sorted(
                folder for folder in folders if not folder.startswith(".") and folder not in apart
            )
            yield from (Path(directory) / name for name in sorted(names) if _kind_of(name, kinds) is not None)
    # Given the audit directory alone, what is known of the training is beside it; earlier results in there are not asked for.
    model = audited_model(place)
    if model is not None:
        of_training = [
            kind.file for kind in kinds if kind.origin.model is None and kind not in {MANIFESTS, RUN_RECORDS}
        ]
        for path in (model, *(model / name for name in (*of_training, WEIGHTS_FILE))):
            refuse_circle(path)
        yield from (model / name for name in of_training if (model / name).is_file())


def _of_other_models(names: Sequence[str], kinds: Sequence[Document[Any]]) -> set[str]:
    """Folders with models of their own, by the names of the files beside them: finished, or begun."""
    return {
        kind.other_models
        for kind in kinds
        if kind.other_models is not None
        and any(
            kind.is_named(name) or (kind.work_files and re.fullmatch(kind.work_files, name)) for name in names
        )
    }


def _kind_of(name: str, kinds: Sequence[Document[Any]]) -> Document[Any] | None:
    return next((kind for kind in kinds if kind.is_named(name)), None)


def _with_file(run: Run, path: Path, kinds: Sequence[Document[Any]]) -> Run:
    kind = _kind_of(path.name, kinds)
    if kind is None:
        names = ", ".join(kind.file for kind in kinds)
        raise InputError(f"{path} is not a result that is known here; known are {names}, or a directory")
    if kind is RUN_RECORDS and not is_ours(path):
        return run
    return run.with_added(kind, Located(path, kind.load(path)))
