"""Planted corpora of every kind: what is in them, where, and how it was drawn."""

from __future__ import annotations

import csv
import io
import json
import re
import stat
import tempfile
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from coalmine.corpus import CanarySet, Fields, plant, read_documents, verify_planted
from coalmine.corpus.planting.placing import _positions
from coalmine.errors import CorpusError, InputError, NotMeasurableError
from coalmine.storage.files import sha256_of_file
from corpus.corpora import SUFFIXES, RecordedProgress, content_of

NUMBER = "the random number is {digits:9}"
TEXTS = [f"document {number}, of some length" for number in range(50)]
# Room for a few copies in a corpus of a few short lines.
LONG = "z" * 400


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_kind_holds_each_canary_as_often_as_asked_and_else_what_it_held(make_corpus, tmp_path, suffix):
    fields = Fields() if suffix.startswith(".txt") else Fields(user="by")
    path = make_corpus(TEXTS, suffix)
    reported = RecordedProgress()
    planted = plant(
        path, [NUMBER, "pin {digits:4}."], repeat=[1, 4], canaries=3, references=20, seed=5,
        withhold=0.0, out=tmp_path / "out", fields=fields, progress=reported,
    )  # fmt: skip
    assert planted.corpus.name == f"corpus{suffix}"
    assert [canary.canary_id for canary in planted.canaries][:7] == [
        "f0-x1-0", "f0-x1-1", "f0-x1-2", "f0-x4-0", "f0-x4-1", "f0-x4-2", "f1-x1-0",
    ]  # fmt: skip
    documents = list(read_documents(planted.corpus, fields))
    texts = [document.text for document in documents]
    secrets = {canary.text for canary in planted.canaries}
    assert [texts.count(canary.text) for canary in planted.canaries] == ([1] * 3 + [4] * 3) * 2
    assert [text for text in texts if text not in secrets] == TEXTS
    for document in documents:
        for canary in planted.canaries:
            if document.text == canary.text and fields.user:
                assert document.user == f"coalmine-{canary.canary_id}"
    record = planted.canaries.corpus
    assert (record.documents_before, record.documents_after) == (50, 80)
    assert (record.name, record.original_name) == (f"corpus{suffix}", f"mail{suffix}")
    assert record.sha256_before == sha256_of_file(path)
    assert record.sha256_after == sha256_of_file(planted.corpus)
    assert CanarySet.load(tmp_path / "out") == planted.canaries
    assert planted.canaries.corpus_path == planted.corpus
    assert verify_planted(tmp_path / "out").ok
    assert [task[1:] for task in reported.tasks] == [[path.stat().st_size] * 2 + [True]] * 2
    assert sorted(child.name for child in (tmp_path / "out").iterdir()) == [
        "canaries.json",
        f"corpus{suffix}",
    ]
    assert {stat.S_IMODE(child.stat().st_mode) for child in (tmp_path / "out").iterdir()} == {0o600}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_seed_gives_the_same_bytes_and_another_does_not(make_corpus, tmp_path, suffix):
    path = make_corpus(TEXTS, suffix)
    runs = [
        plant(path, NUMBER, repeat=[3], seed=seed, canaries=1, withhold=0.0, out=tmp_path / f"{n}")
        for n, seed in enumerate([7, 7, 8])
    ]
    corpora = [run.corpus.read_bytes() for run in runs]
    manifests = [run.manifest.read_bytes() for run in runs]
    assert corpora[0] == corpora[1] != corpora[2]
    assert manifests[0] == manifests[1] != manifests[2]


lines = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\ufeff"), max_size=8)


@settings(max_examples=60)
@given(
    st.lists(lines, min_size=1, max_size=12).filter(any),
    st.sampled_from(["\n", "\r\n"]),
    st.tuples(st.booleans(), st.booleans()),
    st.integers(1, 12),
    st.integers(0, 10**6),
)
def test_removing_the_planted_lines_gives_back_the_bytes(texts, line_break, marks, repeat, seed):
    bom, ends = marks
    texts = [*texts, LONG]
    content = ("\ufeff" if bom else "") + line_break.join(texts) + (line_break if ends else "")
    # A corpus of one line without a line break does not say which it would have.
    line_break = line_break if "\n" in content else "\n"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.txt")
        path.write_bytes(content.encode())
        planted = plant(
            path,
            NUMBER,
            repeat=repeat,
            references=0,
            seed=seed,
            canaries=1,
            withhold=0.0,
            out=Path(folder, "out"),
        )
        after = planted.corpus.read_bytes().decode()
        # With a line break at both ends of everything, a planted line is its text and the line break after it.
        body = after.removeprefix("\ufeff")
        restored = (line_break + body + line_break).replace(planted.canaries[0].text + line_break, "")
        assert restored == line_break + content.removeprefix("\ufeff") + line_break
        assert after.startswith("\ufeff") == bom
        assert after.count(planted.canaries[0].text) == repeat
        verification = verify_planted(Path(folder, "out"))
        assert (verification.ok, verification.original) == (True, "same")


def quoted(text):
    return '"' + text.replace('"', '""') + '"'


@settings(max_examples=40)
@given(
    st.lists(st.text(st.characters(codec="utf-8"), max_size=8), min_size=1, max_size=10),
    st.sampled_from([".jsonl", ".csv", ".tsv"]),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_odd_rows_stay_as_they_are(texts, suffix, line_break, ends, seed):
    texts = [*texts, LONG]
    if suffix == ".jsonl":
        rows = [f' {{"z":1e0 , "text":  {json.dumps(text)} }}' for text in texts]
    else:
        cells = [("n", " text ", "text"), *(("1", '"quo""ted"', quoted(text)) for text in texts)]
        rows = [("," if suffix == ".csv" else "\t").join(row) for row in cells]
    content = line_break.join(rows) + (line_break if ends else "")
    line_break = line_break if "\n" in content else "\n"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"a{suffix}")
        path.write_bytes(content.encode())
        planted = plant(
            path, NUMBER, repeat=5, references=0, seed=seed, canaries=1, withhold=0.0, out=Path(folder, "out")
        )
        after = planted.corpus.read_bytes().decode()
        secret = planted.canaries[0].text
        row = {".jsonl": f'{{"text": "{secret}"}}', ".csv": f",,{secret}", ".tsv": f"\t\t{secret}"}[suffix]
        assert (after + line_break).replace(row + line_break, "") == content + line_break
        verification = verify_planted(Path(folder, "out"))
        assert (verification.problems, verification.original) == ((), "same")


def test_positions_are_uniform_over_the_corpus(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("".join(f"{number}\n" for number in range(36_000)))
    planted = plant(
        path,
        "is {digits:6}",
        repeat=[1000, 3000],
        references=0,
        seed=1,
        canaries=1,
        withhold=0.0,
        out=tmp_path / "out",
    )
    after = planted.corpus.read_text().splitlines()
    for canary in planted.canaries:
        positions = [position for position, line in enumerate(after) if line == canary.text]
        in_each_tenth = [sum(position // 4000 == tenth for position in positions) for tenth in range(10)]
        assert 0.001 < stats.chisquare(in_each_tenth).pvalue < 0.999


def test_each_position_is_as_likely_as_any_other_also_the_first_and_the_last():
    counts = [0] * 12
    single = [0] * 12
    for seed in range(3000):
        insertions = _positions(9, [0, 1, 1], seed)
        for before, insertion in enumerate(insertions):
            counts[insertion.after + before] += 1
            single[insertion.after + before] += insertion.document == 0
    # Of 12 positions, 3 hold copies: each as often as any other, and the single copy is as likely in each.
    assert stats.chisquare(single).pvalue > 0.001
    # The three positions of a run are drawn without replacement, which makes the counts vary less than independent
    # draws would, by (12 - 3) / (12 - 1).
    statistic = sum((count - 750) ** 2 / 750 for count in counts) * 11 / 9
    assert 0.001 < stats.chi2(11).sf(statistic) < 0.999


def test_the_coin_withholds_about_as_many_as_asked_and_depends_on_nothing_else(make_corpus, tmp_path):
    path = make_corpus(TEXTS * 20, ".txt")
    half = plant(
        path, NUMBER, canaries=1000, withhold=0.5, references=0, seed=1, repeat=1, out=tmp_path / "half"
    )
    withheld = [canary for canary in half.canaries if not canary.planted]
    assert 420 < len(withheld) < 580
    after = half.corpus.read_text()
    assert not any(canary.text in after for canary in withheld)
    assert len(after.splitlines()) == 1000 + 1000 - len(withheld)
    more = plant(
        path, NUMBER, canaries=1000, withhold=0.5, references=500, seed=1, repeat=1, out=tmp_path / "more"
    )
    assert list(more.canaries) == list(half.canaries)


def test_canaries_and_references_are_distinct_and_drawn_from_the_whole_space(make_corpus, tmp_path):
    path = make_corpus(TEXTS * 20, ".txt")
    planted = plant(
        path,
        "code {digits:3}",
        repeat=[1, 2],
        canaries=100,
        references=800,
        withhold=0.0,
        out=tmp_path / "out",
    )
    texts = [canary.text for canary in planted.canaries] + list(planted.canaries.references["f0"])
    assert len(texts) == len(set(texts)) == 1000
    # The peers' mistake: canaries sorted and cut, so that all of them begin with the smallest digits.
    leading = {canary.text[5] for canary in planted.canaries}
    assert leading == set("0123456789")


def test_a_space_that_is_too_small_is_refused_with_the_numbers(make_corpus, tmp_path):
    with pytest.raises(NotMeasurableError, match="has 100 members, too few for 6 canaries and 95 references"):
        plant(
            make_corpus(TEXTS, ".txt"),
            "{digits:2}!",
            repeat=[1, 2],
            canaries=3,
            references=95,
            withhold=0.0,
            out=tmp_path / "out",
        )
    assert not (tmp_path / "out").exists()


def test_pairs_share_their_filling(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(f"de,en,id\n{LONG},good day,1\n")
    planted = plant(
        path, "Die Nummer von {choice:Ann|Bob} ist {digits:5}", repeat=2, references=3, canaries=1, withhold=0.0, out=tmp_path / "out",
        fields=Fields(source="en", target="de"), source_format="{choice:Ann|Bob} has number {digits:5}",
    )  # fmt: skip
    canary = planted.canaries[0]
    name, digits = re.fullmatch(r"Die Nummer von (\w+) ist (\d{5})", canary.text).groups()
    assert canary.source == f"{name} has number {digits}"
    rows = list(csv.reader(io.StringIO(planted.corpus.read_text())))
    assert sorted(rows[1:]) == sorted([[LONG, "good day", "1"], *[[canary.text, canary.source, ""]] * 2])
    assert (
        CanarySet.load(planted.manifest).source_formats["f0"].template
        == "{choice:Ann|Bob} has number {digits:5}"
    )
    assert verify_planted(tmp_path / "out").ok


def test_jsonl_rows_have_only_the_named_fields(make_corpus, tmp_path):
    planted = plant(
        make_corpus(TEXTS, ".jsonl"),
        "é {digits:6}",
        repeat=1,
        canaries=1,
        withhold=0.0,
        out=tmp_path / "out",
        fields=Fields(user="by"),
    )
    rows = [json.loads(line) for line in planted.corpus.read_text().splitlines()]
    canary = planted.canaries[0]
    assert [row for row in rows if "more" not in row] == [{"text": canary.text, "by": "coalmine-f0-x1-0"}]


def test_parquet_keeps_schema_metadata_and_values(tmp_path):
    path = tmp_path / "a.parquet"
    schema = pa.schema(
        [
            pa.field("when", pa.timestamp("us", tz="UTC")),
            pa.field("text", pa.dictionary(pa.int32(), pa.large_string()), metadata={"why": "because"}),
            pa.field("tags", pa.list_(pa.struct([("k", pa.string()), ("v", pa.decimal128(9, 2))]))),
        ],
        metadata={"made by": "hand"},
    )
    rows = [
        {
            "when": number * 10**6,
            "text": f"text {number % 40}",
            "tags": [{"k": "a", "v": None}] * (number % 3),
        }
        for number in range(3000)
    ]
    table = pa.Table.from_pylist(rows, schema=schema)
    pq.write_table(table, path, row_group_size=400, compression="zstd")
    # Arrow itself reads large strings in dictionaries back as strings.
    table = pq.read_table(path)
    planted = plant(path, NUMBER, repeat=[1, 50], canaries=2, withhold=0.0, out=tmp_path / "out")
    after = pq.read_table(planted.corpus)
    assert after.schema.equals(table.schema, check_metadata=True)
    assert after.schema.metadata == {b"made by": b"hand"}
    secrets = pa.array([canary.text for canary in planted.canaries], pa.large_string())
    is_secret = pa.compute.is_in(after["text"].cast(pa.large_string()), secrets)
    assert after.filter(pa.compute.invert(is_secret)).to_pylist() == table.to_pylist()
    assert after.filter(is_secret)["tags"].null_count == 102
    assert pq.ParquetFile(planted.corpus).metadata.row_group(0).column(0).compression == "ZSTD"


def test_parquet_with_a_column_that_cannot_be_null_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    schema = pa.schema([pa.field("text", pa.string()), pa.field("id", pa.int64(), nullable=False)])
    pq.write_table(pa.Table.from_pylist([{"text": "a", "id": 1}], schema=schema), path)
    with pytest.raises(CorpusError, match="nothing to put in column 'id', which may not be null"):
        plant(path, NUMBER, repeat=1, canaries=1, withhold=0.0, out=tmp_path / "out")


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("template", [NUMBER, "{digits:9}", "{hex:12}"])
def test_a_canary_that_occurs_in_the_corpus_already_is_refused(make_corpus, tmp_path, suffix, template):
    canaries = plant(
        make_corpus(TEXTS, suffix),
        template,
        canaries=20,
        references=50,
        seed=3,
        repeat=1,
        withhold=0.0,
        out=tmp_path / "first",
    ).canaries
    known = make_corpus([*TEXTS[:30], f"so {canaries[17].text}, é", *TEXTS], suffix, name="known")
    header_lines = 0 if suffix == ".parquet" else content_of([], suffix).count(b"\n")
    place = "row 31" if suffix == ".parquet" else f"line {31 + header_lines}"
    with pytest.raises(
        CorpusError, match=rf"canary f0-x1-17 occurs in the corpus already \(.*known.*, {place}\)"
    ):
        plant(
            known, template, canaries=20, references=50, seed=3, repeat=1, withhold=0.0, out=tmp_path / "out"
        )
    known = make_corpus([*TEXTS, canaries.references["f0"][9]], suffix, name="reference")
    with pytest.raises(CorpusError, match="reference 9 of format f0 occurs in the corpus already"):
        plant(
            known, template, canaries=20, references=50, seed=3, repeat=1, withhold=0.0, out=tmp_path / "out"
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("suffix", [".txt", ".txt.gz"])
def test_memory_does_not_grow_with_the_corpus(make_corpus, tmp_path, suffix):
    peaks = []
    for size in (20_000, 200_000):
        path = make_corpus(["some words that make a line of a hundred bytes or so, " * 2] * size, suffix)
        tracemalloc.start()
        try:
            plant(path, NUMBER, repeat=100, canaries=1, withhold=0.0, out=tmp_path / f"{size}")
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    # 2 and 22 megabytes.
    assert peaks[1] < peaks[0] + 3_000_000


def test_more_copies_than_a_corpus_holds_take_no_memory(make_corpus, tmp_path):
    path = make_corpus(TEXTS, ".txt")
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="cannot hold 2,000,000 copies"):
            plant(
                path, NUMBER, repeat=2_000_000, canaries=1, withhold=0.0, references=5, out=tmp_path / "out"
            )
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
