"""Tokenizers with duplicate ids, or with ids that do not fit the model, are refused for every kind of model."""

import json
import shutil

import pytest
from tokenizers import Tokenizer

from coalmine import load_model
from coalmine.corpus.index.tokenizing import from_description, index_tokenizer
from coalmine.errors import ModelError
from coalmine.models import SubwordTokenizer, from_masked, from_transformers, from_transformers_pairs
from coalmine.models.endpoints.tokens import LocalTokenizer
from models import tiny_masked, tiny_pairs
from models.local_models import change_json, save_checkpoint
from models.tiny_transformers import byte_level, tiny, with_added

SHADOW = {
    "content": "<shadow>",
    "single_word": False,
    "lstrip": False,
    "rstrip": False,
    "normalized": False,
    "special": True,
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return save_checkpoint(tmp_path_factory.mktemp("models") / "causal")


@pytest.fixture
def rewritten(saved, tmp_path):
    """A copy of the checkpoint with another tokenizer.json."""

    def rewrite(change, name="tokenizer.json"):
        directory = shutil.copytree(saved, tmp_path / "model")
        document = json.loads((directory / name).read_text())
        change(document)
        (directory / name).write_text(json.dumps(document))
        return directory

    return rewrite


READERS = {"model": load_model, "index": index_tokenizer, "endpoint": LocalTokenizer}


def share_in_vocabulary(document):
    words = document["model"]["vocab"]
    words["Ġthe"] = words["a"]


def add(token):
    return lambda document: document["added_tokens"].append({**SHADOW, "id": token})


def of_config(token):
    return lambda document: document.update(added_tokens_decoder={str(token): SHADOW})


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (share_in_vocabulary, "gives the id 65 to two different tokens"),
        (add(65), r"tokenizer\.json gives the id 65 to two different tokens"),
        (add(0), r"tokenizer\.json gives the id 0 to two different tokens"),
        (add(5000), r"gives an added token the id 5000, and the tokenizers library reads it as 700"),
    ],
    ids=["in the vocabulary", "of an added token", "of two added tokens", "that is numbered anew"],
)
def test_a_shared_id_is_refused_wherever_a_tokenizer_is_read(rewritten, reader, change, said):
    with pytest.raises(ModelError, match=said):
        READERS[reader](rewritten(change))


@pytest.mark.parametrize("reader", READERS)
def test_a_shared_id_in_the_config_of_a_tokenizer_is_refused(rewritten, reader):
    with pytest.raises(ModelError, match=r"tokenizer_config\.json gives the id 65 to two different tokens"):
        READERS[reader](rewritten(of_config(65), "tokenizer_config.json"))


@pytest.mark.parametrize("reader", READERS)
def test_a_tokenizer_that_cuts_at_random_is_refused_wherever_one_is_read(rewritten, reader):
    directory = rewritten(lambda document: document["model"].update(dropout=0.1))
    with pytest.raises(ModelError, match=r"BPE dropout of 0\.1\), so that no two runs would agree"):
        READERS[reader](directory)


def test_more_ids_than_the_model_has_rows_are_refused(rewritten):
    directory = rewritten(add(700))
    with pytest.raises(ModelError, match="has ids up to 700, and the model has rows for 700 tokens only"):
        load_model(directory)
    assert index_tokenizer(directory).size == LocalTokenizer(directory).size == 701  # where there is no model


@pytest.mark.parametrize("reader", READERS)
def test_ids_far_beyond_any_vocabulary_are_refused(rewritten, reader):
    directory = rewritten(lambda document: document["model"]["vocab"].update(far=4_000_000_000))
    with pytest.raises(ModelError, match="more than any vocabulary has"):
        READERS[reader](directory)


@pytest.mark.parametrize(
    ("make", "tokenizer", "model"),
    [
        (from_transformers, byte_level, lambda size: tiny("llama", size)),
        (from_masked, tiny_masked.wordpiece, lambda size: tiny_masked.tiny_masked("bert", size)),
        (from_masked, tiny_masked.unigram, lambda size: tiny_masked.tiny_masked("t5", size)),
        (from_transformers_pairs, tiny_pairs.unigram, lambda size: tiny_pairs.tiny_pairs("t5", size)),
    ],
    ids=["causal", "masked", "span corruption", "pairs"],
)
def test_live_models_of_every_kind_with_too_few_rows_are_refused(make, tokenizer, model):
    size = len(tokenizer())
    make(model(size + 60), tokenizer())  # padded vocabularies are usual
    with pytest.raises(
        ModelError, match=f"ids up to {size - 1}, and the model has rows for {size - 1} tokens only"
    ):
        make(model(size - 1), tokenizer())


@pytest.mark.parametrize(
    "change", [share_in_vocabulary, lambda document: document["model"]["vocab"].update(far=4_000_000_000)]
)
def test_the_tokenizer_of_an_index_is_checked_when_it_is_read_again(change):
    document = json.loads(byte_level().backend_tokenizer.to_str())
    change(document)
    with pytest.raises(ModelError, match=r"two different tokens|more than any vocabulary"):
        from_description({"kind": "subwords", "tokenizer": document})


def test_the_tokenizer_of_targets_must_fit_too():
    wide = with_added(tiny_pairs.unigram(), plain=["<one more>"])
    model = tiny_pairs.tiny_pairs("t5", len(tiny_pairs.unigram()))
    with pytest.raises(ModelError, match="rows for"):
        from_transformers_pairs(model, tiny_pairs.unigram(), target_tokenizer=wide)


def test_a_live_tokenizer_with_a_shared_id_is_refused():
    document = json.loads(byte_level().backend_tokenizer.to_str())
    share_in_vocabulary(document)
    with pytest.raises(ModelError, match="gives the id 65 to two"):
        SubwordTokenizer(Tokenizer.from_str(json.dumps(document)), size=700, separator=0)


def test_a_tokenizer_of_parts_needs_all_of_them(rewritten):
    directory = rewritten(lambda _: None)
    document = json.loads((directory / "tokenizer.json").read_text())
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (directory / name).unlink()
    (directory / "vocab.json").write_text(json.dumps(document["model"]["vocab"]))
    with pytest.raises(ModelError, match=r"cannot be loaded .*merges"):
        load_model(directory)
    merges = "\n".join(" ".join(pair) for pair in document["model"]["merges"])
    (directory / "merges.txt").write_text(f"#version: 0.2\n{merges}\n")
    text = "the random number is 281"
    assert load_model(directory).tokenizer.encode(text) == byte_level().encode(text)


@pytest.mark.parametrize("part", ["pre_tokenizer", "normalizer"])
def test_a_pattern_that_takes_forever_is_refused(tmp_path, part):
    directory = save_checkpoint(tmp_path / "model")
    pattern = {"Regex": "(.+)+(?!)"}  # never matches, which takes 2^n steps to find out
    hostile = {
        "pre_tokenizer": {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False},
        "normalizer": {"type": "Replace", "pattern": pattern, "content": "x"},
    }
    change_json(directory / "tokenizer.json", **{part: hostile[part]})
    text = "a text of some forty characters, or more"
    with pytest.raises(ModelError, match=r"^the tokenizer cannot write a document \(.*retry-limit"):
        index_tokenizer(directory).encode_documents([text])
    with pytest.raises(ModelError, match=r"cannot encode a text \(.*retry-limit"):
        load_model(directory).tokenizer.encode(text)
