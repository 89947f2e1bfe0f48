"""How many workers can one driver feed, and what stops it first: its own time per unit, the network, or failures?

    python experiments/scheduling.py

runs the scheduler of the engines itself against a pool of simulated workers in simulated time (`simulated_workers.py`). What a unit
costs the driver and the workers comes from measurements. With `--measure` these are made again on this machine, together with real
runs that the simulation must predict. Rows go to experiments/results/scheduling.csv, costs and the comparison to scheduling.json, the
figure to docs/figures/.
"""

from __future__ import annotations

import argparse
import csv
import pickle
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec
from figures import draw_scheduling
from simulated_workers import Costs, Setting, simulate

from coalmine.engines.units import Work
from coalmine.randomness import arrays
from coalmine.storage.files import PUBLIC, whole_file, write_json

if TYPE_CHECKING:
    from benchmarks.unit_costs import UnitCosts
    from coalmine.engines.engine import Engine

RESULTS = Path(__file__).parent / "results"
FIGURES = Path(__file__).parents[1] / "docs" / "figures"
WORKERS = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)
UNIT_SECONDS = (0.1, 1.0, 10.0, 60.0)
FAILURES_PER_HOUR = (0.0, 0.01, 0.1, 1.0, 10.0)
GIGABITS = (0.1, 1.0, 10.0, 100.0)
# The sweeps over failures and bandwidth are at this many workers.
MANY = 1000
# Units take different times: the standard deviation of their logarithm.
SPREAD = 0.1


def durations_of(unit_seconds: float, number: int) -> list[float]:
    """Seconds of units that differ somewhat, with this mean."""
    draw = arrays(0, "scheduling", "durations", str(unit_seconds))
    found: list[float] = (unit_seconds * draw.lognormal(-(SPREAD**2) / 2, SPREAD, number)).tolist()
    return found


def settings(measured: dict[str, Any], workers: Iterable[int]) -> Iterator[tuple[str, str, Setting, float]]:
    """Sweep, engine, setting and the seconds of units."""
    costs = costs_of(measured)
    for engine, cost in costs.items():
        for number in workers:
            # Nobody starts a thousand processes on one machine.
            if engine.startswith("processes") and number > 100:
                continue
            for seconds in UNIT_SECONDS:
                yield "workers", engine, Setting(cost, number), seconds
    recited = measured["recitation"]
    engine, cost = recited["engine"], costs[recited["engine"]]
    # All of what such a unit costs the driver was measured together: its bytes are in it.
    more = msgspec.structs.replace(
        cost, give=max(0.0, recited["driver"] - cost.look) - cost.give, per_byte=0.0
    )
    for number in workers:
        for seconds in UNIT_SECONDS:
            setting = Setting(
                more, number, unit_bytes=recited["unit_bytes"], result_bytes=recited["result_bytes"]
            )
            yield "recitation", engine, setting, seconds
    for rate in FAILURES_PER_HOUR:
        for seconds in (10.0, 60.0, 600.0):
            yield "failures", engine, Setting(cost, MANY, failures_per_hour=rate), seconds
    for gigabits in GIGABITS:
        for size in (10_000, 1_000_000, 100_000_000):
            setting = Setting(cost, MANY, gigabits=gigabits, unit_bytes=size, result_bytes=size)
            yield "bandwidth", engine, setting, 10.0


def rows_of(
    measured: dict[str, Any], workers: Sequence[int], units_per_worker: int
) -> Iterator[dict[str, Any]]:
    """One row per simulation."""
    for sweep, engine, setting, seconds in settings(measured, workers):
        number = max(400, units_per_worker * setting.workers)
        found = simulate(setting, durations_of(seconds, number))
        yield {
            "sweep": sweep,
            "engine": engine,
            "workers": setting.workers,
            "unit_seconds": seconds,
            "failures_per_worker_hour": setting.failures_per_hour,
            "gigabits_per_second": setting.gigabits,
            "unit_bytes": setting.unit_bytes,
            "result_bytes": setting.result_bytes,
            "units": number,
            "units_per_second": f"{found.throughput:.5g}",
            "efficiency": f"{found.efficiency:.4f}",
            "driver_busy": f"{found.driver_busy:.4f}",
            "link_busy": f"{found.link_busy:.4f}",
            "tries_per_unit": f"{found.tries:.5f}",
            "given_up": f"{found.given_up:.6f}",
            "bottleneck": found.bottleneck,
        }
        print(*(f"{value}" for value in (sweep, engine, setting.workers, seconds, *found)), flush=True)


def measure(number: int, rounds: int, *, ray: bool) -> dict[str, Any]:
    """The costs on this machine, and real runs beside what the simulation says of them."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from benchmarks.unit_costs import record_costs, unit_costs
    from coalmine.engines.processes import Processes

    record = record_costs(number)
    with Processes(1) as engine:
        found = [unit_costs(engine, "processes", number)]
    if ray:
        from coalmine.engines.ray import Ray

        with Ray(workers=1) as cluster:
            found.append(unit_costs(cluster, "ray", number))
            recited = recited_unit(cluster, "ray")
    else:
        with Processes(1) as engine:
            recited = recited_unit(engine, "processes")
    return {
        "record": record,
        "units": found,
        "recitation": recited,
        "validation": list(validate(found[0], number, rounds)),
    }


def recited_unit(engine: Engine, name: str) -> dict[str, Any]:
    """A unit of recitation, of 512 sequences of 50 + 50 tokens: what it weighs, and what it costs the driver but for its record."""
    from benchmarks.unit_costs import RESULT_BYTES, Nothing, mapped, recitation_units

    units = recitation_units(512 * 30)
    mapped(engine, Nothing(RESULT_BYTES), units[:3])
    seconds = median(mapped(engine, Nothing(RESULT_BYTES), units).driver for _ in range(3))
    return {
        "engine": name,
        "sequences": 512,
        "driver": seconds,
        "unit_bytes": len(pickle.dumps(units[0])),
        "result_bytes": RESULT_BYTES,
    }


def validate(measured: UnitCosts, number: int, rounds: int) -> Iterator[dict[str, Any]]:
    """Real runs: works that compute on two processes, and works that sleep on two and on eight, which need no idle cores.

    The simulation gets the durations that the workers measured, and the round trip of empty units right before and after.
    """
    from benchmarks.unit_costs import Multiplying, Sleeping, empty_units, mapped, multiplications, units_of
    from coalmine.engines.processes import Processes

    works: dict[str, Work] = {"multiplying": Multiplying(), "sleeping": Sleeping()}
    sizes = {"multiplying": (0.002, 0.01, 0.05), "sleeping": (0.005, 0.02)}
    with Processes(1) as one, Processes(2) as two, Processes(8) as eight:
        for engine in (two, eight):
            mapped(engine, Sleeping(), units_of(20, 0.01))
        mapped(two, Multiplying(), units_of(20, 1))
        runs = [
            (name, engine, wanted)
            for name in works
            for engine in ((two, eight) if name == "sleeping" else (two,))
            for wanted in sizes[name]
        ]
        for name, engine, wanted in runs * rounds:
            payload = wanted if name == "sleeping" else multiplications(wanted)
            units = units_of(max(40, int(number * 0.002 / wanted)), payload)
            before = empty_units(one, number // 5)
            real = mapped(engine, works[name], units)
            after = empty_units(one, number // 5)
            values = [outcome.value() for outcome in real.outcomes]
            seconds = [float(value["seconds"]) for value in values]
            now = msgspec.structs.replace(
                measured,
                round_trip=(before.clock + after.clock) / 2,
                driver=(before.driver + after.driver) / 2,
            )
            # By the clock: on a busy machine, workers also wait for a core.
            beside = max(0.0, now.round_trip - now.driver)
            costs = msgspec.structs.replace(_costs(now, record=0.0, record_per_byte=0.0), beside=beside)
            setting = Setting(costs, engine.workers, gigabits=1e6, unit_bytes=0, result_bytes=0)
            said = len(units) / simulate(setting, seconds, stagger=False).seconds
            used = sum(float(value["processor"]) for value in values) if name == "multiplying" else None
            yield {
                "work": name,
                "workers": engine.workers,
                "unit_seconds": median(seconds),
                "share_of_a_core": None if used is None else used / sum(seconds),
                "units": len(units),
                "units_per_second": 1 / real.clock,
                "simulated_units_per_second": said,
                "ratio": said * real.clock,
            }


def _costs(measured: UnitCosts, *, record: float, record_per_byte: float) -> Costs:
    """The driver's time is divided evenly between giving and taking; a look that found a message is part of its measured time."""
    driver = max(0.0, measured.driver - measured.look)
    return Costs(
        give=driver / 2,
        take=driver / 2 + record,
        per_byte=measured.driver_per_byte,
        record_per_byte=record_per_byte,
        beside=measured.worker,
        look=measured.look,
        look_per_worker=measured.look_per_worker,
        report=driver if measured.engine == "ray" else driver / 2,
        polls=measured.engine == "ray",
    )


def costs_of(measured: dict[str, Any]) -> dict[str, Costs]:
    """The costs of each engine, with those of the ledger."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from benchmarks.unit_costs import RecordCosts, UnitCosts

    record = msgspec.convert(measured["record"], RecordCosts)
    engines = msgspec.convert(measured["units"], list[UnitCosts])
    return {
        one.engine: _costs(one, record=record.record, record_per_byte=record.record_per_byte)
        for one in engines
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", action="store_true", help="the costs and the validation on this machine")
    parser.add_argument("--without-ray", action="store_true", help="measure processes only")
    parser.add_argument("--units", type=int, default=1000, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5, help="of the validation, for each size of unit")
    parser.add_argument("--workers", type=int, nargs="+", default=WORKERS)
    parser.add_argument("--units-per-worker", type=int, default=6)
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory of the rows")
    given = parser.parse_args()
    facts = given.out / "scheduling.json"
    if given.measure:
        write_json(facts, measure(given.units, given.rounds, ray=not given.without_ray), mode=PUBLIC)
    measured = msgspec.json.decode(facts.read_bytes())
    rows = list(rows_of(measured, given.workers, given.units_per_worker))
    with (
        whole_file(given.out / "scheduling.csv") as temporary,
        open(temporary, "w", encoding="utf-8", newline="") as stream,
    ):
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    if given.out == RESULTS:
        draw_scheduling(given.out / "scheduling.csv", FIGURES)


if __name__ == "__main__":
    main()
