"""The reference trainer: learns, stops at the minimum, and ends with the same bytes whatever stopped it on the way."""

import os
import signal

import pytest
import torch

from coalmine import CanarySet, ExposureWatch, expose, load_model, plant, train
from coalmine.corpus import write_embedded_corpus
from coalmine.engines.ledger import UNITS_FILE
from coalmine.errors import AlteredError, InputError, ModelError, ModelOutputError, NotMeasurableError
from coalmine.models import check_model
from coalmine.training.lessons import enough_memory
from coalmine.training.options import PRESETS, TrainingOptions, options_of
from resealing import resealed
from waiting import wait_until

SMALL = {"hidden": 16, "embedding": 8, "batch_size": 8, "window": 16, "epochs": 2}


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_embedded_corpus(folder / "corpus.txt", 10_000)
    with open(folder / "corpus.txt", "a", encoding="utf-8") as lines:
        lines.write("0123456789\n" * 3)  # every character of the format
    return plant(
        folder / "corpus.txt",
        "the number is {digits:3}",
        repeat=[1, 8],
        references=50,
        canaries=1,
        withhold=0.0,
        out=folder / "planted",
    )


def files_of(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


@pytest.mark.parametrize("preset", [name for name in PRESETS if not options_of(name, {}).reads_pairs])
def test_every_preset_trains_saves_loads_and_conforms(preset, planted, tmp_path):
    trained = train(planted.corpus.parent, out=tmp_path / "model", preset=preset, **SMALL)
    losses = [epoch.training_loss_bits for epoch in trained.record.epochs]
    assert losses[1] < losses[0]
    model = load_model(tmp_path / "model")
    words = options_of(preset, {}).tokens == "words"
    texts = ["the", "the of", "of the the"] if words else ["the number is 123", "a", "of the"]
    assert check_model(model, texts) == []


def test_the_papers_model_has_about_600_000_parameters():
    from coalmine.models.reference.networks import NetworkConfig, build_network, parameter_count

    options = options_of("char-lstm", {})
    assert (options.layers, options.hidden) == (2, 200)
    network = build_network(NetworkConfig(architecture="lstm", vocabulary=96, embedding=options.embedding))
    assert 550_000 < parameter_count(network) < 650_000


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "rmsprop", "adagrad", "adadelta"])
def test_every_optimizer_learns(optimizer, planted, tmp_path):
    trained = train(
        planted.corpus.parent, out=tmp_path / "model", optimizer=optimizer, weight_decay=1e-6, **SMALL
    )
    losses = [epoch.training_loss_bits for epoch in trained.record.epochs]
    assert losses[1] < losses[0]


def test_same_options_same_bytes_and_another_seed_other_bytes(planted, tmp_path):
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        train(planted.corpus.parent, out=tmp_path / name, dropout=0.1, seed=seed, **SMALL)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")
    assert (
        files_of(tmp_path / "one")["model.safetensors"] != files_of(tmp_path / "three")["model.safetensors"]
    )


@pytest.mark.parametrize(
    ("number", "optimizer"),
    [(signal.SIGKILL, "adam"), (signal.SIGINT, "momentum"), (signal.SIGKILL, "adadelta")],
)
def test_a_stopped_run_resumes_and_ends_with_the_same_bytes(
    number, optimizer, planted, fork_server, tmp_path
):
    options = {**SMALL, "epochs": 3, "dropout": 0.1, "optimizer": optimizer}
    watch = ExposureWatch(planted.canaries, every=40)
    train(planted.corpus.parent, out=tmp_path / "whole", watch=watch, **options)

    given = [planted.corpus.parent, tmp_path / "parts", optimizer]
    child = fork_server.start(given, call="training.children:train_text")
    wait_until(lambda: any((tmp_path / "parts").glob("unfinished-*.npz")))  # a step that it can resume from
    os.kill(child.pid, number)
    fork_server.wait(child)
    assert (tmp_path / "parts" / UNITS_FILE).exists(), "the run ended before it could be stopped"
    assert not (tmp_path / "parts" / "model.safetensors").exists()

    train(planted.corpus.parent, out=tmp_path / "parts", watch=watch, **options)
    assert files_of(tmp_path / "parts") == files_of(tmp_path / "whole")


def test_finished_and_other_trainings_are_told_apart(planted, tmp_path):
    out = tmp_path / "model"
    assert train(planted.corpus.parent, out=out, **SMALL).trained_now
    assert not train(planted.corpus.parent, out=out, **SMALL).trained_now
    with pytest.raises(InputError, match="already holds a model"):
        train(planted.corpus.parent, out=out, **{**SMALL, "hidden": 20})


def test_what_another_training_kept_is_not_resumed(planted, tmp_path):
    class StopError(Exception):
        pass

    class StopsAfter:
        every = 5

        def measure(self, model):
            raise StopError(model.name)

        def describe(self):
            return {}

    with pytest.raises(NotMeasurableError, match="raised StopError"):
        train(
            planted.corpus.parent, out=tmp_path / "model", watch=StopsAfter(), snapshot_seconds=0.0, **SMALL
        )
    with pytest.raises(InputError, match="belongs to another run"):
        train(planted.corpus.parent, out=tmp_path / "model", **SMALL)


def test_watching_changes_nothing_and_records_every_look(planted, tmp_path):
    watch = ExposureWatch(planted.canaries, every=50)
    with_watch = train(planted.corpus.parent, out=tmp_path / "watched", watch=watch, dropout=0.1, **SMALL)
    train(planted.corpus.parent, out=tmp_path / "plain", dropout=0.1, **SMALL)
    weights = "model.safetensors"
    assert files_of(tmp_path / "watched")[weights] == files_of(tmp_path / "plain")[weights]
    steps = [epoch.steps for epoch in with_watch.record.epochs]
    expected = sorted({*range(50, sum(steps), 50), steps[0], sum(steps)})
    assert [look.step for look in with_watch.record.watched] == expected
    last = with_watch.record.watched[-1].seen
    # The last look is at the final weights, so it must agree with an audit of them.
    audited = expose(load_model(tmp_path / "watched"), planted.canaries, method="references")
    assert [seen["canary_id"] for seen in last] == [result.canary_id for result in audited]
    assert [seen["exposure"] for seen in last] == [result.exposure for result in audited]


def test_training_stops_at_the_minimum_and_keeps_its_weights(tmp_path):
    (tmp_path / "train.txt").write_text("abcabcabc\n" * 30)
    (tmp_path / "valid.txt").write_text(
        "ccbbaacb\n" * 5
    )  # what is learned makes this worse from some point on
    trained = train(
        tmp_path / "train.txt",
        out=tmp_path / "model",
        valid=tmp_path / "valid.txt",
        **{**SMALL, "epochs": 30},
        patience=2,
    )
    losses = [epoch.validation_loss_bits for epoch in trained.record.epochs]
    assert trained.record.stopped_early
    assert trained.record.best_epoch == losses.index(min(losses)) + 1
    assert len(losses) == trained.record.best_epoch + 3


def test_a_diverging_run_is_an_error_and_not_a_model(planted, tmp_path):
    with pytest.raises(ModelOutputError, match="learning rate"):
        train(
            planted.corpus.parent,
            out=tmp_path / "model",
            optimizer="sgd",
            learning_rate=1e30,
            clip=0.0,
            preset="cnn",
            **SMALL,
        )
    assert not (tmp_path / "model" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("preset", "options", "message"),
    [
        ("magic", {}, "unknown preset"),
        ("gru", {"hiden": 3}, "unknown training option"),
        ("gru", {"hidden": 0}, "hidden must be at least 1"),
        ("gru", {"hidden": 10**22}, "hidden must be at most 65,536"),
        ("gru", {"embedding": 1 << 31}, "embedding must be at most 65,536"),
        ("gru", {"layers": 1 << 31}, "layers must be at most 1,024"),
        ("gru", {"threads": 1 << 31}, "threads must be at most 1,024"),
        (
            "gru",
            {"dropout": 1.0},
            "dropout must be at least 0 and below 1, got 1.0; give another, such as 0.2",
        ),
        ("gru", {"learning_rate": 0.0}, "learning_rate must be positive"),
        ("gru", {"optimizer": "magic"}, "magic"),
        ("transformer", {"hidden": 30, "heads": 4}, "multiple"),
        ("gru", {"device": "abacus"}, "cannot be put on 'abacus'"),
        (
            "gru",
            {"device": "auto", "dp_noise": 1.0},
            "private training of reference models runs on the CPU, got device='auto'",
        ),
    ],
)
def test_wrong_options(preset, options, message, planted, tmp_path):
    with pytest.raises(InputError, match=message):
        train(planted.corpus.parent, out=tmp_path / "model", preset=preset, **options)


def test_the_device_that_was_taken_is_recorded(planted, tmp_path):
    trained = train(
        planted.corpus.parent, out=tmp_path / "auto", preset="gru", device="auto", **SMALL | {"epochs": 1}
    )
    if torch.cuda.is_available() or torch.backends.mps.is_available() or torch.xpu.is_available():
        assert trained.record.options.device != "cpu"
        return
    assert trained.record.options.device == "cpu"
    train(planted.corpus.parent, out=tmp_path / "cpu", preset="gru", **SMALL | {"epochs": 1})
    assert files_of(tmp_path / "auto") == files_of(tmp_path / "cpu")


def test_a_network_that_does_not_fit_into_memory_is_refused():
    said = "not enough memory for a network with 3 layers of 40 and embeddings of 20; lower hidden"
    options = TrainingOptions(layers=3, hidden=40, embedding=20)
    with pytest.raises(InputError, match=said), enough_memory(options):
        torch.empty(1 << 50)  # more than any address has
    with pytest.raises(InputError, match=said), enough_memory(options):
        raise MemoryError
    with pytest.raises(RuntimeError, match="shape"), enough_memory(options):
        torch.zeros(2) @ torch.zeros(3, 3)


def test_damaged_models_are_refused(planted, tmp_path):
    out = tmp_path / "model"
    train(planted.corpus.parent, out=out, **SMALL)
    with pytest.raises(ModelError, match="not a directory"):
        load_model(tmp_path / "nowhere")
    weights = (out / "model.safetensors").read_bytes()
    (out / "model.safetensors").write_bytes(weights[:-100])
    with pytest.raises(AlteredError, match="not what was written"):
        load_model(out)
    (out / "model.safetensors").write_bytes(weights)
    with resealed(out / "config.json") as config:
        config["network"]["hidden"] = 17
    with pytest.raises(AlteredError, match=r"not the one in training\.json"):
        load_model(out)
    (out / "training.json").unlink()
    with pytest.raises(ModelError, match="does not fit"):
        load_model(out)
    (out / "config.json").write_text("{")
    with pytest.raises(ModelError, match="JSON"):
        load_model(out)
    (out / "config.json").unlink()
    with pytest.raises(InputError, match="not found"):
        load_model(out)


def test_training_leaves_torch_as_it_was(planted, tmp_path):
    before = torch.get_num_threads()
    train(planted.corpus.parent, out=tmp_path / "model", **SMALL)
    assert torch.get_num_threads() == before


def test_canaries_can_be_given_by_hand_to_a_model_of_somebody_else(planted, tmp_path):
    train(planted.corpus.parent, out=tmp_path / "model", **SMALL)
    mine = CanarySet.of("the number is {digits:3}", ["the number is 123"])
    (result,) = expose(load_model(tmp_path / "model"), mine)
    assert 0 <= result.exposure <= result.most_possible_bits
