"""How often does a report, or the gate, accuse a model without memorization, and does either stay silent about strong memorization?

    python experiments/verdicts.py

has three parts. `simulated` makes reports from simulated ranks and scores, hundreds in each of several shapes; `sparse` does so where
few of many canaries, or of many secrets that nobody planted, are recited. `path` runs the whole way in one process: plant, train a small
character model, expose, extract, membership, report, check. Models without memorization are trained on the same corpus without the
canaries of the manifest: without any canary, or with others of the same format. Rows go to experiments/results/verdicts.csv, one per
run, and rates to verdicts.json.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import math
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from scipy.stats import norm

from coalmine import (
    CanarySet,
    Estimate,
    ExposureResult,
    check,
    expose,
    findings_of,
    load_model,
    membership,
    parse_policy,
    plant,
    read_run,
    train,
)
from coalmine.audits import EXPOSURES, MEMBERSHIPS, Exposures, Run, verify_extraction
from coalmine.audits.exposure.results import CandidateScores, FormatFacts
from coalmine.audits.extraction.results import save_verification
from coalmine.audits.membership.report import membership_in_plain_words
from coalmine.corpus import write_embedded_corpus
from coalmine.evidence.run import Located
from coalmine.randomness import arrays
from coalmine.reports.conclusion import conclusion_of
from coalmine.reports.findings import SEVERITIES
from coalmine.reports.gate import template
from coalmine.statistics import (
    clopper_pearson,
    exact_exposure,
    guided_exposures,
    reference_exposures,
    sampled_exposures,
)
from coalmine.storage.files import whole_file, write_json

PARTS = ("simulated", "sparse", "path")
RESULTS = Path(__file__).parent / "results"
ACCUSING = SEVERITIES[: SEVERITIES.index("info")]
DEFAULT = parse_policy(template())
NATURAL = parse_policy("[secrets]\nat_most = 10.0")
STRICT = parse_policy(
    """
    require = ["exposure", "extraction", "membership"]
    [exposure]
    at_most = 10.0
    [extraction]
    at_most_extracted = 0
    [membership]
    auc_at_most = 0.8
    tpr_at_fpr_1_percent_at_most = 0.5
    epsilon_at_most = 8.0
    """
)


@dataclasses.dataclass(frozen=True)
class Row:
    """What one report, and the gate, said of one run."""

    part: str
    shape: str
    memorization: str
    run: int
    # Whether there is a finding of severity low or worse about the model, and which.
    accused: bool
    severity: str
    codes: str
    # The default policy, and one with every rule about canaries (empty where it was not asked).
    default_policy: str
    strict_policy: str
    # No finding of severity low or worse, and the default policy is not broken.
    silent: bool
    cpu_seconds: float
    # Whether `membership` calls a population memorized, or names a canary that chance does not explain.
    membership_says: bool = False
    # Whether the verdict of the report is that there is no leak, or no evidence of one.
    called_safe: bool = False


def judged(run: Run, *, strict: bool) -> dict[str, Any]:
    """What the findings and the gate say of a run."""
    everything = findings_of(run)
    findings = [one for one in everything if not one.code.startswith("CM5")]
    accusing = [one for one in findings if one.severity in ACCUSING]
    gate = check(run, DEFAULT if run.secrets is None else NATURAL).outcome
    verdict = conclusion_of(everything).sentence
    return {
        "accused": bool(accusing),
        "severity": min((one.severity for one in findings), key=SEVERITIES.index, default="info"),
        "codes": " ".join(sorted({one.code for one in accusing})),
        "default_policy": gate,
        "strict_policy": check(run, STRICT).outcome if strict else "",
        "silent": not accusing and gate != "broken",
        "called_safe": any(words in verdict for words in ("No leak", "no leak", "no evidence")),
        "membership_says": any(
            any(": memorized (p " in line for line in membership_in_plain_words(document))
            for _, document in run.all(MEMBERSHIPS)
        ),
    }


# Simulated reports


class Shape(NamedTuple):
    """How an audit was set up."""

    name: str
    method: str
    size: int
    formats: int
    repeat: tuple[int, ...]
    canaries: int
    withheld: int
    references: int
    membership: bool = False


SHAPES = (
    Shape("exact, 48 canaries", "exact", 10**4, 1, (1, 4, 16), 16, 48, 0),
    Shape("exact, 100 canaries", "exact", 10**6, 1, (1, 4), 50, 20, 0),
    Shape("exact, 5 formats", "exact", 10**6, 5, (1, 8), 10, 50, 0),
    Shape("references, 100 canaries", "references", 10**9, 1, (1, 4), 50, 20, 1000),
    Shape("references, 5 formats", "references", 10**9, 5, (1, 8), 10, 50, 1000),
    Shape("guided, 100 canaries", "guided", 10**9, 1, (1, 4), 50, 20, 2000),
    Shape("sampled, 100 canaries", "sampled", 10**9, 1, (1, 4), 50, 20, 10_000),
    Shape("references and membership, 48 canaries", "references", 10**9, 1, (1, 4, 16), 16, 48, 1000, True),
)


class Memory(NamedTuple):
    """Which canaries a simulated model knows: so many of those that were trained on most often, or a share of all of them."""

    name: str
    known: Callable[[int], int]


NOTHING = Memory("none", lambda _: 0)
STRONG = (
    Memory("5 of 6 recited", lambda count: 5 * count // 6),
    Memory("all recited", lambda count: count),
    Memory("a quarter recited", lambda count: math.ceil(count / 4)),
)
ONE = Memory("one fully exposed", lambda _: 1)


def simulated_run(shape: Shape, memory: Memory, chance: np.random.Generator) -> Run:
    """A run as `expose`, and `membership` where asked, would have written it."""
    results: list[ExposureResult] = []
    candidates = []
    planted = shape.formats * len(shape.repeat) * shape.canaries
    left = memory.known(planted)
    for place in range(shape.formats):
        format_id = f"f{place}"
        times = [times for times in shape.repeat for _ in range(shape.canaries)]
        times += [0] * (shape.withheld // shape.formats)
        # Scores are places in the space, between 0 and 1: uniform without memorization.
        scores = chance.random(len(times))
        known = min(left, len(shape.repeat) * shape.canaries)
        left -= known
        order = np.argsort([-one for one in times], kind="stable")[:known]
        scores[order] = chance.random(known) / shape.size
        others = chance.random(shape.references)
        estimates = estimates_of(shape, scores, others)
        if shape.references:
            candidates.append(
                CandidateScores(format_id, "reference", np.arange(shape.references), 30 + others)
            )
        results += [
            ExposureResult(
                canary_id=f"{format_id}-{number}",
                format_id=format_id,
                repetitions=one,
                planted=one > 0,
                planned_repetitions=one or shape.repeat[number % len(shape.repeat)],
                method=estimate.method,
                known_log_perplexity_bits=30 + float(score),
                rank=None,
                most_possible_bits=math.log2(shape.size),
                estimate=estimate,
            )
            for number, (one, score, estimate) in enumerate(zip(times, scores, estimates, strict=True))
        ]
    found = Exposures(
        results=tuple(results),
        formats=tuple(
            FormatFacts(
                format_id=f"f{place}",
                template=f"secret {place} is {{digits:{round(math.log10(shape.size))}}}",
                size=str(shape.size),
                size_bits=math.log2(shape.size),
                method=shape.method,
                why="asked for",
            )
            for place in range(shape.formats)
        ),
        tail_fits={},
        seed=0,
        confidence=0.95,
        model={"name": "simulated"},
        manifest_sha256="0" * 64,
        expansions=0,
        inclusion=0.5,
    ).beside(candidates)
    memberships = (Located(Path("membership.json"), membership(found)),) if shape.membership else ()
    exposures = (Located(Path("exposure.json"), found),)
    return Run(paths=(Path(),), name="simulated", documents={EXPOSURES: exposures, MEMBERSHIPS: memberships})


def estimates_of(shape: Shape, scores: np.ndarray, others: np.ndarray) -> list[Estimate]:
    """The exposures that a method gives for canaries at these places of the space."""
    if shape.method == "exact":
        ranks = [min(shape.size, int(score * shape.size) + 1) for score in scores]
        return [exact_exposure(rank, shape.size) for rank in ranks]
    if shape.method == "references":
        return reference_exposures(scores, others)
    if shape.method == "sampled":
        return sampled_exposures(scores, others, shape.size)
    known = [max(1, int(score * shape.size)) if score < 1e-6 else 1 for score in scores]
    weight = math.log2(shape.size)
    return guided_exposures(
        scores,
        others,
        np.full(len(others), weight),
        log2_most_weight=np.full(len(scores), weight),
        known=known,
        # What a search proves of the best of all is its rank.
        most_rank=[one if score < 1e-6 else shape.size for one, score in zip(known, scores, strict=True)],
        size=shape.size,
    )


def simulated(reports: int) -> Iterator[Row]:
    """Reports without memorization in every shape, and with strong memorization."""
    for shape in SHAPES:
        # One canary among many can be shown where it is ranked in its whole space, and not among a thousand references.
        whole = shape.method in {"exact", "guided"}
        for memory in (
            NOTHING,
            *(STRONG[:1] if shape.membership else STRONG),
            *([ONE] if whole and shape.size > 10**4 else []),
        ):
            many = reports if memory is NOTHING else max(10, reports // 10)
            if shape.membership:
                many = min(many, 150)
            for number in range(many):
                chance = arrays(0, "verdicts", shape.name, memory.name, number)
                begun = time.process_time()
                told = judged(simulated_run(shape, memory, chance), strict=False)
                spent = time.process_time() - begun
                yield Row("simulated", shape.name, memory.name, number, cpu_seconds=round(spent, 2), **told)


# Few of many


class Many(NamedTuple):
    """So many canaries of one format, or secrets that nobody planted, each among others of its own."""

    natural: bool
    method: str
    size: int

    @property
    def name(self) -> str:
        """As in the table of the docs."""
        among = f"of 10^{round(math.log10(self.size))}" if self.method == "exact" else "among references"
        return f"{'secrets' if self.natural else 'canaries'} {among}"


MANY = (
    *(Many(False, "exact", 10**digits) for digits in (2, 4, 6, 9)),
    Many(False, "references", 10**9),
    *(Many(True, "exact", 10**digits) for digits in (4, 6)),
    Many(True, "references", 101),
)
REFERENCES = 1000
SECRETS, RECITED = (40, 200, 1000), (0, 1, 2, 5, 10)


def sparse_run(many: Many, number: int, recited: int, chance: np.random.Generator) -> Run:
    """A run in which the first few are recited: with a probability of a fiftieth to nine tenths, after a beginning of 8 bits."""
    size_bits = math.log2(many.size)
    share = 2.0 ** -chance.uniform(0.15, 5.6, recited)
    # Places in the space of those that nobody recites; their bits fall with the place.
    places = chance.random(number)
    names = [f"phone-{place}" if many.natural else "f0" for place in range(number)]
    leads: list[float] = []
    if many.natural:
        ranks = [1] * recited + [int(place * many.size) + 1 for place in places[recited:]]
        # One secret of ten is where the model knows a stranger, such as a number that it was trained on too.
        sure = chance.random(number) < 0.1
        leads = np.where(sure, chance.uniform(0, 20, number), chance.uniform(-12, 0, number)).tolist()
        leads[:recited] = np.log2(share / (1 - share)) + chance.uniform(2, 12, recited)
        bits = [30.0] * number
    else:
        ranks = [
            *range(1, recited + 1),
            *(max(recited + 1, int(place * many.size) + 1) for place in places[recited:]),
        ]
        spread = np.concatenate([np.full(recited, -np.inf), norm.ppf(places[recited:])])
        bits = [*(8.0 - np.log2(share)), *(size_bits + 14.0 + 3.0 * spread[recited:])]
    if many.method == "exact":
        estimates = [exact_exposure(rank, many.size) for rank in ranks]
    elif many.natural:
        estimates = [reference_exposures([rank - 0.5], np.arange(1, many.size) + 0.0)[0] for rank in ranks]
    else:
        others = size_bits + 14.0 + 3.0 * chance.standard_normal(REFERENCES)
        estimates = reference_exposures(bits, others)
    results = [
        ExposureResult(
            canary_id=f"c{place}" if not many.natural else name,
            format_id=name,
            repetitions=1,
            planted=True,
            method=many.method,
            known_log_perplexity_bits=float(bits[place]),
            rank=ranks[place] if many.method == "exact" else None,
            most_possible_bits=size_bits,
            estimate=estimate,
            kind="phone" if many.natural else msgspec.UNSET,
            lead_bits=leads[place] if leads else msgspec.UNSET,
        )
        for place, (name, estimate) in enumerate(zip(names, estimates, strict=True))
    ]
    found = Exposures(
        results=tuple(results),
        formats=tuple(
            FormatFacts(
                format_id=name,
                template=f"secret {place} is {{digits:4}}",
                size=str(many.size),
                size_bits=size_bits,
                method=many.method,
                why="asked for",
                is_distribution=not many.natural,
            )
            for place, name in enumerate(dict.fromkeys(names))
        ),
        tail_fits={},
        seed=0,
        confidence=0.95,
        model={"name": "simulated"},
        manifest_sha256="0" * 64,
        expansions=0,
    )
    run = Run(
        paths=(Path(),), name="simulated", documents={EXPOSURES: (Located(Path("exposure.json"), found),)}
    )
    return Run(paths=(Path(),), name="simulated", secrets=run) if many.natural else run


def sparse(reports: int) -> Iterator[Row]:
    """Reports where 0, 1, 2, 5 and 10 of 40, 200 and 1,000 are recited."""
    for many in MANY:
        for number in SECRETS:
            if many.method == "exact" and not many.natural and 2 * number > many.size:
                continue
            for recited in RECITED:
                for repeat in range(reports if recited == 0 else max(10, reports // 3)):
                    shape = f"{many.name}, {number:,}"
                    chance = arrays(0, "sparse verdicts", shape, str(recited), repeat)
                    begun = time.process_time()
                    told = judged(sparse_run(many, number, recited, chance), strict=False)
                    spent = time.process_time() - begun
                    memory = f"{recited} recited" if recited else "none"
                    yield Row("sparse", shape, memory, repeat, cpu_seconds=round(spent, 2), **told)


# The whole path


class Route(NamedTuple):
    """One way through the commands."""

    name: str
    formats: tuple[str, ...]
    planting: dict[str, Any]
    exposing: dict[str, Any]


PATHS = (
    Route("defaults, 4 digits", ("my pin is {digits:4}",), {}, {}),
    Route("references, 9 digits", ("my code is {digits:9}",), {}, {"method": "references"}),
    Route(
        "two formats",
        ("my pin is {digits:4}", "the key of the safe is {digits:5}"),
        {"repeat": (1, 8), "canaries": 20, "references": 300},
        {},
    ),
    Route(
        "guided, 6 digits",
        ("my code is {digits:6}",),
        {},
        {"method": "guided", "budget": 500, "samples": 2000},
    ),
    Route("sampled, 6 digits", ("my code is {digits:6}",), {}, {"method": "sampled", "samples": 2000}),
)
TRAINING: dict[str, Any] = {
    "architecture": "gru",
    "hidden": 32,
    "embedding": 16,
    "layers": 1,
    "window": 32,
    "holdout": 0.0,
    "learning_rate": 0.01,
}


def whole_path(one: Route, memorization: str, number: int, folder: Path) -> Run:
    """Plant, train, expose, extract, membership, and the results read again."""
    seed = 1000 * number + 7
    corpus = folder / "corpus.txt"
    write_embedded_corpus(corpus, 24_000 if memorization == "strong" else 10_000)
    with corpus.open("a") as text:
        text.write("0123456789\n" * 5)
    if memorization == "strong":
        # Planted so often, and read so many times, that the model knows them by heart.
        options = {**one.planting, "repeat": (32,), "canaries": 10, "references": 1000}
        made = plant(corpus, one.formats, out=folder / "planted", seed=seed, **options)
        data, epochs = folder / "planted", 8
        canaries = made.canaries
    else:
        made = plant(corpus, one.formats, out=folder / "planted", seed=seed, **one.planting)
        # The manifest without its corpus: the model below was never trained on it.
        drawn = made.canaries
        canaries = CanarySet(
            list(drawn), drawn.formats, references=drawn.references, withhold=drawn.withhold, seed=drawn.seed
        )
        data, epochs = corpus, 2
        if number % 2:
            plant(corpus, one.formats, out=folder / "others", seed=seed + 1, **one.planting)
            data = folder / "others"
    train(data, out=folder / "model", epochs=epochs, seed=number, **TRAINING)
    model = load_model(folder / "model")
    canaries.save(folder / "audit" / "canaries.json")
    expose(model, canaries, seed=seed, **one.exposing).save(folder / "audit" / "exposure")
    results, searches = verify_extraction(model, canaries, top=10, budget=20_000)
    save_verification(
        folder / "audit" / "extraction",
        results,
        searches,
        manifest_sha256=canaries.sha256,
        model=model.describe(),
    )
    membership(folder / "audit" / "exposure", seed=seed).save(folder / "audit" / "membership")
    return read_run(folder / "audit")


def path(runs: int, strong: int) -> Iterator[Row]:
    """So many runs without memorization, and so many with it, over all ways through the commands."""
    for memorization, many in (("none", runs), ("strong", strong)):
        for number in range(many):
            one = PATHS[number % len(PATHS)]
            begun = time.process_time()
            with tempfile.TemporaryDirectory() as folder:
                told = judged(whole_path(one, memorization, number, Path(folder)), strict=True)
            spent = time.process_time() - begun
            yield Row("path", one.name, memorization, number, cpu_seconds=round(spent, 2), **told)


# Rates


def rates(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """For each shape and each memory: how often accused, how often silent, and the outcomes of the gate."""
    keys = list(dict.fromkeys((row.part, row.shape, row.memorization) for row in rows))
    keys += [
        ("path", "all", memorization)
        for memorization in dict.fromkeys(r.memorization for r in rows if r.part == "path")
    ]
    found = []
    for part, shape, memorization in keys:
        these = [
            row
            for row in rows
            if (row.part, row.memorization) == (part, memorization) and shape in (row.shape, "all")
        ]
        n = len(these)
        accused = sum(
            row.accused or row.membership_says or "broken" in (row.default_policy, row.strict_policy)
            for row in these
        )
        found.append(
            {
                "part": part,
                "shape": shape,
                "memorization": memorization,
                "runs": n,
                "accused": sum(row.accused for row in these),
                "membership_says": sum(row.membership_says for row in these),
                "accused_or_broken": accused,
                "accused_or_broken_interval": [
                    round(limit, 4) for limit in clopper_pearson(accused, n, 0.95)
                ],
                "silent": sum(row.silent for row in these),
                "called_safe": sum(row.called_safe for row in these),
                "severities": dict(Counter(row.severity for row in these)),
                "default_policy": dict(Counter(row.default_policy for row in these)),
                "strict_policy": dict(Counter(row.strict_policy for row in these if row.strict_policy)),
                "cpu_seconds_per_run": round(sum(row.cpu_seconds for row in these) / n, 2),
            }
        )
    return found


def save(rows: Sequence[Row], name: str) -> None:
    """One row per run as CSV, and the rates as JSON."""
    with whole_file(RESULTS / f"{name}.csv") as temporary, open(temporary, "w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in dataclasses.fields(Row)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(dataclasses.asdict(row) for row in rows)
    write_json(RESULTS / f"{name}.json", {"rates": rates(rows)})


def read(name: str, keep: str) -> list[Row]:
    """The rows of one part that an earlier run wrote."""
    place = RESULTS / f"{name}.csv"
    if not place.exists():
        return []
    with place.open(newline="") as file:
        return [
            msgspec.convert(row, Row, strict=False) for row in csv.DictReader(file) if row["part"] == keep
        ]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument(
        "--reports", type=int, default=200, help="Simulated reports without memorization, per shape."
    )
    parser.add_argument("--runs", type=int, default=400, help="Whole runs without memorization.")
    parser.add_argument("--strong", type=int, default=50, help="Whole runs with strong memorization.")
    parser.add_argument("--name", default="verdicts")
    given = parser.parse_args()
    # What is not made again is kept, and read before anything is written.
    made = {part: [] if part in given.parts else read(given.name, part) for part in PARTS}
    for part in given.parts:
        source = {
            "simulated": lambda: simulated(given.reports),
            "sparse": lambda: sparse(given.reports),
            "path": lambda: path(given.runs, given.strong),
        }[part]()
        for row in source:
            made[part].append(row)
            if len(made[part]) % 50 == 0:
                print(part, len(made[part]), row.shape, row.memorization, flush=True)
                # What is there by now, so that a run that is stopped is not lost.
                save([one for some in made.values() for one in some], given.name)
    rows = [one for some in made.values() for one in some]
    save(rows, given.name)
    for one in rates(rows):
        print(one, flush=True)


if __name__ == "__main__":
    main()
