"""Which bound on epsilon do 1,000 canaries of each kind prove on the same private training, and how far is that from the claim?

    python experiments/canary_power.py --work DIR

plants 1,000 canaries of each kind in one corpus, each once and by its own coin, so that all kinds are measured in the same model. It
trains a small causal convolutional network on the characters: without privacy, with clipping and no noise, and with the noise of several
claims. The scores of planted and withheld canaries of each kind are compared as `coalmine membership` does. The unit of privacy is the
document, and each canary is one. Rows go to experiments/results/canary-power.csv, and facts about the runs to
experiments/results/canary-power.json. A training takes less than a minute on an idle core; what is in DIR already is not trained again.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
from pathlib import Path
from typing import Any

import msgspec

from coalmine import CanarySet, Format, load_model, membership_of_scores, plant, score_texts, train
from coalmine.corpus import embedded_documents, unseen_texts
from coalmine.storage.files import write_bytes

RESULTS = Path(__file__).parent / "results"
COLUMNS = ("training", "claimed", "seed", "kind", "planted", "withheld", "auc", "tpr_at_1_percent", "epsilon_at_least", "if_independent",
           "most_provable", "share_of_claim", "validation_bits")  # fmt: skip
DELTA = 1e-5
TRAINING = {"preset": "cnn", "hidden": 32, "layers": 2, "kernel": 3, "window": 48, "epochs": 6, "batch_size": 4096, "optimizer": "adam",
            "learning_rate": 0.05, "holdout": 0.05}  # fmt: skip
# The name of each training, and its options.
LEVELS: dict[str, dict[str, Any]] = {
    "epsilon 8": {"dp_epsilon": 8.0},
    "plain": {},
    "clipping, no noise": {"dp_noise": 0.0},
    "epsilon 1": {"dp_epsilon": 1.0},
    "epsilon 100": {"dp_epsilon": 100.0},
}


def formats(corpus: Path) -> dict[str, Format]:
    """The kinds of canaries; those of unseen characters share none."""
    words = sorted(
        {
            word
            for text in corpus.read_text().splitlines()
            for word in text.split()
            if word.isalpha() and word.islower()
        }
    )
    unseen = unseen_texts(corpus, most=1_016)
    return {
        "digits": Format("pin {digits:9}"),
        "words": Format("{word:3}", words=words),
        "unseen, 4 of 16 characters": Format("{unseen:4}", words=unseen[:16]),
        "unseen, one character each": Format("{unseen:1}", words=unseen[16:]),
    }


def trained(level: str, seed: int, work: Path) -> tuple[Any, CanarySet, dict[str, Format]]:
    """The record of a training, the canaries, and their formats by kind."""
    corpus = work / "corpus.txt"
    corpus.write_text("".join(f"{text}\n" for text in embedded_documents(40_000)))
    kinds = formats(corpus)
    planted = plant(
        corpus,
        list(kinds.values()),
        repeat=1,
        canaries=1000,
        references=0,
        seed=seed,
        out=work / f"planted-{seed}",
    )
    options: dict[str, Any] = dict(TRAINING)
    if LEVELS[level]:
        options |= {"dp_delta": DELTA, "dp_seed": seed, **LEVELS[level]}
    else:
        # Rows of the stream instead of units, and therefore more and smaller steps.
        options |= {"batch_size": 32, "learning_rate": 0.01}
    name = level.replace(",", "").replace(" ", "-")
    done = train(planted.corpus.parent, out=work / f"{name}-{seed}", seed=seed, **options)
    return done, planted.canaries, kinds


def rows(level: str, seed: int, work: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What each kind of canary proves about one training, and facts about it."""
    done, canaries, kinds = trained(level, seed, work)
    model = load_model(done.path)
    claim = done.record.privacy
    claimed = None if claim is msgspec.UNSET else claim.epsilon
    validation = done.record.epochs[-1].validation_loss_bits
    found = []
    for format_id, kind in zip(canaries.formats, kinds, strict=True):
        mine = [canary for canary in canaries if canary.format_id == format_id]
        scores = score_texts(model, [canary.text for canary in mine])
        sides: dict[bool, list[float]] = {True: [], False: []}
        for canary, score in zip(mine, scores, strict=True):
            sides[canary.planted].append(-float(score))
        [one] = membership_of_scores(sides[True], sides[False], delta=DELTA, seed=seed).populations
        bound = one.best.canary.low or 0.0
        rate = next(rate for rate in one.tpr_at_fpr if rate.fpr == 0.01)
        found.append(
            {
                "training": level,
                "claimed": "" if claimed is None else round(claimed, 3),
                "seed": seed,
                "kind": kind,
                "planted": len(sides[True]),
                "withheld": len(sides[False]),
                "auc": round(one.auc.value or 0.0, 4),
                "tpr_at_1_percent": round(rate.value or 0.0, 4),
                "epsilon_at_least": round(bound, 3),
                "if_independent": ""
                if one.independent is None
                else round(one.independent.canary.low or 0.0, 3),
                "most_provable": round(one.epsilon_ceiling, 3),
                "share_of_claim": "" if claimed is None else round(bound / claimed, 4),
                "validation_bits": "" if validation is None else round(validation, 4),
            }
        )
    facts = {
        "training": level,
        "seed": seed,
        "claim": None if claimed is None else msgspec.to_builtins(claim),
    }
    return found, facts


def main() -> None:
    """Run all of it, and write what is known after each training."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True, help="where models are kept")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--levels", nargs="+", default=list(LEVELS), choices=list(LEVELS))
    parser.add_argument("--name", default="canary-power")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    table: list[dict[str, Any]] = []
    facts: list[dict[str, Any]] = []
    for seed in given.seeds:
        for level in given.levels:
            found, about = rows(level, seed, given.work)
            table += found
            facts.append(about)
            for one in found:
                print(*(one[name] for name in COLUMNS), sep="  ", flush=True)
            save(given.name, table, facts)


def save(name: str, table: list[dict[str, Any]], facts: list[dict[str, Any]]) -> None:
    """Write the rows, and the median of each kind and training."""
    with open(RESULTS / f"{name}.csv", "w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
    medians: dict[str, dict[str, float]] = {}
    for one in table:
        medians.setdefault(one["training"], {})[one["kind"]] = statistics.median(
            other["epsilon_at_least"]
            for other in table
            if (other["training"], other["kind"]) == (one["training"], one["kind"])
        )
    document = {"delta": DELTA, "options": TRAINING, "median_epsilon_at_least": medians, "trainings": facts}
    write_bytes(RESULTS / f"{name}.json", (json.dumps(document, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()
