"""What a run.json says of the document that the same command wrote beside it: which one that is, and whether it is still that one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coalmine.audits.exposure.results import ExposureDocument
from coalmine.audits.extraction.results import Extraction, Verified
from coalmine.corpus.deduplication.report import Deduplication
from coalmine.corpus.index.shards import Manifest as Index
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.training.record import TrainingRecord

# What each command always leaves beside its record.
_WRITTEN = {
    "plant": "canaries.json",
    "train": "training.json",
    "expose": "exposure.json",
    "recite": "recitation.json",
    "index": "manifest.json",
    "dedup": "dedup.json",
    "compare": "comparison.json",
}


def written_with(record: Mapping[str, Any]) -> str | None:
    """The name of the document that was written with a run.json; None where the record does not tell.

    >>> written_with({"command": ["coalmine", "expose", "out/model"]})
    'exposure.json'
    """
    command = record.get("command")
    name = command[1] if isinstance(command, list) and len(command) > 1 else None
    if name == "extract":
        # Only the extraction of canaries has a manifest.
        return "verified.json" if "manifest_sha256" in record else "extraction.json"
    return _WRITTEN.get(name) if isinstance(name, str) else None


def is_of_another_run(record: Mapping[str, Any], document: Any) -> bool:
    """Whether a run.json tells of another model, manifest or corpus than the document that was written with it."""
    return any(name in record and record[name] != fact for name, fact in _facts(document).items())


def _facts(document: Any) -> dict[str, Any]:
    """What a document and the record of its run both say, by the names of the record."""
    if isinstance(document, CanarySet):
        return {"manifest_sha256": document.sha256}
    if isinstance(document, ExposureDocument):
        return {
            "manifest_sha256": document.manifest_sha256,
            "model": document.model,
            "seed": document.seed,
        }
    if isinstance(document, Verified):
        return {"manifest_sha256": document.manifest_sha256, "model": document.model}
    if isinstance(document, Extraction):
        return {"model": document.model}
    if isinstance(document, TrainingRecord):
        return {"data_sha256": document.data_sha256, "seed": document.options.seed}
    if isinstance(document, Index):
        return {"corpus_sha256": document.corpus.sha256, "tokenizer_sha256": document.tokenizer.sha256}
    if isinstance(document, Deduplication):
        return {"corpus_sha256": document.sha256_before}
    return {}
