"""Which canaries a run should have results about, and which of them no exposures cover."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from coalmine.audits.exposure.results import EXPOSURES
from coalmine.corpus.planting.manifest import MANIFESTS, CanarySet
from coalmine.evidence.run import Run
from coalmine.evidence.words import FormatNames, format_names
from coalmine.storage.files import real_path


class NamedCanary(NamedTuple):
    """A planted canary, by the manifest or by the exposures."""

    manifest_sha256: str
    canary_id: str
    format_id: str
    # How often the model was trained on it, and how often it was planted: the same unless the corpus was rewritten.
    repetitions: int
    planned: int


def names_in(run: Run) -> FormatNames:
    """What each format of a run is called: its template."""
    templates: dict[str, str] = {}
    for _, canaries in run.all(MANIFESTS):
        templates |= {format_id: form.template for format_id, form in canaries.formats.items()}
    for _, document in run.all(EXPOSURES):
        templates |= {facts.format_id: facts.template for facts in document.formats}
    return format_names(templates)


def planted_in(run: Run) -> list[NamedCanary]:
    """Every planted canary that the manifests of the run, or its exposures, name."""
    found: dict[tuple[str, str], NamedCanary] = {}
    measured = run.measured_manifests
    for path, canaries in run.all(MANIFESTS):
        # One that nothing was measured with, and that was only found on the way, may belong to an earlier corpus: CM501 reports it.
        asked = _was_named(run, path) or _was_trained_on(run, canaries)
        if measured and canaries.sha256 not in measured and not asked:
            continue
        for canary in canaries:
            if canary.planted:
                one = NamedCanary(
                    canaries.sha256,
                    canary.canary_id,
                    canary.format_id,
                    canary.times_trained_on,
                    canary.repetitions,
                )
                found[canaries.sha256, canary.canary_id] = one
    for _, document in run.all(EXPOSURES):
        for result in document.results:
            if result.planted:
                key = (document.manifest_sha256, result.canary_id)
                planned = result.planned_repetitions or result.repetitions
                found.setdefault(key, NamedCanary(*key, result.format_id, result.repetitions, planned))
    return list(found.values())


def _was_named(run: Run, path: Path) -> bool:
    """Whether the user named a file, or the directory that it is in."""
    given = {real_path(place) for place in run.paths}
    return not given.isdisjoint({real_path(path), real_path(path).parent})


def _was_trained_on(run: Run, canaries: CanarySet) -> bool:
    """Whether the model was trained on the corpus of a manifest, by its own word, and the canaries are not those of another one."""
    told = {
        (run.model or {}).get("trained_on_sha256"),
        *(record.data_sha256 for _, record in run.trainings),
    }
    if canaries.corpus is None or canaries.corpus.sha256_after not in told:
        return False
    # A corpus in which nothing repeats has the same bytes after it was rewritten, and another manifest of the same canaries.
    measured = {
        canary.text for _, one in run.all(MANIFESTS) if one.sha256 in run.measured_manifests for canary in one
    }
    return any(canary.text not in measured for canary in canaries if canary.planted)
