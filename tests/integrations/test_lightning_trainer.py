"""The callback of Lightning: the same core, so here only what Lightning itself could do otherwise."""

import logging
import warnings

import pytest
import torch
from torch.utils.data import DataLoader
from transformers import default_data_collator

from coalmine.errors import ModelError
from coalmine.integrations import read_watched
from integrations.tiny_training import planted_corpus, rows_of, tiny_gpt2
from models.tiny_transformers import byte_level

L = pytest.importorskip("lightning.pytorch")
# Lightning warns of progress bars, workers and logging intervals; none of that is what is tested.
pytestmark = pytest.mark.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.language_model = tiny_gpt2()

    def training_step(self, batch):
        return self.language_model(**batch).loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


def make_logger():
    from lightning.pytorch.loggers.logger import Logger

    class Spy(Logger):
        def __init__(self):
            super().__init__()
            self.logged = []

        name, version = "spy", 0

        def log_hyperparams(self, *args, **kwargs):
            pass

        def log_metrics(self, metrics, step=None):
            self.logged.append((step, dict(metrics)))

    return Spy()


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    return planted_corpus(tmp_path_factory.mktemp("corpus"))


def fitted(planted, home, *callbacks, **options):
    torch.manual_seed(3)
    spy = make_logger()
    trainer = L.Trainer(
        default_root_dir=home, max_epochs=2, accelerator="cpu", logger=spy, callbacks=list(callbacks),
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False, **options,
    )  # fmt: skip
    module = Module()
    loader = DataLoader(rows_of(planted), batch_size=8, shuffle=True, collate_fn=default_data_collator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(module, loader)
    return module, trainer, spy


@pytest.mark.parametrize("accumulated", [1, 2])
def test_training_is_the_same_and_exposure_is_logged_and_kept(planted, tmp_path, accumulated):
    from coalmine.integrations import LightningExposureCallback

    options = {"accumulate_grad_batches": accumulated}
    bare, _, _ = fitted(planted, tmp_path / "bare", **options)
    callback = LightningExposureCallback(planted.manifest, byte_level(), every=2)
    watched, trainer, spy = fitted(planted, tmp_path / "watched", callback, **options)
    for name, tensor in bare.state_dict().items():
        assert torch.equal(tensor, watched.state_dict()[name]), name
    path = tmp_path / "watched" / "exposure-during-training.json"
    assert path.stat().st_mode & 0o777 == 0o600
    record = read_watched(path)
    last = trainer.global_step
    steps = [moment.step for moment in record.watched]
    assert steps == sorted({0, last // 2, last, *range(0, last + 1, 2)})
    assert record.trainer.startswith("lightning 2")
    epochs = [moment.epoch for moment in record.watched]
    assert epochs == sorted(epochs)
    assert (epochs[0], epochs[steps.index(last // 2)], epochs[-1]) == (0, 1, 2)
    name = "coalmine/log_perplexity_bits_median_x16"
    curve = [(step, logs[name]) for step, logs in spy.logged if name in logs]
    assert [step for step, _ in curve] == steps
    assert curve[-1][1] < curve[0][1] - 5


def test_the_model_is_found_or_asked_for():
    from coalmine.integrations.lightning_trainer import _only_model

    module = Module()
    assert _only_model(module) is module.language_model
    module.teacher = tiny_gpt2()
    with pytest.raises(ModelError, match="holds 2 transformers models"):
        _only_model(module)
