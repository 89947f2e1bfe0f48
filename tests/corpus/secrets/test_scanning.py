"""What a scan counts and writes, in every kind of corpus, however large a document or their number is."""

import json
import stat
import sys
from collections import Counter

import msgspec
import pytest

from cli.in_process import run
from coalmine import Format, scan
from coalmine.corpus import (
    Fields,
    build_index,
    distinct_in,
    occurrences_in,
    read_documents,
    read_scan,
)
from coalmine.corpus.secrets.counting import Tallies
from coalmine.corpus.secrets.kinds import chosen_kinds
from coalmine.errors import AlteredError, CorpusError, InputError, MissingExtraError
from corpus.corpora import WRITERS, content_of, rows_as

NUMBERS = Format("{ssn}").sample(6, seed=9)
ADDRESSES = [f"person{n}@firm{n}.org" for n in range(6)]
TEXTS = [
    NUMBERS[0],
    f"twice {NUMBERS[1]} and {NUMBERS[1].replace('-', ' ')}, {ADDRESSES[0]}",
    "nothing here",
    f"é {NUMBERS[1]}",
    f"{ADDRESSES[0].upper()} and 078-05-1120, not 000-12-3456",
    f"ends with {NUMBERS[2]}",
]
USERS = ["ann", "ann", "bo", "bo", "cy", "ann"]


@pytest.fixture
def corpus(tmp_path):
    rows = [{"text": text, "by": user} for text, user in zip(TEXTS, USERS, strict=True)]
    path = tmp_path / "mail.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def by_kind(found):
    return {one.kind: one for one in found.kinds}


def test_counts_by_kind_user_and_copies(corpus, tmp_path):
    found = scan(corpus, tmp_path / "out", fields=Fields(user="by"))
    ssn, email = by_kind(found)["ssn"], by_kind(found)["email"]
    assert (found.documents, found.bytes) == (6, sum(len(text.encode()) for text in TEXTS))
    assert (ssn.occurrences, ssn.secrets, ssn.documents, ssn.users) == (5, 3, 4, 2)
    assert (ssn.specimens, ssn.shaped) == (1, 4)
    assert ssn.expected_by_chance == pytest.approx(4 * 0.8889, abs=1e-3)
    assert 0.9 < ssn.p_value < 1
    assert [(one.least, one.most, one.secrets) for one in ssn.by_copies] == [(1, 1, 2), (3, 4, 1)]
    assert (email.occurrences, email.secrets, email.users, email.expected_by_chance) == (2, 1, 2, None)
    assert found.users == 3
    assert found.by_user[0].kinds == {"ssn": 4, "email": 1}
    assert [(one.kind, one.copies, one.documents, one.users) for one in found.repeated] == [
        ("ssn", 3, 2, 2),
        ("email", 2, 2, 2),
    ]
    assert read_scan(tmp_path / "out") == found


def test_every_kind_of_corpus_gives_the_same_places(tmp_path):
    expected = None
    for suffix in WRITERS:
        (tmp_path / f"mail{suffix}").write_bytes(content_of(TEXTS, suffix))
        scan(tmp_path / f"mail{suffix}", tmp_path / f"out{suffix}")
        texts = [document.text for document in read_documents(tmp_path / f"mail{suffix}")]
        numbers = {
            document.number: place
            for place, document in enumerate(read_documents(tmp_path / f"mail{suffix}"))
        }
        places = []
        for one in occurrences_in(tmp_path / f"out{suffix}"):
            place = numbers[one.document]
            assert texts[place].encode()[one.start : one.end].decode() == one.text
            places.append((place, one.kind, one.start, one.end, one.value))
        assert places == (expected or places)
        expected = places
    assert len(expected) == 8


def test_the_secrets_are_in_private_files_only(corpus, tmp_path):
    scan(corpus, tmp_path / "out", fields=Fields(user="by"))
    for path in (tmp_path / "out").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        held = any(number in path.read_text() for number in NUMBERS)
        assert held == (path.name in {"occurrences.jsonl", "distinct.jsonl"})
    shown = run("data", "scan", corpus, "-o", tmp_path / "shown", "--field", "user=by").said
    assert not any(number in shown for number in [*NUMBERS, *ADDRESSES])
    assert "•••-••-••••" in shown


def test_an_index_counts_copies_anywhere(corpus, tmp_path):
    build_index(corpus, tmp_path / "index")
    scan(corpus, tmp_path / "out", index=tmp_path / "index")
    copies = {
        one.value: (one.copies, one.copies_in_index)
        for one in distinct_in(tmp_path / "out")
        if one.kind == "ssn"
    }
    # The third copy is written in another way.
    assert copies[NUMBERS[1].replace("-", "")] == (3, 2)
    other = tmp_path / "other.txt"
    other.write_text("nothing\n")
    with pytest.raises(InputError, match=r"is not one of other\.txt, but of a file with other content"):
        scan(other, tmp_path / "other", index=tmp_path / "index")


def test_tallies_that_do_not_fit_are_exact(tmp_path):
    class Seen(msgspec.Struct):
        name: str
        copies: int

    names = [f"name {n * n % 50}" for n in range(300)]
    tallies = Tallies(Seen, lambda a, b: Seen(a.name, a.copies + b.copies), tmp_path, most=7)
    for name in names:
        if (name,) in tallies.here:
            tallies.here[name,].copies += 1
        else:
            tallies.add(Seen(name, 1), name)
    assert {one.name: one.copies for one in tallies} == Counter(names)
    assert len(list(tmp_path.iterdir())) > 5


def test_a_line_longer_than_any_block_takes_constant_memory(tmp_path):
    """Every secret of it is found, the first and the last byte of the line included, in pieces of a megabyte."""
    filler = "words and words " * 20_000
    path = tmp_path / "long.txt"
    parts = [NUMBERS[0], *(f"{filler}{number} é" for number in NUMBERS[1:]), filler, ADDRESSES[0]]
    path.write_text(f"short\n{' '.join(parts)}\nnext {NUMBERS[0]}\n")
    found = scan(path, tmp_path / "out")
    line = path.read_bytes().split(b"\n")[1]
    assert len(line) > 1.8e6
    places = list(occurrences_in(tmp_path / "out"))
    assert [one.document for one in places] == [2] * 7 + [3]
    assert [line[one.start : one.end].decode() for one in places[:-1]] == [*NUMBERS, ADDRESSES[0]]
    assert (places[0].start, places[-2].end) == (0, len(line))
    assert (found.documents, found.bytes) == (3, path.stat().st_size - 3)


def test_the_pieces_of_a_text_file_are_its_lines(tmp_path, monkeypatch):
    from coalmine.corpus.files import streams
    from coalmine.corpus.files.reading import open_corpus

    path = tmp_path / "lines.txt"
    path.write_bytes("﻿a\r\n\nlong line é that is cut\r\n\r\nx\nü".encode())
    for size in range(3, 14):
        monkeypatch.setattr(streams, "BLOCK_BYTES", size)
        texts, number_of = [b""], {}
        with open_corpus(path) as corpus:
            for piece in corpus.pieces():
                begin = 0
                for number, end in zip(piece.numbers, piece.ends, strict=True):
                    texts[-1] += piece.content[begin:end]
                    number_of[len(texts) - 1] = number
                    if texts[-1].endswith(b"\xff"):
                        texts.append(b"")
                    begin = end
        found = [
            (number_of[place], text.removesuffix(b"\xff").removesuffix(b"\r").decode())
            for place, text in enumerate(texts)
            if text.strip(b"\xff\r")
        ]
        assert found == [(one.number, one.text) for one in read_documents(path)], size


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.txt", bytes(range(256)) * 20, "is not UTF-8"),
        ("a.txt", "ann 219-09-9998 é\n".encode("latin-1"), "line 1 is not UTF-8"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "\xe9"}\n', "line 2 is not UTF-8"),
        ("a.jsonl", b'{"other": "a"}\n', "has no field 'text'"),
        # As many objects as lines, but not one on each.
        ("a.jsonl", b'{"text": "a"} {"text": "b"}\n{"text":\n"c"}\n', "line 1 is not JSON"),
        ("a.jsonl", b'{"text": "a", "b": {}\n}\n{"text": "b"}{"text": "c"}\n', "line 1 is not JSON"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "b"}{"text": "c"}\n', "line 2 is not JSON"),
        ("a.txt", b"", "holds no documents"),
        ("a.pdf", b"%PDF", "cannot tell what kind of corpus"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(name, content, says, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=says) as refused:
        scan(tmp_path / name, tmp_path / "out")
    assert "219" not in str(refused.value).replace(str(tmp_path), "")
    assert not (tmp_path / "out" / "scan.json").exists()


def test_wrong_choices_are_refused():
    with pytest.raises(InputError, match="'snn' is not a kind of secret; did you mean 'ssn'"):
        chosen_kinds(["snn"])
    with pytest.raises(InputError, match="neither a kind nor a format was given"):
        chosen_kinds([])
    with pytest.raises(InputError, match="the same format was given twice"):
        chosen_kinds(None, ["a {digits:3}", "a {digits:3}"])
    with pytest.raises(InputError, match="can have 2,000 characters at most"):
        chosen_kinds(None, ["{digits:3000}"])


def test_without_the_extra_one_sentence_says_what_to_install(corpus, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(
        MissingExtraError,
        match=r"needs google-re2, which is not installed: pip install 'coalmine\[secrets\]'",
    ):
        scan(corpus, tmp_path / "out")


def test_the_same_scan_is_not_made_twice_and_another_is_refused(corpus, tmp_path):
    first = scan(corpus, tmp_path / "out")
    assert scan(corpus, tmp_path / "out") == first
    with pytest.raises(CorpusError, match="exists already"):
        scan(corpus, tmp_path / "out", kinds=["ssn"])
    assert scan(corpus, tmp_path / "out", kinds=["ssn"], overwrite=True).secrets == 3
    with open(tmp_path / "out" / "distinct.jsonl", "a") as stream:
        stream.write("{}\n")
    with pytest.raises(AlteredError):
        read_scan(tmp_path / "out")
    with pytest.raises(InputError, match="line 5 is damaged"):
        list(distinct_in(tmp_path / "out"))


def test_all_strings_of_conversations_are_searched(tmp_path):
    arguments = {"ssn": 219099998, "to": {"iban": "DE44 5001 0517 5407 3249 31"}}
    secrets = {"ssn", "iban", "email", "phone"}
    for number, held in enumerate([arguments, json.dumps(arguments)]):
        turn = {
            "role": "assistant",
            "content": [{"type": "text", "text": "wait"}, {"type": "note", "of": "ann@firm.org"}],
            "tool_calls": [{"function": {"name": "pay", "arguments": held}}],
        }
        row = {"messages": [turn], "tools": [{"description": "tel 7138531234"}], "by": "bob@firm.org"}
        for path in (tmp_path / f"chat{number}.jsonl", tmp_path / f"chat{number}.parquet"):
            path.write_bytes(rows_as([row], path.suffix))
            found = scan(path, tmp_path / f"{path.name}.out", fields=Fields(user="by"))
            assert {kind.kind for kind in found.kinds if kind.occurrences == 1} == secrets, path.name
            assert found.not_searched == ("by",)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_fields_that_are_not_searched_are_named(tmp_path, suffix):
    rows = [{"text": "hello", "title": "a"}, {"text": "hello", "title": "b"}]
    if suffix == ".jsonl":
        rows.append({"text": "hello", "late": "219-09-9998"})
    path = tmp_path / f"mail{suffix}"
    path.write_bytes(rows_as(rows, suffix))
    ended = run("data", "scan", path, "-o", tmp_path / "out")
    assert ended.code == 0, ended.said
    not_searched = {".jsonl": ["title", "late"], ".csv": ["more", "by", "title"], ".parquet": ["title"]}[
        suffix
    ]
    assert list(read_scan(tmp_path / "out").not_searched) == not_searched
    assert f"these fields were not searched: {', '.join(map(repr, not_searched))}" in ended.said


@pytest.mark.parametrize(
    "row",
    [
        '{"text": "my ssn is 219-09-9998", "text": "hello"}',
        '{"messages": [{"role": "user", "content": "219-09-9998"}], "messages": [{"role": "user", "content": "hi"}]}',
        '{"messages": [{"role": "user", "content": "219-09-9998", "content": "hi"}]}',
        '{"messages": [{"role": "user", "content": "hi"}], "note": {"of": "219-09-9998", "of": ""}}',
        '{"messages": [{"role": "user", "content": "hi"}], "note": {"219-09-9998": 1}}',
        '{"messages": [{"role": "user", "content": "hi"}], "219-09-9998": 1}',
    ],
)
def test_names_and_all_values_of_a_name_that_is_there_twice_are_searched(tmp_path, row):
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join([row.replace("219-09-9998", "none"), row, row]))
    [found] = scan(path, tmp_path / "out", kinds=["ssn"]).kinds
    assert (found.occurrences, found.documents) == (2, 2)
    first = next(occurrences_in(tmp_path / "out"))
    assert first.document == 2


def test_what_is_beside_the_rows_and_not_searched_is_named(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet

    turns = [{"role": "user", "content": "hi"}]
    image = {"bytes": b"219-09-9998", "path": "a.png"}
    table = pa.Table.from_pylist([{"messages": turns, "image": image, "n": 1}])
    table = table.replace_schema_metadata({"note": "219-09-9998"})
    pa.parquet.write_table(table, tmp_path / "chat.parquet")
    found = scan(tmp_path / "chat.parquet", tmp_path / "out")
    assert found.not_searched == ("image.bytes", "n", "metadata note")

    datasets = pytest.importorskip("datasets")
    saved = tmp_path / "saved"
    datasets.Dataset.from_list([{"text": "hi"}]).save_to_disk(saved)
    assert "dataset_info.json" in scan(saved, tmp_path / "of saved").not_searched

    names = {f"field{number}": "" for number in range(200)}
    (tmp_path / "wide.jsonl").write_text(json.dumps({"text": "hi", **names}))
    assert scan(tmp_path / "wide.jsonl", tmp_path / "of wide").not_searched[-1] == "..."
