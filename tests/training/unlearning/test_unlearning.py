"""Unlearning: losses rise to what was asked for, other text is kept, and what was done is recorded."""

import numpy as np
import pytest
import torch

from coalmine import CanarySet, load_model, plant, quantize, score_texts, train, unlearn, verify_run
from coalmine.corpus import Fields
from coalmine.errors import CorpusError, InputError, ModelError
from coalmine.models import CharacterTokenizer
from coalmine.models.reference.checkpoint import CHANGES
from coalmine.training.unlearning.ascent import losses_bits
from coalmine.training.unlearning.documents import documents_to_forget
from models.random_networks import random_model, save_network
from models.tiny_transformers import byte_level, tiny

LINES = [f"line {number} of a small corpus about nothing in particular" for number in range(120)]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A corpus with canaries that a small model remembers."""
    at = tmp_path_factory.mktemp("unlearning")
    (at / "corpus.txt").write_text("\n".join(LINES) + "\n")
    plant(
        at / "corpus.txt",
        ["pin {digits:4}", "{re:[a-f]{8}}"],
        repeat=8,
        canaries=4,
        references=20,
        out=at / "planted",
    )
    train(
        at / "planted",
        out=at / "model",
        hidden=48,
        embedding=16,
        layers=1,
        epochs=12,
        learning_rate=0.01,
        patience=12,
        batch_size=8,
    )
    return at


def losses_of(directory, texts):
    """Bits per token, by the scores of the audits."""
    scores = score_texts(load_model(directory), texts)
    return np.array([float(score) / len(text) for score, text in zip(scores, texts, strict=True)])


def test_canaries_reach_the_loss_of_references_and_other_text_is_kept(world):
    made = unlearn(
        world / "model", world / "planted", world / "out", keep=world / "corpus.txt", learning_rate=0.002
    )
    canaries = CanarySet.load(world / "planted")
    assert (made.finished, made.ended, made.until_from, made.compared) == (True, "reached", "references", 40)
    assert 0 < made.steps < made.options.steps
    limits: dict[str, list[float]] = {"model": [], "out": []}
    for format_id, references in canaries.references.items():
        texts = [one.text for one in canaries if one.planted and one.format_id == format_id]
        for name in limits:
            limits[name] += [np.median(losses_of(world / name, references))] * len(texts)
        assert (losses_of(world / "model", texts) < limits["model"][-1]).all()
        assert (losses_of(world / "out", texts) > limits["out"][-1] - 1e-3).all()
    assert np.isclose(made.until_bits_before, np.mean(limits["model"]), atol=1e-4)
    assert np.isclose(made.until_bits, np.mean(limits["out"]), atol=1e-4)
    texts = [one.text for one in canaries if one.planted]
    assert np.isclose(made.forget.before, losses_of(world / "model", texts).mean(), atol=1e-4)
    assert np.isclose(made.forget.after, losses_of(world / "out", texts).mean(), atol=1e-4)
    assert np.isclose(made.keep.after, losses_of(world / "out", LINES).mean(), atol=1e-4)
    without = unlearn(
        world / "model", world / "planted", world / "careless", learning_rate=0.002, format_weight=0.0
    )
    assert (made.held > 0, without.held) == (True, 0)
    assert losses_of(world / "careless", LINES).mean() > made.keep.after
    assert without.data_sha256 == made.data_sha256 == canaries.corpus.sha256_after
    assert load_model(world / "out").describe()["trained_on_sha256"] == made.data_sha256
    assert verify_run(world / "out").sound


def test_the_same_call_gives_the_same_bytes_and_another_is_refused(world, tmp_path):
    first = unlearn(world / "model", world / "planted", tmp_path / "a", steps=3)
    second = unlearn(world / "model", world / "planted", tmp_path / "b", steps=3)
    assert first == second
    assert unlearn(world / "model", world / "planted", tmp_path / "a", steps=3) == first
    with pytest.raises(CorpusError, match="exists already"):
        unlearn(world / "model", world / "planted", tmp_path / "a", steps=4)
    quantize(world / "model", tmp_path / "a", overwrite=True)
    assert [name for name in CHANGES if (tmp_path / "a" / name).exists()] == ["quantization.json"]
    load_model(tmp_path / "a")


def test_steps_run_out_and_that_is_said(world, tmp_path):
    (tmp_path / "texts.txt").write_text(f"{LINES[3]}\n{LINES[5]}\n")
    made = unlearn(world / "model", tmp_path / "texts.txt", tmp_path / "out", until=50.0, steps=2)
    assert (made.finished, made.ended, made.until_from) == (False, "gave up", "given")
    assert (made.steps, made.remembered_before, made.remembered_after) == (2, 2, 2)
    assert made.forget.after > made.forget.before


def test_other_members_are_in_no_manifest_and_are_left_out_where_all_are_known(world):
    canaries = CanarySet.load(world / "planted")
    given = documents_to_forget(world / "planted", [], Fields(), seed=3)
    assert given.compared_with == "references"
    assert sorted(place for kind in given.kinds for place in kind.places) == list(range(len(given.texts)))
    for kind, form in zip(given.kinds, canaries.formats.values(), strict=True):
        known = {
            *(canary.text for canary in canaries),
            *(text for each in canaries.references.values() for text in each),
        }
        assert all(given.texts[place] in form for place in kind.places)
        assert len(set(kind.others)) == len(kind.others) > 300
        assert all(text in form and text not in known for text in kind.others)
    [kind] = documents_to_forget(_few(world / "few.json"), ["some text"], Fields(), seed=3).kinds
    assert (kind.compared, kind.others) == (["1 0"], ["1 2"])


def _few(path):
    """A manifest of a format with three members."""
    CanarySet.of("1 {choice:0|1|2}", ["1 1"], withheld=["1 0"]).save(path)
    return path


def test_long_documents_are_read_in_parts():
    model = random_model("gru", CharacterTokenizer("ab"))
    document = np.array([0, 1, 1] * 200)
    [loss] = losses_bits(model.network, [document], model.tokenizer.separator)
    parts = losses_bits(
        model.network, [document[:256], document[256:512], document[512:]], model.tokenizer.separator
    )
    assert np.isclose(loss, np.average(parts, weights=[256, 256, 88]))


def test_what_cannot_be_unlearned_is_refused_with_a_reason(world, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("some line\n")
    with pytest.raises(InputError, match="give --until in bits per token"):
        unlearn(world / "model", texts, tmp_path / "out")
    with pytest.raises(InputError, match=r"replace .* itself"):
        unlearn(world / "model", texts, world / "model")
    with pytest.raises(InputError, match="steps must be at least 1, got 0; give another, such as 500"):
        unlearn(world / "model", texts, tmp_path / "out", steps=0)
    with pytest.raises(InputError, match=r"until must be positive, got -1\.0; give another, such as 6"):
        unlearn(world / "model", texts, tmp_path / "out", until=-1.0)
    checkpoint = tmp_path / "checkpoint"
    tiny("gpt2", len(byte_level()), dtype=torch.float32).save_pretrained(checkpoint)
    byte_level().save_pretrained(checkpoint)
    with pytest.raises(ModelError, match="the only kind that unlearning is offered for"):
        unlearn(checkpoint, texts, tmp_path / "out", until=9.0)
    nothing = CanarySet.of("pin {digits:4}", [], withheld=["pin 0451"])
    nothing.save(tmp_path / "canaries.json")
    with pytest.raises(InputError, match="nothing to forget"):
        unlearn(world / "model", tmp_path / "canaries.json", tmp_path / "out")
    save_network(tmp_path / "other", random_model("gru", CharacterTokenizer("xyz")))
    with pytest.raises(ModelError, match="no token for character"):
        unlearn(tmp_path / "other", texts, tmp_path / "out", until=9.0)
    assert not (tmp_path / "out" / "model.safetensors").exists()
