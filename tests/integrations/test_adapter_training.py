"""Both callbacks while an adapter is trained: what is measured is the model with its adapter, and the training stays as it was."""

import logging
import warnings

import peft
import pytest
import torch
from peft import LoraConfig
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments, default_data_collator

from coalmine import CanarySet
from coalmine.integrations import ExposureCallback
from coalmine.models import from_transformers
from integrations.tiny_training import planted_corpus, rows_of, tiny_gpt2
from models.tiny_transformers import byte_level
from oracles import forward_bits

LANGUAGE = {"task_type": "CAUSAL_LM"}
LAYERS = {"target_modules": ["c_attn"], "fan_in_fan_out": True, **LANGUAGE}
KINDS = {
    "LoRA": lambda: LoraConfig(r=2, lora_dropout=0.1, **LAYERS),
    "whole modules": lambda: LoraConfig(r=2, modules_to_save=["wte"], **LAYERS),
    "prompt": lambda: peft.PromptTuningConfig(num_virtual_tokens=4, **LANGUAGE),
    "prefix": lambda: peft.PrefixTuningConfig(num_virtual_tokens=4, **LANGUAGE),
}
# PEFT and Lightning warn of tied weights, workers and intervals; none of that is what is tested.
pytestmark = pytest.mark.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    return planted_corpus(tmp_path_factory.mktemp("corpus"), size=2_000)


def adapted(kind):
    model = tiny_gpt2()
    torch.manual_seed(1)
    return peft.get_peft_model(model, KINDS[kind]())


def with_trainer(planted, out, kind, *callbacks):
    arguments = TrainingArguments(
        output_dir=str(out), num_train_epochs=1, per_device_train_batch_size=8, learning_rate=0.05, save_strategy="no", report_to=[],
        use_cpu=True, disable_tqdm=True, seed=3, dataloader_pin_memory=False,
    )  # fmt: skip
    model = adapted(kind)
    Trainer(model=model, args=arguments, train_dataset=rows_of(planted), callbacks=list(callbacks)).train()
    return model


def with_lightning(planted, out, kind, *callbacks):
    lightning = pytest.importorskip("lightning.pytorch")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.language_model = adapted(kind)

        def training_step(self, batch):
            return self.language_model(**batch).loss

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.05)

    module = Module()
    torch.manual_seed(3)
    loader = DataLoader(rows_of(planted), batch_size=8, shuffle=True, collate_fn=default_data_collator)
    trainer = lightning.Trainer(
        default_root_dir=out, max_epochs=1, accelerator="cpu", logger=False, callbacks=list(callbacks),
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(module, loader)
    return module.language_model


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("train", [with_trainer, with_lightning], ids=["Trainer", "Lightning"])
def test_the_adapter_is_measured_and_trained_as_without_the_callback(planted, tmp_path, train, kind):
    pytest.importorskip("lightning.pytorch")
    from coalmine.integrations import LightningExposureCallback

    if train is with_trainer:
        callback = ExposureCallback(planted.manifest, byte_level(), every=5)
        log = callback.log
    else:
        callback = LightningExposureCallback(planted.manifest, byte_level(), every=5)
        log = callback.log_of_exposure
    bare = train(planted, tmp_path / "bare", kind).state_dict()
    model = train(planted, tmp_path / "watched", kind, callback)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, bare[name]), name

    first, last = log.moments[0], log.moments[-1]
    assert (first.problem, last.problem) == (None, None)
    ours = from_transformers(model, byte_level())
    of_id = {canary.canary_id: canary.text for canary in CanarySet.load(planted.manifest)}
    for seen in last.seen:
        expected = forward_bits(model, ours, of_id[seen["canary_id"]])
        assert seen["log_perplexity_bits"] == pytest.approx(expected, abs=1e-3)
    assert [seen["log_perplexity_bits"] for seen in first.seen] != pytest.approx(
        [seen["log_perplexity_bits"] for seen in last.seen], abs=1e-3
    )
