"""Does a model recite more the larger it is, the more often a text was repeated, and the more context it is given?

    python experiments/recitation.py --work DIR

writes a corpus in which passages of English stand 1, 2, 4, ... 64 times, trains transformers of growing size on it, and twins of
the largest on the deduplicated corpus, and asks each of them to complete the passages. Shares go to
experiments/results/recitation.csv, trends and what they rest on to recitation.json, the figure to docs/figures/. What is in DIR
already, such as trained models, is not made again.
"""

from __future__ import annotations

import argparse
import csv
import math
from pathlib import Path
from typing import Any

import msgspec
import vl_convert

from coalmine import load_model, recite, train
from coalmine.audits import Recitation
from coalmine.audits.recitation.report import recitation_charts
from coalmine.corpus import build_index, deduplicate, embedded_documents
from coalmine.evidence.charts import as_one
from coalmine.randomness import arrays
from coalmine.storage.files import PUBLIC, whole_file, write_bytes, write_json

RESULTS = Path(__file__).parent / "results"
FIGURES = Path(__file__).parents[1] / "docs" / "figures"
# How many passages stand how often in the corpus: most of it is unique, as in real corpora.
PASSAGES = {1: 500, 2: 60, 4: 40, 8: 26, 16: 16, 32: 10, 64: 7}
# A sequence is a whole passage, so that no two overlap: shares have the independent trials that their intervals assume.
CHARACTERS, SUFFIX = 100, 25
CONTEXTS = (5, 10, 20, 40, 75)
# About as many of each number of copies as there are.
EACH = 40
HIDDEN = (24, 32, 48, 64, 96)
EPOCHS = 8
TRAINING: dict[str, Any] = {
    "preset": "transformer",
    "layers": 2,
    "holdout": 0.0,
    "learning_rate": 0.002,
    "batch_size": 8,
    "window": 128,
}


def write_corpus(path: Path, seed: int = 0) -> dict[int, list[str]]:
    """Write the corpus, one passage a line in random order; returns the passages by how often each stands there."""
    cut = (text[:CHARACTERS] for text in embedded_documents() if len(text) >= CHARACTERS)
    long_enough = list(dict.fromkeys(cut))
    order = arrays(seed, "recitation", "passages").permutation(len(long_enough))
    chosen = iter([long_enough[place] for place in order])
    by_copies = {copies: [next(chosen) for _ in range(number)] for copies, number in PASSAGES.items()}
    lines = [text for copies, texts in by_copies.items() for text in texts for _ in range(copies)]
    shuffled = arrays(seed, "recitation", "order").permutation(len(lines))
    write_bytes(path, "".join(lines[place] + "\n" for place in shuffled).encode("ascii"))
    return by_copies


def train_all(work: Path) -> tuple[list[Path], dict[str, Path]]:
    """The models of growing size, and the twins: with as many passes over less text, and with no fewer tokens read."""
    corpus = work / "corpus.txt"
    write_corpus(corpus)
    less = deduplicate(corpus, work / "deduplicated", overwrite=True)
    sizes = [work / f"hidden-{hidden}" for hidden in HIDDEN]
    for hidden, out in zip(HIDDEN, sizes, strict=True):
        train(corpus, out=out, hidden=hidden, epochs=EPOCHS, **TRAINING)
    # A separator stands behind each document.
    before, after = (
        less.bytes_before + less.documents_before,
        less.bytes_after + less.documents_after,
    )
    twins = {"twin-same-passes": EPOCHS, "twin-same-tokens": math.ceil(EPOCHS * before / after)}
    for name, epochs in twins.items():
        train(
            work / "deduplicated" / "corpus.txt",
            out=work / name,
            hidden=HIDDEN[-1],
            epochs=epochs,
            **TRAINING,
        )
    return sizes, {name: work / name for name in twins}


def rows_of(result: Recitation) -> list[dict[str, Any]]:
    """A row for each model, context and number of copies; all of them together where copies are empty."""
    parameters = {facts.name: facts.parameters for facts in result.models}
    return [
        {
            "model": group.model,
            "parameters": parameters[group.model],
            "context": group.context,
            "copies": "" if group.bucket is None else group.copies[0],
            "sequences": group.recited.n,
            "recited": group.recited.value,
            "low": group.recited.low,
            "high": group.recited.high,
            **{way: share.value for way, share in group.ways.items()},
        }
        for group in result.groups
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="for the corpus, the index and the models")
    work = parser.parse_args().work
    sizes, twins = train_all(work)
    index = build_index(work / "corpus.txt", work / "index", tokenizer=sizes[0], overwrite=True)
    models = [load_model(path) for path in sizes]
    asked: dict[str, Any] = {
        "contexts": CONTEXTS,
        "suffix": SUFFIX,
        "lengths": [CHARACTERS],
        "per_bucket": EACH,
    }
    family = recite(models, index, baseline=load_model(twins["twin-same-tokens"]), **asked)
    other = recite(load_model(twins["twin-same-passes"]), index, **asked)
    rows = [*rows_of(family), *rows_of(other)]
    with (
        whole_file(RESULTS / "recitation.csv") as temporary,
        open(temporary, "w", encoding="utf-8", newline="") as stream,
    ):
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    write_json(
        RESULTS / "recitation.json",
        {
            "passages": {str(copies): many for copies, many in PASSAGES.items()},
            "index": family.index,
            "settings": family.settings,
            "models": [*family.models, *other.models],
            "trends": [msgspec.to_builtins(one) for one in family.trends],
            "exclusive": family.exclusive,
        },
        mode=PUBLIC,
    )
    drawing = as_one(recitation_charts(family), columns=3, width=250)
    write_bytes(FIGURES / "recitation.svg", vl_convert.vegalite_to_svg(drawing).encode(), mode=PUBLIC)


if __name__ == "__main__":
    main()
