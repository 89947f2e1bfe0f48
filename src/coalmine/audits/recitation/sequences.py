"""What a model wrote instead: where it occurs in the corpus, how far it is from the truth; and all answers as one table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from coalmine.audits.recitation.answers import Answers
from coalmine.audits.recitation.options import RecitationOptions
from coalmine.audits.recitation.questions import Questions
from coalmine.audits.recitation.results import SEQUENCES_FILE
from coalmine.audits.recitation.tries import chance_in_tries, tries_needed
from coalmine.corpus.index.queries import CorpusIndex
from coalmine.errors import InputError, MissingExtraError
from coalmine.models.protocols import IntArray
from coalmine.storage.files import PRIVATE, sha256_of_file, whole_file

if TYPE_CHECKING:
    from coalmine.audits.recitation.groups import Asked

_NOT_ASKED = -1
# Columns of whole numbers that may be empty.
_MAYBE = ("first_miss", "beam_place")
# Pairs of sequences whose distance is computed side by side.
_PAIRS_AT_A_TIME = 1 << 14


class Elsewhere(NamedTuple):
    """For each question: how often prompt and output occur together in the corpus, and how many edits the output is from the suffix."""

    counts: IntArray
    distances: IntArray


def elsewhere(
    index: CorpusIndex, questions: Questions, answers: Answers, settings: RecitationOptions
) -> Elsewhere:
    """Look up what was written; -1 if not requested."""
    counts: IntArray = np.full(len(questions), _NOT_ASKED, dtype=np.int64)
    distances: IntArray = np.full(len(questions), _NOT_ASKED, dtype=np.int64)
    if settings.anywhere:
        for context in np.unique(questions.contexts).tolist():
            here = np.flatnonzero(questions.contexts == context)
            prompts = np.array([questions.prompt(question) for question in here.tolist()], dtype=np.int64)
            rows = np.concatenate([prompts, answers.written[here]], axis=1)
            # A token that no document has, such as the end of one, occurs nowhere in a sequence.
            possible = (rows < index.tokenizer.size).all(axis=1)
            counts[here] = 0
            counts[here[possible]] = index.counts(rows[possible])
    if settings.near is not None:
        truths = np.array([questions.target(question) for question in range(len(questions))], dtype=np.int64)
        distances = edit_distances(answers.written, truths)
    return Elsewhere(counts, distances)


def edit_distances(first: IntArray, second: IntArray) -> IntArray:
    """The fewest insertions, deletions and replacements of tokens that make row i of `first` into row i of `second`.

    >>> edit_distances(np.array([[1, 2, 3], [1, 2, 3]]), np.array([[2, 3, 4], [1, 2, 3]])).tolist()
    [2, 0]
    """
    parts = [
        _edit_distances(first[begin : begin + _PAIRS_AT_A_TIME], second[begin : begin + _PAIRS_AT_A_TIME])
        for begin in range(0, len(first), _PAIRS_AT_A_TIME)
    ]
    return np.concatenate([*parts, np.empty(0, dtype=np.int64)])


def _edit_distances(first: IntArray, second: IntArray) -> IntArray:
    rows, columns = first.shape[1], second.shape[1]
    # (columns + 1, pairs): of what was read of `first`, to each beginning of `second`.
    before = np.repeat(np.arange(columns + 1)[:, None], len(first), axis=1)
    for row in range(rows):
        after = np.empty_like(before)
        after[0] = row + 1
        for column in range(columns):
            replaced = before[column] + (first[:, row] != second[:, column])
            after[column + 1] = np.minimum(np.minimum(after[column], before[column + 1]) + 1, replaced)
        before = after
    return before[columns]


def save_sequences(
    folder: Path, found: Sequence[Asked], questions: Questions, settings: RecitationOptions
) -> str:
    """Write sequences.parquet, readable by its owner only: one row per model and question, with places and no texts.

    Returns its SHA-256.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError("sequences.parquet", "pyarrow", "tables") from None
    rows = [_rows(one, questions, settings) for one in found]
    tables = [
        # A column without any value would have no type.
        pa.table(
            {
                name: pa.array(values, pa.int64()) if name in _MAYBE else values
                for name, values in columns.items()
            }
        )
        for columns in rows
    ]
    table = pa.concat_tables(tables)
    path = folder / SEQUENCES_FILE
    with whole_file(path, mode=PRIVATE) as temporary:
        with open(temporary, "wb") as stream:
            parquet.write_table(table, stream, compression="zstd")
        return sha256_of_file(temporary)


def read_sequences(path: Path) -> dict[str, Any]:
    """The columns of a sequences.parquet; 0 for a place that is empty."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError("sequences.parquet", "pyarrow", "tables") from None
    try:
        # By its bytes, because a path that is not UTF-8 is not text to pyarrow.
        with pa.OSFile(os.fsencode(path)) as source:
            table = parquet.read_table(source)
    except (pa.ArrowException, OSError) as problem:
        raise InputError(
            f"{path} cannot be read as Parquet ({type(problem).__name__}); make the recitation again"
        ) from None
    return {
        name: table.column(name).fill_null(0).to_numpy(zero_copy_only=False)
        if name in _MAYBE
        else table.column(name).to_numpy()
        for name in table.column_names
    }


def _rows(one: Asked, questions: Questions, settings: RecitationOptions) -> dict[str, Any]:
    samples = [questions.sample(question) for question in range(len(questions))]
    answers = one.answers
    columns: dict[str, Any] = {
        "model": [one.name] * len(questions),
        "sequence": questions.which,
        # Sequences that count together in intervals.
        "cluster": questions.clusters[questions.which],
        "document": [sample.document for sample in samples],
        "offset": [sample.offset for sample in samples],
        "length": [sample.length for sample in samples],
        "context": questions.contexts,
        "copies": [sample.count for sample in samples],
        "bucket": [sample.bucket for sample in samples],
        "recited": answers.recited,
        "first_miss": [None if miss < 0 else miss for miss in answers.first_miss.tolist()],
    }
    if settings.tries:
        log2 = answers.log2_probabilities[:, 0]
        columns["log2_probability"] = log2
        for tries in settings.tries:
            columns[f"chance_in_{tries}"] = chance_in_tries(log2, tries)
        columns[f"tries_for_{settings.chance:g}"] = tries_needed(log2, settings.chance)
    if settings.beam is not None:
        columns["beam_place"] = [place or None for place in answers.beam_place.tolist()]
    if settings.anywhere:
        columns["output_copies"] = one.elsewhere.counts
    if settings.near is not None:
        columns["edits"] = one.elsewhere.distances
    return columns
