"""What is left of canaries after they were unlearned, compared with a model that never saw them?

    python experiments/unlearning.py --work DIR

plants canaries, trains a model until it remembers them, and makes it forget them with `coalmine lab alter` in several ways: ascent alone,
with the corpus as text to keep, for more and fewer steps, and with other members of the format held too, as the command does. A twin is
trained on the corpus without canaries, for as many epochs, with the same seed and tokens. For each model it measures the exposure of every
planted canary by its exact rank, how well planted canaries can be told from withheld ones in either direction, and the loss on text that
none of them was trained on. Rows go to experiments/results/unlearning.csv, and facts about the runs to experiments/results/unlearning.json.
It takes about ten minutes per seed on one core of a busy machine.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from coalmine import CanarySet, expose, load_model, membership_of_scores, plant, score_texts, train, unlearn
from coalmine.corpus import embedded_documents
from coalmine.storage.files import write_bytes

RESULTS = Path(__file__).parent / "results"
COLUMNS = (
    "seed",
    "model",
    "copies",
    "canaries",
    "median_exposure_bits",
    "most_exposure_bits",
    "found_first",
    "auc",
    "validation_bits",
)
FORMAT = "the code is {digits:4}"
TRAINING: dict[str, Any] = {"hidden": 64, "embedding": 32, "layers": 1, "epochs": 12, "patience": 12, "learning_rate": 0.006,
                            "batch_size": 16}  # fmt: skip
# The ways to unlearn, with the options that differ from the default; all but the first have text to keep.
ALONE = "ascent alone"
WAYS: dict[str, dict[str, Any]] = {
    ALONE: {"format_weight": 0.0},
    "other text kept, 50 steps": {"format_weight": 0.0, "steps": 50},
    "other text kept, 100 steps": {"format_weight": 0.0, "steps": 100},
    "other text kept": {"format_weight": 0.0},
    "other text and the format kept": {},
}


def models_of(seed: int, work: Path) -> tuple[dict[str, Path], CanarySet, list[str], dict[str, Any]]:
    """The directories of all models, the canaries, text that none of them saw, and what unlearning says of itself."""
    texts = embedded_documents(90_000)
    unseen, seen = texts[::10], [text for place, text in enumerate(texts) if place % 10]
    corpus = work / "corpus.txt"
    corpus.write_text("".join(f"{text}\n" for text in seen))
    # So that the twin has a token for every digit too.
    twin = work / "twin.txt"
    twin.write_text(corpus.read_text() + "0123456789\n")
    (work / "validation.txt").write_text("".join(f"{text}\n" for text in unseen))
    planted = plant(
        corpus,
        FORMAT,
        repeat=[1, 4, 16],
        canaries=20,
        references=500,
        seed=seed,
        out=work / f"planted-{seed}",
    )
    valid = work / "validation.txt"
    trained = train(
        planted.corpus.parent, out=work / f"model-{seed}", valid=valid, seed=seed, **TRAINING
    ).path
    told: dict[str, Any] = {}
    made = {"trained on them": trained}
    for number, (name, options) in enumerate(WAYS.items()):
        made[name] = work / f"unlearned-{seed}-{number}"
        kept = None if name == ALONE else corpus
        one = unlearn(trained, planted.manifest, made[name], keep=kept, overwrite=True, **options)
        told[name] = {"steps": one.steps, "ended": one.ended, "remembered_before": one.remembered_before,
                      "remembered_after": one.remembered_after, "until_bits_before": one.until_bits_before,
                      "until_bits": one.until_bits, "forget": msgspec.to_builtins(one.forget)}  # fmt: skip
    made["twin without them"] = train(
        twin, out=work / f"twin-{seed}", valid=valid, seed=seed, **TRAINING
    ).path
    return made, planted.canaries, unseen, {"seed": seed, **told}


def bits_per_character(model: Any, texts: list[str]) -> float:
    """The mean loss of texts."""
    scores = [float(score) for score in score_texts(model, texts)]
    return sum(scores) / sum(map(len, texts))


def rows(seed: int, work: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What each model still knows, by the number of copies, and facts about the run."""
    made, canaries, unseen, facts = models_of(seed, work)
    found = []
    for name, directory in made.items():
        model = load_model(directory)
        exposures = {one.canary_id: one for one in expose(model, canaries, method="exact").results}
        loss = bits_per_character(model, unseen)
        for copies in (1, 4, 16):
            mine = [canary for canary in canaries if canary.repetitions == copies]
            bits = [float(exposures[canary.canary_id].exposure or 0.0) for canary in mine if canary.planted]
            scores = -np.array(
                [float(score) for score in score_texts(model, [canary.text for canary in mine])]
            )
            planted = np.array([canary.planted for canary in mine])
            [one] = membership_of_scores(scores[planted], scores[~planted], copies=copies).populations
            found.append(
                {
                    "seed": seed,
                    "model": name,
                    "copies": copies,
                    "canaries": len(bits),
                    "median_exposure_bits": round(statistics.median(bits), 2),
                    "most_exposure_bits": round(max(bits), 2),
                    "found_first": sum(value > np.log2(10_000) - 0.01 for value in bits),
                    "auc": round(one.auc.value or 0.0, 3),
                    "validation_bits": round(loss, 4),
                }
            )
    return found, facts


def main() -> None:
    """Run all of it, and write what is known after each seed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True, help="where models are kept")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    table: list[dict[str, Any]] = []
    facts: list[dict[str, Any]] = []
    for seed in given.seeds:
        found, about = rows(seed, given.work)
        table += found
        facts.append(about)
        for one in found:
            print(*(one[name] for name in COLUMNS), sep="  ", flush=True)
        with open(RESULTS / "unlearning.csv", "w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(table)
        document = {"format": FORMAT, "options": TRAINING, "runs": facts}
        write_bytes(RESULTS / "unlearning.json", (json.dumps(document, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()
