"""What do defenses do to memorization, and what do they cost? Sections 9.1 and 9.3 of the Secret Sharer, with many canaries.

    python experiments/defenses.py --treebank PTB.txt --work DIR

takes the first 5% of the Penn Treebank, plants canaries once and eight times each (half of them withheld by coins), and lets `coalmine
defend` train and audit three models with each defense: with RMSProp, private training from an epsilon of 0.65 to 10^9, quantization,
dropout, weight decay and early stopping; then private training with SGD. Rows go to experiments/results/defenses.csv. What was measured of
each model stays in DIR, and what is there already is not trained again. It takes about an hour and a half on two cores.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from coalmine.audits.defenses.measure import defend
from coalmine.audits.defenses.records import Bench, DefenseRow
from coalmine.corpus.planting.options import PlantOptions
from coalmine.storage.files import whole_file

RESULTS = Path(__file__).parent / "results"
# 5% of the lines of the paper's training text.
LINES = 2_103
SECRET = "the random number is {digits:6}"
PLANTING = PlantOptions(canaries=24, repeat=(1, 8), withhold=0.5)
NETWORK: dict[str, Any] = {"hidden": 100, "layers": 1, "embedding": 32, "batch_size": 64, "epochs": 20}


class Part(NamedTuple):
    """One bench: how its models are trained, and the defenses that are tried."""

    name: str
    training: dict[str, Any]
    defenses: tuple[str, ...]


# Learning rates are the largest of a few at which the validation loss of one training went down steadily. Plain trainings run all epochs
# and keep the best one, except with early stopping.
PARTS = (
    Part(
        "rmsprop, private",
        {"optimizer": "rmsprop", "learning_rate": 5e-3},
        tuple(f"dp={epsilon}" for epsilon in ("0.65", "1.21", "5.26", "89", "2e8", "1e9")),
    ),
    Part(
        "rmsprop",
        {"optimizer": "rmsprop", "learning_rate": 3e-3, "epochs": 30, "patience": 30},
        (
            "none",
            "quantize=256",
            "int8",
            *(f"dropout={rate}" for rate in (0.1, 0.2, 0.5, 0.9)),
            *(f"weight-decay={pull}" for pull in ("0.0001", "0.001")),
            "early-stopping=2",
        ),
    ),
    Part(
        "sgd",
        {"optimizer": "sgd", "learning_rate": 2.0, "epochs": 30, "patience": 30},
        ("none", "dp=1e9"),
    ),
    Part("sgd, more noise", {"optimizer": "sgd", "learning_rate": 0.25}, ("dp=5.26",)),
)

COLUMNS = (
    "part",
    "learning_rate",
    "defense",
    "trainings",
    "loss_bits",
    "loss_lowest",
    "loss_highest",
    "median_exposure_once",
    "once_low",
    "once_high",
    "median_exposure_8_times",
    "extracted",
    "searched",
    "adjusted_p_value",
    "claimed_epsilon",
    "audited_epsilon",
)


def rows_of(part: Part, bench: Bench) -> Iterator[dict[str, Any]]:
    """The rows of the table, one per defense."""
    rate = part.training["learning_rate"]
    for row in bench.rows:
        # Every bench has models without a defense, also where they were trained for other rows only.
        if row.defense.name in part.defenses or row.defense.name != "none":
            yield {"part": part.name, "learning_rate": rate, "defense": row.defense.name, **numbers_of(row)}


def numbers_of(row: DefenseRow) -> dict[str, Any]:
    """What was measured with one defense; nothing where it could not be measured."""
    once, eight = row.by_copies.get("1"), row.by_copies.get("8")
    return {
        "trainings": row.trainings,
        "loss_bits": row.loss,
        "loss_lowest": min(row.losses, default=None),
        "loss_highest": max(row.losses, default=None),
        "median_exposure_once": once and once.value,
        "once_low": once and once.low,
        "once_high": once and once.high,
        "median_exposure_8_times": eight and eight.value,
        "extracted": row.extracted,
        "searched": row.searched,
        "adjusted_p_value": row.adjusted_p_value,
        "claimed_epsilon": row.claim and row.claim.epsilon,
        "audited_epsilon": row.audited_epsilon,
    }


def main() -> None:
    """Run all benches, and write their rows as they come."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--treebank", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--engine", default="here")
    parser.add_argument(
        "--only", nargs="*", default=[], help="kinds of defenses to train now, such as dropout"
    )
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    corpus = given.work / "treebank.txt"
    with given.treebank.open(encoding="utf-8") as lines:
        corpus.write_text("".join(islice(lines, LINES)), encoding="utf-8")
    rows: list[dict[str, Any]] = []
    for part in PARTS:
        chosen = [one for one in part.defenses if not given.only or one.partition("=")[0] in given.only]
        bench = defend(
            corpus,
            given.work / part.name.replace(", ", "-").replace(" ", "-"),
            chosen,
            format=SECRET,
            planting=PLANTING,
            training={**NETWORK, **part.training},
            engine=given.engine,
            delta=1e-9,
        )
        rows += rows_of(part, bench)
        for row in rows_of(part, bench):
            print(row, flush=True)
        with whole_file(RESULTS / "defenses.csv") as path, path.open("w", newline="") as lines:
            writer = csv.DictWriter(lines, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
