"""The callback of the Trainer: it sees what expose sees, logs it, keeps it, and leaves the training as it was."""

import copy
import math
import random

import numpy as np
import pytest
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments, default_data_collator

from coalmine import CanarySet, ExposureWatch, expose, plant
from coalmine.corpus import write_embedded_corpus
from coalmine.errors import AlteredError, InputError, ManifestError, ModelError
from coalmine.evidence.directories import audit_directory
from coalmine.integrations import ExposureCallback, read_watched
from coalmine.integrations.exposure_log import ExposureLog, metrics_of
from coalmine.models import from_transformers
from coalmine.records.documents import write_sealed
from coalmine.training.undisturbed import undisturbed
from integrations.tiny_training import SECRET, planted_corpus, rows_of, tiny_gpt2
from models.tiny_masked import TOKENIZERS, tiny_masked
from models.tiny_transformers import byte_level


class Spy(TrainerCallback):
    """Stands for TensorBoard or W&B: it comes before the user's own callbacks, as they do."""

    def __init__(self):
        self.logged = []
        self.drawn = None

    def on_log(self, args, state, control, logs=None, **kwargs):  # noqa: ARG002  # as the trainer calls it
        self.logged.append((state.global_step, dict(logs)))

    def on_train_end(self, args, state, control, **kwargs):  # noqa: ARG002  # as above
        # At the very end, so that any disturbance of a generator during training shows.
        self.drawn = (torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random())  # noqa: NPY002


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    return planted_corpus(tmp_path_factory.mktemp("corpus"))


def trained(planted, out, *further, epochs=2, **options):
    """A trainer after its training; the spy comes first among the callbacks."""
    arguments = TrainingArguments(
        output_dir=str(out),
        num_train_epochs=epochs,
        per_device_train_batch_size=8,
        learning_rate=0.01,
        logging_steps=2,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        seed=3,
        **{"dataloader_pin_memory": False, **options},
    )
    spy = Spy()
    trainer = Trainer(
        model=tiny_gpt2(), args=arguments, train_dataset=rows_of(planted), callbacks=[spy, *further]
    )
    trainer.train()
    return trainer, spy


def losses(spy):
    return [(step, logs["loss"]) for step, logs in spy.logged if "loss" in logs]


@pytest.fixture(scope="module")
def both(planted, tmp_path_factory):
    """The same training without the callback and with it."""
    home = tmp_path_factory.mktemp("both")
    callback = ExposureCallback(planted.manifest, byte_level(), every=2)
    return trained(planted, home / "bare"), trained(planted, home / "watched", callback), home


def test_the_training_is_the_same_to_the_last_bit(both):
    (bare, bare_spy), (watched, spy), _ = both
    with_it = watched.model.state_dict()
    assert bare.state.global_step > 6
    for name, tensor in bare.model.state_dict().items():
        assert torch.equal(tensor, with_it[name]), name
    assert spy.drawn == bare_spy.drawn
    assert losses(spy) == losses(bare_spy) != []


def test_moments_are_the_start_every_few_steps_each_epoch_and_the_end(both):
    _, (trainer, _), home = both
    path = home / "watched-audit" / "watching" / "exposure-during-training.json"
    assert path.stat().st_mode & 0o777 == 0o600
    record = read_watched(path)
    steps = [moment.step for moment in record.watched]
    last = trainer.state.global_step
    assert steps == sorted({0, last // 2, last, *range(0, last + 1, 2)})
    assert record.schema == "coalmine.watched/1"
    assert record.trainer.startswith("transformers 5")
    assert all(moment.problem is None for moment in record.watched)


def test_the_last_moment_is_what_expose_says_of_the_trained_model(both, planted):
    _, (trainer, _), home = both
    last = read_watched(home / "watched-audit" / "watching" / "exposure-during-training.json").watched[-1]
    results = expose(
        from_transformers(trainer.model.eval(), byte_level()), planted.canaries, method="references"
    )
    assert [entry["canary_id"] for entry in last.seen] == [result.canary_id for result in results]
    assert [entry["log_perplexity_bits"] for entry in last.seen] == [
        result.log_perplexity_bits for result in results
    ]
    assert [entry["exposure"] for entry in last.seen] == [result.exposure for result in results]


def test_loggers_that_come_before_the_callback_get_its_numbers(both):
    _, (trainer, spy), _ = both
    name = "coalmine/log_perplexity_bits_median_x16"
    curve = [(step, logs[name]) for step, logs in spy.logged if name in logs]
    assert curve[0][0] == 0
    assert curve[-1][0] == trainer.state.global_step
    assert curve[-1][1] < curve[0][1] - 5  # it was trained on 32 times
    assert all("coalmine/exposure_median_x1" in logs for _, logs in spy.logged if name in logs)
    kept = [(entry["step"], entry[name]) for entry in trainer.state.log_history if name in entry]
    assert kept == curve


def test_the_trainers_own_tokenizer_is_taken_where_none_is_given(planted, tmp_path):
    callback = ExposureCallback(planted.manifest, every=1000, out=tmp_path / "seen.json")
    trainer = Trainer(
        model=tiny_gpt2(),
        args=TrainingArguments(
            str(tmp_path), max_steps=1, report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no",
            dataloader_pin_memory=False,
        ),
        train_dataset=rows_of(planted),
        processing_class=byte_level(),
        data_collator=default_data_collator,
        callbacks=[callback],
    )  # fmt: skip
    trainer.train()
    assert [(m.step, m.when) for m in read_watched(tmp_path / "seen.json").watched] == [
        (0, "start"),
        (1, "epoch"),
    ]


def test_without_a_tokenizer_it_fails_before_the_first_step(planted, tmp_path):
    callback = ExposureCallback(planted.manifest)
    with pytest.raises(InputError, match="no tokenizer"):
        trained(planted, tmp_path, callback)


def test_the_best_weights_are_measured_where_they_replace_the_last(planted, tmp_path):
    callback = ExposureCallback(planted.manifest, byte_level(), every=1000)
    arguments = TrainingArguments(
        str(tmp_path), num_train_epochs=2, per_device_train_batch_size=32, report_to=[], use_cpu=True, disable_tqdm=True,
        save_strategy="epoch", eval_strategy="epoch", load_best_model_at_end=True, dataloader_pin_memory=False,
        metric_for_best_model="loss", greater_is_better=True,  # the worst, so that it is not the last
        learning_rate=0.01,
    )  # fmt: skip
    rows = rows_of(planted)
    trainer = Trainer(
        model=tiny_gpt2(), args=arguments, train_dataset=rows, eval_dataset=rows[:8], callbacks=[callback]
    )
    trainer.train()
    moments = read_watched(audit_directory(tmp_path, "watching") / "exposure-during-training.json").watched
    assert [moment.when for moment in moments] == ["start", "epoch", "epoch", "end"]
    assert moments[3].step == moments[2].step
    assert moments[3].seen == moments[1].seen != moments[2].seen


def test_a_resumed_run_goes_on_with_its_file(planted, tmp_path):
    log = ExposureLog(ExposureCallback(planted.manifest, every=1).log.watch, trainer="test")
    model = tiny_gpt2()
    log.begin(tmp_path / "seen.json", 0)
    for step in (0, 1, 2, 3):
        log.look(model, byte_level(), step=step, epoch=0.0, when="step")
    log.begin(tmp_path / "seen.json", 2)
    assert [moment.step for moment in log.moments] == [0, 1, 2]
    assert not log.is_due(2, "start")
    log.begin(tmp_path / "seen.json", 0)
    assert log.moments == []


def test_a_training_that_goes_on_from_a_checkpoint_ends_with_the_file_of_one_that_was_not_stopped(
    planted, tmp_path
):
    def watching(out, **options):
        callback = ExposureCallback(planted.manifest, byte_level(), every=2)
        arguments = TrainingArguments(
            str(out), max_steps=8, per_device_train_batch_size=8, report_to=[], use_cpu=True, disable_tqdm=True,
            dataloader_pin_memory=False, save_strategy="steps", save_steps=4, seed=3,
        )  # fmt: skip
        Trainer(
            model=tiny_gpt2(), args=arguments, train_dataset=rows_of(planted), callbacks=[callback]
        ).train(**options)
        return (audit_directory(out, "watching") / "exposure-during-training.json").read_bytes()

    whole = watching(tmp_path)
    assert watching(tmp_path, resume_from_checkpoint=str(tmp_path / "checkpoint-4")) == whole


def test_a_diverged_model_is_a_moment_without_numbers_and_no_end_of_training(planted, tmp_path):
    model = tiny_gpt2()
    with torch.no_grad():
        model.transformer.ln_f.weight.fill_(math.nan)
    log = ExposureCallback(planted.manifest, every=1).log
    log.begin(tmp_path / "seen.json", 0)
    with pytest.warns(UserWarning, match="exposure was not measured at step 5"):
        metrics = log.look(model, byte_level(), step=5, epoch=1.0, when="step")
    assert metrics == {}
    [moment] = read_watched(tmp_path / "seen.json").watched
    assert moment.seen == []
    assert moment.problem is not None


def test_modes_random_states_and_gradients_are_left_alone(planted):
    model = tiny_gpt2().train()
    model.transformer.h[0].mlp.eval()  # frozen on purpose
    ids = torch.tensor([[0, 5, 6, 7]])
    model(ids, labels=ids).loss.backward()
    modes = {name: module.training for name, module in model.named_modules()}
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    random.seed(1)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    log = ExposureCallback(planted.manifest, method="sampled", samples=50).log
    log.look(model, byte_level(), step=0, epoch=0.0, when="start")
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]
    assert modes == {name: module.training for name, module in model.named_modules()}
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter.grad, gradients[name])
        assert not parameter.is_inference()


def test_what_is_drawn_inside_does_not_show_outside_even_when_it_fails():
    model = tiny_gpt2().train()
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)

    def fail_inside():
        with undisturbed(model):
            assert not model.training
            torch.rand(5)
            raise ValueError("of the model")

    with pytest.raises(ValueError, match="of the model"):
        fail_inside()
    assert torch.equal(torch.rand(2), expected)
    assert model.training


def test_truncation_left_on_by_preprocessing_does_not_shorten_canaries(planted):
    log = ExposureCallback(planted.manifest).log
    tokenizer = copy.deepcopy(byte_level())
    expected = log.look(tiny_gpt2(), tokenizer, step=0, epoch=0.0, when="start")
    tokenizer("some text that is long enough", truncation=True, max_length=4)
    assert log.look(tiny_gpt2(), tokenizer, step=1, epoch=0.0, when="step") == expected
    assert tokenizer.backend_tokenizer.truncation is not None  # the user's own is as they left it


def entry(canary, status, exposure, low, bits=10.0):
    return {
        "canary_id": canary.canary_id,
        "repetitions": canary.repetitions,
        "log_perplexity_bits": bits,
        "status": status,
        "exposure": exposure,
        "low": low,
        "high": None,
    }


def test_bounds_enter_a_median_as_bounds_and_what_was_not_measured_enters_none():
    texts = [f"the random number is {n:04}" for n in range(5)]
    canaries = CanarySet.of(
        SECRET,
        texts[:4],
        repetitions=[4, 4, 4, 2],
        withheld=texts[4:],
        withheld_repetitions=1,
        references=[texts[0][:-1] + "9"],
    )
    seen = [
        entry(canaries[0], "measured", 1.0, 0.5),
        entry(canaries[1], "lower_bound", None, 5.0),
        entry(canaries[2], "lower_bound", None, 6.0, bits=2.0),
        entry(canaries[3], "not_measured", None, None),
        entry(canaries[4], "measured", 0.5, 0.1),
    ]
    assert metrics_of(seen, canaries) == {
        "coalmine/exposure_median_x4": 5.0,
        "coalmine/lower_bounds_x4": pytest.approx(2 / 3),
        "coalmine/log_perplexity_bits_median_x4": 10.0,
        "coalmine/log_perplexity_bits_median_x2": 10.0,
        "coalmine/exposure_median_withheld": 0.5,
        "coalmine/lower_bounds_withheld": 0.0,
        "coalmine/log_perplexity_bits_median_withheld": 10.0,
    }


def test_formats_are_never_mixed_in_a_median(tmp_path):
    write_embedded_corpus(tmp_path / "corpus.txt", 4_000)
    formats = ["my pin is {digits:4}", "the key: {hex:32}"]
    planted = plant(
        tmp_path / "corpus.txt",
        formats,
        repeat=[2],
        canaries=1,
        withhold=0.0,
        references=9,
        out=tmp_path / "planted",
    )
    pin, key = planted.canaries
    seen = [entry(pin, "measured", 3.0, 2.0, bits=11.0), entry(key, "measured", 90.0, 80.0, bits=140.0)]
    assert metrics_of(seen, planted.canaries) == {
        "coalmine/exposure_median_x2_my_pin_is_digits_4": 3.0,
        "coalmine/lower_bounds_x2_my_pin_is_digits_4": 0.0,
        "coalmine/log_perplexity_bits_median_x2_my_pin_is_digits_4": 11.0,
        "coalmine/exposure_median_x2_the_key_hex_32": 90.0,
        "coalmine/lower_bounds_x2_the_key_hex_32": 0.0,
        "coalmine/log_perplexity_bits_median_x2_the_key_hex_32": 140.0,
    }
    log = ExposureLog(ExposureWatch(planted.canaries), trainer="test")
    log.begin(tmp_path / "watched.json", 0)
    logged = log.look(tiny_gpt2(), byte_level(), step=1, epoch=0.0, when="step")
    assert {name.split("_x2_")[1] for name in logged} == {"my_pin_is_digits_4", "the_key_hex_32"}
    kept = read_watched(tmp_path / "watched.json")
    assert list(kept.formats.values()) == formats
    assert {one["format_id"] for one in kept.watched[0].seen} == set(kept.formats)


def test_what_cannot_be_watched_is_refused(planted, tmp_path):
    with pytest.raises(ManifestError):
        ExposureCallback(tmp_path / "none.json")
    with pytest.raises(InputError, match="every"):
        ExposureCallback(planted.manifest, every=0)

    class Sharded:
        deepspeed, fsdp, output_dir = {"zero": 3}, "", str(tmp_path)

    with pytest.raises(ModelError, match="sharded"):
        ExposureCallback(planted.manifest).on_train_begin(Sharded(), None, None)
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(AlteredError, match="make the exposure during training again"):
        read_watched(tmp_path / "bad.json")
    write_sealed(
        tmp_path / "other.json", {"schema": "coalmine.watched/9", "watch": {}, "trainer": "", "watched": []}
    )
    with pytest.raises(InputError, match="schema"):
        read_watched(tmp_path / "other.json")


@pytest.mark.parametrize("kind", ["bert", "roberta", "t5"])
def test_a_model_that_is_not_causal_is_refused_before_the_first_step(planted, tmp_path, kind):
    tokenizer = TOKENIZERS[kind]()
    log = ExposureLog(ExposureCallback(planted.manifest, tokenizer).log.watch, trainer="a test")
    log.begin(tmp_path / "watched.json", 0)
    model = tiny_masked(kind, len(tokenizer), dtype=torch.float32).train()
    with pytest.raises(ModelError, match="not a causal language model"):
        log.look(model, tokenizer, step=0, epoch=0.0, when="start")
    assert all(module.training for module in model.modules())
