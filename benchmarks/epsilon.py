"""How strong are the bounds on epsilon, how often do they exceed the truth, and how long do they take?

Run: python -m benchmarks.epsilon --audits 2000
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from coalmine import membership_of_scores
from coalmine.statistics import (
    CoinScores,
    MembershipScores,
    ThresholdCounts,
    epsilon_independent,
    epsilon_ladder,
    epsilon_one_run,
    epsilon_split,
    joint_beta_interval,
    membership_scores,
)
from coalmine.statistics.epsilon.best import LADDER_SHARE, ONE_RUN_SHARE
from coalmine.statistics.epsilon.lower_bounds import group_delta
from coalmine.statistics.epsilon.one_run import OneRunLadder
from coalmine.statistics.epsilon.thresholds import CHOOSING_SHARE, ThresholdLadder, chosen_rule, split_scores

# The mechanisms of the tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

SIZES = (500, 1000, 2000, 5000, 10_000, 20_000)
SEEDS = 5
# A public tool's means over 5 seeds: its default, and its sample splitting.
PEER = {500: (1.23, 1.15), 1000: (1.36, 1.56), 5000: (1.09, 1.95), 20_000: (0.80, 2.22)}
LEVEL, CANARIES = 0.95, 500


def normal_scores(n: int, seed: int) -> MembershipScores:
    rng = np.random.default_rng(seed)
    return MembershipScores(rng.normal(1, 1, n), rng.normal(0, 1, n))


def strength() -> None:
    """N(1, 1) against N(0, 1), delta 1e-5, 95%; the true epsilon is 4.38. The headline is the bound from one run."""
    print(
        f"{'per side':>8} {'ladder':>8} {'split':>8} {'one run':>8} {'indep.':>8}   a public tool's default, its splitting"
    )
    for n in SIZES:
        sums = np.zeros(4)
        for seed in range(SEEDS):
            scores = normal_scores(n, seed)
            bounds = [
                bound(*scores, delta=1e-5) for bound in (epsilon_ladder, epsilon_split, epsilon_one_run)
            ]
            bounds.append(epsilon_independent(*scores, coins=CoinScores(scores), delta=1e-5))
            sums += [bound.low or 0.0 for bound in bounds]
        peer = "   ".join(f"{value:.2f}" for value in PEER.get(n, ()))
        print(f"{n:>8,} " + " ".join(f"{value:>8.2f}" for value in sums / SEEDS) + f"   {peer}", flush=True)


def refutations(mechanism, audits: int) -> np.ndarray:
    """The share of audits in which each bound exceeds the truth: split, ladder, one run, best if scores are independent."""
    truth = (
        mechanism.copies * mechanism.epsilon,
        group_delta(mechanism.epsilon, mechanism.delta, mechanism.copies),
    )
    too_high = np.zeros(4)
    for seed in range(audits):
        rng = np.random.default_rng(10_000 + seed)
        members = rng.binomial(CANARIES, 0.5)
        scores = membership_scores(*mechanism.draw(rng, members, CANARIES - members))
        parts = split_scores(scores, CHOOSING_SHARE, seed)
        if parts is None:
            raise RuntimeError(f"{CANARIES} canaries are too few to choose with some and count others")
        choosing, counted = parts
        split = chosen_rule(choosing, counted, delta=mechanism.delta).counts(counted).refutes(*truth, LEVEL)
        ladder = ThresholdLadder(scores).p_value(*truth)
        one_run = OneRunLadder(scores, mechanism.delta).p_value(*truth)
        independent = min(ladder / LADDER_SHARE, one_run / ONE_RUN_SHARE)
        too_high += [split, *(p_value <= 1 - LEVEL for p_value in (ladder, one_run, independent))]
    return too_high / audits


def coverage(audits: int) -> None:
    from private_mechanisms import MECHANISMS

    print(
        f"{'truth exceeded, in %, of ' + format(audits, ',') + ' audits of 500 canaries':<64} split  ladder  one run  independent"
    )
    for mechanism in MECHANISMS:
        shares = 100 * refutations(mechanism, audits)
        print(
            f"{mechanism.name:<64} {shares[0]:>5.1f} {shares[1]:>7.1f} {shares[2]:>8.1f} {shares[3]:>5.1f}",
            flush=True,
        )


def speed() -> None:
    scores = normal_scores(5000, 0)
    membership_of_scores(*scores)  # imports
    begin = time.perf_counter()
    membership_of_scores(*scores)
    print(f"the whole audit of 10,000 canaries: {time.perf_counter() - begin:.2f} s")
    begin = time.perf_counter()
    interval = joint_beta_interval(ThresholdCounts(487, 487, 512, 513), delta=1e-5, confidence=0.9)
    seconds = time.perf_counter() - begin
    print(f"the joint-beta interval [{interval.low:.3f}, {interval.high:.3f}]: {seconds:.2f} s")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--audits", type=int, default=2000)
    audits = parser.parse_args(arguments).audits
    strength()
    coverage(audits)
    speed()


if __name__ == "__main__":
    main()
