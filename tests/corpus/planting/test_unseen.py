"""`{unseen:n}`: what fills it never occurs in the corpus, is recorded in the manifest, and can be measured and extracted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.in_process import run
from coalmine import CanarySet, Format, expose, extract, load_model, membership
from coalmine.corpus import Fields, plant, unseen_texts
from coalmine.corpus.planting.unseen import UnseenIn
from coalmine.errors import CorpusError, InputError
from coalmine.models import CharacterTokenizer, WordTokenizer
from models.random_networks import random_model, save_network
from models.tiny_transformers import byte_fallback, byte_level, metaspace, unigram, word_pieces

LINES = [f"line {number} of a corpus, about {number * 7919 % 1000} things and 丁 七" for number in range(300)]
FEW = {"repeat": [1, 2], "canaries": 8, "references": 20}


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(LINES) + "\n")
    return path


@given(
    texts=st.lists(st.text("abC", min_size=1, max_size=4), max_size=6),
    parts=st.lists(st.text("abcABC ", max_size=9), max_size=4),
)
def test_what_is_left_occurs_in_no_text(texts, parts):
    left = UnseenIn(texts)
    for part in parts:
        left.remove_those_in(part)
    for text in texts:
        occurs = any(text.casefold() in word for part in parts for word in part.casefold().split())
        assert (text in left) == (not occurs)


def test_characters_that_never_occur_are_drawn_from_and_recorded(corpus, tmp_path):
    planted = plant(corpus, "the code is {unseen:3}", out=tmp_path / "out", unseen=20, **FEW)
    form = planted.canaries.formats["f0"]
    assert len(form.words) == 20
    assert form.size == 20**3
    assert not set(form.words) & set(corpus.read_text())
    again = CanarySet.load(tmp_path / "out")
    assert again.formats["f0"].words == form.words
    assert [canary.text for canary in again] == [canary.text for canary in planted.canaries]


def test_what_other_formats_and_the_template_are_made_of_is_seen(corpus, tmp_path):
    given = ["the 七丁万丈 code {unseen:2}", "{choice:三上|下} {unseen:2}", "{re:[不与丐]{4}}"]
    planted = plant(corpus, given, out=tmp_path / "out", unseen=5, repeat=[1], canaries=2, references=5)
    assert planted.canaries.formats["f0"].words == planted.canaries.formats["f1"].words
    assert not set(planted.canaries.formats["f0"].words) & set("七丁万丈三上下不与丐")


def test_a_model_has_tokens_for_characters_that_only_withheld_canaries_have(corpus, tmp_path):
    """All that works with other canaries works with these."""
    small = ["--training", "hidden=8", "--training", "embedding=4", "--epochs", "1", "--training", "layers=1"]
    few = ["--repeat", "1,2", "--canaries", "8", "--references", "20", "--set", "unseen=40"]
    planting = ["plant", corpus, "-f", "{unseen:2}!", "-o", tmp_path / "out", *few]
    for arguments in (planting, ["train", tmp_path / "out", "-o", tmp_path / "model", *small]):
        ended = run(*arguments)
        assert ended.code == 0, ended.said
    canaries = CanarySet.load(tmp_path / "out")
    planted = {character for canary in canaries if canary.planted for character in canary.text}
    assert not planted.issuperset("".join(canary.text for canary in canaries if not canary.planted))
    model = load_model(tmp_path / "model")
    results = expose(model, canaries)
    results.save(tmp_path / "audit")
    assert len(results.results) == len(canaries)
    assert membership(tmp_path / "audit").populations
    found = extract(model, canaries.formats["f0"], top=3)
    assert all(one.text in canaries.formats["f0"] for one in found.found)
    ended = run("extract", tmp_path / "model", "-f", "{unseen:2}!", "--words", tmp_path / "out" / "canaries.json", "-o", tmp_path / "e")  # fmt: skip
    assert ended.code == 0, ended.said
    assert run("report", tmp_path / "audit", tmp_path / "out", "-o", tmp_path / "report.html").code == 0
    assert run("verify", tmp_path / "out").code == 0


@pytest.mark.parametrize("make", [byte_level, metaspace, byte_fallback, unigram, word_pieces])
def test_tokens_that_never_occur_are_read_back_as_single_tokens(corpus, tmp_path, make):
    tokenizer = make()
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    planted = plant(
        corpus, "the code is {unseen:3}", out=tmp_path / "out", unseen_from=str(tmp_path / "tokenizer"), unseen=30, **FEW
    )  # fmt: skip
    text = corpus.read_text().casefold()
    for word in planted.canaries.formats["f0"].words:
        assert word.casefold() not in text
    before = tokenizer("the code is", add_special_tokens=False)["input_ids"]
    seen = {token for line in LINES for token in tokenizer(line, add_special_tokens=False)["input_ids"]}
    for canary in planted.canaries:
        tokens = tokenizer(canary.text, add_special_tokens=False)["input_ids"]
        assert tokens[: len(before)] == before
        assert len(tokens) == len(before) + 3
        assert not seen & set(tokens[len(before) :])


def test_the_vocabulary_of_a_model_of_ours_is_taken(corpus, tmp_path):
    save_network(tmp_path / "model", random_model("gru", CharacterTokenizer("abc LZ%^")))
    # What occurs in another case is seen, because training may ignore case.
    assert unseen_texts(corpus, tmp_path / "model") == ["%", "Z", "^"]
    assert unseen_texts(corpus, WordTokenizer(["line", "rare", "things", "ever"])) == ["ever", "rare"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unseen": 1}, "unseen should be at least 2"),
        ({"unseen_from": "tokenizer"}, "usable tokens of the tokenizer"),
    ],
)
def test_vocabularies_with_too_few_are_refused(corpus, tmp_path, options, message, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_network(tmp_path / "tokenizer", random_model("gru", CharacterTokenizer("abc line")))
    with pytest.raises(InputError, match=message):
        plant(corpus, "{unseen:2}", out=tmp_path / "out", **options, **FEW)


def test_a_corpus_with_all_characters_is_refused(tmp_path):
    path = tmp_path / "corpus.txt"
    text = "".join(map(chr, [*range(0x4E00, 0xA000), *range(0xAC00, 0xD7A4)]))
    path.write_text(text + "\n")
    with pytest.raises(CorpusError, match="fewer than two of the 32,164 characters"):
        unseen_texts(path)


def test_text_that_occurs_after_all_is_refused(corpus, tmp_path):
    with pytest.raises(CorpusError, match=r"2 of the 3 texts that .* occur in"):
        plant(corpus, Format("{unseen:6}", words=["丁", "七", "万"]), out=tmp_path / "out", **FEW)
    with pytest.raises(CorpusError, match="1 of the 2 texts"):
        plant(corpus, Format("{unseen:9}", words=["thing", "pangolin"]), out=tmp_path / "out", **FEW)


def test_both_sides_of_a_pair_draw_from_the_same(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("en,fr\n" + "".join(f"a line {n} 丁,une ligne {n} 七\n" for n in range(200)))
    planted = plant(
        path, "mon code {unseen:3}", source_format="my code {unseen:3}", out=tmp_path / "out", unseen=9,
        fields=Fields(source="en", target="fr"), **FEW,
    )  # fmt: skip
    canaries = planted.canaries
    assert canaries.source_formats["f0"].words == canaries.formats["f0"].words
    assert not set(canaries.formats["f0"].words) & set("丁七")
