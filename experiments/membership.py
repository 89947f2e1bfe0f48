"""Coverage of the intervals of TPR and AUC, validity and strength of the bounds on epsilon, and how often Gaussian ones fail without it.

    python experiments/membership.py

draws the scores of audits from distributions and mechanisms whose truth is known. Rows go to experiments/results/membership.csv:
one per setting and quantity, with the share of audits in which it was wrong, or its mean. Ten to fifteen minutes on one core; `--parts`
and `--audits` make it shorter.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coalmine.randomness import arrays
from coalmine.statistics import (
    CoinScores,
    MembershipScores,
    area_under_roc,
    clopper_pearson,
    epsilon_best,
    epsilon_f_dp,
    epsilon_gaussian,
    epsilon_independent,
    gaussian_epsilon,
    tpr_at_fpr,
    tpr_p_value,
)
from coalmine.statistics.epsilon.best import headline_test
from coalmine.storage.files import whole_file

RESULTS = Path(__file__).parent / "results"
PARTS = ("bands", "areas", "validity", "strength", "gaussian")
Scores = NDArray[np.float64]
# Scores of so many, in or out.
Draw = Callable[[np.random.Generator, int], Scores]


@dataclasses.dataclass(frozen=True)
class Row:
    """One quantity in one setting: `share` of `audits` in which it was wrong, or else its `mean`."""

    part: str
    setting: str
    in_count: int
    out_count: int
    quantity: str
    audits: int
    share: float | None = None
    mean: float | None = None


@dataclasses.dataclass(frozen=True)
class Rates:
    """Scores whose TPR at a true FPR is known."""

    name: str
    draw_in: Draw
    draw_out: Draw
    tpr: Callable[[float], float]


def _normal_tpr(shift: float) -> Callable[[float], float]:
    from scipy.special import ndtr, ndtri

    return lambda fpr: float(ndtr(ndtri(fpr) + shift))


def _laplace_tpr(fpr: float) -> float:
    # N.B. for a shift of 1 and an FPR below 1 / (2 e); above it the threshold lies below the center of the members.
    threshold = -math.log(2 * fpr)
    return 0.5 * math.exp(1 - threshold) if threshold >= 1 else 1 - 0.5 * math.exp(threshold - 1)


def _tied(shares: tuple[float, ...]) -> Draw:
    return lambda rng, count: rng.choice(len(shares), count, p=shares).astype(np.float64)


TIES_IN, TIES_OUT = (0.3, 0.2, 0.2, 0.295, 0.005), (0.5, 0.3, 0.15, 0.0495, 0.0005)


def _tied_tpr(fpr: float) -> float:
    """That of the lowest threshold whose true FPR is no higher."""
    above_out = [sum(TIES_OUT[value + 1 :]) for value in range(len(TIES_OUT))]
    lowest = next(value for value, rate in enumerate(above_out) if rate <= fpr + 1e-12)
    return sum(TIES_IN[lowest + 1 :])


def _remembered(rng: np.random.Generator, count: int) -> Scores:
    return rng.normal(0, 1, count) + 8.0 * (rng.random(count) < 0.2)


RATES = (
    Rates("no memorization", lambda r, k: r.normal(0, 1, k), lambda r, k: r.normal(0, 1, k), lambda fpr: fpr),
    Rates("normal, shift 1", lambda r, k: r.normal(1, 1, k), lambda r, k: r.normal(0, 1, k), _normal_tpr(1)),
    Rates("normal, shift 3", lambda r, k: r.normal(3, 1, k), lambda r, k: r.normal(0, 1, k), _normal_tpr(3)),
    Rates("Laplace, shift 1", lambda r, k: r.laplace(1, 1, k), lambda r, k: r.laplace(0, 1, k), _laplace_tpr),
    Rates("a fifth remembered", _remembered, lambda r, k: r.normal(0, 1, k), lambda fpr: 0.2 + 0.8 * fpr),
    Rates("five values", _tied(TIES_IN), _tied(TIES_OUT), _tied_tpr),
)


def bands(audits: int) -> Iterator[Row]:
    """How often each limit of the TPR is wrong, beside Clopper-Pearson at the counted threshold; and p-values without memorization."""
    for rates in RATES:
        for m, n in (
            (20, 100),
            (1000, 100),
            (20, 1000),
            (200, 1000),
            (1000, 1000),
            (200, 10_000),
            (1000, 10_000),
        ):
            for fpr in (0.1, 0.01, 0.001):
                if n * fpr < 1:
                    continue
                truth, found = rates.tpr(fpr), []
                for audit in range(audits):
                    rng = arrays(audit, "experiment", "bands", rates.name, m, n)
                    scores = rates.draw_in(rng, m), rates.draw_out(rng, n)
                    rate = tpr_at_fpr(*scores, fpr)
                    plain = clopper_pearson(round((rate.value or 0.0) * m), m)
                    p_value = tpr_p_value(*scores, fpr)
                    found.append((rate.low, rate.high, *plain, p_value))
                low, high, plain_low, plain_high, p_values = np.array(found, dtype=np.float64).T
                slack = 1e-9
                shares = {
                    "lower limit too high": low > truth + slack,
                    "upper limit too low": high < truth - slack,
                    "Clopper-Pearson too high": plain_low > truth + slack,
                    "Clopper-Pearson too low": plain_high < truth - slack,
                }
                if rates.name == "no memorization":
                    shares["p-value of 5% or less"] = p_values <= 0.05
                setting = f"{rates.name}, FPR {100 * fpr:g}%"
                for name, wrong in shares.items():
                    yield Row("bands", setting, m, n, name, audits, share=float(np.mean(wrong)))
                yield Row("bands", setting, m, n, "width", audits, mean=float(np.mean(high - low)))


def _apart(name: str, area: float) -> tuple[Draw, Draw]:
    """In and out scores with this area; of the last two kinds, one side is beyond all of the other, above or below."""
    from scipy.special import ndtri

    def two(rng: np.random.Generator, count: int) -> Scores:
        return np.where(rng.random(count) < area, 2.0, -2.0)

    def even(rng: np.random.Generator, count: int) -> Scores:
        return rng.random(count)

    if name == "normal":
        shift = math.sqrt(2) * float(ndtri(area))
        return (lambda r, k: r.normal(shift, 1, k)), (lambda r, k: r.normal(0, 1, k))
    if name == "Cauchy":
        shift = 2 * math.tan(math.pi * (area - 0.5))
        return (lambda r, k: shift + r.standard_cauchy(k)), (lambda r, k: r.standard_cauchy(k))
    return (two, even) if name == "members beyond" else (even, lambda r, k: -two(r, k))


def areas(audits: int) -> Iterator[Row]:
    """How often each limit of the AUC is wrong: with few scores, heavy tails, and areas up to 0.99."""
    for name in ("normal", "Cauchy", "members beyond", "non-members beyond"):
        for m, n in ((5, 5), (10, 10), (20, 20), (50, 50), (200, 200), (10, 200), (200, 10)):
            for truth in (0.5, 0.7, 0.9, 0.98, 0.99):
                draw_in, draw_out = _apart(name, truth)
                found = []
                for audit in range(audits):
                    rng = arrays(audit, "experiment", "areas", name, m, n)
                    estimate = area_under_roc(draw_in(rng, m), draw_out(rng, n))
                    found.append((estimate.low, estimate.high))
                low, high = np.array(found, dtype=np.float64).T
                for what, wrong in (
                    ("lower limit too high", low > truth),
                    ("upper limit too low", high < truth),
                ):
                    setting = f"{name}, AUC {truth:g}"
                    yield Row("areas", setting, m, n, what, audits, share=float(np.mean(wrong)))


@dataclasses.dataclass(frozen=True)
class Mechanism:
    """Scores of canaries given their coins, and an epsilon that no bound at delta may exceed."""

    name: str
    draw: Callable[[np.random.Generator, NDArray[np.bool_]], Scores]
    epsilon: float
    delta: float


def _revealing(revealed: int, delta: float) -> Mechanism:
    """With probability m delta / revealed it reveals so many random canaries at once; (0, delta) private."""

    def draw(rng: np.random.Generator, coins: NDArray[np.bool_]) -> Scores:
        scores = rng.random(len(coins))
        if rng.random() < len(coins) * delta / revealed:
            chosen = rng.permutation(len(coins))[:revealed]
            scores[chosen] += np.where(coins[chosen], 10.0, -10.0)
        return scores

    return Mechanism(f"reveals {revealed} at once, delta {delta:g}", draw, 0.0, delta)


def _response(epsilon: float) -> Mechanism:
    truthful = 1 / (1 + math.exp(-epsilon))
    return Mechanism(
        f"randomized response, epsilon {epsilon:g}",
        lambda rng, coins: np.where((rng.random(len(coins)) < truthful) == coins, 1.0, -1.0),
        epsilon,
        1e-5,
    )


def _laplace(epsilon: float) -> Mechanism:
    return Mechanism(
        f"Laplace, epsilon {epsilon:g}",
        lambda rng, coins: rng.laplace(0, 1 / epsilon, len(coins)) + coins,
        epsilon,
        1e-5,
    )


def _gaussian(mu: float) -> Mechanism:
    return Mechanism(
        f"Gaussian, mu {mu:g}",
        lambda rng, coins: rng.normal(0, 1, len(coins)) + mu * coins,
        gaussian_epsilon(mu, 1e-5),
        1e-5,
    )


NULL = Mechanism("no memorization", lambda rng, coins: rng.normal(0, 1, len(coins)), 0.0, 1e-5)


def audit_scores(mechanism: Mechanism, canaries: int, audit: int) -> MembershipScores:
    """One training run: a coin for each canary."""
    rng = arrays(audit, "experiment", mechanism.name, canaries)
    coins = rng.random(canaries) < 0.5
    scores = mechanism.draw(rng, coins)
    return MembershipScores(scores[coins], scores[~coins])


def validity(audits: int) -> Iterator[Row]:
    """How often the headline, and the bound that takes scores for independent, exceed the truth; 5% is allowed."""
    revealing = [
        (_revealing(count, 1e-3), m)
        for m, count in ((200, 1), (1000, 1), (1000, 8), (4000, 24), (10_000, 50))
    ]
    plain = [(one, m) for one in (NULL, _response(1.0), _laplace(1.0), _gaussian(1.0)) for m in (100, 1000)]
    for mechanism, canaries in (*revealing, *plain):
        wrong = dict.fromkeys(("one", "many"), 0)
        for audit in range(audits):
            scores = audit_scores(mechanism, canaries, audit)
            for runs in ("one", "many"):
                test = headline_test(scores, CoinScores(scores), mechanism.delta, 0, runs)
                wrong[runs] += test.p_value(mechanism.epsilon, mechanism.delta) <= 0.05
        for runs, name in (("one", "best"), ("many", "best if scores are independent")):
            yield Row(
                "validity",
                mechanism.name,
                canaries // 2,
                canaries // 2,
                name,
                audits,
                share=wrong[runs] / audits,
            )


def _headline(scores: MembershipScores) -> float:
    return epsilon_best(*scores, coins=CoinScores(scores), delta=1e-5).low or 0.0


BOUNDS: dict[str, Callable[[MembershipScores], float]] = {
    "best": _headline,
    "best if scores are independent": lambda s: (
        epsilon_independent(*s, coins=CoinScores(s), delta=1e-5).low or 0.0
    ),
    "gaussian": lambda s: epsilon_gaussian(*s, delta=1e-5).low or 0.0,
    "f-dp": lambda s: epsilon_f_dp(*s, delta=1e-5).low or 0.0,
}


def strength(audits: int) -> Iterator[Row]:
    """The mean of each bound at delta 1e-5."""
    remembered = Mechanism(
        "a fifth remembered",
        lambda r, c: r.normal(0, 1, len(c)) + 8.0 * (c & (r.random(len(c)) < 0.2)),
        1e9,
        1e-5,
    )
    for mechanism in (_gaussian(1.0), _gaussian(2.0), _response(2.0), _laplace(1.0), remembered):
        for each in (50, 500, 2000, 10_000):
            seen = min(audits, 20)
            drawn = [audit_scores(mechanism, 2 * each, audit) for audit in range(seen)]
            for name, bound in BOUNDS.items():
                mean = float(np.mean([bound(scores) for scores in drawn]))
                yield Row("strength", mechanism.name, each, each, name, seen, mean=mean)


def gaussian(audits: int) -> Iterator[Row]:
    """How often the bounds that assume Gaussian noise exceed the truth, with that noise and without."""
    for mechanism in (_gaussian(1.0), NULL, _laplace(1.0), _response(1.0)):
        for each in (100, 500, 2000):
            seen = min(audits, 200)
            drawn = [audit_scores(mechanism, 2 * each, audit) for audit in range(seen)]
            for name in ("gaussian", "f-dp"):
                wrong = np.mean([BOUNDS[name](scores) > mechanism.epsilon for scores in drawn])
                yield Row("gaussian", mechanism.name, each, each, name, seen, share=float(wrong))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--audits", type=int, default=1000)
    parser.add_argument("--parts", nargs="*", default=PARTS, choices=PARTS)
    parser.add_argument("--name", default="membership")
    options = parser.parse_args()
    made = {"bands": bands, "areas": areas, "validity": validity, "strength": strength, "gaussian": gaussian}
    rows = []
    for part in options.parts:
        for row in made[part](options.audits):
            print(row, flush=True)
            rows.append(row)
    with (
        whole_file(RESULTS / f"{options.name}.csv") as path,
        path.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.DictWriter(file, [field.name for field in dataclasses.fields(Row)], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            facts = dataclasses.asdict(row)
            writer.writerow(
                {
                    name: round(value, 4) if isinstance(value, float) else value
                    for name, value in facts.items()
                }
            )


if __name__ == "__main__":
    main()
