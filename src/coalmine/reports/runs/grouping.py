"""Which results belong together? Those that tell of the same model, and what stands above them or was measured with them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from coalmine.audits.directories import audited_model
from coalmine.audits.exposure.results import ExposureDocument
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.evidence.run import Located, Run, asked_model

# Of two measurements of the same canaries, the one that leaves fewer unmeasured is the one to go by, and then the first of these.
# The limits of an extrapolated curve do not hold deep in its tail, so it comes last, and what it gives counts as unmeasured.
_BEST_METHOD_FIRST = ("exact", "bounded", "guided", "splitting", "sampled", "references", "extrapolated")
_NOT_EVIDENCE = frozenset({"extrapolated"})
# What a model's description says of how it was run, and not of which model it is.
_HOW_IT_RAN = frozenset({"device", "precision", "context", "threads", "identity_sha256"})


def _identity(model: dict[str, Any]) -> str:
    """Equal for two descriptions of the same model, however it was run."""
    if "weights_sha256" in model:
        facts = {name: model.get(name) for name in ("weights_sha256", "adapter_in_use")}
    else:
        facts = {name: value for name, value in model.items() if name not in _HOW_IT_RAN}
    return msgspec.json.encode(facts, order="deterministic").decode()


@dataclass
class _Group:
    """Results of one model, while they are gathered."""

    run: Run
    folders: set[Path] = field(default_factory=set)


def runs_by_model(found: Run) -> list[Run]:
    """One run for each model that the results tell of, with the results to go by first."""
    groups: dict[str, _Group] = {}

    def put(name: str, model: dict[str, Any], one: Located[Any]) -> None:
        key = _identity(model) if model else ""
        group = groups.setdefault(key, _Group(Run(paths=found.paths, name="")))
        group.run = _added(group.run, name, one)
        group.folders.add(one.path.parent)

    for name in ("exposures", "extractions", "verifications", "memberships"):
        for one in getattr(found, name):
            put(name, one.document.model, one)
    for recitation in found.recitations:
        put("recitations", asked_model(recitation.document), recitation)
    if "" in groups and len(groups) == 2:
        # Results that name no model, such as membership from a table of scores, beside those of one model.
        _merge(groups)
    if not groups:
        groups[""] = _Group(Run(paths=found.paths, name=""))
    # A directory with a training but no audit is a run too, in which nothing was tested.
    for one in found.trainings:
        near = _owners(groups, one.path)
        if not near:
            near = [groups.setdefault(f"training {one.path}", _Group(Run(paths=found.paths, name="")))]
            near[0].folders.add(one.path.parent)
        for group in near:
            group.run = _added(group.run, "trainings", one)
    for name in ("watches", "records"):
        for one in getattr(found, name):
            for group in _owners(groups, one.path):
                group.run = _added(group.run, name, one)
    for manifest in found.manifests:
        for group in _measured_with(groups, manifest):
            group.run = _added(group.run, "manifests", manifest)
    return [_chosen(group.run) for group in groups.values()]


def _merge(groups: dict[str, _Group]) -> None:
    nameless = groups.pop("")
    (group,) = groups.values()
    group.folders |= nameless.folders
    for name in ("exposures", "extractions", "verifications", "memberships", "recitations"):
        for one in getattr(nameless.run, name):
            group.run = _added(group.run, name, one)


def _added(run: Run, name: str, one: Located[Any]) -> Run:
    return replace(run, **{name: (*getattr(run, name), one)})  # type: ignore[arg-type]  # each field is a tuple of such


def _owners(groups: dict[str, _Group], path: Path) -> list[_Group]:
    """The runs with results beside or below a file, or below its model; the only run there is, where none has."""
    near = [
        group for group in groups.values() if any(_is_at_or_below(folder, path) for folder in group.folders)
    ]
    if near:
        beside = [group for group in near if path.parent in group.folders]
        same = [
            group for group in near if any(_home(folder) == _home(path.parent) for folder in group.folders)
        ]
        return beside or same or near
    return list(groups.values()) if len(groups) == 1 else []


def _is_at_or_below(folder: Path, path: Path) -> bool:
    return folder.is_relative_to(path.parent) or _home(folder).is_relative_to(_home(path.parent))


def _home(folder: Path) -> Path:
    """The model's directory for a folder of its audit directory, and the folder itself elsewhere."""
    place = folder.resolve()
    return audited_model(place) or audited_model(place.parent) or place


def _measured_with(groups: dict[str, _Group], manifest: Located[CanarySet]) -> list[_Group]:
    digest = manifest.document.sha256
    measured = [group for group in groups.values() if digest in group.run.measured_manifests]
    return measured or (list(groups.values()) if len(groups) == 1 else [])


def _chosen(run: Run) -> Run:
    """The same run with the results to go by first, and a name."""

    def quality(one: Located[ExposureDocument]) -> tuple[int, int]:
        methods = [facts.method for facts in one.document.formats]
        places = [_BEST_METHOD_FIRST.index(m) if m in _BEST_METHOD_FIRST else 99 for m in methods]
        unmeasured = sum(
            result.estimate.status == "not_measured" or result.estimate.method in _NOT_EVIDENCE
            for result in one.document.results
        )
        return unmeasured, max(places, default=99)

    exposures = tuple(sorted(run.exposures, key=quality))
    measured = {one.document.manifest_sha256 for one in exposures[:1]}
    manifests = tuple(sorted(run.manifests, key=lambda one: one.document.sha256 not in measured))
    run = replace(run, exposures=exposures, manifests=manifests)
    return replace(run, name=_name_of(run))


def _name_of(run: Run) -> str:
    model = run.model or {}
    for name in ("weights", "name", "model"):
        if isinstance(model.get(name), str) and model[name]:
            return str(model[name])
    if run.trainings:
        return run.trainings[0].path.resolve().parent.name
    return run.paths[0].resolve().name
