"""Which planted secrets does a crosscheck flag, by their number of copies, in one half or in both, and by which statistic?

    python experiments/crosscheck.py --work DIR

plants sentences with random numbers of nine digits inside paragraphs of the embedded corpus: once, twice and up to sixteen times, with all
copies in one half or with as many in each. Then it runs `crosscheck` and compares the statistics at one false-positive rate: the threshold
of each is the one that flags 1% of the paragraphs in which nothing was planted. Rows go to experiments/results/crosscheck.csv, and facts
about the runs and what the command's own rule flags to experiments/results/crosscheck.json. It takes a few minutes on one core.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pyarrow import parquet

from coalmine.audits import CrosscheckOptions, crosscheck
from coalmine.audits.disagreement.measure import divide
from coalmine.corpus import CorpusDocument, embedded_documents
from coalmine.randomness import arrays
from coalmine.statistics import clustered_interval
from coalmine.storage.files import write_bytes

RESULTS = Path(__file__).parent / "results"
COLUMNS = ("statistic", "copies", "halves", "canaries", "documents", "flagged", "share", "low", "high")
COPIES = (1, 2, 4, 8, 16)
# Lengths of the span of `crosscheck`'s own statistic; the plain differences of log-perplexities are the same for all.
SPANS = (8, 16, 24, 32)
FALSE_POSITIVE_RATE = 0.01
TRAINING = {"hidden": 128, "layers": 1, "embedding": 32, "epochs": 12}


class Planted(NamedTuple):
    """A canary: its number, how often it is in the corpus, in how many halves, and the places of its documents."""

    number: int
    copies: int
    halves: int
    places: tuple[int, ...]


def plant(texts: list[str], canaries: int, seed: int) -> list[Planted]:
    """Put canaries into texts, `canaries` of each number of copies in one half, and as many in both."""
    chance = arrays(seed, "experiment", "crosscheck")
    documents = [CorpusDocument(number, text) for number, text in enumerate(texts, 1)]
    first = divide(documents, CrosscheckOptions(seed=seed)).first
    free = {half: chance.permutation(np.flatnonzero(first == half)).tolist() for half in (True, False)}
    planted: list[Planted] = []
    for copies in COPIES:
        for halves in (1, 2) if copies > 1 else (1,):
            for _ in range(canaries):
                side = bool(chance.random() < 0.5)
                sides = [side] * copies if halves == 1 else [side, not side] * (copies // 2)
                places = tuple(free[one].pop() for one in sides)
                planted.append(Planted(len(planted), copies, halves, places))
    for one in planted:
        sentence = f" The access code is {chance.integers(10**9):09d}."
        for place in one.places:
            stops = [at + 1 for at, letter in enumerate(texts[place]) if letter == "."] or [len(texts[place])]
            at = int(chance.choice(stops))
            texts[place] = texts[place][:at] + sentence + texts[place][at:]
    return planted


def run(seed: int, size: int, canaries: int, work: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """One corpus and two models: which copies each statistic flags, and facts about the run."""
    texts = embedded_documents(size)
    planted = plant(texts, canaries, seed)
    corpus = work / f"corpus-{seed}.txt"
    write_bytes(corpus, "".join(f"{text}\n" for text in texts).encode())
    untouched = np.ones(len(texts), dtype=bool)
    untouched[[place for one in planted for place in one.places]] = False
    found: list[dict[str, Any]] = []
    facts: dict[str, Any] = {
        "seed": seed,
        "documents": len(texts),
        "planted_documents": int((~untouched).sum()),
    }
    statistics: dict[str, Any] = {}
    for span in SPANS:
        out, name = work / f"crosscheck-{seed}", f"share, span of {span}"
        result = crosscheck(corpus, out, training=TRAINING, overwrite=True, seed=seed, span=span)
        columns = parquet.read_table(out / "documents.parquet")
        statistics[name] = scores = np.array(columns["score"])
        by_rule = [one.document - 1 for one in result.flagged]
        facts[name] = {
            "threshold": float(np.quantile(scores[untouched], 1 - FALSE_POSITIVE_RATE)),
            "beyond_chance": result.beyond_chance,
            "flagged": len(by_rule),
            "flagged_planted": int((~untouched[by_rule]).sum()),
            "untouched_beyond_chance": int(
                (scores[untouched] >= (np.inf if result.threshold is None else result.threshold)).sum()
            ),
        }
    statistics["total"] = np.array(columns["other_bits"]) - np.array(columns["own_bits"])
    statistics["mean"] = statistics["total"] / np.array([len(text) for text in texts])
    for name, scores in statistics.items():
        threshold = float(np.quantile(scores[untouched], 1 - FALSE_POSITIVE_RATE))
        found += [
            {"statistic": name, "canary": (seed, one.number), "copies": one.copies, "halves": one.halves,
             "flagged": bool(scores[place] > threshold)}
            for one in planted
            for place in one.places
        ]  # fmt: skip
    facts["models"] = [{key: one[key] for key in ("parameters",) if key in one} for one in result.models]
    return found, facts


def rows_of(found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The share of copies that are flagged in each cell, with an interval over canaries."""
    cells = defaultdict(list)
    for one in found:
        cells[one["statistic"], one["copies"], one["halves"]].append(one)
    for (statistic, copies, halves), these in cells.items():
        _, clusters = np.unique([f"{one['canary']}" for one in these], return_inverse=True)
        flagged = sum(one["flagged"] for one in these)
        low, high, _ = clustered_interval(flagged, clusters, 0.95)
        yield {
            "statistic": statistic,
            "copies": copies,
            "halves": halves,
            "canaries": int(clusters.max()) + 1,
            "documents": len(these),
            "flagged": flagged,
            "share": round(flagged / len(these), 4),
            "low": round(low, 4),
            "high": round(high, 4),
        }


def main() -> None:
    """Run the experiment, and write its results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--work", type=Path, help="a directory that keeps the models for the next time")
    parser.add_argument("--runs", type=int, default=4, help="corpora, each with two models")
    parser.add_argument("--size", type=int, default=250_000, help="bytes of each corpus")
    parser.add_argument("--canaries", type=int, default=3, help="canaries of each kind in each corpus")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = given.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        made = []
        for seed in range(given.runs):
            made.append(run(seed, given.size, given.canaries, work))
            print(json.dumps(made[-1][1], indent=1), flush=True)
    rows = list(rows_of([one for found, _ in made for one in found]))
    with open(RESULTS / "crosscheck.csv", "w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    facts = {
        "false_positive_rate": FALSE_POSITIVE_RATE,
        "training": TRAINING,
        "runs": [one for _, one in made],
    }
    write_bytes(RESULTS / "crosscheck.json", (json.dumps(facts, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
