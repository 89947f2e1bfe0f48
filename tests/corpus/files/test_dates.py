"""The date field: read as text from every kind of corpus with fields, and ignored by all that changes corpora."""

import datetime as dt
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coalmine.corpus import CorpusDocument, Fields, deduplicate, plant, read_documents, verify_planted
from coalmine.errors import CorpusError
from coalmine.training.data import read_corpus
from corpus.corpora import SUFFIXES, compressed, rows_as, rows_of

WITH_FIELDS = [suffix for suffix in SUFFIXES if not suffix.startswith(".txt")]
DATES = ["2019-05-31", "2019-05-31T08:15:00+02:00", "1559296800", ""]
FIELDS = Fields(user="by", date="when")
TEXTS = [f"{letter}, and some more text to plant something in" for letter in "abcd"]


def dated(tmp_path, suffix, dates):
    rows = [{**row, "when": date} for row, date in zip(rows_of(TEXTS), dates, strict=True)]
    path = tmp_path / f"mail{suffix}"
    path.write_bytes(compressed(rows_as(rows, suffix), suffix))
    return path


@pytest.mark.parametrize("suffix", WITH_FIELDS)
def test_every_kind_gives_the_same_dates(tmp_path, suffix):
    path = dated(tmp_path, suffix, DATES)
    documents = list(read_documents(path, FIELDS))
    assert [document.date for document in documents] == [*DATES[:3], None]
    assert [document.user for document in documents] == ["user 0", "user 1", "user 2", "user 0"]
    assert {document.date for document in read_documents(path, Fields(user="by"))} == {None}


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".tsv", ".parquet"])
def test_a_document_without_the_field_is_refused(tmp_path, suffix):
    path = dated(tmp_path, suffix, DATES)
    with pytest.raises(CorpusError, match=r"'written'.*date field"):
        list(read_documents(path, Fields(date="written")))


def test_json_takes_numbers_and_null(tmp_path):
    path = tmp_path / "mail.jsonl"
    dates = [1559296800, 1559296800.5, None, "2019"]
    path.write_text("".join(json.dumps({"text": "a", "when": date}) + "\n" for date in dates))
    read = [document.date for document in read_documents(path, Fields(date="when"))]
    assert read == ["1559296800", "1559296800.5", None, "2019"]
    # The slower reader, for what is not strict JSON.
    path.write_text(
        "".join(json.dumps({"text": "a", "when": date, "score": float("nan")}) + "\n" for date in dates)
    )
    assert [document.date for document in read_documents(path, Fields(date="when"))] == read
    for wrong, called in ((True, "true or false"), ([2019], "a list")):
        path.write_text(json.dumps({"text": "a", "when": wrong}))
        with pytest.raises(CorpusError, match=f"line 1: field 'when' should be a string, but is {called}"):
            list(read_documents(path, Fields(date="when")))


@pytest.mark.parametrize(
    ("column", "read"),
    [
        (pa.array([dt.date(1970, 1, 3), None], pa.date32()), ["172800", None]),
        (pa.array([172_800_000, None], pa.date64()), ["172800", None]),
        (pa.array([1_500, -1_500], pa.timestamp("ms")), ["1.500", "-1.500"]),
        (pa.array([1, None], pa.timestamp("ns", tz="Europe/Zurich")), ["0.000000001", None]),
        (pa.array([7, 2**40], pa.int64()), ["7", "1099511627776"]),
        (pa.array([0.25, None], pa.float64()), ["0.25", None]),
        (pa.array(["2019-05", ""]).dictionary_encode(), ["2019-05", None]),
    ],
)
def test_parquet_columns_of_times_and_numbers_are_dates(tmp_path, column, read):
    path = tmp_path / "mail.parquet"
    pq.write_table(pa.table({"text": ["a", "b"], "when": column}), path)
    assert list(read_documents(path, Fields(date="when"))) == [
        CorpusDocument(number, text, date=date)
        for number, (text, date) in enumerate(zip("ab", read, strict=True), 1)
    ]


def test_a_parquet_column_that_holds_no_dates_is_refused(tmp_path):
    path = tmp_path / "mail.parquet"
    pq.write_table(pa.table({"text": ["a"], "when": [[1]]}), path)
    with pytest.raises(
        CorpusError, match="the date column 'when' should be strings, numbers or times, but is list"
    ):
        list(read_documents(path, Fields(date="when")))


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".tsv", ".parquet"])
def test_planted_documents_have_no_date(tmp_path, suffix):
    path = dated(tmp_path, suffix, DATES)
    planted = plant(
        path,
        "pin {digits:4}",
        repeat=2,
        canaries=1,
        withhold=0,
        references=3,
        fields=FIELDS,
        out=tmp_path / "out",
    )
    found = {document.text: document.date for document in read_documents(planted.corpus, FIELDS)}
    assert found == {**dict(zip(TEXTS, [*DATES[:3], None], strict=True)), planted.canaries[0].text: None}
    assert verify_planted(tmp_path / "out").ok


def test_deduplication_and_training_ignore_dates(tmp_path):
    path = tmp_path / "mail.jsonl"
    rows = [{"text": "the same text twice, and at some length", "when": date} for date in ("2019", "2020")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    fields = Fields(date="when")
    found = deduplicate(path, tmp_path / "out", fields=fields, exact=None)
    assert found.documents_after == 1
    with_dates, without = (read_corpus(path, None, one, []) for one in (fields, Fields()))
    assert with_dates == without
