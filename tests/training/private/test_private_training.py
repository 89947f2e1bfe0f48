"""Private training end to end: what a step is, what is claimed and written, what is refused, and the same bytes after a kill."""

import hashlib
import os
import shutil
import signal

import numpy as np
import pytest
import torch

from cli.in_process import run
from coalmine import ExposureWatch, plant, train, verify_run
from coalmine.corpus import Fields, write_embedded_corpus
from coalmine.engines.ledger import UNITS_FILE
from coalmine.errors import CorpusError, InputError, ModelOutputError, NotMeasurableError
from coalmine.models.reference.checkpoint import load_checkpoint
from coalmine.randomness import child_seed
from coalmine.training.data import Documents, text_of, tokenized
from coalmine.training.lessons import lessons_of
from coalmine.training.options import options_of
from coalmine.training.private.accounting import Epsilons
from coalmine.training.private.clipping.loop import LoopClipping
from coalmine.training.private.noise import PrivateRandomness, new_key
from coalmine.training.private.options import PrivateOptions
from coalmine.training.private.refusals import check_layers
from coalmine.training.private.run import PrivateRun
from coalmine.training.private.steps import PrivateSteps
from coalmine.training.private.units import UnitReader, units_of
from coalmine.training.trainer import train_documents
from waiting import wait_until

SMALL = {"hidden": 8, "embedding": 4, "batch_size": 8, "window": 16, "epochs": 2}
SEED = 982451653
PRIVATE = {**SMALL, "dp_noise": 0.7, "dp_seed": SEED}
TEXTS = [f"{'ab' * (number % 7)} c{number % 3}" for number in range(24)]


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_embedded_corpus(folder / "corpus.txt", 6_000)
    with open(folder / "corpus.txt", "a", encoding="utf-8") as lines:
        lines.write("0123456789\n" * 3)  # every character of the format
    form = "the number is {digits:3}"
    return plant(folder / "corpus.txt", form, repeat=[1], references=20, canaries=4, out=folder / "planted")


@pytest.fixture(scope="module")
def trained(planted, tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "private"
    return train(planted.corpus.parent, out=out, **PRIVATE)


def files_of(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


class Alone:
    """A unit that runs by itself and keeps nothing."""

    def advance(self, amount=1, note=""):
        pass

    def kept(self):
        return None

    def keep(self, state):
        pass


def run_of(options):
    data = tokenized(text_of(Documents(TEXTS, None)), options)
    return PrivateRun(data, options, Alone(), watch=None, size=100, label="")


def test_a_training_is_draws_clipped_sums_noise_and_plain_descent():
    options = options_of(
        "gru",
        {
            **SMALL,
            "batch_size": 2,
            "holdout": 0.0,
            "optimizer": "sgd",
            "dp_noise": 0.5,
            "dp_clip": 0.3,
            "dp_seed": 1,
        },
    )
    found = run_of(options)
    weights = load_weights(found.finish())
    data = found.data
    network = lessons_of_seed(data, options)
    units = units_of(len(data.training), None, "document")
    rate, steps = 2 / len(units), 2 * 12
    chance, sizes = PrivateRandomness(new_key(options, data.sha256)), []
    reader = UnitReader(network, data, units, options)
    for step in range(steps):
        network.zero_grad()
        drawn = chance.drawn(step, units=len(units), rate=rate)
        sizes.append(len(drawn))
        for unit in drawn:
            [rows] = reader.passes(np.array([unit]), 100, None)
            LoopClipping(network, "").add_clipped(lambda rows=rows: reader.losses(rows), rows.units, 1, 0.3)
        chance.add_noise(network, step, 0.5 * 0.3)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.sub_(options.rate * parameter.grad / 2)
    assert 0 in sizes, "no step was empty"
    for name, tensor in network.state_dict().items():
        torch.testing.assert_close(weights[name], tensor, rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize(("units", "batch", "in_epoch"), [(49, 1, 49), (98, 2, 49), (7, 2, 4), (3, 8, 1)])
def test_an_epoch_draws_each_unit_once_on_average(units, batch, in_epoch):
    steps = PrivateSteps(PrivateOptions(noise=1.0), 1, units=units, batch_size=batch, epochs=3)
    assert (steps.in_epoch, steps.number) == (in_epoch, 3 * in_epoch)


def load_weights(finished):
    from safetensors.torch import load

    return load(finished.files.weights)


def lessons_of_seed(data, options):
    torch.manual_seed(child_seed(options.seed, "train", "torch") % 2**63)
    return lessons_of(data, options).network


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "rmsprop", "adam", "adagrad", "adadelta"])
def test_a_step_without_units_is_noise_alone(optimizer):
    options = options_of("gru", {**SMALL, "optimizer": optimizer, "dp_noise": 2.0, "dp_seed": 4})
    private = run_of(options)
    private._prepare()
    before = {name: one.clone() for name, one in private.network.state_dict().items()}
    assert private._learn(private._batches()[0]._replace(drawn=np.array([], dtype=np.int64), tokens=0)) == 0.0
    expected = private.steps.rate * private.steps.units
    noised = lessons_of_seed(private.data, options)
    PrivateRandomness(private.steps.chance.key).add_noise(noised, 0, 2.0)
    for parameter, other in zip(private.network.parameters(), noised.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad / expected)
    assert any(not torch.equal(before[name], one) for name, one in private.network.state_dict().items())


def test_an_epoch_without_any_unit_has_no_training_loss(tmp_path):
    texts, options = ["ab", "c"], {**SMALL, "holdout": 0.0, "batch_size": 1, "epochs": 1, "dp_noise": 1.0}
    digest = Documents(texts, None).sha256

    def draws_nothing(seed):
        chance = PrivateRandomness(new_key(options_of("gru", {**options, "dp_seed": seed}), digest))
        return not any(chance.drawn(step, units=2, rate=0.5).size for step in range(2))

    seed = next(filter(draws_nothing, range(1000)))
    found = train_documents(texts, out=tmp_path / "model", preset="gru", dp_seed=seed, **options)
    assert found.record.epochs[0].training_loss_bits is None


def test_the_claim_is_in_the_record_and_on_the_card(trained):
    claim = trained.record.privacy
    documents = trained.record.documents
    assert (claim.unit, claim.units, claim.sampling_rate) == ("document", documents, 8 / documents)
    assert (claim.noise_multiplier, claim.clip, claim.delta) == (0.7, 1.0, 1e-9)
    assert claim.steps == 2 * -(-documents // 8) == sum(epoch.steps for epoch in trained.record.epochs)
    assert (claim.noise_from, claim.clipping, claim.loop_reason) == ("seed", "ghost", "")
    assert 1 < claim.epsilon < claim.rdp_epsilon
    assert trained.record.best_epoch == 2
    card = (trained.path / "card.md").read_text()
    for said in (
        f"{claim.epsilon:.4g}",
        f"{claim.rdp_epsilon:.4g}",
        "1e-09",
        "PLD",
        "the document",
        "ghost",
        "adam",
        "Poisson",
        "a seed that was given",
        *claim.not_covered,
    ):
        assert said in card
    assert "The vocabulary was made from the text" in claim.not_covered[0]
    assert any("documents were held out" in one for one in claim.not_covered)
    assert any("subtract the noise" in one for one in claim.not_covered)


def test_a_card_that_was_edited_is_noticed(trained, tmp_path):
    shutil.copytree(trained.path, tmp_path / "renamed")
    assert verify_run(tmp_path / "renamed").sound
    card = tmp_path / "renamed" / "card.md"
    card.write_text(card.read_text().replace("| epsilon | ", "| epsilon | 0."))
    [wrong] = [one for one in verify_run(tmp_path / "renamed").files if one.state != "as written"]
    assert (wrong.path, wrong.state) == (str(card), "altered")
    assert load_checkpoint(tmp_path / "renamed", device="cpu", precision="float32")


def test_the_seed_of_the_noise_is_in_no_file_and_files_have_their_modes(trained, planted, tmp_path):
    options = [part for name, value in PRIVATE.items() for part in ("--training", f"{name}={value}")]
    out = tmp_path / "model"
    assert run("train", planted.corpus.parent, "-o", out, *options).code == 0
    for content in files_of(out).values():
        assert str(SEED).encode() not in content
    assert b"(not recorded)" in (out / "run.json").read_bytes()
    modes = {path.name: path.stat().st_mode & 0o777 for path in out.iterdir()}
    assert (modes["model.safetensors"], modes["config.json"], modes["run.json"]) == (0o600,) * 3
    assert (modes["card.md"], modes["training.json"]) == (0o644,) * 2
    assert (out / "model.safetensors").read_bytes() == (trained.path / "model.safetensors").read_bytes()
    assert not any(name.startswith("unfinished") for name in modes)


def test_finished_trainings_are_told_apart_by_the_seed_of_their_noise(trained, planted):
    assert not train(planted.corpus.parent, out=trained.path, **PRIVATE).trained_now
    with pytest.raises(InputError, match="already holds a model"):
        train(planted.corpus.parent, out=trained.path, **{**PRIVATE, "dp_seed": SEED + 1})


def test_the_record_has_no_quick_hash_of_the_seed_against_which_numbers_could_be_tried(trained):
    check = trained.record.options.private.seed_check
    quick = [f"{child_seed(SEED, 'private', name):032x}" for name in ("check", "key")]
    quick += [hashlib.new(name, str(SEED).encode()).hexdigest() for name in ("md5", "sha1", "sha256")]
    assert len(check) == 32
    assert not any(check in one or one in check for one in quick)
    assert check != PrivateOptions(noise=1.0, seed=SEED + 1).without_seed().seed_check


def test_no_two_trainings_share_their_noise():
    def key(data="a", **changes):
        return new_key(options_of("gru", {**PRIVATE, **changes}), data)

    keys = [key(), key(seed=1), key("b"), key(dp_noise=0.8), key(epochs=3), key(dp_seed=SEED + 1)]
    assert len(set(keys)) == len(keys)
    assert key() == key()
    system = options_of("gru", {**SMALL, "dp_noise": 1.0})
    assert new_key(system, "a") != new_key(system, "a")


class StopsAt:
    """Stops a training the first time that it looks."""

    every = 5

    def measure(self, model):
        raise ZeroDivisionError(model)

    def describe(self):
        return {}


class Looks(StopsAt):
    def measure(self, model):
        del model
        return []


def test_a_key_of_the_system_is_kept_until_the_end_and_no_longer(planted, tmp_path):
    options = {**SMALL, "dp_noise": 0.7, "snapshot_seconds": 0.0}
    with pytest.raises(NotMeasurableError, match="ZeroDivisionError"):
        train(planted.corpus.parent, out=tmp_path / "one", watch=StopsAt(), **options)
    [state] = (tmp_path / "one").glob("unfinished-*.npz")
    assert state.stat().st_mode & 0o777 == 0o600
    with np.load(state) as kept:
        key = kept["private/key"].tobytes()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    for name in ("one", "two"):
        resumed = train(planted.corpus.parent, out=tmp_path / name, watch=Looks(), **options)
        assert resumed.record.privacy.noise_from == "system"
    one, two = (files_of(tmp_path / name) for name in ("one", "two"))
    assert one == two
    assert not any(key in content for content in one.values())
    other = train(planted.corpus.parent, out=tmp_path / "three", watch=Looks(), **options)
    assert (other.path / "model.safetensors").read_bytes() != one["model.safetensors"]


def test_a_killed_training_ends_with_the_same_bytes(planted, fork_server, tmp_path):
    options = {**PRIVATE, "dropout": 0.1, "epochs": 3}
    watch = ExposureWatch(planted.canaries, every=40)
    train(planted.corpus.parent, out=tmp_path / "whole" / "model", watch=watch, **options)
    out = tmp_path / "parts" / "model"
    child = fork_server.start([planted.corpus.parent, out], call="training.children:train_privately")
    wait_until(lambda: any(out.glob("unfinished-*.npz")))
    os.kill(child.pid, signal.SIGKILL)
    fork_server.wait(child)
    assert (out / UNITS_FILE).exists(), "the run ended before it could be stopped"
    with pytest.raises(InputError, match="resumes only with the noise, clipping, unit and sampling"):
        train(planted.corpus.parent, out=out, watch=watch, **{**options, "dp_noise": 0.6})
    train(planted.corpus.parent, out=out, watch=watch, **options)
    assert files_of(out) == files_of(tmp_path / "whole" / "model")


def test_noise_that_was_calibrated_otherwise_is_not_resumed(monkeypatch, planted, tmp_path):
    options = {**SMALL, "dp_epsilon": 100.0, "dp_delta": 1e-3, "snapshot_seconds": 0.0}
    with pytest.raises(NotMeasurableError):
        train(planted.corpus.parent, out=tmp_path / "model", watch=StopsAt(), **options)
    steps = "coalmine.training.private.steps"
    monkeypatch.setattr(f"{steps}.noise_for", pytest.fail)  # the state has the noise
    with monkeypatch.context() as changed:
        changed.setattr(f"{steps}.epsilons", lambda *_: Epsilons(101.0, None))
        with pytest.raises(InputError, match=r"began with a noise .*needs more for an epsilon of 100"):
            train(planted.corpus.parent, out=tmp_path / "model", watch=Looks(), **options)
    resumed = train(planted.corpus.parent, out=tmp_path / "model", watch=Looks(), **options)
    assert resumed.record.privacy.epsilon <= 100


def test_users_are_units(tmp_path):
    users = ["ann", "bob", "cid"]
    lines = [f'{{"text": "{text}", "who": "{users[place % 3]}"}}\n' for place, text in enumerate(TEXTS)]
    (tmp_path / "corpus.jsonl").write_text("".join(lines))
    options = {**SMALL, "batch_size": 2, "holdout": 0.0, "dp_noise": 1.0, "dp_unit": "user", "dp_seed": 2}
    found = train(tmp_path / "corpus.jsonl", out=tmp_path / "model", fields=Fields(user="who"), **options)
    claim = found.record.privacy
    assert (claim.unit, claim.units, claim.steps) == ("user", 3, 4)
    assert found.record.fields == {"text": "text", "user": "who"}
    same = train_documents(
        TEXTS, users=[users[place % 3] for place in range(len(TEXTS))], out=tmp_path / "memory", **options
    )
    assert same.record.privacy.units == 3
    with pytest.raises(
        CorpusError, match=r"no field of .* says whose each document is; name it with --field user"
    ):
        train(tmp_path / "corpus.jsonl", out=tmp_path / "other", **options)
    with pytest.raises(CorpusError, match="it was not said whose each document is; give users"):
        train_documents(TEXTS, out=tmp_path / "other", **options)
    (tmp_path / "gap.jsonl").write_text(lines[0] + '{"text": "ab", "who": ""}\n')
    with pytest.raises(CorpusError, match=r"document 2 of .* has no user"):
        train(tmp_path / "gap.jsonl", out=tmp_path / "other", fields=Fields(user="who"), **options)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dp_epsilon": 1.0, "dp_noise": 1.0}, "either dp_epsilon or dp_noise, and both were given"),
        (
            {"dp_clip": 1.0},
            "dp_clip was given without dp_epsilon or dp_noise, so the training would not be private",
        ),
        ({"dp_seed": 0}, "dp_seed was given without dp_epsilon or dp_noise"),
        ({"dp_epsilon": 0.0}, "dp_epsilon must be a positive number, got 0.0; give another, such as 1"),
        ({"dp_epsilon": float("nan")}, "dp_epsilon must be a positive number"),
        ({"dp_noise": -1.0}, "dp_noise must be at least 0"),
        ({"dp_noise": 1.0, "dp_clip": 0.0}, "dp_clip must be a positive number"),
        (
            {"dp_noise": 1.0, "dp_delta": 0.0},
            "dp_delta must be between 0 and 1, got 0.0; give another, such as 1e-09",
        ),
        ({"dp_noise": 1.0, "dp_rows": 0}, "dp_rows must be at least 1"),
        (
            {"dp_noise": 1.0, "dp_unit": "word"},
            "an option of private training has a value that it cannot have",
        ),
        ({"dp_noise": 1.0, "dp_sampling": "shuffle"}, "unknown training option 'dp_sampling'"),
        ({"dp_noise": 1.0, "patience": 3}, "cannot choose an epoch by the validation loss, got patience=3"),
        ({"dp_noise": 1.0, "shuffle": False}, r"a coin of its own in every step \(Poisson sampling\)"),
        ({"dp_noise": 1.0, "clip": 0.5}, "give dp_clip instead"),
        ({"dp_noise": 1.0, "dp_delta": 0.1}, "dp_delta must be far below one over the number of units"),
        ({"dp_epsilon": 1e-13, "dp_delta": 1e-13}, "cannot be reached"),
    ],
)
def test_what_cannot_be_claimed_is_refused(given, message, planted, tmp_path):
    with pytest.raises(InputError, match=message):
        train(planted.corpus.parent, out=tmp_path / "model", **SMALL, **given)
    assert not (tmp_path / "model" / "model.safetensors").exists()


@pytest.mark.parametrize(
    "layer", [torch.nn.BatchNorm1d(4), torch.nn.SyncBatchNorm(4), torch.nn.InstanceNorm1d(4)]
)
def test_layers_that_mix_examples_are_refused(layer):
    network = torch.nn.Sequential(torch.nn.Linear(4, 4), layer)
    with pytest.raises(InputError, match=rf"the layer '1' \({type(layer).__name__}\)"):
        check_layers(network)


def test_a_private_training_that_diverges_says_so(tmp_path):
    with pytest.raises(ModelOutputError, match="training diverged at step"):
        train_documents(
            TEXTS, out=tmp_path / "model", optimizer="sgd", learning_rate=1e30, **{**PRIVATE, "dp_noise": 1.0}
        )


def test_clipping_alone_claims_nothing(tmp_path):
    found = train_documents(TEXTS, out=tmp_path / "model", **{**PRIVATE, "dp_noise": 0.0})
    assert found.record.privacy.epsilon is None
    assert (
        "no epsilon for one document: gradients were clipped, and no noise was added"
        in (tmp_path / "model" / "card.md").read_text()
    )
    assert (
        load_checkpoint(tmp_path / "model", device="cpu", precision="float32").describe().get("privacy")
        is None
    )
