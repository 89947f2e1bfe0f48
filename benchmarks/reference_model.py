"""The model that the search benchmarks ask: the paper's character LSTM, trained on canaries as `coalmine demo` does."""

from __future__ import annotations

from pathlib import Path

from coalmine import CanarySet, load_model, plant, train
from coalmine.corpus import write_embedded_corpus
from coalmine.models.inference.incremental import StatefulModel

SECRET = "the random number is {digits:9}"


def reference_model(work: Path) -> tuple[StatefulModel, CanarySet]:
    """Train it in `work`, or take it from there; about a minute."""
    write_embedded_corpus(work / "corpus.txt", 400_000)
    planted = plant(
        work / "corpus.txt",
        SECRET,
        repeat=[1, 4, 16, 64],
        canaries=4,
        withhold=0.0,
        out=work / "planted",
        overwrite=True,
    )
    train(work / "planted", out=work / "model", epochs=3)
    return load_model(work / "model"), planted.canaries
