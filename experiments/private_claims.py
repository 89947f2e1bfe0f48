"""Does an audit ever contradict a true claim of privacy, and does it catch trainers whose claim is false?

    python experiments/private_claims.py --work DIR

trains many small character models privately on short documents and canaries, of which coins left half out, bounds epsilon from below by
the canaries' scores, and compares that with the claim. Each canary is one character that occurs nowhere else. It has two scores: by how
much training raised its probability, which needs the losses of the model before and after, and by how much the weights of its own
character moved towards it, which needs their weights. Rightly trained models must not be contradicted more often than the level of the
bound says (5%). Broken trainers claim as much: one adds no noise, one clips the gradient of a batch instead of each document's, and three
account for a half of their steps, a tenth, or one. Rows go to experiments/results/private-claims.csv as they come, and what is there
already is not trained again. A training takes 3 to 10 seconds. At the end, what canaries of ten trainings prove together goes to
experiments/results/private-claims-together.csv; private_claims_tables.py prints the tables.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast
from unittest.mock import patch

import numpy as np
import torch
from safetensors.numpy import load_file
from torch import nn

from coalmine import load_model, score_texts
from coalmine.corpus import embedded_documents
from coalmine.models.reference.checkpoint import load_checkpoint
from coalmine.models.reference.networks import Network
from coalmine.models.reference.tokens import CharacterTokenizer
from coalmine.randomness import arrays
from coalmine.statistics.epsilon.best import CoinScores, epsilon_best
from coalmine.statistics.epsilon.gaussian import epsilon_gaussian
from coalmine.statistics.roc import area_under_roc
from coalmine.statistics.scores import FloatArray, membership_scores
from coalmine.storage.files import whole_file
from coalmine.training.private.accounting import noise_for
from coalmine.training.private.noise import PrivateRandomness
from coalmine.training.private.steps import PrivateSteps
from coalmine.training.private.units import Rows
from coalmine.training.trainer import train_documents

RESULTS = Path(__file__).parent / "results"
COLUMNS = ("trainer", "claimed", "seed", "true", "noise", "score", "canaries", "planted", "auc", "bound", "contradicted", "gaussian",
           "gaussian_contradicted")  # fmt: skip
TOGETHER_COLUMNS = ("trainer", "claimed", "trainings", *COLUMNS[5:])
# How many trainings are audited together.
TOGETHER = 10
DELTA = 1e-5
# A tenth of the norms of canaries' gradients and less, so that clipping matters.
CLIP = 0.05
DOCUMENTS, CHARACTERS = 100, 8
# Of a script that the documents do not have, one character each: nothing but the canary itself teaches it.
SECRETS = [chr(0xAC00 + place) for place in range(1000)]
NETWORK: dict[str, Any] = {"layers": 1, "window": 32, "holdout": 0, "optimizer": "sgd"}
# Seeds below were used to choose the settings.
FIRST_SEED = 100
# Which claims are made of each trainer.
CLAIMS: dict[str, tuple[float, ...]] = {
    "right": (0.5, 1.0, 2.0, 4.0, 8.0),
    "no noise": (1.0, 3.0),
    "clipped by batch": (1.0, 3.0),
    "half accounted": (1.0, 4.0, 8.0),
    "a tenth accounted": (1.0, 2.0),
    "one step accounted": (1.0, 2.0),
    "right, longer": (8.0,),
    "half accounted, longer": (8.0,),
}


class Setting(NamedTuple):
    """How models are trained."""

    steps: int
    # The probability of a unit to be in a step, and the highest one: the numbers of planted canaries differ.
    rate: float
    highest_rate: float
    # By how much the noise of all steps moves a weight (one standard deviation); the learning rate follows from it.
    moved: float
    hidden: int
    embedding: int


SHORT = Setting(40, 0.5, 0.501, moved=0.3, hidden=16, embedding=8)
LONG = Setting(120, 1.0, 1.0, moved=0.2, hidden=4, embedding=1)


class Trainer(NamedTuple):
    """How a private trainer is broken, which share of its steps it accounts for, and how it trains."""

    broken: AbstractContextManager[None]
    accounted: float = 1.0
    setting: Setting = SHORT


def trainer(name: str) -> Trainer:
    """One of the trainers by its name."""
    return {
        "right": Trainer(nullcontext()),
        "no noise": Trainer(without_noise()),
        "clipped by batch": Trainer(clipped_by_batch()),
        "half accounted": Trainer(nullcontext(), 1 / 2),
        "a tenth accounted": Trainer(nullcontext(), 1 / 10),
        "one step accounted": Trainer(nullcontext(), 1 / SHORT.steps),
        "right, longer": Trainer(nullcontext(), 1, LONG),
        "half accounted, longer": Trainer(nullcontext(), 1 / 2, LONG),
    }[name]


@contextmanager
def without_noise() -> Iterator[None]:
    """Forget the noise."""
    with patch.object(PrivateRandomness, "add_noise", lambda *_: None):
        yield


@contextmanager
def clipped_by_batch() -> Iterator[None]:
    """Clip the mean gradient of a batch, which says nothing about what one document adds to it."""
    units: list[int] = []
    add_noise = PrivateRandomness.add_noise

    def add_unclipped(steps: PrivateSteps, rows: Rows) -> float:
        units.append(rows.number)
        of_rows = steps._reader.losses(rows)  # noqa: SLF001 - a trainer is broken on purpose
        of_rows.sum().backward()  # type: ignore[no-untyped-call]  # torch leaves this one without types
        return float((of_rows.detach() / rows.weights).sum())

    def clip_and_add_noise(
        chance: PrivateRandomness, network: nn.Module, step: int, deviation: float
    ) -> None:
        nn.utils.clip_grad_norm_(network.parameters(), CLIP * sum(units))
        units.clear()
        add_noise(chance, network, step, deviation)

    with (
        patch.object(PrivateSteps, "_add_clipped", add_unclipped),
        patch.object(PrivateRandomness, "add_noise", clip_and_add_noise),
    ):
        yield


@cache
def documents() -> list[str]:
    """What is trained on next to the canaries."""
    found = [text[:CHARACTERS] for text in embedded_documents(40_000) if len(text) >= CHARACTERS]
    return found[:DOCUMENTS]


def audited(name: str, claimed: float, seed: int, work: Path) -> list[dict[str, Any]]:
    """Train one model and bound its epsilon, by each score."""
    planted = arrays(seed, "experiment", name, str(claimed), "coins").random(len(SECRETS)) < 0.5
    texts = [*documents(), *(text for text, taken in zip(SECRETS, planted, strict=True) if taken)]
    tokenizer = CharacterTokenizer.of([*documents(), *SECRETS])
    broken, accounted, setting = trainer(name)
    shape = {"hidden": setting.hidden, "embedding": setting.embedding}
    options = {**NETWORK, **shape, "tokenizer": tokenizer, "seed": seed}
    noise = known_noise(claimed, round(accounted * setting.steps), setting.highest_rate, work)
    expected = math.ceil(setting.rate * len(texts))
    for kind in ("before", "after"):
        shutil.rmtree(work / kind, ignore_errors=True)
    # The weights before the first step, which do not depend on the coins.
    train_documents(documents(), out=work / "before", learning_rate=1e-12, epochs=1, **options)
    with broken:
        trained = train_documents(
            texts,
            out=work / "after",
            learning_rate=setting.moved * expected / (noise * CLIP * math.sqrt(setting.steps)),
            batch_size=expected,
            epochs=round(setting.steps * setting.rate),
            dp_noise=noise,
            dp_delta=DELTA,
            dp_clip=CLIP,
            dp_seed=seed,
            dp_rows=128,
            **options,
        )
    claim = trained.record.privacy
    assert claim
    assert claim.steps == setting.steps
    assert setting.rate <= claim.sampling_rate <= setting.highest_rate
    # Where steps were forgotten, the accountant knows what would have been right.
    true = claim.epsilon if isinstance(broken, nullcontext) else ""
    row = {"trainer": name, "claimed": claimed, "seed": seed, "true": true, "noise": noise}
    scores = {"loss": by_loss(work), "weights": by_weights(work, tokenizer)}
    np.savez(
        work / f"{name} {claimed} {seed}.npz", planted=planted, loss=scores["loss"], weights=scores["weights"]
    )
    return [
        {**row, "score": kind, **judged(each[planted], each[~planted], claimed)}
        for kind, each in scores.items()
    ]


def known_noise(claimed: float, accounted: int, rate: float, work: Path) -> float:
    """The noise that a claim needs if this many steps are accounted for; what was found once is kept, because finding it takes long."""
    path = work / "noise.json"
    known: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
    key = f"{claimed} {accounted} {rate}"
    if key not in known:
        known[key] = noise_for(claimed, DELTA, rate, accounted)
        path.write_text(json.dumps(known))
    return known[key]


def by_loss(work: Path) -> FloatArray:
    """By how many bits training raised the log-probability of each canary."""
    before, after = (score_texts(load_model(work / kind), SECRETS) for kind in ("before", "after"))
    return np.asarray(before - after)


def by_weights(work: Path, tokenizer: CharacterTokenizer) -> FloatArray:
    """By how much training moved the output weights of each canary's character towards it."""
    before, after = (load_file(work / kind / "model.safetensors") for kind in ("before", "after"))
    places = [tokenizer.encode(text)[0] for text in SECRETS]
    weights, bias = (
        (after[f"output.{part}"] - before[f"output.{part}"])[places] for part in ("weight", "bias")
    )
    return np.asarray(bias + weights @ first_hidden(work / "after", tokenizer.separator), dtype=np.float64)


def first_hidden(model: Path, separator: int) -> FloatArray:
    """(hidden,) what the output layer gets at the beginning of a document."""
    network = cast("Network", load_checkpoint(model, device="cpu", precision="float32").network)
    with torch.no_grad():
        hidden, _ = network.read_hidden(torch.tensor([[separator]]), network.initial_state(1), 1)
    return np.asarray(hidden.flatten())


def judged(in_scores: FloatArray, out_scores: FloatArray, claimed: float) -> dict[str, Any]:
    """What the scores of one training prove about epsilon, and whether that is above the claim."""
    scores = membership_scores(in_scores, out_scores)
    bound = epsilon_best(*scores, coins=CoinScores(scores), delta=DELTA).low or 0.0
    gaussian = epsilon_gaussian(*scores, delta=DELTA).low or 0.0
    return {
        "canaries": sum(map(len, scores)),
        "planted": len(in_scores),
        "auc": round(area_under_roc(*scores).value or math.nan, 4),
        "bound": round(bound, 4),
        "contradicted": int(bound > claimed),
        "gaussian": round(gaussian, 4),
        "gaussian_contradicted": int(gaussian > claimed),
    }


def main() -> None:
    """Train all, and write rows as they come."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--right", type=int, default=16, help="right trainings for each claim")
    parser.add_argument("--broken", type=int, default=10, help="trainings for each broken trainer and claim")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    path = RESULTS / "private-claims.csv"
    rows: list[dict[str, Any]] = []
    if path.exists():
        with path.open(newline="") as lines:
            rows = list(csv.DictReader(lines))
    done = {(row["trainer"], float(row["claimed"]), int(row["seed"])) for row in rows}
    for seed in range(FIRST_SEED, FIRST_SEED + max(given.right, given.broken)):
        for name, claims in CLAIMS.items():
            if seed - FIRST_SEED >= (given.right if name == "right" else given.broken):
                continue
            for claimed in claims:
                if (name, claimed, seed) in done:
                    continue
                rows += audited(name, claimed, seed, given.work)
                print(*rows[-2:], sep="\n", flush=True)
                save(path, COLUMNS, rows)
    together = [
        row
        for name, claims in CLAIMS.items()
        for claimed in claims
        for row in audited_together(name, claimed, given.work)
    ]
    save(RESULTS / "private-claims-together.csv", TOGETHER_COLUMNS, together)


def audited_together(name: str, claimed: float, work: Path) -> Iterator[dict[str, Any]]:
    """What the canaries of several trainings by one trainer prove together.

    The trainings have canaries and coins of their own, and a document more changes one of them, so what holds for the canaries of
    one training holds for those of all.
    """
    files = sorted(work.glob(f"{name} {claimed} *.npz"))
    for first in range(0, len(files) - TOGETHER + 1, TOGETHER):
        trainings = [np.load(path) for path in files[first : first + TOGETHER]]
        planted = np.concatenate([one["planted"] for one in trainings])
        for kind in ("loss", "weights"):
            # Where the scores of a training lie says nothing about single canaries.
            scores = np.concatenate([one[kind] - np.median(one[kind]) for one in trainings])
            row = {"trainer": name, "claimed": claimed, "trainings": TOGETHER, "score": kind}
            yield row | judged(scores[planted], scores[~planted], claimed)


def save(path: Path, columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    """Write all rows."""
    with whole_file(path) as unfinished, unfinished.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
