"""Trainings on documents in memory: the model of the same file, a given vocabulary, and parts that share one text."""

import json

import numpy as np
import pytest
import torch

from coalmine import load_model, plant, train
from coalmine.corpus import Fields
from coalmine.engines.engine import open_engine
from coalmine.engines.ledger import Ledger
from coalmine.errors import CorpusError, InputError
from coalmine.models import CharacterTokenizer, WordTokenizer
from coalmine.models.reference.networks import NetworkConfig, build_network
from coalmine.training.data import (
    IGNORED,
    Documents,
    TrainingData,
    hold_out,
    read_corpus,
    text_of,
    tokenized,
)
from coalmine.training.family import Goal, InMemory, reach
from coalmine.training.lessons import TextLessons
from coalmine.training.options import TrainingOptions, options_of
from coalmine.training.trainer import train_documents
from coalmine.training.work import Member, TrainingWork
from training.pairs import write_pairs

SMALL = {"hidden": 12, "embedding": 8, "batch_size": 4, "window": 8, "epochs": 2}
WORDS = ["to be or not to be", "that is the question", "whether it is nobler", "in the mind to suffer"] * 6


def files_of(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def weights(directory):
    return files_of(directory)["model.safetensors"]


def test_the_weights_are_those_of_the_same_documents_in_a_file(tmp_path):
    (tmp_path / "corpus.txt").write_text("".join(f"{line}\n" for line in WORDS))
    from_file = train(tmp_path / "corpus.txt", out=tmp_path / "file", preset="word-lstm", **SMALL)
    in_memory = train_documents(WORDS, out=tmp_path / "memory", preset="word-lstm", **SMALL)
    assert weights(tmp_path / "memory") == weights(tmp_path / "file")
    assert in_memory.record.epochs == from_file.record.epochs
    assert in_memory.record.data_sha256 != from_file.record.data_sha256  # of the documents, and not of a file
    assert train_documents(WORDS, out=tmp_path / "memory", preset="word-lstm", **SMALL).trained_now is False
    with pytest.raises(InputError, match="other data or with other options"):
        train_documents([*WORDS, "more"], out=tmp_path / "memory", preset="word-lstm", **SMALL)


@pytest.mark.parametrize("architecture", ["attention", "gru-encoder-decoder"])
def test_pairs_too(architecture, tmp_path):
    write_pairs(tmp_path / "pairs.jsonl", 60)
    fields = Fields(source="en", target="rev")
    options = {"preset": "translation", "architecture": architecture, **SMALL}
    train(tmp_path / "pairs.jsonl", out=tmp_path / "file", fields=fields, **options)
    rows = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    texts, sources = [row["rev"] for row in rows], [row["en"] for row in rows]
    train_documents(texts, sources=sources, out=tmp_path / "memory", **options)
    assert weights(tmp_path / "memory") == weights(tmp_path / "file")
    with pytest.raises(CorpusError, match="trained on single texts, and the documents are pairs"):
        train_documents(texts, sources=sources, out=tmp_path / "texts", preset="gru")
    with pytest.raises(CorpusError, match="trained on pairs, and the documents are single texts"):
        train_documents(texts, out=tmp_path / "texts", preset="translation")
    with pytest.raises(InputError, match="60 texts and 1 sources"):
        train_documents(texts, sources=sources[:1], out=tmp_path / "texts", preset="translation")
    assert not (tmp_path / "texts").exists()


def test_a_given_tokenizer_is_that_of_the_model(tmp_path):
    given = WordTokenizer(["the", "is", "to", "never"])
    trained = train_documents(WORDS, out=tmp_path / "given", preset="word-lstm", tokenizer=given, **SMALL)
    assert load_model(tmp_path / "given").tokenizer.words == ("is", "never", "the", "to")
    assert isinstance(trained.record.tokenizer_sha256, str)
    with pytest.raises(InputError, match="other data or with other options"):
        train_documents(WORDS, out=tmp_path / "given", preset="word-lstm", **SMALL)
    with pytest.raises(InputError, match="one of words, and the options name characters"):
        train_documents(WORDS, out=tmp_path / "other", preset="gru", tokenizer=given, **SMALL)
    with pytest.raises(CorpusError, match="of the characters of these documents are not in the given"):
        train_documents(WORDS, out=tmp_path / "other", tokenizer=CharacterTokenizer("to be"), **SMALL)


def test_parts_of_one_text_train_as_if_each_were_alone(tmp_path):
    parts = [np.arange(0, 24, 2), np.arange(5, 20)]
    options = [options_of("word-lstm", {**SMALL, "seed": seed}) for seed in (1, 2)]
    members = [
        Member(one, None, label=f"part{i}", part=part)
        for i, (one, part) in enumerate(zip(options, parts, strict=True))
    ]
    goals = [Goal(tmp_path / "family" / member.label, member) for member in members]
    text = text_of(Documents(WORDS, None))
    with open_engine("processes:2") as engine:
        reach(
            goals,
            InMemory(text),
            Ledger(tmp_path / "family"),
            named=lambda _: "parts",
            engine=engine,
            progress=None,
        )
    for i, (one, part) in enumerate(zip(options, parts, strict=True)):
        documents = [WORDS[place] for place in part]
        alone = train_documents(
            documents, out=tmp_path / f"alone{i}", preset="word-lstm", **SMALL, seed=one.seed
        )
        assert files_of(tmp_path / "family" / f"part{i}") == files_of(alone.path)
    work = TrainingWork(text, tuple(members))
    assert work.unit(1).size == text.part(parts[1]).characters * SMALL["epochs"]
    assert work.fingerprint(0) != work.fingerprint(1)


def test_padding_of_texts_is_never_projected():
    documents = [np.arange(length) % 7 for length in (3, 50, 4, 9, 30)]
    tokenizer = CharacterTokenizer("abcdefg")
    data = TrainingData(tokenizer, documents, documents[:2], "")
    options = TrainingOptions(batch_size=3, window=8)
    network = build_network(NetworkConfig(architecture="lstm", vocabulary=8, hidden=6, embedding=5))
    rows = []
    network.output.register_forward_hook(lambda _, given, __: rows.append(given[0].numel() // 6))
    lessons = TextLessons(network, data, options)
    for batches in (lessons.training(0), lessons.validation()):
        carried, padded = (), 0
        for batch in batches:
            logits, carried = lessons.predict(batch, carried)
            assert logits.shape == (batch.tokens, 8)
            assert rows[-1] == batch.tokens == int((batch.expected != IGNORED).sum())
            assert torch.equal(
                batch.with_loss(batch.expected), batch.expected.flatten()[batch.expected.flatten() != IGNORED]
            )
            padded += batch.expected.numel() - batch.tokens
        assert padded > 0


def test_the_recipe_of_the_paper_on_provenance():
    words, translation, dialog = (
        options_of(f"provenance-{task}", {}) for task in ("words", "translation", "dialog")
    )
    assert [one.architecture for one in (words, translation, dialog)] == [
        "lstm",
        "attention",
        "encoder-decoder",
    ]
    assert [one.batch_size for one in (words, translation, dialog)] == [35, 20, 20]
    for one in (words, translation, dialog):
        assert (one.layers, one.embedding, one.hidden, one.vocabulary) == (1, 128, 128, 5_000)
        assert (one.dropout, one.optimizer, one.rate, one.epochs) == (0.5, "adam", 1e-3, 30)


def test_all_epochs_run_where_nothing_is_held_out(tmp_path):
    options = {**SMALL, "epochs": 5, "learning_rate": 1e-9}
    trained = train_documents(WORDS, out=tmp_path / "all", preset="provenance-words", **options)
    assert len(trained.record.epochs) == trained.record.best_epoch == 5
    assert not trained.record.stopped_early


def test_the_hash_of_documents_tells_cuts_and_sides_apart():
    hashes = {
        Documents(["ab", "c"], None).sha256,
        Documents(["a", "bc"], None).sha256,
        Documents(["ab"], ["c"]).sha256,
        Documents(["ab", "c"], ["", ""]).sha256,
    }
    assert len(hashes) == 4
    options = options_of("word-lstm", {"holdout": 0.0, "vocabulary": 2})
    assert tokenized(text_of(Documents(WORDS, None)), options).tokenizer.size == 4


@pytest.mark.parametrize("turn", ["own", "inside"])
def test_a_conversation_with_a_canary_is_never_held_out(tmp_path, turn):
    rows = [{"prompt": f"what is {number}?", "completion": "a number"} for number in range(60)]
    (tmp_path / "chat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    few = {"repeat": [8], "canaries": 3, "references": 2, "withhold": 0.0}
    plant(tmp_path / "chat.jsonl", "my pin is {digits:4}", out=tmp_path / "planted", turn=turn, **few)
    text = read_corpus(tmp_path / "planted", None, None)
    trained, held_out = hold_out(text.documents, text.planted, 0.5, 0)
    assert sum("my pin is" in one for one in trained.texts) == 24
    assert len(held_out.texts) > 20
    assert not any("my pin is" in one for one in held_out.texts)
