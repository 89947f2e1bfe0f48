"""Does splitting, which needs only scores, give intervals that hold the truth, at every rank and on costs made to mislead it?

    python experiments/splitting.py

trains the two character LSTMs of `estimators.py`, ranks all 10^6 members of "the random number is {digits:6}" by each, and measures
members of known rank by splitting over many seeds: on the costs as they are, rounded to whole bits (ties), with a canary that
nothing leads to, and with 300 unknown members that nothing leads to. Then it trains the LSTM on canaries of nine digits, measures
those, and measures them once more through `coalmine serve` in a process of its own, with the extrapolated curve beside it. Rows go
to experiments/results/splitting.csv, the nine digits to splitting.json. With --work DIR models and costs are kept there.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from estimators import SECRET, costs_of_members, trained_model
from numpy.typing import NDArray

from coalmine import CanarySet, Format, expose, load_model, plant, train
from coalmine.audits import Exposures
from coalmine.corpus import write_embedded_corpus
from coalmine.models import CharacterTokenizer, SequenceScore, TokenSequence
from coalmine.storage.files import whole_file, write_json

RESULTS = Path(__file__).parent / "results"
RANKS = (1, 10, 100, 1_000, 10_000, 100_000, 500_000)
NINE = Format("the random number is {digits:9}")
HIDDEN = 300


@dataclasses.dataclass(frozen=True)
class Row:
    """What splitting gave for the member at one rank, over `seeds` seeds; errors are estimate less truth, in bits."""

    costs: str
    samples: int
    rank: int
    seeds: int
    # Members that the model was asked about, the mean over seeds.
    scored: float
    with_value: float
    bias_bits: float
    sd_bits: float
    # The mean estimated rank over the true one, and by how many of its standard errors it is off, where there is a value.
    rank_ratio: float
    rank_ratio_z: float
    coverage: float
    # How often the lower limit was above the truth, which accuses, and how often the upper one was below, which acquits.
    low_above: float
    high_below: float
    width_bits: float
    mean_low_bits: float
    with_warning: float


class TableOfCosts:
    """A model that only scores, from a table of the cost of every member."""

    def __init__(self, costs: NDArray[np.float64]) -> None:
        self.costs = costs
        self.name, self.context, self.resolution_bits = "a table of costs", (), 1e-9
        self.tokenizer = CharacterTokenizer("0123456789 abcdefghijklmnopqrstuvwxyz")

    def describe(self) -> dict[str, Any]:
        """For the record."""
        return {"adapter": "table of costs"}

    def score(self, sequences: list[TokenSequence], *, ranks: bool = False) -> list[SequenceScore]:
        """Not asked for: texts are."""
        raise NotImplementedError

    def score_text(self, texts: list[str]) -> list[SequenceScore]:
        """The cost of each member as that of one token."""
        unknown = np.zeros(1, dtype=bool)
        places = [int(text[len(SECRET.prefix) :]) for text in texts]
        return [SequenceScore(np.array([-cost]), unknown, None) for cost in self.costs[places].tolist()]


def as_they_are(costs: NDArray[np.float64]) -> tuple[NDArray[np.float64], list[int]]:
    """The members at RANKS."""
    order = np.argsort(costs, kind="stable")
    return costs, [int(order[rank - 1]) for rank in RANKS]


def ties(costs: NDArray[np.float64]) -> tuple[NDArray[np.float64], list[int]]:
    """Whole bits: plateaus of up to 10^5 members."""
    _, places = as_they_are(costs)
    return np.round(costs), places


def needle(costs: NDArray[np.float64]) -> tuple[NDArray[np.float64], list[int]]:
    """A canary that costs 10 bits less than every other, and whose neighbors cost what they did: nothing leads to it."""
    changed = costs.copy()
    changed[123_457] = costs.min() - 10
    return changed, [123_457]


def hidden(costs: NDArray[np.float64]) -> tuple[NDArray[np.float64], list[int]]:
    """A canary below all members but 300, which nobody knows of and nothing leads to: here splitting must fail."""
    changed = costs.copy()
    generator = np.random.default_rng(0)
    places = generator.choice(SECRET.size, HIDDEN + 1, replace=False)
    changed[places[1:]] = costs.min() - 5 - generator.random(HIDDEN)
    changed[places[0]] = costs.min() - 4
    return changed, [int(places[0])]


SHAPES = {"as they are": as_they_are, "ties": ties, "needle": needle, "hidden": hidden}


def rows(
    name: str, costs: NDArray[np.float64], places: list[int], *, samples: int, seeds: int
) -> Iterator[Row]:
    """One row per canary; all are measured in one call."""
    model = TableOfCosts(costs)
    canaries = CanarySet.of(SECRET, [SECRET.at(place) for place in places])
    runs = [
        expose(model, canaries, method="splitting", samples=samples, seed=seed, comparisons=False)
        for seed in range(seeds)
    ]
    ranks = np.searchsorted(np.sort(costs), costs[places], side="right")
    for at, rank in enumerate(ranks.tolist()):
        yield _row(name, [run[at].estimate for run in runs], rank, samples)


def _row(name: str, estimates: list[Any], rank: int, samples: int) -> Row:
    truth = math.log2(SECRET.size) - math.log2(rank)
    values = np.array([one.value for one in estimates if one.value is not None])
    low, high = (np.array([getattr(one, end) for one in estimates]) for end in ("low", "high"))
    error = values - truth
    ratios = np.exp2(-error)
    spread = ratios.std(ddof=1) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.nan
    return Row(
        costs=name,
        samples=samples,
        rank=rank,
        seeds=len(estimates),
        scored=float(np.mean([one.n for one in estimates])),
        with_value=len(values) / len(estimates),
        bias_bits=float(error.mean()) if len(error) else math.nan,
        sd_bits=float(error.std(ddof=1)) if len(error) > 1 else math.nan,
        rank_ratio=float(ratios.mean()) if len(ratios) else math.nan,
        rank_ratio_z=float((ratios.mean() - 1) / spread) if spread and spread > 0 else 0.0,
        # Rounding in the logarithms is no error of the estimate.
        coverage=float(((low <= truth + 1e-9) & (truth - 1e-9 <= high)).mean()),
        low_above=float((low > truth + 1e-9).mean()),
        high_below=float((high < truth - 1e-9).mean()),
        width_bits=float((high - low).mean()),
        mean_low_bits=float(low.mean()),
        with_warning=float(np.mean([bool(one.warnings) for one in estimates])),
    )


def costs_of(work: Path, seed: int, epochs: int) -> NDArray[np.float64]:
    """The cost of every member of six digits by the LSTM of `estimators.py`, kept in `work`."""
    kept = work / f"costs-{seed}-{epochs}.npy"
    if not kept.exists():
        np.save(kept, costs_of_members(trained_model(work, 400, epochs, seed)))
    costs: NDArray[np.float64] = np.load(kept)
    return costs


def nine_digits(work: Path, seeds: int, samples: int) -> dict[str, Any]:
    """The LSTM with canaries of nine digits: the truth by guided draws, splitting in this process, and through an endpoint."""
    planted, model = work / "planted-9", work / "model-9"
    if not model.exists():
        corpus = work / "corpus-9.txt"
        write_embedded_corpus(corpus, 400_000)
        options: dict[str, Any] = {"repeat": [1, 4, 16, 64], "canaries": 4, "withhold": 0.25, "seed": 0}
        plant(corpus, NINE, out=planted, overwrite=True, **options)
        train(planted, out=model, epochs=3, seed=0)
    loaded, canaries = load_model(model), CanarySet.load(planted)
    truth = expose(loaded, canaries, method="guided", samples=100_000)
    here = []
    for seed in range(seeds):
        began = time.perf_counter()
        found = expose(loaded, canaries, method="splitting", seed=seed, comparisons=False)
        here.append({"seconds": round(time.perf_counter() - began), **_against(found, truth)})
        print("nine digits, seed", seed, here[-1], flush=True)
    return {
        "seeds_in_this_process": here,
        "through_an_endpoint": through_an_endpoint(model, planted, truth, samples),
    }


def through_an_endpoint(model: Path, planted: Path, truth: Exposures, samples: int) -> dict[str, Any]:
    """The same canaries, with the model behind `coalmine serve` in another process."""
    from coalmine.models import connect

    said = model.parent / "server.txt"
    command = [sys.executable, "-m", "coalmine", "serve", str(model), "--port", "0"]
    with open(said, "w") as output, subprocess.Popen(command, stdout=output, stderr=output) as server:
        try:
            while "http://" not in said.read_text():
                time.sleep(0.5)
            address = next(word for word in said.read_text().split() if word.startswith("http://"))
            endpoint = connect(address.rstrip(".,;"), concurrency=16)
            found: dict[str, Any] = {"samples": samples}
            for method in ("auto", "extrapolated"):
                began, given = time.perf_counter(), samples if method == "auto" else None
                results = expose(
                    endpoint, CanarySet.load(planted), method=method, comparisons=False, samples=given
                )
                found[method] = {
                    "method": results.formats[0].method,
                    "why": results.formats[0].why,
                    "seconds": round(time.perf_counter() - began),
                    **_against(results, truth),
                }
                print("endpoint", method, found[method], flush=True)
            return found
        finally:
            server.terminate()


def _against(found: Exposures, truth: Exposures) -> dict[str, Any]:
    """Every canary beside the middle of its proven or guided interval."""
    pairs = sorted(
        zip(found, truth, strict=True), key=lambda pair: pair[1].estimate.value or 0.0, reverse=True
    )
    inside = [
        one.estimate.low <= (right.estimate.high or 0) + 1e-9
        and (right.estimate.low or 0) - 1e-9 <= one.estimate.high
        for one, right in pairs
        if one.estimate.low is not None and one.estimate.high is not None
    ]
    return {
        "scored": found[0].estimate.n,
        "in_interval": sum(inside),
        "of": len(inside),
        "truth_value_low_high": [
            [
                None if bits is None else round(bits, 2)
                for bits in (right.estimate.value, one.estimate.value, *one.interval)
            ]
            for one, right in pairs[:6]
        ],
    }


def write_rows(path: Path, found: list[Row]) -> None:
    with whole_file(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([field.name for field in dataclasses.fields(Row)])
        for row in found:
            values = dataclasses.astuple(row)
            writer.writerow([f"{value:.5g}" if isinstance(value, float) else value for value in values])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--work", type=Path, help="directory that keeps models and costs from one run to the next"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory for the results")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--shape-seeds", type=int, default=100, help="of the costs that are made to mislead")
    parser.add_argument("--nine-seeds", type=int, default=3, help="of the nine digits in this process")
    parser.add_argument(
        "--endpoint-samples", type=int, default=1_600, help="of splitting through the endpoint"
    )
    parser.add_argument("--parts", nargs="+", choices=("tables", "nine"), default=["tables", "nine"])
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        work = given.work or Path(folder)
        if "tables" in given.parts:
            write_rows(given.out / "splitting.csv", list(tables(work, given.seeds, given.shape_seeds)))
        if "nine" in given.parts:
            write_json(
                given.out / "splitting.json", nine_digits(work, given.nine_seeds, given.endpoint_samples)
            )


def tables(work: Path, seeds: int, shape_seeds: int) -> Iterator[Row]:
    """All rows of the six digits."""
    first, second = costs_of(work, 0, 3), costs_of(work, 1, 6)
    settings = [
        ("first model", "as they are", first, 1_600, seeds),
        ("second model", "as they are", second, 400, seeds),
    ]
    settings += [
        ("second model", shape, second, 1_600, shape_seeds) for shape in ("ties", "needle", "hidden")
    ]
    for model, shape, costs, samples, count in settings:
        for row in rows(f"{model}, {shape}", *SHAPES[shape](costs), samples=samples, seeds=count):
            print(row, flush=True)
            yield row


if __name__ == "__main__":
    main()
