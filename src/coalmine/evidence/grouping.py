"""Which results belong together? Those about the same model, and what was recorded above them or measured with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from coalmine.corpus.planting.manifest import MANIFESTS
from coalmine.evidence.directories import audited_model
from coalmine.evidence.run import OF_TRAINING, Located, Run
from coalmine.records.documents import Document
from coalmine.storage.links import real_path

# What a model's description says about how it was run, and not about which model it is.
_HOW_IT_RAN = frozenset(
    {
        "device",
        "device_map",
        "precision",
        "context",
        "threads",
        "identity_sha256",
        "chat_template_sha256",
        "frame",
    }
)


def _identity(model: Mapping[str, Any]) -> str:
    """Equal for two descriptions of the same model, however it was run."""
    if "weights_sha256" in model:
        facts = {name: model.get(name) for name in ("weights_sha256", "adapter_in_use")}
    else:
        facts = {name: value for name, value in model.items() if name not in _HOW_IT_RAN}
    return msgspec.json.encode(facts, order="deterministic").decode()


@dataclass
class _ModelResults:
    """Results about one model, while they are gathered."""

    run: Run
    folders: set[Path] = field(default_factory=set)

    def add(self, kind: Document[Any], one: Located[Any]) -> None:
        self.run = self.run.with_added(kind, one)


def runs_by_model(found: Run) -> list[Run]:
    """One run for each model that there are results about, with the results to rely on first."""
    models: dict[str, _ModelResults] = {}

    def results_of(key: str) -> _ModelResults:
        # The kinds of documents in the same order in every run.
        empty = Run(paths=found.paths, name="", documents=dict.fromkeys(found.documents, ()))
        return models.setdefault(key, _ModelResults(empty))

    for kind, one, model in found.about_models():
        results = results_of(_identity(model) if model else "")
        results.add(kind, one)
        results.folders.add(one.path.parent)
    if "" in models and len(models) == 2:
        # Results that name no model, such as membership from a table of scores, beside those of one model.
        _merge(models)
    if not models:
        results_of("")
    # A directory with a training but no audit is a run too, in which nothing was tested.
    for of_training, one in [(of, one) for of in OF_TRAINING for one in found.all(of)]:
        near = _owners(models, one.path)
        if not near:
            near = [results_of(f"training {one.path}")]
            near[0].folders.add(one.path.parent)
        for results in near:
            results.add(of_training, one)
    for kind, these in found.documents.items():
        if kind.origin.model is not None or kind in {*OF_TRAINING, MANIFESTS}:
            continue
        for one in these:
            owners = _owners(models, one.path)
            if not owners and kind.origin.follows_manifest:
                owners = _measured_with(models, kind.origin.manifests(one.document))
            for results in owners:
                results.add(kind, one)
    for manifest in found.all(MANIFESTS):
        for results in _measured_with(models, [manifest.document.sha256]):
            results.add(MANIFESTS, manifest)
    return [_ordered(results.run.with_secrets_apart()) for results in models.values()]


def _merge(models: dict[str, _ModelResults]) -> None:
    nameless = models.pop("")
    (results,) = models.values()
    results.folders |= nameless.folders
    for kind, one, _ in nameless.run.about_models():
        results.add(kind, one)


def _owners(models: dict[str, _ModelResults], path: Path) -> list[_ModelResults]:
    """The runs with results beside or below a file, or below its model; the only run there is, where none has."""
    near = [one for one in models.values() if any(_is_at_or_below(folder, path) for folder in one.folders)]
    if near:
        beside = [one for one in near if path.parent in one.folders]
        same = [one for one in near if any(_home(folder) == _home(path.parent) for folder in one.folders)]
        return beside or same or near
    return list(models.values()) if len(models) == 1 else []


def _is_at_or_below(folder: Path, path: Path) -> bool:
    return folder.is_relative_to(path.parent) or _home(folder).is_relative_to(_home(path.parent))


def _home(folder: Path) -> Path:
    """The model's directory for a folder of its audit directory, and the folder itself elsewhere."""
    place = real_path(folder)
    return audited_model(place) or audited_model(place.parent) or place


def _measured_with(models: dict[str, _ModelResults], manifests: Iterable[str | None]) -> list[_ModelResults]:
    """The runs with results of one of these manifests; the only run there is, where none has."""
    digests = set(manifests)
    measured = [one for one in models.values() if not digests.isdisjoint(one.run.measured_manifests)]
    return measured or (list(models.values()) if len(models) == 1 else [])


def _ordered(run: Run) -> Run:
    """The same run with the results to rely on first, and a name."""
    measured: set[str | None] = set()
    for kind, these in run.documents.items():
        if kind.preference is not None and these:
            preference = kind.preference
            ordered = tuple(sorted(these, key=lambda one: preference(one.document)))
            run = run.with_all(kind, ordered)
            measured |= set(kind.origin.manifests(ordered[0].document))
    manifests = sorted(run.all(MANIFESTS), key=lambda one: one.document.sha256 not in measured)
    run = run.with_all(MANIFESTS, tuple(manifests))
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
