"""Every kind of corpus file does everything: read, write again with edits, be planted, verified, deduplicated and indexed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.in_process import run
from coalmine.corpus import Fields, build_index, read_documents
from coalmine.corpus.files import kinds
from coalmine.corpus.files.corpora import CorpusKind, Edits, Insertion
from coalmine.corpus.files.json_lines import JsonLinesCorpus
from coalmine.corpus.files.kinds import KINDS, all_suffixes, kind_of
from coalmine.corpus.files.reading import open_corpus
from corpus.corpora import SUFFIXES, WRITERS, content_of


def test_every_kind_is_in_the_tests():
    assert set(WRITERS) == {kind.suffix for kind in KINDS}
    assert len(all_suffixes()) == len(set(all_suffixes()))


def texts_of(path):
    return [document.text for document in read_documents(path)]


@pytest.mark.parametrize("kind", WRITERS)
@settings(max_examples=25)
@given(
    texts=st.lists(st.text("ab \té\"',", min_size=1, max_size=6).filter(str.strip), min_size=1, max_size=8),
    inserted=st.lists(st.integers(0, 8), max_size=5),
    changed=st.dictionaries(st.integers(0, 7), st.sampled_from(["new", None])),
)
def test_edits_are_made_where_they_should_be(tmp_path_factory, kind, texts, inserted, changed):
    folder = tmp_path_factory.mktemp("edits")
    path = folder / f"a{kind}"
    path.write_bytes(content_of(texts, kind))
    places = sorted(min(place, len(texts)) for place in inserted)
    new = [{"text": f"inserted {number}", "user": "", "source": ""} for number in range(len(places))]
    edits = Edits(
        [Insertion(place, number) for number, place in enumerate(places)],
        new,
        {place: None if text is None else (lambda old: f"{old}!") for place, text in changed.items()},
    )
    with open_corpus(path) as corpus:
        corpus.write(folder / "b", edits, lambda: None)
    expected = []
    for place in range(len(texts) + 1):
        expected += [new[number]["text"] for number, at in enumerate(places) if at == place]
        if place < len(texts) and changed.get(place, "") is not None:
            expected.append(texts[place] + ("!" if place in changed else ""))
    with open_corpus(folder / "b", kind=kind_of(path)) as corpus:
        assert [document.text for block in corpus.blocks() for document in block.documents()] == expected


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_index_counts_in_every_kind(make_corpus, tmp_path, suffix):
    texts = ["banana", "a bandana, tied", " é ", "ana"] * 5
    index = build_index(make_corpus(texts, suffix), tmp_path / "index", memory=200)
    assert len(index.shards) > 1
    assert index.counts(["ana", " é ", "ae"]).tolist() == [20, 5, 0]
    assert index.documents == 20


def test_help_and_messages_list_every_kind(make_corpus):
    for command in (["plant"], ["data", "index"], ["data", "dedup"]):
        shown = run(*command, "--help").said
        assert all(kind.suffix in shown for kind in KINDS)
    with pytest.raises(
        kinds.CorpusError, match=r"which has no fields.* or use \.jsonl, \.csv, \.parquet or \.tsv"
    ):
        list(read_documents(make_corpus(["a"], ".txt"), Fields(text="body")))


def test_a_kind_that_is_registered_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(
        kinds, "KINDS", (*KINDS, CorpusKind(".ndjson", "newline-delimited JSON", JsonLinesCorpus))
    )
    path = tmp_path / "a.ndjson.gz"
    path.write_bytes(kinds_compressed('{"text": "one"}\n'))
    assert texts_of(path) == ["one"]


def kinds_compressed(text):
    import gzip

    return gzip.compress(text.encode())
