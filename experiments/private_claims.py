"""Does an audit ever contradict a true claim of privacy, and does it catch trainers whose claim is false?

    python experiments/private_claims.py --work DIR

trains many small character models privately on short documents and canaries, of which coins left half out, bounds epsilon from below by
the canaries' scores, and compares that with the claim. Rightly trained models must not be contradicted more often than the level of the
bound says (5%). Three broken trainers claim as much: one adds no noise, one clips the gradient of a batch instead of each document's,
and one accounts for half of its steps. Rows go to experiments/results/private-claims.csv. It takes about half an hour on one core.
"""

from __future__ import annotations

import argparse
import csv
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from coalmine import Format, load_model, membership_of_scores, score_texts
from coalmine.corpus import embedded_documents
from coalmine.models.reference.tokens import CharacterTokenizer
from coalmine.randomness import arrays
from coalmine.storage.files import whole_file
from coalmine.training.private.accounting import noise_for
from coalmine.training.private.noise import PrivateRandomness
from coalmine.training.private.steps import PrivateSteps
from coalmine.training.private.units import Rows
from coalmine.training.trainer import train_documents

RESULTS = Path(__file__).parent / "results"
COLUMNS = ("trainer", "claimed", "seed", "noise", "canaries", "planted", "auc", "bound", "contradicted")
DELTA = 1e-5
# Below the norms of gradients, so that clipping matters.
CLIP = 0.1
DOCUMENTS, CHARACTERS = 400, 40
# Of characters that documents do not have, so that nothing but the canaries teaches them.
SECRET = Format("{re:[\u03b1-\u03c9]{8}}")
CANARIES = 400
NETWORK: dict[str, Any] = {
    "hidden": 48,
    "layers": 1,
    "embedding": 24,
    "window": 48,
    "optimizer": "adam",
    "learning_rate": 1e-2,
    "batch_size": 120,
    "epochs": 20,
    "threads": 1,
}


@contextmanager
def without_noise() -> Iterator[None]:
    """Forget the noise."""
    with patch.object(PrivateRandomness, "add_noise", lambda *_: None):
        yield


@contextmanager
def clipped_by_batch() -> Iterator[None]:
    """Clip the mean gradient of a batch, which says nothing about what one document adds to it."""

    def add_clipped(steps: PrivateSteps, rows: Rows) -> float:
        of_rows = steps._reader.losses(rows)  # noqa: SLF001 - a trainer is broken on purpose
        of_rows.sum().backward()  # type: ignore[no-untyped-call]  # torch leaves this one without types
        network, most = steps._network, steps._private.clip * rows.number  # noqa: SLF001
        torch.nn.utils.clip_grad_norm_(network.parameters(), most)
        return float((of_rows.detach() / rows.weights).sum())

    with patch.object(PrivateSteps, "_add_clipped", add_clipped):
        yield


@contextmanager
def half_accounted() -> Iterator[None]:
    """Add the noise that half as many steps would need."""

    def too_little(steps: PrivateSteps) -> float:
        claimed = steps._private.epsilon  # noqa: SLF001
        assert claimed is not None
        return noise_for(claimed, DELTA, steps.rate, steps.number // 2)

    with patch.object(PrivateSteps, "_noise_multiplier", too_little):
        yield


@contextmanager
def as_it_is() -> Iterator[None]:
    """Change nothing."""
    yield


TRAINERS = {
    "right": as_it_is,
    "no noise": without_noise,
    "clipped by batch": clipped_by_batch,
    "half accounted": half_accounted,
}


def audited(trainer: str, claimed: float, seed: int, work: Path) -> dict[str, Any]:
    """Train one model and bound its epsilon."""
    documents = [text[:CHARACTERS] for text in embedded_documents() if len(text) >= CHARACTERS][:DOCUMENTS]
    secrets = SECRET.sample(CANARIES, seed=seed, replace=False)
    planted = arrays(seed, "experiment", "coins").random(CANARIES) < 0.5
    texts = [*documents, *(text for text, taken in zip(secrets, planted, strict=True) if taken)]
    out = work / "model"
    shutil.rmtree(out, ignore_errors=True)
    with TRAINERS[trainer]():
        trained = train_documents(
            texts,
            out=out,
            tokenizer=CharacterTokenizer.of([*documents, *secrets]),
            holdout=0,
            seed=seed,
            dp_epsilon=claimed,
            dp_delta=DELTA,
            dp_clip=CLIP,
            dp_seed=seed,
            dp_rows=200,
            **NETWORK,
        )
    assert trained.record.privacy
    scores = -score_texts(load_model(out), secrets)
    found = membership_of_scores(scores[planted], scores[~planted], delta=DELTA, claimed_epsilon=claimed)
    population = found.populations[0]
    verdict = population.verdict
    assert verdict is not None
    bound = population.best.one_copy
    return {
        "trainer": trainer,
        "claimed": claimed,
        "seed": seed,
        "noise": trained.record.privacy.noise_multiplier,
        "canaries": CANARIES,
        "planted": int(planted.sum()),
        "auc": round(float(population.auc.value or np.nan), 4),
        "bound": None if bound is None else bound.low,
        "contradicted": verdict.outcome == "violated",
    }


def main() -> None:
    """Train all, and write rows as they come."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--right", type=int, default=12, help="trainings for each claim")
    parser.add_argument("--broken", type=int, default=10, help="trainings for each broken trainer and claim")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    plan = [("right", claimed, seed) for seed in range(given.right) for claimed in (0.5, 1.0, 2.0, 4.0)]
    plan += [
        (trainer, claimed, seed)
        for seed in range(given.broken)
        for trainer in list(TRAINERS)[1:]
        for claimed in (0.5, 1.0, 2.0)
    ]
    rows = []
    for trainer, claimed, seed in plan:
        rows.append(audited(trainer, claimed, seed, given.work))
        print(rows[-1], flush=True)
        with whole_file(RESULTS / "private-claims.csv") as path, path.open("w", newline="") as lines:
            writer = csv.DictWriter(lines, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
