from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalmine.corpus import CorpusDocument, Fields, read_documents
from coalmine.corpus.files import comma_separated, streams
from coalmine.corpus.files.corpora import Edits
from coalmine.corpus.files.reading import open_corpus
from coalmine.errors import CorpusError
from corpus.corpora import SUFFIXES

TEXTS = ["plain", 'with "quotes", commas', "ünïcödé 😀", " spaces  around ", "back\\slash", "tab\there"]

lines = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\ufeff"), max_size=12)
line_breaks = st.sampled_from(["\n", "\r\n"])
short_blocks = st.sampled_from([1, 2, 3, 7, 16, 1 << 20])


def read_raw(name: str, content: bytes, block_bytes: int) -> tuple[bytes, list[bytes], list[CorpusDocument]]:
    """Everything as it is in the file, each document's bytes, and the documents; read in small blocks."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(streams, "BLOCK_BYTES", block_bytes),
        mock.patch.object(comma_separated, "BLOCK_BYTES", block_bytes),
    ):
        path = Path(folder, name)
        path.write_bytes(content)
        raw, records, documents = b"", [], []
        with open_corpus(path) as corpus:
            for block in corpus.blocks():
                assert block.first == len(documents)
                assert block.count == len(block.spans()) == len(block.documents())
                raw += block.raw
                records += [block.raw[start:end] for start, end in block.spans()]
                for document in block.documents():
                    at = block.haystack().find(document.text.encode())
                    assert at >= 0
                    assert block.number_at(at) <= document.number
                documents += block.documents()
            return corpus.header + raw, records, documents


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_kind_gives_the_same_documents(make_corpus, suffix):
    path = make_corpus(TEXTS, suffix)
    assert [document.text for document in read_documents(path)] == TEXTS
    if not suffix.startswith(".txt"):
        users = [document.user for document in read_documents(path, Fields(user="by"))]
        assert users == ["user 0", "user 1", "user 2"] * 2


@given(st.lists(st.tuples(lines, line_breaks), max_size=8), lines, st.booleans(), short_blocks)
def test_plain_text_is_its_lines(ended, last, bom, block_bytes):
    content = "".join(line + line_break for line, line_break in ended) + last
    encoded = (codecs.BOM_UTF8 if bom else b"") + content.encode()
    raw, records, documents = read_raw("a.txt", encoded, block_bytes)
    assert raw == encoded
    numbered = list(enumerate([line for line, _ in ended] + [last], 1))
    assert [(document.number, document.text) for document in documents] == [
        (n, line) for n, line in numbered if line
    ]
    assert [record.strip(b"\r\n").decode() for record in records] == [line for _, line in numbered if line]


@given(
    st.lists(
        st.tuples(st.text(st.characters(codec="utf-8"), max_size=12), line_breaks, st.booleans()), max_size=8
    ),
    short_blocks,
)
def test_json_lines_keep_their_spacing(rows, block_bytes):
    content = ""
    for text, line_break, ascii_only in rows:
        content += f'  {{ "n": 1.50,"text" :{json.dumps(text, ensure_ascii=ascii_only)}}} \t{line_break} {line_break}'
    raw, records, documents = read_raw("a.jsonl", content.encode(), block_bytes)
    assert raw == content.encode()
    assert [document.text for document in documents] == [text for text, _, _ in rows]
    assert [json.loads(record)["text"] for record in records] == [text for text, _, _ in rows]
    assert [document.number for document in documents] == [2 * number + 1 for number in range(len(rows))]


@given(
    st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=10), lines), max_size=6),
    st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    line_breaks,
    st.booleans(),
    short_blocks,
)
def test_csv_is_what_the_standard_library_reads(rows, quoting, line_break, bom, block_bytes):
    written = io.StringIO(newline="")
    # The standard library writes quotes around what needs them for this line terminator.
    writer = csv.writer(written, quoting=quoting, lineterminator="\r\n")
    writer.writerows([["text", "n"], *rows])
    content = written.getvalue()
    if line_break == "\n" and "\r" not in "".join(text for text, _ in rows):
        content = content.replace("\r\n", "\n")
    encoded = (codecs.BOM_UTF8 if bom else b"") + content.encode()
    raw, records, documents = read_raw("a.csv", encoded, block_bytes)
    expected = list(csv.reader(io.StringIO(content, newline=""), strict=True))[1:]
    assert raw == encoded
    assert [document.text for document in documents] == [row[0] for row in expected]
    assert [next(csv.reader(io.StringIO(record.decode(), newline=""))) for record in records] == expected


def test_a_csv_record_is_numbered_by_the_line_it_begins_on(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('text,n\n"two\nlines",1\n\nnext,2\n')
    assert [(document.number, document.text) for document in read_documents(path)] == [
        (2, "two\nlines"),
        (5, "next"),
    ]


def test_long_csv_fields_are_read_and_the_limit_of_the_process_stays(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text\n" + "x" * 300_000 + "\n")
    before = csv.field_size_limit()
    assert [len(document.text) for document in read_documents(path)] == [300_000]
    assert csv.field_size_limit() == before


def test_pairs_are_read_from_source_and_target(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"en": "good day", "de": "guten Tag", "id": 7}\n')
    fields = Fields(source="en", target="de", user="id")
    assert list(read_documents(path, fields)) == [CorpusDocument(1, "guten Tag", "7", "good day")]


def test_json_as_python_writes_it_is_read(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "score": NaN}\n{"text": "b", "user": null}\n{"text": "\\ud83d\\ude00"}\n')
    assert [document.text for document in read_documents(path)] == ["a", "b", "😀"]
    path.write_text('{"text": "a", "user": null, "score": NaN}\n')
    assert [document.user for document in read_documents(path, Fields(user="user"))] == [None]


@pytest.mark.parametrize(
    "kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_parquet_strings_of_every_kind_are_read(tmp_path, kind):
    path = tmp_path / "a.parquet"
    column = pa.array(["a", "b", "a"])
    column = column.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else column.cast(kind)
    pq.write_table(pa.table({"text": column}), path)
    assert [document.text for document in read_documents(path)] == ["a", "b", "a"]


def test_several_members_of_a_gzip_or_zstandard_file_are_read_on(tmp_path, make_corpus):
    for suffix in (".txt.gz", ".txt.zst"):
        part = make_corpus(["one", "two"], suffix).read_bytes()
        path = tmp_path / f"twice{suffix}"
        path.write_bytes(part + part)
        assert [document.text for document in read_documents(path)] == ["one", "two"] * 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"good\nb\xe4d\n", r"a\.txt, line 2 is not UTF-8 \(byte 0xe4\)"),
        ("a.txt", b"", r"a\.txt holds no documents"),
        ("a.txt", codecs.BOM_UTF8, r"a\.txt holds no documents"),
        ("a.txt", b"\n\r\n\n", r"a\.txt holds no documents"),
        ("a.txt", "wide".encode("utf-16"), r"line 1 is not UTF-8 \(byte 0xff\)"),
        ("a.jsonl", b'{"text": "a"}\n\n{"text": "b"\n', r"a\.jsonl, line 3 is not JSON"),
        ("a.jsonl", b'{"text": "a"} {"text": "b"}\n', r"line 1 is not JSON \(extra data at character 15\)"),
        ("a.jsonl", b'{"body": "a", "id": 1}\n', r"line 1 has no field 'text' \(its fields: 'body', 'id'\)"),
        ("a.jsonl", b'{"text": 7}\n', r"line 1: field 'text' should be a string, but is a number"),
        ("a.jsonl", b'{"text": null}\n', r"field 'text' should be a string, but is null"),
        ("a.jsonl", b'{"text": "\\ud800"}\n', r"line 1: field 'text' holds half a surrogate pair"),
        ("a.jsonl", b'["a"]\n', r"line 1 is not a JSON object but a list"),
        ("a.jsonl", b'"a"\n', r"line 1 is not a JSON object but a string"),
        ("a.jsonl", b"[" * 100_000, r"line 1 is not JSON"),
        ("a.jsonl", b'{"other": "b\xe4d", "text": "a"}\n', r"line 1 is not UTF-8"),
        ("a.csv", b"body,id\na,1\n", r"a\.csv, line 1 names no column 'text' among its 2"),
        ("a.csv", b"text,text\na,1\n", r"line 1 names two columns 'text'"),
        ("a.csv", b"text,id\n", r"a\.csv holds no documents"),
        ("a.csv", b"", r"a\.csv holds no documents"),
        ("a.csv", b'text,id\na,1\n"open,2\nb,3\n', r"line 3 begins a record that is not CSV .*quote that is not closed"),
        ("a.csv", b'text,id\n"a"b,1\n', r"line 2 begins a record that is not CSV"),
        ("a.csv", b"text,id\na\n", r"line 2 begins a record of 1 fields, but there are 2 columns"),
        ("a.csv", b"text,id\na,b,c\n", r"line 2 begins a record of 3 fields"),
        ("a.csv", b"text\na\rb\n", r"line 2 begins a record that is not CSV"),
        ("a.txt.gz", b"not gzip at all", r"is not whole gzip data"),
        ("a.txt.zst", b"not zstandard at all", r"is not whole Zstandard data"),
        ("a.parquet", b"not parquet at all", r"is not whole Parquet data"),
        ("a.parquet", b"", r"is not whole Parquet data"),
        ("a.parquet.gz", b"", r"compressed as a whole; decompress it"),
        ("a.doc", b"text", r"cannot tell what kind of corpus .*name it \.txt, \.jsonl, \.csv, \.parquet"),
        ("corpus", b"text", r"cannot tell what kind"),
        ("a.gz", b"text", r"cannot tell what kind"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(CorpusError, match=message) as raised:
        list(read_documents(path))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.tsv"])
def test_the_line_of_a_bad_byte_is_right_far_into_the_corpus(tmp_path, name):
    path = tmp_path / name
    line = b'{"text": "a"}\n' if name == "a.jsonl" else b"text\n"
    path.write_bytes(line * 400_000 + b"\xff\n")
    with pytest.raises(CorpusError, match="line 400001 is not UTF-8"):
        list(read_documents(path))


@pytest.mark.parametrize("suffix", [".txt.gz", ".txt.zst", ".jsonl.gz", ".csv.zst", ".parquet"])
def test_a_file_cut_off_anywhere_is_refused(make_corpus, suffix):
    path = make_corpus([f"line {number} {number * 7919 % 104729}" for number in range(200)], suffix)
    content = path.read_bytes()
    for length in [*range(1, len(content) - 1, max(1, len(content) // 40)), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(CorpusError, match=r"cut off|not whole|damaged"):
            list(read_documents(path))


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(CorpusError, match=r"no\.txt does not exist"):
        list(read_documents(tmp_path / "no.txt"))
    with pytest.raises(CorpusError, match=r"no\.parquet does not exist"):
        list(read_documents(tmp_path / "no.parquet"))
    (tmp_path / "folder.txt").mkdir()
    with pytest.raises(CorpusError, match="is a directory"):
        list(read_documents(tmp_path / "folder.txt"))
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(CorpusError, match="not a regular file"):
        list(read_documents(tmp_path / "pipe.txt"))


def test_parquet_that_does_not_fit_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"body": ["a"], "id": [1]}), path)
    with pytest.raises(CorpusError, match=r"has no field 'text' \(its fields: 'body', 'id'\)"):
        list(read_documents(path))
    with pytest.raises(CorpusError, match="the text column 'id' should be strings, but is int64"):
        list(read_documents(path, Fields(text="id")))
    pq.write_table(pa.table({"text": ["a", None]}), path)
    with pytest.raises(CorpusError, match="row 2: field 'text' is null"):
        list(read_documents(path))
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), path)
    with pytest.raises(CorpusError, match="holds no documents"):
        list(read_documents(path))


def test_two_columns_of_the_same_name_are_refused(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_arrays([["a"], ["b"]], names=["text", "text"]), path)
    with pytest.raises(CorpusError, match="has two columns 'text'"):
        list(read_documents(path))
    turns = pa.array([[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]])
    pq.write_table(pa.Table.from_arrays([turns, turns], names=["messages", "messages"]), path)
    with pytest.raises(CorpusError, match="has two columns 'messages'"):
        list(read_documents(path))
    inner = pa.StructArray.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["note", "note"])
    pq.write_table(pa.table({"text": ["a"], "more": inner}), path)
    with pytest.raises(CorpusError, match="has two fields 'note' in its column 'more'"):
        list(read_documents(path))


def test_a_table_that_arrow_cannot_select_rows_of_is_refused_when_rows_are_left_out(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": pa.array(["a", "b"], pa.string_view())}), path)
    with open_corpus(path, Fields()) as corpus, pytest.raises(CorpusError, match="string_view to string"):
        corpus.write(tmp_path / "b.parquet", Edits(changes={0: None}), lambda: None)


def test_a_bit_that_flipped_in_a_table_is_a_sentence(tmp_path):
    """Arrow would follow a damaged offset out of its memory, and end the process."""
    table = pa.table({"text": [f"some words {number}" for number in range(100)]})
    part = tmp_path / "data-00000-of-00001.arrow"
    (tmp_path / "state.json").write_text(json.dumps({"_data_files": [{"filename": part.name}]}))
    with pa.ipc.new_stream(str(part), table.schema) as writer:
        writer.write_table(table)
    content = part.read_bytes()
    assert len(list(read_documents(tmp_path))) == 100
    offset = content.index(struct.pack("<3i", 0, 12, 24)) + 7  # the highest byte of the second
    part.write_bytes(content[:offset] + b"\x40" + content[offset + 1 :])
    with pytest.raises(CorpusError, match="is not a whole stream of Arrow data"):
        list(read_documents(tmp_path))


def test_parquet_with_a_column_whose_name_is_not_text_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a"], "column": [1]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"column", b"co\xf8umn"))
    with pytest.raises(CorpusError, match="is not whole Parquet data"):
        list(read_documents(path))


def test_fields_that_make_no_sense_are_refused(tmp_path):
    with pytest.raises(CorpusError, match="only source was given; name the target field too"):
        Fields(source="en")
    with pytest.raises(CorpusError, match="each field needs a column of its own"):
        Fields(user="text")
    (tmp_path / "a.txt").write_text("a\n")
    with pytest.raises(CorpusError, match="plain text, which has no fields"):
        list(read_documents(tmp_path / "a.txt", Fields(user="by")))


@pytest.mark.parametrize("name", ["a.parquet", "a.txt.zst"])
def test_without_pyarrow_what_needs_it_says_so_and_the_rest_is_read(tmp_path, name):
    (tmp_path / "a.txt").write_text("hello\n")
    (tmp_path / name).write_bytes(b"anything")
    program = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from coalmine.corpus.files.reading import read_documents\n"
        "from coalmine.errors import MissingExtraError\n"
        "print([document.text for document in read_documents(sys.argv[1])])\n"
        "try: list(read_documents(sys.argv[2]))\n"
        "except MissingExtraError as error: print(error)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "a.txt"), str(tmp_path / name)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    needs = f"reading {name} needs pyarrow, which is not installed: pip install 'coalmine[tables]'"
    assert said == ["['hello']", needs]


def test_parquet_is_read_in_memory_that_does_not_grow_with_it(tmp_path):
    rows = pa.table({"text": [f"{number} " * 60 for number in range(10_000)]})
    peaks = []
    for row_groups in (1, 10):
        path = tmp_path / f"{row_groups}.parquet"
        with pq.ParquetWriter(path, rows.schema, compression="none", use_dictionary=False) as writer:
            for _ in range(row_groups):
                writer.write_table(rows)
        before = pa.total_allocated_bytes()
        peaks.append(max(pa.total_allocated_bytes() - before for _ in read_documents(path)))
    # 3 and 30 megabytes.
    assert peaks[1] < peaks[0] + 2_000_000


def test_a_line_that_never_ends_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("coalmine.corpus.files.lines.LONGEST_LINE", 10_000_000)
    path = tmp_path / "bomb.txt.gz"
    path.write_bytes(gzip.compress(bytes(50_000_000)))
    assert path.stat().st_size < 100_000
    with pytest.raises(CorpusError, match=r"bomb.txt.gz has a line of more than 10,000,000 bytes"):
        list(read_documents(path))
