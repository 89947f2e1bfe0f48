"""How often does `compare` prefer a way of training where there is no difference between the two, and where there is one?

    python experiments/trainings.py

draws exposures of the same 12 canaries for trainings whose seeds matter to a known degree, and compares the two sides with one to
five trainings each; beside it the rule that goes by one training per side and its canaries. Rows go to
experiments/results/trainings.csv. It takes a few minutes on one core.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from coalmine import Estimate, ExposureResult, Format
from coalmine.audits import Exposures
from coalmine.audits.comparison.measure import compare
from coalmine.audits.comparison.records import Strategy
from coalmine.audits.exposure.results import FormatFacts
from coalmine.randomness import arrays
from coalmine.storage.files import whole_file

RESULTS = Path(__file__).parent / "results"
SECRET = Format("the random number is {digits:6}")
CANARIES = 12
COLUMNS = (
    "difference_bits",
    "seed_sd_bits",
    "other_seed_sd_bits",
    "first",
    "second",
    "runs",
    "preferred",
    "preferred_by_canaries",
    "covered",
)


def known(value: float) -> Estimate:
    """A number that is taken to be exact."""
    return Estimate(
        method="exact",
        status="measured",
        value=value,
        low=value,
        high=value,
        confidence=None,
        n=1,
        statement="",
    )


def training(side: str, number: int, exposures: list[float]) -> Strategy:
    """One training with these exposures; all have the same loss."""
    results = tuple(
        ExposureResult(
            canary_id=f"c{place}",
            format_id="f0",
            repetitions=8,
            planted=True,
            method="exact",
            known_log_perplexity_bits=1.0,
            rank=None,
            most_possible_bits=20.0,
            estimate=known(value),
        )
        for place, value in enumerate(exposures)
    )
    document = Exposures(
        seed=0,
        confidence=0.95,
        manifest_sha256="same",
        model={},
        formats=(
            FormatFacts(
                format_id="f0",
                template=SECRET.template,
                size=str(SECRET.size),
                size_bits=math.log2(SECRET.size),
                method="exact",
                why="as drawn",
            ),
        ),
        expansions=0,
        tail_fits={},
        results=results,
    )
    # A loss that varies by far less than 0.02 from seed to seed counts as equal.
    return Strategy(f"{side}{number}", document, 2.5 + 1e-6 * number, side=side)


def preferences(
    runs: int, difference: float, seed_sd: float, other_sd: float, first: int, second: int
) -> Iterator[dict[str, Any]]:
    """How often one side is preferred; a seed moves all exposures of a training together, and each by itself by 0.5 bits."""
    chance = arrays(0, "trainings", str((difference, seed_sd, other_sd, first, second)))
    preferred = by_canaries = covered = tested = 0
    for _ in range(runs):
        canaries = chance.normal(8, 2, CANARIES)
        sides = []
        for side, many, shift, sd in (("a", first, difference, seed_sd), ("b", second, 0.0, other_sd)):
            for number in range(many):
                own = canaries + shift + chance.normal(0, sd) + chance.normal(0, 0.5, CANARIES)
                sides.append(training(side, number, np.clip(own, 0, 19.9).tolist()))
        [pair] = compare(sides).pairs
        preferred += "prefer " in pair.statement
        if pair.unit == "trainings" and pair.exposure is not None:
            low, high = pair.exposure.estimate.interval
            tested += 1
            covered += (low or 0.0) <= difference <= (high or 0.0)
        alone = compare([sides[0]._replace(side=None), sides[first]._replace(side=None)]).pairs[0]
        by_canaries += alone.exposure is not None and alone.exposure.p_value <= 0.05
    yield {
        "difference_bits": difference,
        "seed_sd_bits": seed_sd,
        "other_seed_sd_bits": other_sd,
        "first": first,
        "second": second,
        "runs": runs,
        "preferred": preferred / runs,
        "preferred_by_canaries": by_canaries / runs,
        "covered": "" if not tested else covered / tested,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000, help="comparisons in each setting")
    runs = parser.parse_args().runs
    rows: list[dict[str, Any]] = []
    for seed_sd in (0.0, 0.3, 1.0):
        for many in (1, 2, 3, 5):
            rows += preferences(runs, 0.0, seed_sd, seed_sd, many, many)
    for first, second in ((2, 5), (3, 3), (3, 5)):
        rows += preferences(runs, 0.0, 1.0, 0.1, first, second)
    for difference in (1.0, 3.0):
        for many in (2, 3, 5):
            rows += preferences(runs, difference, 0.3, 0.3, many, many)
    with (
        whole_file(RESULTS / "trainings.csv") as temporary,
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
