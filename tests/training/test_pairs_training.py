"""The reference trainers of pairs: they read what is there, learn it, and end with the same bytes whatever stopped them."""

import io
import json
import os
import signal
from itertools import pairwise

import numpy as np
import pytest

from cli.in_process import run
from coalmine import ExposureWatch, expose, load_model, train
from coalmine.corpus import Fields
from coalmine.engines.ledger import UNITS_FILE
from coalmine.errors import CorpusError, InputError, ModelError, ModelOutputError, NotMeasurableError
from coalmine.models import check_pairs, text_sequence
from coalmine.storage.files import guarded_file, read_guarded
from resealing import resealed
from training.pairs import planted_pairs
from waiting import wait_until

PRESETS = ["translation", "translation-attention"]
SMALL = {"hidden": 16, "embedding": 8, "batch_size": 8, "epochs": 2}


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    return planted_pairs(tmp_path_factory.mktemp("pairs"))


def files_of(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


@pytest.mark.parametrize("preset", PRESETS)
def test_what_is_repeated_is_remembered_and_what_is_withheld_is_not(preset, planted, tmp_path):
    trained = train(
        planted.corpus.parent,
        out=tmp_path / "model",
        preset=preset,
        **{**SMALL, "hidden": 32, "embedding": 16, "epochs": 25},
        layers=1,
        holdout=0.0,
        learning_rate=0.02,
    )
    losses = [epoch.training_loss_bits for epoch in trained.record.epochs]
    assert losses[-1] < losses[0] / 2
    model = load_model(tmp_path / "model", precision="float64")
    check_pairs(model, [(canary.source, canary.text) for canary in planted.canaries] + [("a", "1 a")])
    bits = {
        canary: model.score([text_sequence(model, canary.text, canary.source)])[0].log_perplexity_bits
        for canary in planted.canaries
    }
    often = [value for canary, value in bits.items() if canary.times_trained_on == 16]
    never = [value for canary, value in bits.items() if not canary.planted]
    assert often
    assert never
    assert max(often) + 3 < min(never)
    remembered = next(canary for canary in bits if canary.times_trained_on == 16)
    fixed = model.given(remembered.source)
    # It has learned where to stop: the separator comes after the target.
    written = fixed.generate([model.context], length=len(remembered.text) + 1)[0]
    assert written == [*model.tokenizer.encode(remembered.text), model.tokenizer.separator]
    exposed = {result.canary_id: result.exposure for result in expose(model, planted.canaries)}
    assert exposed[remembered.canary_id] == max(exposed.values())


def test_same_options_same_bytes_and_another_seed_other_bytes(planted, tmp_path):
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        train(planted.corpus.parent, out=tmp_path / name, preset=PRESETS[1], dropout=0.1, seed=seed, **SMALL)
    one, two, three = (files_of(tmp_path / name) for name in ("one", "two", "three"))
    assert one == two
    assert one["model.safetensors"] != three["model.safetensors"]


@pytest.mark.parametrize(
    ("number", "preset"), [(signal.SIGKILL, "translation-attention"), (signal.SIGINT, "translation")]
)
def test_a_stopped_run_resumes_and_ends_with_the_same_bytes(number, preset, planted, fork_server, tmp_path):
    options = {**SMALL, "preset": preset, "epochs": 5, "dropout": 0.1, "patience": 5}
    watch = ExposureWatch(planted.canaries, every=15)
    train(planted.corpus.parent, out=tmp_path / "whole", watch=watch, **options)

    given = [planted.corpus.parent, tmp_path / "parts", preset]
    child = fork_server.start(given, call="training.children:train_pairs")
    wait_until(lambda: any((tmp_path / "parts").glob("unfinished-*.npz")))  # a step that it can resume from
    os.kill(child.pid, number)
    fork_server.wait(child)
    assert (tmp_path / "parts" / UNITS_FILE).exists(), "the run ended before it could be stopped"
    assert not (tmp_path / "parts" / "model.safetensors").exists()

    train(planted.corpus.parent, out=tmp_path / "parts", watch=watch, **options)
    assert files_of(tmp_path / "parts") == files_of(tmp_path / "whole")


def test_watching_changes_nothing_and_sees_the_weights_of_each_moment(planted, tmp_path):
    watch = ExposureWatch(planted.canaries, every=7)
    watched = train(
        planted.corpus.parent, out=tmp_path / "watched", preset=PRESETS[1], watch=watch, dropout=0.1, **SMALL
    )
    train(planted.corpus.parent, out=tmp_path / "plain", preset=PRESETS[1], dropout=0.1, **SMALL)
    weights = "model.safetensors"
    assert files_of(tmp_path / "watched")[weights] == files_of(tmp_path / "plain")[weights]
    looks = watched.record.watched
    # What was read of a source with the weights of an earlier look must not be used again.
    seen = [tuple(canary["log_perplexity_bits"] for canary in look.seen) for look in looks]
    assert len(set(seen)) == len(seen) >= 4
    audited = expose(load_model(tmp_path / "watched"), planted.canaries, method="references")
    assert list(seen[-1]) == [result.log_perplexity_bits for result in audited]


def test_a_source_that_is_held_fixed_is_read_with_the_weights_of_each_moment(planted, tmp_path):
    first, second = ([canary.source, canary.text] for canary in list(planted.canaries)[:2])

    class Looks:
        every = 3

        def measure(self, model):
            together = model.score([text_sequence(model, text, source) for source, text in (first, second)])[
                0
            ]
            fixed = model.given(first[0])
            alone = fixed.score([text_sequence(fixed, first[1])])[0]
            return [{"together": together.log_perplexity_bits, "alone": alone.log_perplexity_bits}]

        def describe(self):
            return {}

    trained = train(planted.corpus.parent, out=tmp_path / "model", preset=PRESETS[0], watch=Looks(), **SMALL)
    assert len(trained.record.watched) > 4
    for look in trained.record.watched:
        assert look.seen[0]["alone"] == pytest.approx(look.seen[0]["together"], abs=1e-4)


def test_what_is_learned_from_next_is_what_was_validated_on(tmp_path):
    rows = [{"a": "xyz", "b": "abcabc"}, {"a": "", "b": "cab"}, {"a": "x", "b": ""}]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    trained = train(
        tmp_path / "pairs.jsonl",
        out=tmp_path / "model",
        valid=tmp_path / "pairs.jsonl",
        preset="translation-attention",
        fields=Fields(source="a", target="b"),
        **{**SMALL, "epochs": 4},
    )
    epochs = trained.record.epochs
    assert trained.record.tokens == 7 + 4 + 1
    # One batch is an epoch here, so the loss before a step is the validation loss after the step before it.
    for before, after in pairwise(epochs):
        assert after.training_loss_bits == pytest.approx(before.validation_loss_bits, abs=1e-5)


def test_training_stops_at_the_minimum_and_keeps_its_weights(tmp_path):
    (tmp_path / "train.jsonl").write_text(json.dumps({"a": "xyz", "b": "abcabc"}) + "\n")
    (tmp_path / "valid.jsonl").write_text(json.dumps({"a": "zyx", "b": "ccbbaacb"}) + "\n")
    trained = train(
        tmp_path / "train.jsonl",
        out=tmp_path / "model",
        valid=tmp_path / "valid.jsonl",
        preset="translation",
        fields=Fields(source="a", target="b"),
        patience=2,
        learning_rate=0.03,
        **{**SMALL, "epochs": 60},
    )
    losses = [epoch.validation_loss_bits for epoch in trained.record.epochs]
    assert trained.record.stopped_early
    assert trained.record.best_epoch == losses.index(min(losses)) + 1
    assert len(losses) == trained.record.best_epoch + 3
    # The validation loss is that of an audit, which does not score the end of the target.
    model = load_model(tmp_path / "model", precision="float64")
    sequence = text_sequence(model, "ccbbaacb", "zyx")
    end = model.tokenizer.separator
    whole = model.score([sequence._replace(target=(*sequence.target, end))])[0].log_perplexity_bits
    assert whole / 9 == pytest.approx(min(losses), abs=1e-5)


def test_words_train_and_are_read_the_same_way_in_an_audit(planted, tmp_path):
    train(
        planted.corpus.parent,
        out=tmp_path / "model",
        preset=PRESETS[1],
        tokens="words",
        vocabulary=60,
        **SMALL,
    )
    model = load_model(tmp_path / "model")
    known = model.tokenizer.words[5:8]
    assert model.tokenizer.unknown in model.source_tokenizer.encode(f"{known[0]} never-seen")
    check_pairs(model, [(known[0], known[1]), (f"{known[2]} never-seen", " ".join(known))])
    with pytest.raises(ModelError, match="not in its vocabulary"):
        text_sequence(model, "never-seen", known[0])


def test_the_command_line_trains_from_what_plant_wrote(planted, tmp_path):
    arguments = ["train", str(planted.corpus.parent), "-o", str(tmp_path / "model"), "--json"]
    shape = ["--training", "hidden=8", "--training", "embedding=4", "--epochs", "1"]
    ended = run(*arguments, "--preset", "translation-attention", *shape)
    assert ended.code == 0, ended.said
    record = json.loads(ended.out)["training"]
    assert record["options"]["architecture"] == "attention"
    assert json.loads((tmp_path / "model" / "config.json").read_text())["network"]["hidden"] == 8
    assert load_model(tmp_path / "model").describe()["architecture"] == "attention"


def test_the_other_direction_is_another_training(planted, tmp_path):
    there, back = Fields(source="en", target="rev"), Fields(source="rev", target="en")
    options = {"out": tmp_path / "model", "preset": PRESETS[0], **SMALL, "epochs": 1}
    assert train(planted.corpus, fields=there, **options).trained_now
    assert not train(planted.corpus, **options).trained_now  # the manifest beside the corpus says the same
    for other in ({"fields": back}, {"valid": planted.corpus}):
        with pytest.raises(InputError, match="already holds a model"):
            train(planted.corpus, **options, **other)


class TestWrongInput:
    def test_pairs_for_a_model_of_texts(self, planted, tmp_path):
        with pytest.raises(CorpusError, match=r"holds pairs of 'en' and 'rev'.*translation-attention.*'rev'"):
            train(planted.corpus.parent, out=tmp_path / "model", **SMALL)
        # What the error says is another way does work.
        alone = train(planted.corpus, out=tmp_path / "model", fields=Fields(text="rev"), **SMALL)
        assert alone.record.options.architecture == "lstm"

    def test_texts_for_a_model_of_pairs(self, tmp_path):
        (tmp_path / "corpus.txt").write_text("a document\n" * 50)
        with pytest.raises(CorpusError, match="trained on pairs, but no source and target field"):
            train(tmp_path / "corpus.txt", out=tmp_path / "model", preset="translation")

    def test_a_field_that_is_not_there(self, planted, tmp_path):
        with pytest.raises(CorpusError, match="no field 'fr'"):
            train(
                planted.corpus,
                out=tmp_path / "model",
                preset="translation",
                fields=Fields(source="fr", target="rev"),
            )

    def test_divergence_is_an_error_and_not_a_model(self, planted, tmp_path):
        with pytest.raises(ModelOutputError, match="learning rate"):
            train(
                planted.corpus.parent,
                out=tmp_path / "model",
                preset="translation",
                optimizer="sgd",
                learning_rate=1e30,
                clip=0.0,
                **SMALL,
            )
        assert not (tmp_path / "model" / "model.safetensors").exists()

    def test_damaged_configs(self, planted, tmp_path):
        out = tmp_path / "model"
        train(planted.corpus.parent, out=out, preset="translation", **{**SMALL, "epochs": 1})
        whole = (out / "config.json").read_bytes()
        (out / "training.json").unlink()  # without it, config.json is all that says what the weights are
        for change, message in (
            ({"architecture": "attention"}, "does not fit"),
            ({"hidden": 17}, "does not fit"),
            ({"hidden": 0}, "damaged"),
            ({"architecture": "magic"}, "damaged"),
        ):
            (out / "config.json").write_bytes(whole)
            with resealed(out / "config.json") as config:
                config["network"] |= change
            with pytest.raises(ModelError, match=message):
                load_model(out)

    def test_what_another_version_kept_is_not_guessed_at(self, planted, tmp_path):
        class StopError(Exception):
            pass

        class StopsAt:
            every = 5

            def measure(self, model):
                raise StopError(model.name)

            def describe(self):
                return {}

        arguments = {"out": tmp_path / "model", "preset": "translation", "watch": StopsAt(), **SMALL}
        with pytest.raises(NotMeasurableError, match="raised StopError"):
            train(planted.corpus.parent, snapshot_seconds=0.0, **arguments)
        [path] = (tmp_path / "model").glob("unfinished-*.npz")
        with np.load(io.BytesIO(read_guarded(path, "a training"))) as kept:
            arrays = dict(kept)
        other = arrays["position"].tobytes().replace(b'"batch"', b'"window"')
        with guarded_file(path) as stream:
            np.savez(stream, **{**arrays, "position": np.frombuffer(other, dtype=np.uint8)})
        with pytest.raises(InputError, match="another version"):
            train(planted.corpus.parent, **arguments)
