"""Training data at rest: reading corpora, planting canaries in them, verifying, deduplicating and indexing them.

    from coalmine.corpus import plant, verify_planted, deduplicate, build_index

    planted = plant("mail.jsonl", "my pin is {digits:6}", out="planted/")
    assert verify_planted("planted/").ok
    deduplicate(planted.corpus, "deduplicated/")
    print(build_index(planted.corpus, "index/").count("my pin is"))

Names are loaded when they are first used: importing this package imports neither NumPy nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coalmine.lazy import lazy

if TYPE_CHECKING:
    from coalmine.corpus.deduplication.deduplicating import deduplicate
    from coalmine.corpus.deduplication.options import DedupOptions
    from coalmine.corpus.deduplication.report import Deduplication
    from coalmine.corpus.files.documents import CorpusDocument, Fields
    from coalmine.corpus.files.embedded import embedded_documents, write_embedded_corpus
    from coalmine.corpus.files.reading import read_documents
    from coalmine.corpus.index.building import build_index
    from coalmine.corpus.index.options import IndexOptions
    from coalmine.corpus.index.queries import CorpusIndex
    from coalmine.corpus.index.sampling import normalized_sample, repeated_sequences, uniform_sample
    from coalmine.corpus.planting.importing import import_canaries
    from coalmine.corpus.planting.manifest import CanarySet
    from coalmine.corpus.planting.options import ImportOptions, PlantOptions
    from coalmine.corpus.planting.planting import Planted, plant
    from coalmine.corpus.planting.survival import Survival, check_survival
    from coalmine.corpus.planting.verifying import Verification, verify_planted

__all__ = [
    "CanarySet",
    "CorpusDocument",
    "CorpusIndex",
    "DedupOptions",
    "Deduplication",
    "Fields",
    "ImportOptions",
    "IndexOptions",
    "PlantOptions",
    "Planted",
    "Survival",
    "Verification",
    "build_index",
    "check_survival",
    "deduplicate",
    "embedded_documents",
    "import_canaries",
    "normalized_sample",
    "plant",
    "read_documents",
    "repeated_sequences",
    "uniform_sample",
    "verify_planted",
    "write_embedded_corpus",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "CanarySet": "coalmine.corpus.planting.manifest",
        "CorpusIndex": "coalmine.corpus.index.queries",
        "DedupOptions": "coalmine.corpus.deduplication.options",
        "Deduplication": "coalmine.corpus.deduplication.report",
        "CorpusDocument": "coalmine.corpus.files.documents",
        "Fields": "coalmine.corpus.files.documents",
        "ImportOptions": "coalmine.corpus.planting.options",
        "IndexOptions": "coalmine.corpus.index.options",
        "PlantOptions": "coalmine.corpus.planting.options",
        "Planted": "coalmine.corpus.planting.planting",
        "Survival": "coalmine.corpus.planting.survival",
        "Verification": "coalmine.corpus.planting.verifying",
        "build_index": "coalmine.corpus.index.building",
        "check_survival": "coalmine.corpus.planting.survival",
        "deduplicate": "coalmine.corpus.deduplication.deduplicating",
        "embedded_documents": "coalmine.corpus.files.embedded",
        "import_canaries": "coalmine.corpus.planting.importing",
        "normalized_sample": "coalmine.corpus.index.sampling",
        "plant": "coalmine.corpus.planting.planting",
        "read_documents": "coalmine.corpus.files.reading",
        "repeated_sequences": "coalmine.corpus.index.sampling",
        "uniform_sample": "coalmine.corpus.index.sampling",
        "verify_planted": "coalmine.corpus.planting.verifying",
        "write_embedded_corpus": "coalmine.corpus.files.embedded",
    },
)
