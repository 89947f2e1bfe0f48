"""The tables of docs/explanation/private-claims.md: what an ideal audit would catch, and what was caught.

    python experiments/private_claims_tables.py --ideal

draws the scores of canaries from ideal Gaussian mechanisms, as if each canary had a training of its own and its score showed all that the
training reveals about it, and writes how many of them the tests of `private_claims.py` catch to
experiments/results/private-claims-ideal.csv. Without `--ideal`, it prints the tables from that file and from private-claims.csv.
"""

from __future__ import annotations

import argparse
import csv
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from private_claims import DELTA, RESULTS, judged

from coalmine.randomness import arrays
from coalmine.statistics import clopper_pearson, gaussian_epsilon
from coalmine.storage.files import whole_file

IDEAL = RESULTS / "private-claims-ideal.csv"
COLUMNS = ("canaries", "claimed", "true", "mu", "audits", "bound", "caught", "gaussian", "gaussian_caught")
Rows = list[dict[str, str]]
CLAIMED = (0.5, 1.0, 2.0, 4.0, 8.0)
RATIOS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
# How many canaries, and how many audits of as many are simulated.
SIZES = {1000: 100, 10_000: 50}


def mu_of(epsilon: float) -> float:
    """The Gaussian mechanism with this epsilon: by how many standard deviations a member moves its score."""
    low, high = 0.0, 20.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_epsilon(middle, DELTA) < epsilon else (low, middle)
    return high


def ideal_rows() -> Iterator[dict[str, Any]]:
    """What audits of ideal mechanisms find."""
    for canaries, audits in SIZES.items():
        for claimed in CLAIMED:
            for ratio in RATIOS:
                mu = mu_of(ratio * claimed)
                found = [ideal_audit(canaries, claimed, mu, number) for number in range(audits)]
                yield {
                    "canaries": canaries,
                    "claimed": claimed,
                    "true": ratio * claimed,
                    "mu": round(mu, 4),
                    "audits": audits,
                    "bound": round(statistics.median(one["bound"] for one in found), 4),
                    "caught": sum(one["contradicted"] for one in found),
                    "gaussian": round(statistics.median(one["gaussian"] for one in found), 4),
                    "gaussian_caught": sum(one["gaussian_contradicted"] for one in found),
                }


def ideal_audit(canaries: int, claimed: float, mu: float, number: int) -> dict[str, Any]:
    """One audit of an ideal mechanism."""
    chance = arrays(number, "experiment", "ideal", canaries, f"{mu:.6f}")
    planted = chance.random(canaries) < 0.5
    scores = chance.standard_normal(canaries) + mu * planted
    return judged(scores[planted], scores[~planted], claimed)


def share(caught: int, of: int) -> str:
    """A share with its 95% interval."""
    low, high = clopper_pearson(caught, of, 0.95)
    return f"{caught} of {of} ({100 * low:.0f}-{100 * high:.0f}%)"


def print_trained(rows: Rows, together: Rows) -> None:
    """What was contradicted of each trainer at each claim, by each score and test, in one training and in several together."""
    print(
        "| trainer | claim | true | by loss | by weights | bound | Gaussian | together: by weights | bound | Gaussian |"
    )
    groups = list(dict.fromkeys((row["trainer"], row["claimed"]) for row in rows))
    for name, claimed in [*groups, ("right", "all")]:

        def mine(table: Rows, score: str, of: tuple[str, str] = (name, claimed)) -> Rows:
            return [
                row
                for row in table
                if (row["trainer"], row["score"]) == (of[0], score) and of[1] in (row["claimed"], "all")
            ]

        single = mine(rows, "weights")
        true = [float(row["true"]) for row in single if row["true"]]
        cells = [name, claimed, f"{max(true):.2f}" if true and claimed != "all" else ""]
        cells.append(contradicted(mine(rows, "loss"), "contradicted"))
        for some in (single, mine(together, "weights")):
            cells += [contradicted(some, "contradicted"), bounds(some)]
            cells.append(contradicted(some, "gaussian_contradicted"))
        print("|", *(f"{cell} |" for cell in cells))


def contradicted(rows: Rows, column: str) -> str:
    """The share of audits in which the claim was contradicted."""
    return share(sum(int(row[column]) for row in rows), len(rows)) if rows else ""


def bounds(rows: Rows) -> str:
    """The median of the bounds, and the lowest and highest one."""
    found = sorted(float(row["bound"]) for row in rows)
    return f"{statistics.median(found):.2f} ({found[0]:.2f}-{found[-1]:.2f})" if found else ""


def print_ideal(rows: Rows) -> None:
    """What would be caught of ideal mechanisms."""
    print("| canaries | claim | true epsilon | median bound | caught | Gaussian bound | caught |")
    for row in rows:
        caught = (share(int(row[name]), int(row["audits"])) for name in ("caught", "gaussian_caught"))
        print("|", *(f"{row[name]} |" for name in ("canaries", "claimed", "true", "bound")), end=" ")
        print(next(caught), "|", row["gaussian"], "|", next(caught), "|")


def read(path: Path) -> Rows:
    """The rows of a table; none where there is no file."""
    if not path.exists():
        return []
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))


def main() -> None:
    """Simulate, or print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ideal", action="store_true", help="simulate ideal audits")
    if parser.parse_args().ideal:
        with whole_file(IDEAL) as path, path.open("w", newline="") as lines:
            writer = csv.DictWriter(lines, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(ideal_rows())
        return
    print_trained(read(RESULTS / "private-claims.csv"), read(RESULTS / "private-claims-together.csv"))
    print()
    print_ideal(read(IDEAL))


if __name__ == "__main__":
    main()
