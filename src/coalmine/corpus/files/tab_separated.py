"""Corpora in TSV: as CSV (RFC 4180), with tabs between the fields."""

from __future__ import annotations

from typing import ClassVar

from coalmine.corpus.files.comma_separated import CsvCorpus
from coalmine.corpus.files.corpora import CorpusKind


class TsvCorpus(CsvCorpus):
    """A .tsv corpus: each record after the column names is a document; tabs inside a field are quoted."""

    delimiter: ClassVar[str] = "\t"
    delimiters: ClassVar[str] = "tabs"


TSV = CorpusKind(".tsv", "TSV", TsvCorpus)
