"""Does weight decay lower exposure, or does a model with it only learn less?

    python experiments/weight_decay.py --work DIR

trains the small model of docs/guides/defense-bench.md on the embedded corpus, without weight decay and with two strengths of it. After each
epoch it measures the training loss, the validation loss and the exposure of planted canaries among the references, so that each epoch with
weight decay can be compared with the epoch without it that has the nearest training loss. Rows go to experiments/results/weight-decay.csv.
It takes three minutes of one idle core.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import numpy as np

from coalmine import ExposureWatch, plant, train
from coalmine.corpus import embedded_documents

RESULTS = Path(__file__).parent / "results" / "weight-decay.csv"
COLUMNS = (
    "seed",
    "weight_decay",
    "epoch",
    "training_bits",
    "validation_bits",
    "exposure_1",
    "exposure_4",
    "exposure_16",
)
STRENGTHS = (0.0, 1e-5, 1e-4)
TRAINING: dict[str, Any] = {"hidden": 100, "layers": 1, "epochs": 10, "patience": 10, "learning_rate": 0.01}


def rows(seed: int, strength: float, work: Path) -> list[dict[str, Any]]:
    """What was measured after each epoch of one training; exposure is the mean over planted canaries."""
    texts = embedded_documents(100_000)
    valid, corpus = work / "valid.txt", work / "corpus.txt"
    valid.write_text("".join(f"{text}\n" for text in texts[::20]))
    corpus.write_text("".join(f"{text}\n" for place, text in enumerate(texts) if place % 20))
    planted = plant(
        corpus,
        "the random number is {digits:6}",
        repeat=[1, 4, 16],
        canaries=96,
        references=1000,
        out=work / "planted",
    )
    # At the end of each epoch only.
    watch = ExposureWatch(planted.canaries, every=10**9, method="references")
    model = train(
        planted.corpus.parent,
        out=work / f"model-{seed}-{strength:g}",
        valid=valid,
        seed=seed,
        weight_decay=strength,
        watch=watch,
        **TRAINING,
    )
    ours = {canary.canary_id for canary in planted.canaries if canary.planted}
    found = []
    for epoch, moment in zip(model.record.epochs, model.record.watched, strict=True):
        # A canary that comes before all references has a lower bound, and no value.
        exposures = {
            copies: [
                one["low"] if one["exposure"] is None else one["exposure"]
                for one in moment.seen
                if one["repetitions"] == copies and one["canary_id"] in ours
            ]
            for copies in (1, 4, 16)
        }
        found.append(
            {
                "seed": seed,
                "weight_decay": f"{strength:g}",
                "epoch": epoch.epoch,
                "training_bits": round(epoch.training_loss_bits or 0.0, 4),
                "validation_bits": round(epoch.validation_loss_bits or 0.0, 4),
                **{
                    f"exposure_{copies}": round(float(np.mean(each)), 2) for copies, each in exposures.items()
                },
            }
        )
    return found


def main() -> None:
    """Run all of it, and write what is known after each training."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True, help="where models are kept")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    table: list[dict[str, Any]] = []
    for seed in given.seeds:
        for strength in STRENGTHS:
            table += rows(seed, strength, given.work)
            print(table[-1], flush=True)
            with open(RESULTS, "w", newline="", encoding="utf-8") as stream:
                writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(table)


if __name__ == "__main__":
    main()
