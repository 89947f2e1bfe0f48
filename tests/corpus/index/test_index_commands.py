"""The commands of the index, as a user gives them."""

import contextlib
import io
import json

import pytest

from coalmine.cli.main import app
from coalmine.errors import InputError, ModelError
from coalmine.models import WordTokenizer
from models.tiny_transformers import byte_level


def run(*arguments):
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        app([*map(str, arguments)], standalone_mode=False)
    return shown.getvalue()


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_text("the cat sat\nthe cat ran\n[bold]\x1b[2J the end\n")
    return "corpus.txt"


def test_index_then_count(corpus, tmp_path):
    made = json.loads(run("data", "index", corpus, "-o", "index", "--json", "--quiet"))
    assert (made["documents"], made["tokens"]) == (3, len((tmp_path / corpus).read_bytes()) - 3)
    shown = run("data", "count", "index", "the cat", "dog", "--places", "2")
    assert [line.split() for line in shown.splitlines()[1:]] == [
        ["2", "the", "cat", "1:0,", "2:0"],
        ["0", "dog"],
    ]
    run_record = json.loads((tmp_path / "index" / "run.json").read_text())
    assert run_record["corpus_sha256"] == made["corpus"]["sha256"]
    # The same again finds it done, with the file that the command left in it.
    assert "Indexed 3 documents" in run("data", "index", corpus, "-o", "index")


def test_hostile_text_is_inert(corpus):
    run("data", "index", corpus, "-o", "index", "--quiet")
    shown = run("data", "count", "index", "[bold]\x1b[2J")
    assert "\x1b[2J" not in shown
    assert "[bold]\\x1b[2J" in shown


def test_texts_from_a_file(corpus, tmp_path):
    run("data", "index", corpus, "-o", "index", "--quiet")
    (tmp_path / "texts.txt").write_text("the\n\ncat\n")
    found = json.loads(run("data", "count", "index", "--texts-file", "texts.txt", "--json", "--quiet"))
    assert [(row["text"], row["count"]) for row in found["texts"]] == [("the", 3), ("cat", 2)]
    (tmp_path / "texts.txt").write_bytes(b"\xef\xbb\xbfthe\r\n\r\ncat\r\n")
    assert (
        json.loads(run("data", "count", "index", "--texts-file", "texts.txt", "--json", "--quiet")) == found
    )
    with pytest.raises(InputError):
        run("data", "count", "index")


def test_the_tokens_of_a_model(corpus, tmp_path):
    (tmp_path / "model").mkdir()
    tokenizer = WordTokenizer(["cat", "end", "ran", "sat", "the"])
    (tmp_path / "model" / "config.json").write_text(json.dumps({"tokenizer": tokenizer.to_dict()}))
    made = json.loads(
        run("data", "index", corpus, "-o", "index", "--tokenizer", "model", "--json", "--quiet")
    )
    assert (made["tokenizer"]["kind"], made["tokens"]) == ("words", 9)
    assert json.loads(run("data", "count", "index", "the cat", "--json", "--quiet"))["texts"][0]["count"] == 2


def test_dedup(corpus, tmp_path):
    (tmp_path / corpus).write_text(
        "a text that is longer than twenty bytes\n" * 2 + "another one\nanother one\n"
    )
    shown = run("data", "dedup", corpus, "-o", "out", "--exact", "20")
    assert "Documents after: 2" in shown
    assert (
        tmp_path / "out" / "corpus.txt"
    ).read_text() == "a text that is longer than twenty bytes\nanother one\n"
    report = json.loads(
        run("data", "dedup", "out/corpus.txt", "-o", "again", "--exact", "20", "--json", "--quiet")
    )
    assert (report["exact"]["parts"], report["near"]["documents"]) == (0, 0)
    only_near = json.loads(run("data", "dedup", corpus, "-o", "near", "--no-exact", "--json", "--quiet"))
    assert only_near["exact"] is None
    with pytest.raises(InputError, match="nothing to do"):
        run("data", "dedup", corpus, "-o", "none", "--no-exact", "--no-near")
    with pytest.raises(InputError, match="'one' or 'none'"):
        run("data", "dedup", corpus, "-o", "none", "--keep", "two")


TAMPERED = {
    "a shared id": lambda tokenizer: tokenizer["model"]["vocab"].update(a=5),
    "an id beyond all": lambda tokenizer: tokenizer["model"]["vocab"].update(a=10**12),
    "an added token in place of another": lambda tokenizer: tokenizer["added_tokens"][0].update(id=5),
    "no vocabulary": lambda tokenizer: tokenizer["model"].update(vocab={}),
    "no model": lambda tokenizer: tokenizer.update(model=None),
    "a model of another kind": lambda tokenizer: tokenizer["model"].update(type="Unigram"),
    "a pattern that is none": lambda tokenizer: tokenizer.update(
        pre_tokenizer={"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": False}
    ),
}


@pytest.mark.parametrize("change", TAMPERED.values(), ids=TAMPERED)
def test_a_tampered_tokenizer_is_refused_and_leaves_no_index(corpus, tmp_path, change):
    byte_level().save_pretrained(tmp_path / "model")
    path = tmp_path / "model" / "tokenizer.json"
    whole = path.read_text()
    tokenizer = json.loads(whole)
    change(tokenizer)
    path.write_text(json.dumps(tokenizer))
    with pytest.raises(ModelError) as refused:
        run("data", "index", corpus, "-o", "index", "--tokenizer", "model")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "index").exists()
    path.write_text(whole)
    run("data", "index", corpus, "-o", "index", "--tokenizer", "model")


def test_what_a_tokenizer_was_last_used_for_does_not_cut_documents(corpus, tmp_path):
    byte_level().save_pretrained(tmp_path / "model")
    path = tmp_path / "model" / "tokenizer.json"
    run("data", "index", corpus, "-o", "whole", "--tokenizer", "model")
    cut = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    path.write_text(json.dumps({**json.loads(path.read_text()), "truncation": cut}))
    run("data", "index", corpus, "-o", "index", "--tokenizer", "model")
    counts = [
        json.loads(run("data", "count", where, " ran", "--json", "--quiet"))["texts"]
        for where in ("whole", "index")
    ]
    assert counts[0] == counts[1]
    assert counts[0][0]["count"] == 1
