"""`read_runs`: the results of all audits below some directories, one run per model.

Results about different models are different runs. What is not about a model itself (a training record, a manifest) belongs to the run
whose results are below it, or were measured with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from coalmine.corpus.planting.manifest import MANIFESTS, CanarySet
from coalmine.errors import (
    AlteredError,
    CoalmineError,
    ContradictionError,
    InputError,
    MissingExtraError,
    ReadError,
)
from coalmine.evidence.directories import audited_model, beside, model_of_result
from coalmine.evidence.measures import Audit
from coalmine.evidence.run import OF_TRAINING, Located, Run
from coalmine.models.reference.checkpoint import WEIGHTS_FILE
from coalmine.models.transformers.model_files import GGUF_ENDING
from coalmine.records.documents import RUN_RECORDS, Document, SaidOfCanary, SaidOfFormat
from coalmine.storage.directories import is_resumed_from
from coalmine.storage.files import real_path, sha256_of_file

# What a model's description says about how it was run, and not about which model it is.
_HOW_IT_RAN = frozenset(
    [
        "device",
        "device_map",
        "precision",
        "context",
        "threads",
        "identity_sha256",
        "chat_template_sha256",
        "frame",
    ]
)


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
    kinds = documents_of(audits)
    found = Run(paths=given, name="", documents=dict.fromkeys(kinds, ()))
    files = [path for place in given for path in _files_below(place, kinds, aside)]
    # A file that two of the paths lead to is one result.
    for path in {real_path(path): path for path in files}.values():
        kind = next((kind for kind in kinds if kind.is_named(path.name)), None)
        if kind is None:
            raise InputError(f"{path} is not a result that is known here; name a directory with results")
        if kind is not RUN_RECORDS or kind.owns(path):
            found = found.with_added(kind, Located(path, kind.load(path)))
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
    if not place.is_dir() and not is_model:
        raise InputError(f"{place} does not exist; name a directory with results, or a result")
    for top in (place, *beside(place)):
        for directory, folders, names in os.walk(top):
            apart = _of_other_models(names, (*kinds, *aside))
            # Sorted, so that the same files give the same report wherever they are.
            folders[:] = sorted(one for one in folders if not one.startswith(".") and one not in apart)
            results = (name for name in sorted(names) if any(kind.is_named(name) for kind in kinds))
            yield from (Path(directory) / name for name in results)
    # Given the audit directory alone, what is known of the training is beside it; earlier results in there are not asked for.
    model = audited_model(place)
    if model is not None:
        known = [kind for kind in kinds if kind.origin.model is None and kind not in {MANIFESTS, RUN_RECORDS}]
        yield from (model / kind.file for kind in known if (model / kind.file).is_file())


def _of_other_models(names: Sequence[str], kinds: Sequence[Document[Any]]) -> set[str]:
    """Folders with models of their own, by the names of the files beside them: finished, or begun."""
    begun = any(map(is_resumed_from, names))
    return {
        kind.other_models
        for kind in kinds
        if kind.other_models is not None and (begun or any(map(kind.is_named, names)))
    }


def _identity(model: Mapping[str, Any]) -> str:
    """Equal for two descriptions of the same model, however it was run."""
    if "weights_sha256" in model:
        facts = {name: model.get(name) for name in ("weights_sha256", "adapter_in_use")}
    else:
        facts = {name: value for name, value in model.items() if name not in _HOW_IT_RAN}
    return msgspec.json.encode(facts, order="deterministic").decode()


def runs_by_model(found: Run) -> list[Run]:
    """One run for each model that there are results about, with the results to rely on first."""
    # The kinds of documents in the same order in every run.
    empty = replace(found, documents=dict.fromkeys(found.documents, ()))
    runs: dict[str, Run] = {}
    folders: dict[str, set[Path]] = {}

    def add(keys: Iterable[str], kind: Document[Any], one: Located[Any]) -> None:
        for key in keys:
            runs[key] = runs.get(key, empty).with_added(kind, one)

    described = [(kind, one, _identity(model) if model else "") for kind, one, model in found.about_models()]
    keys = {key for *_, key in described}
    # Results that name no model, such as membership from a table of scores, beside those of one model.
    only = max(keys) if "" in keys and len(keys) == 2 else ""
    for kind, one, key in described:
        add([key or only], kind, one)
        folders.setdefault(key or only, set()).add(one.path.parent)
    if not runs:
        runs[""], folders[""] = empty, set()
    # A directory with a training but no audit is a run too, in which nothing was tested.
    for of_training, one in [(of, one) for of in OF_TRAINING for one in found.all(of)]:
        owners = _owners(folders, one.path)
        if not owners:
            owners = [f"training {one.path}"]
            folders[owners[0]] = {one.path.parent}
        add(owners, of_training, one)
    for kind, these in found.documents.items():
        for one in () if kind.origin.model is not None or kind in OF_TRAINING else these:
            if kind is MANIFESTS:
                owners = _measured_with(runs, [one.document.sha256])
            else:
                owners = _owners(folders, one.path)
                if not owners and kind.origin.follows_manifest:
                    owners = _measured_with(runs, kind.origin.manifests(one.document))
            add(owners, kind, one)
    return [_ordered(run.with_secrets_apart()) for run in runs.values()]


def _owners(folders: Mapping[str, set[Path]], path: Path) -> list[str]:
    """The runs with results beside or below a file, or below its model; the only run there is, where none has."""
    home = _home(path.parent)
    beside = [key for key, own in folders.items() if path.parent in own]
    same = [key for key, own in folders.items() if home in map(_home, own)]
    below = [
        key
        for key, own in folders.items()
        if any(one.is_relative_to(path.parent) or _home(one).is_relative_to(home) for one in own)
    ]
    return beside or same or below or _only(folders)


def _only(keys: Iterable[str]) -> list[str]:
    every = list(keys)
    return every if len(every) == 1 else []


def _home(folder: Path) -> Path:
    """The model's directory for a folder of its audit directory, and the folder itself elsewhere."""
    place = real_path(folder)
    return audited_model(place) or audited_model(place.parent) or place


def _measured_with(runs: Mapping[str, Run], manifests: Iterable[str | None]) -> list[str]:
    """The runs with results of one of these manifests; the only run there is, where none has."""
    digests = set(manifests)
    return [key for key, run in runs.items() if digests & run.measured_manifests] or _only(runs)


def _ordered(run: Run) -> Run:
    """The same run with the results to rely on first, and a name."""
    measured: set[str | None] = set()
    for kind, these in run.documents.items():
        if kind.preference is not None and these:
            preference = kind.preference
            ordered = tuple(sorted(these, key=lambda one: preference(one.document)))
            run = run.with_all(kind, ordered)
            measured |= set(kind.origin.manifests(ordered[0].document))
    first = sorted(run.all(MANIFESTS), key=lambda one: one.document.sha256 not in measured)
    run = run.with_all(MANIFESTS, tuple(first))
    secrets = None if run.secrets is None else _ordered(run.secrets)
    return replace(run, name=_name_of(run), secrets=secrets)


def _name_of(run: Run) -> str:
    model = run.model or {}
    for name in ("weights", "name", "model"):
        if isinstance(model.get(name), str) and model[name]:
            return str(model[name])
    if run.trainings:
        return real_path(run.trainings[0].path).parent.name
    return real_path(run.paths[0]).name


def other_weights(run: Run) -> str | None:
    """Why results are not about the weights beside them, or about those of the training record, if so."""
    model = run.model or {}
    for weights, digests in dict(
        one for _, found, _ in run.about_models() for one in measured_weights(run.paths, found.path, model)
    ).items():
        if sha256_of_file(weights) not in digests:
            return f"the results are of other weights than those in {weights.parent.name}"
    known = _digests(model)
    for path, record in run.trainings:
        if known and record.weights_sha256 not in known:
            return f"the results are of other weights than those recorded in {run.shown(path)}"
    return None


def measured_weights(
    given: Sequence[Path], path: Path, model: Mapping[str, Any]
) -> Iterator[tuple[Path, frozenset[str]]]:
    """The files that may hold the weights that a result is of, each with the SHA-256 of all that were measured."""
    known = _digests(model)
    if not known:
        return
    # A checkpoint of transformers may have its weights in several files, and an adapter under another name: all of them were measured.
    names = WEIGHTS_FILE if isinstance(model["weights_sha256"], str) else "*.safetensors"
    for folder in dict.fromkeys(_folders_of(given, path)):
        for weights in sorted(folder.glob(names)):
            yield weights, known


def _digests(model: Mapping[str, Any]) -> frozenset[str]:
    said = model.get("weights_sha256")
    if isinstance(said, str):
        return frozenset({said})
    return frozenset(one for one in said if isinstance(one, str)) if isinstance(said, list) else frozenset()


def other_manifest(run: Run) -> str | None:
    """Why results are not those of any manifest that is there, if so."""
    measured = run.measured_manifests
    manifests = run.all(MANIFESTS)
    if not manifests or not measured or any(found.sha256 in measured for _, found in manifests):
        return None
    return f"the results are of other canaries than those in {run.shown(manifests[0].path)}"


def check_manifest(kind: Document[Any], one: Located[Any], manifests: Mapping[str, CanarySet]) -> None:
    """Refuse a result that contradicts the manifest that it was made with, if that is among these."""
    try:
        said = [] if kind.origin.canaries is None else list(kind.origin.canaries(one.document))
    except ContradictionError as problem:
        raise ContradictionError(f"{one.path} contradicts itself: {problem}") from None
    canaries = manifests.get(next(iter(kind.origin.manifests(one.document)), None) or "")
    if canaries is not None:
        problems = _manifest_problems([*kind.origin.formats(one.document), *said], canaries)
        for first in (*problems, *kind.origin.manifest_beside(one.path, one.document, canaries)):
            raise ContradictionError(
                f"{one.path} contradicts the manifest that it was made with: {first}; make this result again"
            )


def _manifest_problems(said: Iterable[SaidOfFormat | SaidOfCanary], canaries: CanarySet) -> Iterator[str]:
    """What is said of formats and canaries, and their manifest contradicts, one sentence each."""
    known: dict[tuple[type, str], tuple[Any, ...]] = {
        (SaidOfFormat, name): (name, form.template, form.size) for name, form in canaries.formats.items()
    }
    for one in canaries:
        facts = (one.canary_id, one.format_id, one.times_trained_on, one.repetitions, one.planted)
        known[SaidOfCanary, one.canary_id] = facts
    for told in said:
        there = known.get((type(told), told[0]))
        if there is None:
            yield f"{told[0]!r} is not in the manifest"
        elif any(one is not None and one != other for one, other in zip(told, there, strict=True)):
            yield f"{told[0]!r} has another template, format, number of copies or coin in the manifest"


def check_again(kind: Document[Any], path: Path, document: Any) -> None:
    """Refuse a result that differs from what is computed again from the files beside it, or from its own numbers."""
    try:
        problems = list(kind.again(path, document))
    except (AlteredError, ReadError, MissingExtraError):
        raise  # which is not the fault of this result
    except (CoalmineError, ArithmeticError, LookupError, TypeError, ValueError):
        problems = ["nothing like it can be computed again"]
    if problems:
        raise ContradictionError(
            f"{path} contradicts what it was computed from: {problems[0]}; make {kind.what} again"
        )


def _folders_of(paths: Sequence[Path], path: Path) -> Iterator[Path]:
    """The folders that may hold the weights: the model's own, and those from that of a result up to the one that was named."""
    given = {real_path(place) for place in paths}
    folder = real_path(path).parent
    model = model_of_result(path)
    if model is not None:
        yield model
    yield folder
    while folder not in given and any(folder.is_relative_to(place) for place in given):
        folder = folder.parent
        yield folder
