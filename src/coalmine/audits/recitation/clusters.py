"""Which sequences count together, because what a model does with one says what it does with another: those of one document."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coalmine.corpus.index.queries import CorpusIndex, Occurrence
from coalmine.corpus.index.sampling import Sample
from coalmine.models.protocols import IntArray

ONE_DOCUMENT = "all sequences are of one document, so the intervals are for this document alone: only sequences that overlap count together"


def clusters_of(samples: Sequence[Sample], index: CorpusIndex | None = None) -> IntArray:
    """The cluster of each sequence: a number that is the same for sequences whose first copies are in the same document.

    Sequences that overlap are in one document, and so in one cluster. Where all are of a single document, the clusters are the runs
    of sequences that overlap there. Numbers are in the order of the corpus. A normalized sample holds the places of first copies; for
    a uniform one, which holds those of the copies that were drawn, give the `index` to find them.

    >>> from coalmine.corpus.index.sampling import Sample
    >>> tokens = np.arange(3)
    >>> two = [Sample(3, 0, 1, document, offset, tokens) for document, offset in ((7, 0), (4, 0), (7, 50))]
    >>> clusters_of(two).tolist()
    [1, 0, 1]
    >>> clusters_of([Sample(3, 0, 1, 4, offset, tokens) for offset in (9, 0, 2)]).tolist()
    [1, 0, 0]
    """
    homes = [_first_copy(sample, index) for sample in samples]
    documents = np.array([home.document for home in homes], dtype=np.int64)
    if len(np.unique(documents)) > 1:
        return np.asarray(np.unique(documents, return_inverse=True)[1], dtype=np.int64)
    begins = np.array([home.offset for home in homes], dtype=np.int64)
    ends = begins + np.array([sample.length for sample in samples], dtype=np.int64)
    order = np.lexsort((ends, begins))
    # A run ends where the next sequence begins at or after the end of all before it.
    reached = np.maximum.accumulate(ends[order])
    numbers = np.concatenate([[0], np.cumsum(begins[order][1:] >= reached[:-1])])
    clusters = np.empty(len(samples), dtype=np.int64)
    clusters[order] = numbers
    return clusters


def _first_copy(sample: Sample, index: CorpusIndex | None) -> Occurrence:
    if index is None or sample.count == 1:
        return Occurrence(sample.document, sample.offset)
    return index.locate(sample.tokens, limit=1)[0]
