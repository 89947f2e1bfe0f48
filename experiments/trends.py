"""How often does an interval of a rate hold the truth, and how often is a trend shown, where sequences come in clusters?

    python experiments/trends.py

draws rates of known size, from documents whose sequences agree with each other to a known degree, and asks `clustered_interval` and
`log_linear_trend` about them; beside them the exact interval that takes all sequences as independent, and the rule for trends that
judges by the spread around the line alone. Rows go to experiments/results/trends.csv. It takes a few minutes on one core.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from coalmine.randomness import arrays
from coalmine.statistics import clopper_pearson, clustered_interval, log_linear_trend
from coalmine.storage.files import whole_file

RESULTS = Path(__file__).parent / "results"
FloatArray = NDArray[np.float64]
COLUMNS = (
    "part",
    "rates",
    "points",
    "documents",
    "sequences",
    "sizes",
    "agree",
    "icc",
    "spread",
    "rule",
    "runs",
    "covered",
    "shown",
    "width",
)
# How strongly sequences of one document agree.
ICCS = (0.0, 0.2, 0.8)


def document_rates(
    rate: float, icc: float, documents: int, agree: str, chance: np.random.Generator
) -> FloatArray:
    """The share of each document that is recited, with a mean of `rate`: beta-distributed, or all or nothing for a share of them."""
    if icc == 0.0:
        return np.full(documents, rate)
    if agree == "beta":
        total = 1.0 / icc - 1.0
        return np.asarray(chance.beta(rate * total, (1 - rate) * total, documents))
    together = chance.random(documents) < icc
    return np.where(together, (chance.random(documents) < rate).astype(float), rate)


def sizes_of(kind: str, documents: int, chance: np.random.Generator) -> NDArray[np.int64]:
    """How many sequences each document has."""
    if kind == "uneven":
        return np.maximum(1, np.round(chance.pareto(1.5, documents) * 5)).astype(np.int64)
    return np.full(documents, int(kind), dtype=np.int64)


def shares(runs: int) -> Iterator[dict[str, Any]]:
    """Coverage of the intervals of one rate."""
    for agree, documents, kind in itertools.product(
        ("beta", "all or nothing"), (10, 100), ("1", "10", "uneven")
    ):
        for icc, rate in itertools.product(ICCS if kind != "1" else (0.0,), (0.01, 0.05, 0.3)):
            yield from share_rows(runs, rate, documents, kind, agree, icc)


def share_rows(
    runs: int, rate: float, documents: int, kind: str, agree: str, icc: float
) -> Iterator[dict[str, Any]]:
    chance = arrays(0, "trends", "shares", agree, documents, kind, str(icc), str(rate))
    limits: dict[str, list[tuple[float, float]]] = {"documents": [], "independent": []}
    sequences = 0
    for _ in range(runs):
        sizes = sizes_of(kind, documents, chance)
        hits = int(chance.binomial(sizes, document_rates(rate, icc, documents, agree, chance)).sum())
        labels = np.repeat(np.arange(documents), sizes)
        limits["documents"].append(clustered_interval(hits, labels)[:2])
        limits["independent"].append(clopper_pearson(hits, len(labels)))
        sequences += len(labels)
    for rule, found in limits.items():
        low, high = np.array(found).T
        yield {
            "part": "share", "rates": rate, "points": 1, "documents": documents, "sequences": round(sequences / runs),
            "sizes": kind, "agree": agree, "icc": icc, "rule": rule, "runs": runs,
            "covered": np.mean((low <= rate) & (rate <= high)), "width": np.mean(high - low),
        }  # fmt: skip


def line_alone(x: Sequence[float], hits: Sequence[int], trials: Sequence[int]) -> bool:
    """Whether a line by least squares shows a trend by the spread of the rates around it alone."""
    place, weight = np.log10(x), np.asarray(trials, dtype=np.float64)
    rate = np.asarray(hits) / weight
    middle = np.average(place, weights=weight)
    spread = np.sum(weight * (place - middle) ** 2)
    slope = np.sum(weight * (place - middle) * rate) / spread
    residual = rate - np.average(rate, weights=weight) - slope * (place - middle)
    error = math.sqrt(float(np.sum(weight * residual**2)) / (len(place) - 2) / spread)
    return bool(abs(slope) > float(stdtrit(len(place) - 2, 0.975)) * error)


def trend_rows(
    runs: int,
    rates: Sequence[float],
    documents: int,
    size: int,
    icc: float,
    *,
    shared: bool = False,
    spread: float = 0.0,
) -> Iterator[dict[str, Any]]:
    """How often each rule shows a trend at x = 1, 10, 100, ..., and how often the interval holds the slope of the true rates.

    `shared` documents are asked about at every point, as those of a family of models are. `spread` is the standard deviation of the
    logits of the rates around those given, as from training to training.
    """
    x = [10.0**place for place in range(len(rates))]
    truth = float(np.polyfit(np.log10(x), rates, 1)[0])
    chance = arrays(
        0, "trends", "lines", repr(tuple(rates)), documents, size, str(icc), str(shared), str(spread)
    )
    trials = [documents * size] * len(rates)
    held, shown, width = 0, dict.fromkeys(("binomial", "with spread", "independent", "line alone"), 0), 0.0
    for _ in range(runs):
        hits, clusters = [], []
        for point, rate in enumerate(rates):
            own = (
                rate
                if not spread
                else 1 / (1 + math.exp(-math.log(rate / (1 - rate)) - chance.normal(0, spread)))
            )
            of_documents = document_rates(own, icc, documents, "all or nothing", chance)
            hits.append(int(chance.binomial(size, of_documents).sum()))
            clusters.append(np.repeat(np.arange(documents) + (0 if shared else point * documents), size))
        found = log_linear_trend(x, hits, trials, clusters=clusters if size > 1 else None)
        low, high = found.slope.interval
        held += (low or 0.0) <= truth <= (high or 0.0)
        width += (high or 0.0) - (low or 0.0)
        shown["binomial"] += (found.p_value or 0.0) <= 0.05
        shown["with spread"] += (found.p_value_with_spread or 0.0) <= 0.05
        shown["independent"] += size > 1 and (log_linear_trend(x, hits, trials).p_value or 0.0) <= 0.05
        shown["line alone"] += line_alone(x, hits, trials)
    for rule, many in shown.items():
        if rule != "independent" or size > 1:
            yield {
                "part": "trend", "rates": " ".join(map(str, rates)), "points": len(rates), "documents": documents,
                "sequences": documents * size, "sizes": size, "agree": "shared" if shared else "all or nothing", "icc": icc,
                "spread": spread, "rule": rule, "runs": runs, "shown": many / runs,
                **({"covered": held / runs, "width": width / runs} if rule == "binomial" else {}),
            }  # fmt: skip


def trends(runs: int) -> Iterator[dict[str, Any]]:
    """Power, false positives and coverage of trends."""
    growing, level = (0.05, 0.2, 0.5), (0.2, 0.2, 0.2)
    for trials in (20, 100, 1000):
        for rates in (
            growing,
            (0.05, 0.1, 0.15),
            level,
            (0.01, 0.01, 0.01),
            (0.2,) * 5,
            (0.0, 0.0, 0.1, 0.5, 1.0),
        ):
            yield from trend_rows(runs, rates, trials, 1, 0.0)
    for spread in (0.1, 0.3, 1.0):
        for points in (3, 5, 8):
            yield from trend_rows(runs, (0.2,) * points, 1000, 1, 0.0, spread=spread)
    for documents in (5, 10, 50, 200):
        for icc in ICCS:
            for rates in (growing, level):
                yield from trend_rows(runs, rates, documents, 10, icc)
            yield from trend_rows(runs, level, documents, 10, icc, shared=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=600, help="draws in each setting")
    runs = parser.parse_args().runs
    rows = [*shares(runs), *trends(runs)]
    with (
        whole_file(RESULTS / "trends.csv") as temporary,
        open(temporary, "w", encoding="utf-8", newline="") as stream,
    ):
        writer = csv.DictWriter(stream, fieldnames=COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in row.items()}
            for row in rows
        )


if __name__ == "__main__":
    main()
