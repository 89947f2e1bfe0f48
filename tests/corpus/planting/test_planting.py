from __future__ import annotations

import csv
import inspect
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

from coalmine.cli.options import whole_numbers
from coalmine.cli.plant import command
from coalmine.corpus.files.embedded import write_embedded_corpus
from coalmine.corpus.files.reading import Fields, read_documents
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.corpus.planting.planting import _places, plant
from coalmine.corpus.planting.verifying import verify_planted
from coalmine.errors import CorpusError, InputError, NotMeasurableError
from coalmine.formats.format import Format
from coalmine.storage.files import sha256_of_file

SUFFIXES = [
    ".txt",
    ".txt.gz",
    ".txt.zst",
    ".jsonl",
    ".jsonl.gz",
    ".jsonl.zst",
    ".csv",
    ".csv.gz",
    ".csv.zst",
    ".parquet",
]
NUMBER = "the random number is {digits:9}"
TEXTS = [f"document {number}, of some length" for number in range(50)]


# Room for a few copies in a corpus of a few short lines.
LONG = "z" * 400


class Told:
    """A progress that remembers what it was told."""

    def __init__(self):
        self.tasks = []

    def start(self, task, total):
        self.tasks.append([task, total, 0, False])

    def advance(self, amount=1, note=""):  # noqa: ARG002 - the protocol's name
        self.tasks[-1][2] += amount

    def finish(self):
        self.tasks[-1][3] = True


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_kind_holds_each_canary_as_often_as_asked_and_else_what_it_held(make_corpus, tmp_path, suffix):
    fields = Fields() if suffix.startswith(".txt") else Fields(user="by")
    path = make_corpus(TEXTS, suffix)
    told = Told()
    planted = plant(
        path, [NUMBER, "pin {digits:4}."], repeat=[1, 4], canaries=3, references=20, seed=5,
        withhold=0.0, out=tmp_path / "out", fields=fields, progress=told,
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
    assert [task[1:] for task in told.tasks] == [[path.stat().st_size] * 2 + [True]] * 2
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


@settings(max_examples=40)
@given(
    st.lists(st.text(st.characters(codec="utf-8"), max_size=8), min_size=1, max_size=10),
    st.sampled_from([".jsonl", ".csv"]),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_odd_rows_stay_as_they_are(texts, suffix, line_break, ends, seed):
    texts = [*texts, LONG]
    if suffix == ".jsonl":
        rows = [f' {{"z":1e0 , "text":  {json.dumps(text)} }}' for text in texts]
    else:
        rows = ["n, text ,text", *('1,"quo""ted",' + '"' + text.replace('"', '""') + '"' for text in texts)]
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
        row = f'{{"text": "{secret}"}}' if suffix == ".jsonl" else f",,{secret}"
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
        insertions = _places(9, [0, 1, 1], seed)
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
        fields=Fields(source="en", target="de"), source_formats="{choice:Ann|Bob} has number {digits:5}",
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
def test_a_canary_that_stands_in_the_corpus_already_is_refused(make_corpus, tmp_path, suffix, template):
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
    place = {".txt": "line 31", ".jso": "line 31", ".csv": "line 32", ".par": "row 31"}[suffix[:4]]
    with pytest.raises(
        CorpusError, match=rf"canary f0-x1-17 stands in the corpus already \(.*known.*, {place}\)"
    ):
        plant(
            known, template, canaries=20, references=50, seed=3, repeat=1, withhold=0.0, out=tmp_path / "out"
        )
    known = make_corpus([*TEXTS, canaries.references["f0"][9]], suffix, name="reference")
    with pytest.raises(CorpusError, match="reference 9 of format f0 stands in the corpus already"):
        plant(
            known, template, canaries=20, references=50, seed=3, repeat=1, withhold=0.0, out=tmp_path / "out"
        )
    assert not (tmp_path / "out").exists()


def test_two_formats_with_a_member_in_common_are_refused(make_corpus, tmp_path):
    with pytest.raises(InputError, match="have the same text; keep one of them, or draw again"):
        plant(
            make_corpus(TEXTS, ".txt"),
            ["{digits:1}!", "{re:[0-8]}!"],
            canaries=8,
            references=1,
            repeat=1,
            withhold=0.0,
            out=tmp_path / "out",
        )


def test_nothing_is_overwritten_unless_asked(make_corpus, tmp_path):
    path = make_corpus(TEXTS, ".txt")
    first = plant(path, NUMBER, repeat=1, canaries=1, withhold=0.0, out=tmp_path / "out")
    before = first.corpus.read_bytes()
    with pytest.raises(CorpusError, match=r"canaries\.json exists already"):
        plant(path, NUMBER, seed=1, repeat=1, canaries=1, withhold=0.0, out=tmp_path / "out")
    assert first.corpus.read_bytes() == before
    second = plant(
        path, NUMBER, seed=1, repeat=1, canaries=1, withhold=0.0, out=tmp_path / "out", overwrite=True
    )
    assert second.corpus.read_bytes() != before
    assert verify_planted(tmp_path / "out").ok


def test_planting_again_from_another_kind_leaves_one_corpus(make_corpus, tmp_path):
    out = tmp_path / "out"
    first = plant(make_corpus(TEXTS, ".txt"), NUMBER, repeat=1, canaries=1, withhold=0.0, out=out)
    others = {out / name: name for name in ("notes.txt", "corpus.csv", "corpus.txt.bak", "corpus.jsonl.gz")}
    for path, content in others.items():
        path.write_text(content)
    second = plant(
        make_corpus(TEXTS, ".jsonl"), NUMBER, repeat=1, canaries=1, withhold=0.0, out=out, overwrite=True
    )
    assert not first.corpus.exists()
    assert set(out.iterdir()) == {second.corpus, second.manifest, *others}
    assert {path: path.read_text() for path in others} == others
    assert verify_planted(out).ok


def test_what_the_earlier_run_did_not_write_is_never_removed(make_corpus, tmp_path):
    text, rows = make_corpus(TEXTS, ".txt"), make_corpus(TEXTS, ".jsonl")
    changed = plant(text, NUMBER, repeat=1, canaries=1, withhold=0.0, out=tmp_path / "changed").corpus
    changed.write_text("edited since\n")
    linked = plant(text, NUMBER, repeat=1, canaries=1, withhold=0.0, out=tmp_path / "linked").corpus
    linked.rename(tmp_path / "elsewhere.txt")
    linked.symlink_to(tmp_path / "elsewhere.txt")
    damaged = plant(text, NUMBER, repeat=1, canaries=1, withhold=0.0, out=tmp_path / "damaged")
    damaged.manifest.write_text("{")
    renamed = plant(text, NUMBER, repeat=1, canaries=1, withhold=0.0, out=tmp_path / "renamed")
    precious = renamed.corpus.rename(tmp_path / "renamed" / "precious.txt")
    told = json.loads(renamed.manifest.read_text())
    told["corpus"]["name"] = precious.name
    renamed.manifest.write_text(json.dumps(told))
    for kept in (changed, linked, damaged.corpus, precious):
        before = kept.read_bytes()
        plant(rows, NUMBER, repeat=1, canaries=1, withhold=0.0, out=kept.parent, overwrite=True)
        assert kept.read_bytes() == before
        assert verify_planted(kept.parent).ok


def test_the_earlier_corpus_is_never_removed_while_it_is_planted_in(make_corpus, tmp_path):
    earlier = plant(
        make_corpus(TEXTS, ".txt"), NUMBER, repeat=1, canaries=1, withhold=0.0, out=tmp_path / "out"
    ).corpus
    other_name = tmp_path / "corpus.csv"
    other_name.symlink_to(earlier)
    with pytest.raises(CorpusError, match="would remove the corpus itself"):
        plant(other_name, NUMBER, repeat=1, canaries=1, withhold=0.0, out=tmp_path / "out", overwrite=True)
    assert earlier.exists()


def test_the_corpus_itself_is_never_overwritten(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("a document\n")
    for out in (tmp_path, tmp_path / "sub" / ".."):
        with pytest.raises(CorpusError, match="would replace the corpus itself"):
            plant(path, NUMBER, repeat=1, canaries=1, withhold=0.0, out=out, overwrite=True)
    assert path.read_text() == "a document\n"


def test_a_run_that_fails_in_the_second_pass_leaves_what_was_there(make_corpus, tmp_path):
    path = make_corpus(TEXTS, ".txt")
    before = plant(path, NUMBER, repeat=1, canaries=1, withhold=0.0, out=tmp_path / "out")
    kept = {child: child.read_bytes() for child in (tmp_path / "out").iterdir()}

    class Meddler(Told):
        """Changes the corpus between the passes."""

        def finish(self):
            super().finish()
            if len(self.tasks) == 1:
                path.write_text("something else\n" * 100)

    with pytest.raises(CorpusError, match="changed while it was being read"):
        plant(
            path,
            NUMBER,
            seed=1,
            repeat=1,
            canaries=1,
            withhold=0.0,
            out=tmp_path / "out",
            overwrite=True,
            progress=Meddler(),
        )
    assert {child: child.read_bytes() for child in (tmp_path / "out").iterdir()} == kept
    assert CanarySet.load(tmp_path / "out") == before.canaries


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"repeat": []}, "repeat should be different whole numbers of at least 1"),
        ({"repeat": [1, 0]}, r"but is \[1, 0\]"),
        ({"repeat": [4, 4]}, r"but is \[4, 4\]"),
        ({"canaries": 0}, "canaries should be at least 1, but is 0"),
        ({"references": -1}, "references should be at least 0, but is -1"),
        ({"withhold": 1.5}, "withhold is a probability, but is 1.5"),
        ({"withhold": 1.0}, "leaves every canary out, so that nothing would be planted; give 0.5"),
        ({"formats": [NUMBER, NUMBER]}, "was given twice; give one of them, with more canaries"),
        ({"formats": ["a {digits:4}", "a {re:[0-9]{4}}"]}, "make the same strings; give one of them"),
        (
            {"repeat": [1, 1000], "canaries": 9},
            r"cannot hold .* copies .*; ask for fewer canaries than 9 .* fewer copies than 1,1000, or use a larger corpus",
        ),
        ({"withhold": float("nan")}, "withhold is a probability, but is nan"),
        ({"seed": -1}, "the seed should be an integer from 0"),
        ({"formats": []}, "at least one format"),
        (
            {"formats": "{re:a?}{digits:1}?", "source_formats": "x {digits:1}"},
            "source format and no source field",
        ),
        ({"formats": "{re:a{0,3}}", "references": 3}, "the empty text is a member"),
        ({"formats": "{re:a\\nb?}", "references": 0}, "a document of mail.txt is one line"),
        ({"fields": Fields(user="by")}, "plain text, which has no fields"),
    ],
)
def test_options_that_make_no_sense_are_refused(make_corpus, tmp_path, options, message):
    given_options = {"formats": NUMBER, "canaries": 1, "repeat": 1, **options}
    with pytest.raises(InputError, match=message):
        plant(make_corpus(TEXTS, ".txt"), given_options.pop("formats"), out=tmp_path / "out", **given_options)
    assert not (tmp_path / "out").exists()


def test_formats_with_words_are_planted(make_corpus, tmp_path):
    secret = Format("open {word:2}", words=["sesame", "barley", "rye", "oat"])
    planted = plant(
        make_corpus(TEXTS, ".txt"),
        [secret],
        references=5,
        repeat=1,
        canaries=1,
        withhold=0.0,
        out=tmp_path / "out",
    )
    assert CanarySet.load(planted.manifest).formats == {"f0": secret}


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


def test_the_defaults_toss_a_coin_for_each_of_several_canaries_and_fit_a_small_corpus(tmp_path):
    write_embedded_corpus(tmp_path / "corpus.txt", 120_000)
    made = plant(tmp_path / "corpus.txt", NUMBER, out=tmp_path / "out")
    assert not made.warnings
    assert made.canaries.withhold == 0.5
    by_copies = {copies: [c for c in made.canaries if c.repetitions == copies] for copies in (1, 4, 16)}
    assert {copies: len(group) for copies, group in by_copies.items()} == {1: 32, 4: 32, 16: 32}
    assert all(8 <= sum(canary.planted for canary in group) <= 24 for group in by_copies.values())
    assert len(made.canaries.references["f0"]) == 1000
    power = made.canaries.power()
    assert not power.warnings
    assert power.formats[0].false_positive_rates == (0.1, 0.01, 0.001)
    assert all(one.epsilon > 0.3 for one in power.formats[0].by_copies)


def test_the_defaults_are_those_of_the_command():
    given, asked = inspect.signature(plant).parameters, inspect.signature(command).parameters
    assert tuple(whole_numbers(asked["repeat"].default, "--repeat")) == given["repeat"].default
    for name in ("canaries", "references", "withhold"):
        assert asked[name].default == given[name].default


def test_a_corpus_that_is_mostly_canaries_is_warned_of(make_corpus, tmp_path):
    made = plant(
        make_corpus(TEXTS, ".txt"), NUMBER, repeat=20, canaries=1, withhold=0.0, out=tmp_path / "out"
    )
    assert re.search(r"20 copies of canaries .* are \d\d% of the planted corpus", made.warnings[0])


def test_planting_again_keeps_the_earlier_canaries_known(make_corpus, tmp_path):
    first = plant(
        make_corpus(TEXTS, ".txt"), NUMBER, repeat=2, canaries=4, withhold=0.5, seed=1, out=tmp_path / "first"
    )
    second = plant(
        first.corpus, "my pin is {digits:5}", repeat=1, canaries=2, withhold=0.0, out=tmp_path / "second"
    )
    assert {path.name for path in (tmp_path / "second").iterdir()} == {
        "corpus.txt", "canaries.json", "earlier-canaries.json",
    }  # fmt: skip
    earlier = CanarySet.load(tmp_path / "second" / "earlier-canaries.json")
    after = second.corpus.read_text().splitlines()
    assert [canary.times_trained_on for canary in earlier] == [after.count(canary.text) for canary in earlier]
    assert [canary.times_trained_on for canary in earlier] == [c.times_trained_on for c in first.canaries]
    assert earlier.corpus.sha256_after == second.canaries.corpus.sha256_after
    assert second.earlier.planted == sum(canary.planted for canary in first.canaries)
    assert verify_planted(tmp_path / "second").ok
    # Without a manifest beside the corpus nothing is known of it, and an older record of it goes.
    plain = plant(
        make_corpus(TEXTS, ".txt"), NUMBER, repeat=1, canaries=2, withhold=0.0, out=tmp_path / "second", overwrite=True
    )  # fmt: skip
    assert plain.earlier is None
    assert not any("manifest" in warning for warning in plain.warnings)
    assert not (tmp_path / "second" / "earlier-canaries.json").exists()


def test_texts_that_are_part_of_planted_ones_are_warned_of(tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("one document per line\n" * 2000)
    options = {"canaries": 8, "references": 200, "repeat": [4], "seed": 0}
    nested = plant(corpus, "pin {re:[0-9]{1,3}}", out=tmp_path / "nested", **options)
    (warning,) = nested.warnings
    planted = [canary.text for canary in nested.canaries if canary.planted]
    others = [canary.text for canary in nested.canaries if not canary.planted]
    inside = sum(any(text in one for one in planted) for text in [*others, *nested.canaries.references["f0"]])
    assert inside > 0
    assert warning.startswith(f"{inside} withheld canaries and references are part of a planted text")
    assert plant(corpus, "pin {digits:3}", out=tmp_path / "apart", **options).warnings == ()
