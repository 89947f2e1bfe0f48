"""How good is each estimator of exposure, at each rank, for each model call spent? Measured where the truth is known.

    python experiments/estimators.py

plants canaries in 400 kB of text, trains the reference character LSTM, ranks all 10^6 members of "the random number is
{digits:6}", takes the members at ranks 1, 10, ..., 500,000 for canaries, and measures each of them by every method over many
seeds. Rows go to experiments/results/estimators.csv, what they rest on to estimators.json, the figure to docs/figures/.
With --work DIR the model is kept there and used again.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import math
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from figures import draw_estimators
from numpy.typing import NDArray
from tabulated_model import TabulatedModel, tabulate

from coalmine import CanarySet, Estimate, Format, expose, load_model, plant, train
from coalmine.audits import Exposures
from coalmine.corpus import write_embedded_corpus
from coalmine.models import Model
from coalmine.search.tree.token_tree import TokenTree
from coalmine.search.walks import guided
from coalmine.search.walks.bounded import BoundedSearch
from coalmine.search.walks.frontier import Frontier
from coalmine.storage.files import whole_file, write_json

RESULTS = Path(__file__).parent / "results"
FIGURES = Path(__file__).parents[1] / "docs" / "figures"
SECRET = Format("the random number is {digits:6}")
RANKS = (1, 10, 100, 1_000, 10_000, 100_000, 500_000)
SAMPLES = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
BUDGETS = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 111_110)
SHARES = (0.02, 0.1, 0.25, 0.5)


@dataclasses.dataclass(frozen=True)
class Row:
    """What one way to measure gave for the member at one rank, over `seeds` seeds; errors are estimate less truth, in bits.

    Where a method gives a lower bound and no value, the bound is taken for what it says, and `with_value` counts the others.
    """

    part: str
    method: str
    rank: int
    budget: int
    samples: int
    uniform_share: float
    seeds: int
    # Tokens advanced through the model for one row each, the mean over seeds.
    tokens: float
    with_value: float
    bias_bits: float
    sd_bits: float
    rms_error_bits: float
    # The mean of |R| / 2^value over the true rank, and by how many of its standard errors it is off.
    rank_ratio: float
    rank_ratio_z: float
    coverage: float
    width_bits: float
    effective_n: float
    # The share of estimates that came with a warning.
    with_warning: float


class Bench:
    """Members of known exposure, and one count of what they cost to measure."""

    def __init__(self, model: TabulatedModel, texts: Sequence[str], truths: Sequence[int]) -> None:
        self.model, self.texts, self.truths = model, list(texts), list(truths)

    def rows(
        self,
        part: str,
        method: str,
        seeds: int,
        *,
        together: bool,
        budget: int = 0,
        samples: int = 0,
        references: bool = False,
    ) -> Iterator[Row]:
        """One row a rank. `together` measures all members in one call, for methods where none of them helps another."""
        options: dict[str, Any] = {"budget": budget, "samples": samples}
        options = {name: value for name, value in options.items() if value and not references}
        for places in [range(len(RANKS))] if together else [[place] for place in range(len(RANKS))]:
            texts = [self.texts[place] for place in places]
            runs, tokens = [], []
            for seed in range(seeds):
                canaries = CanarySet.of(SECRET, texts, references=samples if references else 0, seed=seed)
                before = self.model.tokens_read
                runs.append(expose(self.model, canaries, method=method, seed=seed, **options))
                tokens.append(self.model.tokens_read - before)
            for at, place in enumerate(places):
                yield self._row(
                    runs,
                    at,
                    place,
                    part=part,
                    method=method,
                    budget=budget,
                    samples=samples,
                    tokens=np.mean(tokens),
                )

    def _row(self, runs: list[Exposures], at: int, place: int, *, tokens: Any, **labels: Any) -> Row:
        rank = self.truths[place]
        truth = math.log2(SECRET.size) - math.log2(rank)
        estimates = [run[at].estimate for run in runs]
        with_value = np.array([one.value is not None for one in estimates])
        said = np.array([_said(one) for one in estimates], dtype=np.float64)
        low = np.array([one.low for one in estimates], dtype=np.float64)
        high = np.array([math.inf if one.high is None else one.high for one in estimates])
        error = said - truth
        ratios = np.exp2(-error)[with_value]
        spread = ratios.std(ddof=1) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.nan
        off = ratios.mean() - 1 if len(ratios) else math.nan
        # Rounding in the logarithms is no error of the estimate.
        inside = (low <= truth + 1e-9) & (truth - 1e-9 <= high)
        return Row(
            **labels,
            rank=rank,
            uniform_share=guided.UNIFORM_SHARE,
            seeds=len(runs),
            tokens=float(tokens),
            with_value=float(with_value.mean()),
            bias_bits=float(error.mean()),
            sd_bits=float(error.std(ddof=1)) if len(error) > 1 else 0.0,
            rms_error_bits=float(np.sqrt(np.mean(error**2))),
            rank_ratio=float(1 + off),
            rank_ratio_z=float(off / spread) if spread else 0.0,
            coverage=float(inside.mean()),
            width_bits=float(np.mean(high - low)),
            effective_n=float(
                np.mean([math.nan if one.effective_n is None else one.effective_n for one in estimates])
            ),
            with_warning=float(np.mean([bool(one.warnings) for one in estimates])),
        )


def coverage(bench: Bench, seeds: int) -> Iterator[Row]:
    """Do intervals of guided draws hold the truth as often as they say, and is the rank unbiased?"""
    for budget in (1, 1_000):
        for samples in (2_000, 10_000, 100_000):
            yield from bench.rows("coverage", "guided", seeds, together=False, budget=budget, samples=samples)


def curves(bench: Bench, seeds: int) -> Iterator[Row]:
    """The error of every method against the tokens that the model reads."""
    yield from bench.rows("curves", "exact", 1, together=True)
    for budget in BUDGETS:
        yield from bench.rows("curves", "bounded", 1, together=False, budget=budget)
    for samples in SAMPLES:
        yield from bench.rows("curves", "guided", seeds, together=False, budget=1, samples=samples)
        yield from bench.rows("curves", "guided", seeds, together=False, budget=1_000, samples=samples)
        yield from bench.rows("curves", "sampled", seeds, together=True, samples=samples)
        yield from bench.rows("curves", "extrapolated", seeds, together=True, samples=samples)
        yield from bench.rows("curves", "references", seeds, together=True, samples=samples, references=True)


def shares(bench: Bench, seeds: int) -> Iterator[Row]:
    """What the share of uniform draws among the guided ones does."""
    for share in SHARES:
        with uniform_share(share):
            for budget in (1, 1_000):
                yield from bench.rows(
                    "shares", "guided", seeds, together=False, budget=budget, samples=10_000
                )


PARTS: dict[str, Callable[[Bench, int], Iterator[Row]]] = {
    "coverage": coverage,
    "curves": curves,
    "shares": shares,
}


def _said(estimate: Estimate) -> float | None:
    """The value, or the bound that there is in its place: of guided draws none of which counted, what is proven."""
    if estimate.value is not None:
        return estimate.value
    return estimate.high if estimate.method == "guided" else estimate.low


@contextmanager
def uniform_share(share: float) -> Iterator[None]:
    before = guided.UNIFORM_SHARE
    guided.UNIFORM_SHARE = share
    try:
        yield
    finally:
        guided.UNIFORM_SHARE = before


def trained_model(work: Path, kilobytes: int, epochs: int, seed: int) -> Any:
    """The reference LSTM, trained on the embedded corpus with canaries in it, or the one in `work`."""
    corpus = work / "corpus.txt"
    write_embedded_corpus(corpus, 1000 * kilobytes)
    plant(
        corpus,
        SECRET,
        repeat=[1, 4, 16, 64],
        canaries=4,
        withhold=0.25,
        seed=seed,
        out=work / "planted",
        overwrite=True,
    )
    trained = train(work / "planted", out=work / "model", epochs=epochs, seed=seed)
    return load_model(trained.path)


def members_at_ranks(model: TabulatedModel) -> tuple[list[str], list[int]]:
    """The texts of the members at RANKS, and their ranks with ties counted, by `exact`."""
    order = np.argsort(costs_of_members(model), kind="stable")
    texts = [SECRET.at(int(order[rank - 1])) for rank in RANKS]
    ranks = [result.rank for result in expose(model, CanarySet.of(SECRET, texts), method="exact")]
    return texts, [int(rank) for rank in ranks if rank is not None]


def expansions_to_prove(model: TabulatedModel, texts: Iterable[str]) -> list[int]:
    """How many nodes a bounded search expands until the rank of each text is proven."""
    found = []
    for text in texts:
        own = expose(model, CanarySet.of(SECRET, [text]), method="exact")[0].log_perplexity_bits
        frontier = Frontier(model, TokenTree(SECRET, model.tokenizer))
        search = BoundedSearch(frontier, np.array([own]))
        search.start()
        search.run()
        found.append(frontier.expansions)
    return found


def costs_of_members(model: Model) -> NDArray[np.float64]:
    """The log-perplexity in bits of every member, in the order of the format."""
    every = expose(model, CanarySet.of(SECRET, [SECRET.at(0)]), method="exact").candidates[0]
    return every.log_perplexities_bits[np.argsort(every.indices)]


def setup_of(model: Model, table: TabulatedModel, texts: list[str], truths: list[int]) -> dict[str, Any]:
    """What the rows rest on, and how far the table is from the network."""
    canaries = CanarySet.of(SECRET, texts)
    own = [result.log_perplexity_bits for result in expose(table, canaries, method="exact")]
    return {
        "format": SECRET.template,
        "model": model.describe(),
        "ranks": truths,
        # In float32 sums depend on the batch in their last digits, so that ties of far ranks may fall differently.
        "ranks_by_the_network": [result.rank for result in expose(model, canaries, method="exact")],
        "log_perplexity_bits": [round(bits, 4) for bits in own],
        "expansions_to_prove": expansions_to_prove(table, texts),
        "largest_difference_of_network_and_table_bits": float(
            np.abs(costs_of_members(model) - costs_of_members(table)).max()
        ),
    }


def write_rows(path: Path, rows: list[Row]) -> None:
    with whole_file(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([field.name for field in dataclasses.fields(Row)])
        for row in rows:
            values = dataclasses.astuple(row)
            writer.writerow([f"{value:.5g}" if isinstance(value, float) else value for value in values])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, help="directory that keeps the model from one run to the next")
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory for the results")
    parser.add_argument("--name", default="estimators", help="of the files of results")
    parser.add_argument("--figures", type=Path, default=FIGURES, help="directory for the figure")
    parser.add_argument("--kilobytes", type=int, default=400, help="size of the corpus")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--model-seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=200, help="of coverage and shares")
    parser.add_argument("--curve-seeds", type=int, default=20)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    given = parser.parse_args(arguments)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        model = trained_model(given.work or Path(folder), given.kilobytes, given.epochs, given.model_seed)
    table = tabulate(model, SECRET)
    texts, truths = members_at_ranks(table)
    not_in_results = {"work", "out", "name", "figures"}
    setup = {
        "arguments": {name: str(value) for name, value in vars(given).items() if name not in not_in_results},
        **setup_of(model, table, texts, truths),
    }
    bench = Bench(table, texts, truths)
    rows = []
    for part in given.parts:
        seeds = given.curve_seeds if part == "curves" else given.seeds
        for row in PARTS[part](bench, seeds):
            rows.append(row)
            print(
                f"{time.perf_counter() - began:6.0f} s  {row.part} {row.method} rank {row.rank:,} budget {row.budget:,} "
                f"samples {row.samples:,} share {row.uniform_share}: bias {row.bias_bits:+.3f} sd {row.sd_bits:.3f} "
                f"coverage {row.coverage:.3f} width {row.width_bits:.2f} tokens {row.tokens:,.0f}",
                flush=True,
            )
    write_rows(given.out / f"{given.name}.csv", rows)
    write_json(given.out / f"{given.name}.json", setup)
    if "curves" in given.parts:
        draw_estimators(given.out / f"{given.name}.csv", given.figures)


if __name__ == "__main__":
    main()
