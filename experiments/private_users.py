"""Does private training by users defeat the provenance audit, and what is left of the model?

    python experiments/private_users.py --data TWEETS.jsonl.gz --work DIR

trains targets on the posts of the same members: plainly, stopped early, with clipping by user and no noise, and with the noise of several
epsilons. Each is audited twice: with shadow models that were trained plainly, and with shadow models that were trained as the target was,
by an auditor who knows the recipe. That is section 6 and figure 8 of Auditing Data Provenance in Text-Generation Models (Song and
Shmatikov, 2019, arXiv:1811.00513). The vocabulary is that of the reference users, so that it gives nobody away. Rows go to
experiments/results/provenance-private.csv, and what each model predicts to provenance-private.json. What is in DIR is not trained again.
"""

from __future__ import annotations

import argparse
import functools
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
from provenance_data import posts
from provenance_paper import SEED, Measured, Target, Task, fitted

from coalmine.audits.provenance.fit import Fit
from coalmine.audits.provenance.views import look, view_of
from coalmine.audits.provenance.words import frequency_ranks
from coalmine.engines.engine import open_engine
from coalmine.models.protocols import IntArray, Model
from coalmine.models.reference.tokens import WordTokenizer
from coalmine.training.record import read_training

TASK = Task(
    "provenance-words",
    posts,
    (149, 149, 300),
    texts=10,
    words=15,
    epochs=15,
    shadows=2,
    vocabulary_of="reference",
)
# Smaller than the paper's: with as few users, every weight more is noise.
SIZES = {"vocabulary": 1_000, "hidden": 32, "embedding": 32, "dropout": 0.0}
# A third of the users in each step, on average; the median norm of users' gradients is 0.3 to 0.75.
PRIVATE = {
    "dp_unit": "user",
    "dp_delta": 1e-4,
    "dp_clip": 0.3,
    "dp_rows": 256,
    "batch_size": 50,
    "epochs": 30,
    "learning_rate": 0.01,
}
CLAIMED = ("epsilon", "delta", "units", "steps", "sampling_rate", "noise_multiplier", "clip", "clipping")
# The targets, each with its options.
TARGETS: dict[str, dict[str, Any]] = {
    "plain": {"learning_rate": 0.005},
    # About as good a model as with a noise of 0.1, and stopped before it remembers more.
    "early": {"learning_rate": 0.005, "epochs": 6},
    "clipped": {**PRIVATE, "dp_noise": 0.0},
    "noise 0.03": {**PRIVATE, "dp_noise": 0.03},
    "noise 0.1": {**PRIVATE, "dp_noise": 0.1},
    "noise 0.3": {**PRIVATE, "dp_noise": 0.3},
    "noise 1": {**PRIVATE, "dp_noise": 1.0},
    "epsilon 4.129": {**PRIVATE, "dp_epsilon": 4.129},
    # Weights as they were drawn.
    "untrained": {"learning_rate": 1e-9, "epochs": 1},
}


class PrivateTargets(Target):
    """Targets on the same members, and the shadow models of both auditors."""

    def model(self, name: str, seed: int) -> Model:
        """A target, which is trained if it is not there."""
        options = {**SIZES, **TARGETS[name], "seed": seed}
        if "dp_unit" in options:
            options["dp_seed"] = seed
        return self.trained(place_of(name, seed), **options)

    def shadows(self, name: str) -> Fit:
        """Shadow models that are trained as a target is."""
        self.model(name, SEED)
        like = place_of(name, SEED)
        return fitted(self.split.reference, self.task, self.work, f"fit-{like}", self.engine, like=like)

    def measured(self, name: str, shadows: str, seed: int) -> Measured:
        """Members and non-members, with shadow models like those of a target; and what the target predicts."""
        target, fit = self.model(name, seed), self.shadows(shadows)
        setting = f"shadows {shadows}, seed {seed}"
        rows, predicts = self.compared(name, setting, target, fit, self.split.reference)
        claim = read_training(self.work / place_of(name, seed)).privacy
        claimed = None if claim is msgspec.UNSET else {one: getattr(claim, one) for one in CLAIMED}
        return rows, {"performance": predicts, "ranks": self.ranks(target), "claim": claimed}

    def ranks(self, target: Model) -> dict[str, dict[str, float]]:
        """Figure 8: the mean predicted rank of the more and of the less frequent half of the vocabulary."""
        sides = {"train": self.split.members, "test": self.split.non_members}
        shares = frequency_ranks(self.counts(target))
        found: dict[str, dict[str, float]] = {}
        for side, users in sides.items():
            views = look(target, view_of(target), [text for user in users for text in user.texts])
            known = [view for view in views if view is not None and view.tokens is not None]
            ranks = np.concatenate([view.ranks for view in known])
            rare = shares[np.concatenate([view.tokens for view in known if view.tokens is not None])] >= 0.5
            found[side] = {"frequent": float(ranks[~rare].mean()), "rare": float(ranks[rare].mean())}
        return found

    def counts(self, target: Model) -> IntArray:
        """How often each token of the vocabulary occurs in the texts of members."""
        tokenizer = cast("WordTokenizer", target.tokenizer)
        documents = [tokenizer.encode_open(text.text) for user in self.split.members for text in user.texts]
        tokens = np.concatenate([*map(np.array, documents), np.full(len(documents), tokenizer.separator)])
        return np.bincount(tokens, minlength=tokenizer.size)

    def frequencies(self) -> Measured:
        """What a model of frequencies alone predicts of texts of non-members: a target that is no better has learned no language."""
        target = self.model("plain", SEED)
        tokenizer = cast("WordTokenizer", target.tokenizer)
        counts = self.counts(target) + 1
        words = [
            token
            for user in self.split.non_members
            for text in user.texts
            for token in tokenizer.encode_open(text.text)
            if token != tokenizer.unknown
        ]
        bits = -np.log2(counts / counts.sum())[words]
        hits = np.array(words) == counts.argmax()
        return [], {
            "perplexity": float(2.0 ** bits.mean()),
            "accuracy": float(hits.mean()),
            "size": tokenizer.size,
        }


def place_of(name: str, seed: int) -> str:
    """The directory of a target."""
    return f"{name.replace(' ', '-')}-{seed}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="for the models")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument(
        "--targets",
        nargs="+",
        default=list(TARGETS),
        choices=list(TARGETS),
        help="those to train; what was measured of others is kept",
    )
    given = parser.parse_args()
    with open_engine("here") as engine:
        targets = PrivateTargets("private", given, engine, TASK)
        targets.experiment.facts["targets"] = {name: {**SIZES, **own} for name, own in TARGETS.items()}
        targets.experiment.part("frequencies", targets.frequencies)
        for seed in given.seeds:
            for name in TARGETS:
                for shadows in dict.fromkeys(["plain", name]):
                    part = f"{place_of(name, seed)} by {shadows}"
                    if name in given.targets or targets.experiment.kept(part).is_file():
                        measure = functools.partial(targets.measured, name, shadows, seed)
                        targets.experiment.part(part, measure)


if __name__ == "__main__":
    main()
