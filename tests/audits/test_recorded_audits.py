"""The same model, texts and seed give the same results as in earlier versions, from ranks to sentences."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from audits.compared_runs import LESS, MORE, seeds, strategy, strategy_among, varied
from coalmine import (
    Canary,
    CanarySet,
    Format,
    ScriptedModel,
    expose,
    extract,
    membership,
    membership_of_scores,
    recite,
    verify_certificate,
)
from coalmine.audits import verify_extraction
from coalmine.audits.comparison.measure import compare
from coalmine.corpus import build_index
from recorded import assert_as_recorded, plain

FILE = Path(__file__).with_name("recorded_audits.json")
FORM = Format("pin {digits:3}{letters:1}")
WEIGHTS = {character: 1 + place % 7 for place, character in enumerate("0123456789abcdefghijklmnopqrstuvwxyz")}


@cache
def planted():
    """Canaries of one and of eight copies, every third of them withheld."""
    drawn = FORM.sample(72, seed=3, replace=False)
    canaries = [
        Canary(
            canary_id=f"c{place}",
            format_id="f0",
            text=drawn[place],
            repetitions=8 if place >= 12 else 1,
            planted=place % 3 != 2,
        )
        for place in range(24)
    ]
    return CanarySet(canaries, {"f0": FORM}, references={"f0": drawn[24:]}, withhold=0.33)


@cache
def model(name="scripted", weight=0.004):
    memory = {
        c.text: weight * (1 + place % 3)
        for place, c in enumerate(planted())
        if c.planted and c.repetitions > 1
    }
    return ScriptedModel(
        "pin 0123456789abcdefghijklmnopqrstuvwxyz", memory=memory, frequencies=WEIGHTS, name=name
    )


@cache
def exposures(method, **options):
    return expose(model(), planted(), method=method, **options)


def exposed(method, **options):
    """What the results rest on, the numbers of each canary, and three of them in full."""
    found = expose(model(), planted(), method=method, **options)
    candidates = [(one.kind, len(one.indices), one.log_perplexities_bits.sum()) for one in found.candidates]
    rows = [
        (
            one.canary_id,
            one.rank,
            one.estimate.value,
            one.estimate.low,
            one.estimate.high,
            one.estimate.effective_n,
        )
        for one in found.results
    ]
    return found.formats, found.expansions, found.warnings, candidates, rows, found.results[11:14]


def extracted(**options):
    found = extract(model(), FORM, **options)
    again = verify_certificate(model(), found) if found.method == "search" else None
    return found, again


TEXTS = {
    "schema",
    "statement",
    "assumptions",
    "method",
    "exposures_sha256",
    "reference_exposures_sha256",
    "index",
}


def numbers(value):
    """A document without its texts, which are long, without what names files, and without what is not there."""
    if isinstance(value, dict):
        return {name: numbers(one) for name, one in value.items() if name not in TEXTS and one is not None}
    return [numbers(one) for one in value] if isinstance(value, list) else value


def population(m, n, apart, **options):
    ranks = [
        (np.arange(size) * 7 % size + 0.5) / size if size % 7 else (np.arange(size) + 0.5) / size
        for size in (m, n)
    ]
    # Rounded, because their last digits depend on the CPU, and random splits depend on all digits.
    scores = [np.round(np.log(rank / (1 - rank)), 9) for rank in ranks]
    return membership_of_scores(scores[0] + apart, scores[1], **options)


def several(number, losses, **options):
    """Sides of several trainings each."""
    first = seeds("plain", [varied(MORE, seed) for seed in range(number)], losses[:number], **options)
    second = seeds(
        "other", [varied(LESS, 9 + seed) for seed in range(number)], losses[3 : 3 + number], **options
    )
    return compare([*first, *second], equal_within=0.05)


def among(method):
    spread = np.linspace(-9.0, 9.0, 80)
    few = strategy_among("few", spread[3:60:6] + 0.05, spread, method=method)
    many = strategy_among("many", spread[0:40:4] + 0.02, spread + 0.01, method=method)
    return compare([few, many])


CASES = {
    "exact": lambda: exposed("exact"),
    "bounded": lambda: exposed("bounded"),
    "bounded, with a budget": lambda: exposed("bounded", budget=40),
    "guided": lambda: exposed("guided", samples=300, budget=30, seed=2),
    "splitting": lambda: exposed("splitting", samples=96, seed=1),
    "sampled": lambda: exposed("sampled", samples=200, confidence=0.9),
    "extrapolated": lambda: exposed("extrapolated", samples=300, confidence=0.8)[:5],
    "references": lambda: exposed("references"),
    "without comparisons": lambda: exposed("sampled", samples=50, comparisons=False),
    "found by search": lambda: extracted(top=7),
    "found with a budget": lambda: extracted(top=4, budget=20),
    "found by brute force": lambda: extracted(top=4, method="brute"),
    "found by a prompt": lambda: extracted(method="prompt"),
    "found after a beginning": lambda: extracted(top=3, given="pin 4"),
    "canaries that were looked for": lambda: verify_extraction(model(), planted(), top=9),
    "membership": lambda: numbers(plain(membership(exposures("references"), claimed_epsilon=0.5))),
    "membership by ranks": lambda: numbers(plain(membership(exposures("exact"), delta=1e-3, inclusion=0.67))),
    "membership beside a model": lambda: numbers(plain(membership(exposures("references"), reference=expose(model("base", 0.0005), planted(), method="references")))),
    "membership of scores": lambda: [numbers(plain(population(m, n, apart, **options))) for m, n, apart, options in ((9, 9, 1.0, {}), (120, 130, 3.0, {"claimed_epsilon": 1.0}), (60, 400, 2.0, {"runs": "many", "copies": 3, "claimed_epsilon": 0.2}), (90, 30, 0.0, {"inclusion": 0.75, "confidence": 0.8}))],
    "two trainings": lambda: [compare([strategy("one", MORE, u), strategy("two", LESS, v)]) for u, v in ((2.5, 2.5), (2.5, 2.9), (2.5, 2.52), (None, 2.5))],
    "trainings with other canaries": lambda: compare([strategy("one", MORE), strategy("two", LESS, manifest="other"), strategy("three", LESS[:5], manifest="third")]),
    "numbers of copies": lambda: compare([strategy("one", MORE, repetitions=[1, 1, 1, 1, 4, 4, 4, 4]), strategy("two", LESS, repetitions=[1, 1, 1, 1, 4, 4, 4, 4])]),
    "trainings that beat all": lambda: compare([strategy("one", [None, *MORE[1:]]), strategy("two", LESS)]),
    "sides of trainings": lambda: [several(number, [2.5, 2.6, 2.55, 2.52, 2.9, 2.7]) for number in (2, 3)],
    "among references": lambda: among("references"),
    "among samples": lambda: among("sampled"),
}  # fmt: skip


# A scripted model recites a text from its beginning, so that lines of just the length of a sequence can be recited.
LINES = [
    "the quick brown fox!",
    "a line that is once.",
    "they know it by heart",
    "sphinx of black quartz, judge!",
    "pack my box with five dozen jug",
    "how vexingly quick daft zebras",
]
COPIES = (1, 3, 9, 30, 2, 5)


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    lines = [line for line, times in zip(LINES, COPIES, strict=True) for _ in range(times)]
    (folder / "corpus.txt").write_text("".join(f"{line}\n" for line in lines))
    return build_index(folder / "corpus.txt", folder / "index", tokenizer=reciting(1.0).tokenizer)


def reciting(share, name="scripted"):
    """Knows the lines of the corpus, those with many copies best."""
    memory = {
        line: share * weight for line, weight in zip(LINES, (0.05, 0.2, 0.1, 0.3, 0.02, 0.15), strict=True)
    }
    return ScriptedModel(
        "abcdefghijklmnopqrstuvwxyz ,.!", memory=memory, frequencies={"e": 5, " ": 9}, name=name
    )


RECITED = {
    "one context": {"contexts": [14], "suffix": 6, "per_bucket": 12},
    "contexts and lengths": {"contexts": [14, 15, 24], "suffix": 6, "per_bucket": 12, "tries": [1, 10, 1000], "chance": 0.9},
    "longer sequences": {"contexts": [8, 14], "suffix": 6, "lengths": [20, 30], "per_bucket": 6},
    "uniform": {"contexts": [24], "suffix": 6, "sample": "uniform", "per_bucket": 25, "max_sequences": 20},
    "greedy only": {"contexts": [24], "suffix": 6, "per_bucket": 5, "greedy_only": True},
    "beams": {"contexts": [14], "suffix": 6, "per_bucket": 12, "beam": 3, "anywhere": True},
}  # fmt: skip


@pytest.mark.parametrize("name", RECITED)
def test_recitation_is_as_it_was(name, index):
    models = [reciting(1e-9, "small"), reciting(1.0, "large")]
    found = recite(models, index, baseline=reciting(1e-30, "baseline"), **RECITED[name])
    assert max(group.recited.value for group in found.groups) > 0
    assert_as_recorded(FILE, f"recited, {name}", numbers(plain(found)), within=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_results_are_as_they_were(name):
    assert_as_recorded(FILE, name, CASES[name](), within=1e-6)
