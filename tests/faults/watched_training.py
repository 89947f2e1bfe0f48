"""A small training with the callback that watches exposure, which resumes from its last whole checkpoint; runs in a child."""

import json
import shutil
import sys
from pathlib import Path

from transformers import Trainer, TrainingArguments

from coalmine.integrations import ExposureCallback
from integrations.tiny_training import rows_of, tiny_gpt2
from models.tiny_transformers import byte_level


class Rows:
    """What `rows_of` needs of a planted corpus."""

    def __init__(self, folder):
        self.corpus, self.manifest = folder / "corpus.txt", folder / "canaries.json"


def main():
    """Train on the first directory that is given, a planted one, with checkpoints in the second."""
    planted, checkpoints = Rows(Path(sys.argv[1])), Path(sys.argv[2])
    arguments = TrainingArguments(
        str(checkpoints), num_train_epochs=2, per_device_train_batch_size=16, learning_rate=0.01, report_to=[], use_cpu=True,
        disable_tqdm=True, dataloader_pin_memory=False, save_strategy="steps", save_steps=1, seed=3, logging_strategy="no",
    )  # fmt: skip
    callback = ExposureCallback(planted.manifest, byte_level(), every=2, out="seen.json")
    rows = rows_of(planted)[:48]
    trainer = Trainer(model=tiny_gpt2(), args=arguments, train_dataset=rows, callbacks=[callback])
    trainer.train(resume_from_checkpoint=_last_whole_checkpoint(checkpoints))
    return 0


def _last_whole_checkpoint(folder):
    """The trainer does not write its checkpoints whole; its state is what it writes last."""
    whole = []
    for path in folder.glob("checkpoint-*"):
        try:
            json.loads((path / "trainer_state.json").read_bytes())
        except (OSError, ValueError):
            shutil.rmtree(path)
        else:
            whole.append(path)
    return str(max(whole, key=lambda path: int(path.name.split("-")[1]))) if whole else None
