"""Whether results are of the weights and of the manifest that are at hand; what is not there cannot be compared."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from coalmine.corpus.planting.manifest import MANIFESTS, CanarySet
from coalmine.errors import AlteredError, CoalmineError, ContradictionError, MissingExtraError, ReadError
from coalmine.evidence.directories import model_of_result
from coalmine.evidence.run import Located, Run
from coalmine.models.reference.checkpoint import WEIGHTS_FILE
from coalmine.records.contradictions import refuse_contradictions
from coalmine.records.documents import Document, SaidOfCanary, SaidOfFormat
from coalmine.storage.files import real_path, sha256_of_file


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
        problems = _manifest_problems(kind.origin.formats(one.document), said, canaries)
        further = kind.origin.manifest_beside(one.path, one.document, canaries)
        both = itertools.chain(problems, further)
        refuse_contradictions(one.path, both, "this result", "the manifest that it was made with")


def _manifest_problems(
    formats: Iterable[SaidOfFormat], said: Iterable[SaidOfCanary], canaries: CanarySet
) -> Iterator[str]:
    """What is said of formats and canaries, and their manifest contradicts, one sentence each."""
    for one in formats:
        form = canaries.formats.get(one.format_id)
        if form is None or _contradicts(one, SaidOfFormat(one.format_id, form.template, form.size)):
            yield f"format {one.format_id!r} is not that of the manifest"
    known = {
        one.canary_id: SaidOfCanary(
            one.canary_id, one.format_id, one.times_trained_on, one.repetitions, one.planted
        )
        for one in canaries
    }
    for told in said:
        if told.canary_id not in known:
            yield f"canary {told.canary_id!r} is not in the manifest"
        elif _contradicts(told, known[told.canary_id]):
            yield f"canary {told.canary_id!r} has another format, number of copies or coin in the manifest"


def _contradicts(told: tuple[Any, ...], there: tuple[Any, ...]) -> bool:
    return any(one is not None and one != other for one, other in zip(told, there, strict=True))


def check_again(kind: Document[Any], path: Path, document: Any) -> None:
    """Refuse a result that differs from what is computed again from the files beside it, or from its own numbers."""
    try:
        problems = list(kind.again(path, document))
    except (AlteredError, ReadError, MissingExtraError):
        raise  # which is not the fault of this result
    except (CoalmineError, ArithmeticError, LookupError, TypeError, ValueError):
        problems = ["nothing like it can be computed again"]
    refuse_contradictions(path, problems, kind.what, "what it was computed from")


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
