"""scores.parquet read back: what `expose` writes, and refusals of files that are something else."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from coalmine.audits.exposure.candidate_scores import read_candidates
from coalmine.errors import InputError

COLUMNS = {
    "format_id": ["f0", "f0", "f1", "f0"],
    "kind": ["reference", "canary", "reference", "reference"],
    "log_perplexity_bits": [3.0, 1.0, 2.0, 4.0],
    "index": ["7", "123456789012345678901234567890", "2", "5"],
}


def written(tmp_path, **changed):
    path = tmp_path / "scores.parquet"
    parquet.write_table(pa.table({**COLUMNS, **changed}), path)
    return path


def test_scores_are_by_format_and_kind_in_their_order(tmp_path):
    found = {(one.format_id, one.kind): one for one in read_candidates(written(tmp_path))}
    assert found.keys() == {("f0", "reference"), ("f0", "canary"), ("f1", "reference")}
    assert found["f0", "reference"].log_perplexities_bits.tolist() == [3.0, 4.0]
    assert [int(index) for index in found["f0", "reference"].indices] == [7, 5]
    assert int(found["f0", "canary"].indices[0]) == 123456789012345678901234567890
    without = read_candidates(written(tmp_path), indices=False)
    assert [len(one.indices) for one in without] == [0, 0, 0]
    assert [one.log_perplexities_bits.tolist() for one in without] == [[3.0, 4.0], [1.0], [2.0]]


def text_that_is_not_utf8(length):
    offsets, letters = np.arange(length + 1, dtype=np.int32), b"\xff" * length
    return pa.StringArray.from_buffers(length, pa.py_buffer(offsets), pa.py_buffer(letters))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"log_perplexity_bits": [3.0, 1.0, float("nan"), 4.0]}, "missing, or not a number"),
        ({"log_perplexity_bits": [3.0, None, 2.0, 4.0]}, "missing, or not a number"),
        ({"kind": ["reference", None, "reference", "canary"]}, "missing, or not a number"),
        ({"kind": ["reference", "guess", "reference", "canary"]}, "a kind of score that is not known"),
        ({"kind": text_that_is_not_utf8(4)}, "cannot be read"),
        ({"index": text_that_is_not_utf8(4)}, "cannot be read"),
        ({"log_perplexity_bits": ["a", "b", "c", "d"]}, "cannot be read"),
    ],
)
def test_other_files_are_refused(tmp_path, changed, why):
    with pytest.raises(InputError, match=why):
        read_candidates(written(tmp_path, **changed))
