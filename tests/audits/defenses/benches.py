"""Benches with numbers that are known, without a model."""

import msgspec

from coalmine.audits import Bench, DefenseOptions
from coalmine.audits.defenses.recipes import chosen_defenses, parse_defense
from coalmine.audits.defenses.records import BenchCanary, BenchedModel, with_rows
from coalmine.corpus import PlantOptions
from coalmine.records.privacy import DescribedClaim
from coalmine.statistics import judge_claim

COPIES = (1, 1, 1, 1, 1, 1, 1, 1, 4, 4, 4, 4, 4, 4, 4, 4)


def claim(epsilon):
    return DescribedClaim(epsilon=epsilon, delta=1e-5, unit="document")


def model(
    defense, seed, exposures, *, loss=2.0, epsilon=None, proven=0.0, extracted=(), separated=False, **changes
):
    """A model with these exposures of its planted canaries; where it claims an epsilon, its scores keep that or are far from it."""
    verdict = None
    if epsilon is not None:
        high, low = ([9.0] * 60, [1.0] * 60) if separated else ([1.0, 2.0] * 30, [2.0, 1.0] * 30)
        verdict = judge_claim(high, low, claimed_epsilon=epsilon, claimed_delta=1e-5, runs="many")
    given = BenchedModel(
        defense=defense,
        seed=seed,
        model={"name": defense},
        copies_left=40,
        loss_bits=loss,
        exposures=tuple((float(one), float(one)) for one in exposures),
        extracted=tuple(extracted),
        searched=16,
        bound=proven,
        privacy=None if epsilon is None else claim(epsilon),
        verdict=verdict,
    )
    return msgspec.structs.replace(given, **changes)


def bench(models, defenses, **changes):
    """A bench of these models, with all of its canaries planted."""
    made = Bench(
        corpus_sha256="0" * 64,
        manifest_sha256="1" * 64,
        format="my pin is {digits:4}",
        defenses=chosen_defenses([parse_defense(one) for one in defenses]),
        settings=DefenseOptions(seeds=2),
        planting=PlantOptions(),
        training={"epochs": 2},
        bound_confidence=0.99,
        most_bits=13.3,
        canaries=tuple(
            BenchCanary(canary_id=f"f0-x{copies}-{place}", copies=copies, planted=True)
            for place, copies in enumerate(COPIES)
        ),
        models=tuple(models),
        finished=True,
    )
    return with_rows(msgspec.structs.replace(made, **changes))


def known_bench():
    """A small bench with a defense that helps and one that claims an epsilon."""
    models = [
        model(name, seed, [start + 0.25 * place for place in range(16)], **changes)
        for name, start, changes in (
            ("none", 8.0, {}),
            ("dedup", 1.0, {"loss": 2.1}),
            ("dp=8", 1.5, {"loss": 2.5, "epsilon": 8.0}),
        )
        for seed in (0, 1)
    ]
    return bench(models, ["dedup", "dp=8"])
