"""What the trainer reads: no token is lost, and no canary is held out."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalmine import plant
from coalmine.errors import CorpusError
from coalmine.training.data import IGNORED, epoch_order, read_corpus, rows_of, tokenized
from coalmine.training.options import TrainingOptions

SEPARATOR = 9


def training_data(corpus, options, valid=None):
    return tokenized(read_corpus(corpus, valid, None, [options]), options)


@given(
    documents=st.lists(st.lists(st.integers(0, 8), max_size=12), min_size=1, max_size=30),
    rows=st.integers(1, 8),
)
def test_rows_hold_every_token_once_and_in_order(documents, rows):
    inputs, targets = rows_of([np.array(d, dtype=np.int32) for d in documents], SEPARATOR, rows)
    stream = [SEPARATOR]
    for document in documents:
        stream += [*document, SEPARATOR]
    read = [
        (int(x), int(y))
        for row_x, row_y in zip(inputs, targets, strict=True)
        for x, y in zip(row_x, row_y, strict=True)
        if y != IGNORED
    ]
    assert read == list(pairwise(stream))


def test_rows_begin_with_documents_where_documents_are_short():
    documents = [np.full(5, token, dtype=np.int32) for token in range(8) for _ in range(20)]
    inputs, _ = rows_of(documents, SEPARATOR, 4)
    assert (inputs[:, 0] == SEPARATOR).all()


def test_each_epoch_has_an_order_of_its_own_and_the_same_each_time():
    options = TrainingOptions(seed=3)
    assert (epoch_order(50, options, 0) == epoch_order(50, options, 0)).all()
    assert (epoch_order(50, options, 0) != epoch_order(50, options, 1)).any()
    assert (epoch_order(50, TrainingOptions(shuffle=False), 1) == np.arange(50)).all()


def test_canaries_are_never_held_out(tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("".join(f"document {i}\n" for i in range(60)))
    planted = plant(
        corpus,
        "pin {digits:4}",
        repeat=[1, 5],
        canaries=4,
        references=5,
        withhold=0.0,
        out=tmp_path / "planted",
    )
    data = training_data(tmp_path / "planted", TrainingOptions(holdout=0.5))
    trained_on = [data.tokenizer.decode(document) for document in data.training]
    for canary in planted.canaries:
        assert trained_on.count(canary.text) == canary.repetitions
    assert len(data.validation) == round(0.5 * (60 + 4 * 6))


def test_the_manifest_beside_a_corpus_is_found(tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("".join(f"document {i}\n" for i in range(20)))
    planted = plant(
        corpus, "pin {digits:4}", canaries=9, references=5, repeat=1, withhold=0.0, out=tmp_path / "planted"
    )
    data = training_data(planted.corpus, TrainingOptions(holdout=0.5))
    held_out = [data.tokenizer.decode(document) for document in data.validation]
    assert not set(held_out) & {canary.text for canary in planted.canaries}


def test_canaries_of_an_earlier_planting_are_never_held_out_either(tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("".join(f"document {i}\n" for i in range(60)))
    few = {"repeat": 1, "canaries": 9, "references": 5, "withhold": 0.0}
    first = plant(corpus, "pin {digits:4}", **few, out=tmp_path / "first")
    second = plant(first.corpus, "code {digits:4}", **few, out=tmp_path / "second")
    data = training_data(second.corpus, TrainingOptions(holdout=0.5))
    held_out = {data.tokenizer.decode(document) for document in data.validation}
    assert not held_out & {canary.text for made in (first, second) for canary in made.canaries}


def test_too_few_documents_to_hold_out(tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("only one\n")
    with pytest.raises(CorpusError, match="hold out"):
        training_data(corpus, TrainingOptions())


def test_a_rare_character_in_validation_does_not_stop_the_run(tmp_path):
    (tmp_path / "train.txt").write_text("aaa\nbbb\n")
    (tmp_path / "valid.txt").write_text("zzz\n")
    data = training_data(tmp_path / "train.txt", TrainingOptions(), tmp_path / "valid.txt")
    assert data.tokenizer.characters == "abz"
