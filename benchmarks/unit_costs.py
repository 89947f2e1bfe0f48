"""What a unit of work costs apart from its work: its key, its record in the ledger, and the way to a worker and back.

Processor time is what is measured where it can be, so that a busy machine changes the numbers little.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec
import numpy as np

from coalmine.audits.recitation.answers import RecitationWork
from coalmine.audits.recitation.questions import Questions
from coalmine.audits.recitation.records import RecitationOptions
from coalmine.corpus.index.sampling import Sample
from coalmine.engines.engine import Engine
from coalmine.engines.ledger import UNITS_FILE, Ledger
from coalmine.engines.processes import Processes
from coalmine.engines.units import Arrays, Outcome, Run, Running, Unit, Work, facts_digest, unit_key
from coalmine.randomness import arrays

# A matrix of this many rows, multiplied by itself, takes about a millisecond on one core.
ROWS = 256
# Tokens of a sequence that is recited, and bytes of the answers to 512 of them.
CONTEXT, SUFFIX = 50, 50
RESULT_BYTES = 13_000


class Nothing(NamedTuple):
    """A work that does nothing: it returns `size` bytes, and the processor time of its process so far."""

    size: int = 0
    name: str = "nothing/1"
    memory_bytes: int = 0

    @property
    def facts(self) -> Any:
        return self.size

    def prepare(self) -> Run:
        return self._run

    def _run(self, _unit: Unit, _running: Running) -> Arrays:
        return {"clock": np.array(time.process_time()), "content": np.zeros(self.size, dtype=np.uint8)}


class Multiplying(NamedTuple):
    """A work of NumPy's: multiplies a matrix as often as its unit says; returns how long that took, and its processor time."""

    name: str = "multiply/1"
    facts: int = ROWS
    memory_bytes: int = 0

    def prepare(self) -> Run:
        matrix = np.random.default_rng(0).normal(size=(ROWS, ROWS)) / ROWS

        def run(unit: Unit, _running: Running) -> Arrays:
            began, used, found = time.perf_counter(), time.process_time(), matrix
            for _ in range(unit.payload):
                found = found @ matrix
            return {
                "seconds": np.array(time.perf_counter() - began),
                "processor": np.array(time.process_time() - used),
                "sum": np.array(found.sum()),
            }

        return run


class Sleeping(NamedTuple):
    """A work that takes time and no processor: it sleeps as many seconds as its unit says, and returns how long that took."""

    name: str = "sleep/1"
    facts: int = 0
    memory_bytes: int = 0

    def prepare(self) -> Run:
        return self._run

    def _run(self, unit: Unit, _running: Running) -> Arrays:
        began = time.perf_counter()
        time.sleep(unit.payload)
        return {"seconds": np.array(time.perf_counter() - began)}


class Holding(NamedTuple):
    """A work that holds much memory, as one with a model does, and does nothing with it."""

    content: Any
    name: str = "hold/1"
    facts: int = 0
    memory_bytes: int = 0

    def prepare(self) -> Run:
        return self._run

    def _run(self, _unit: Unit, _running: Running) -> Arrays:
        return {}


class Ignoring:
    """A unit that runs without an engine: nobody wants to know how far it is."""

    def advance(self, amount: int = 1, note: str = "") -> None:
        pass

    def kept(self) -> Arrays | None:
        return None

    def keep(self, state: Any) -> None:
        pass


class UnitCosts(msgspec.Struct, frozen=True, kw_only=True):
    """What a unit costs in an engine, in seconds, apart from its work and from its record in the ledger.

    Attributes:
        round_trip: by the clock, from one result to the next, with one worker and units that do nothing.
        driver: processor time of the driver.
        driver_per_byte: the same for each byte of a unit that is sent and of a result that comes back.
        worker: processor time of the worker.
        look: processor time of the driver each time that it looks for messages of its workers.
        look_per_worker: what each worker adds to that.
    """

    engine: str
    round_trip: float
    driver: float
    driver_per_byte: float
    worker: float
    look: float
    look_per_worker: float


class RecordCosts(msgspec.Struct, frozen=True, kw_only=True):
    """What a result costs in the ledger, in seconds of processor time."""

    key: float
    record: float
    record_per_byte: float
    bytes_beside_content: float


class Measured(NamedTuple):
    """Time per unit in seconds: by the clock, and processor time of this process."""

    clock: float
    driver: float
    outcomes: list[Outcome]


def mapped(engine: Engine, work: Work, units: Iterable[Unit], ledger: Ledger | None = None) -> Measured:
    """Run all units, and keep their outcomes."""
    began, used = time.perf_counter(), time.process_time()
    outcomes = list(engine.map(work, units, ledger=ledger))
    number = len(outcomes)
    return Measured((time.perf_counter() - began) / number, (time.process_time() - used) / number, outcomes)


def bare_loop(work: Work, units: Sequence[Unit]) -> Measured:
    """What the units take with nothing around them."""
    run, running = work.prepare(), Ignoring()
    began, used = time.perf_counter(), time.process_time()
    for unit in units:
        run(unit, running)
    number = len(units)
    return Measured((time.perf_counter() - began) / number, (time.process_time() - used) / number, [])


def units_of(number: int, payload: Any = None) -> list[Unit]:
    """Units that differ in their number."""
    return [Unit(place, payload) for place in range(number)]


def multiplications(seconds: float) -> int:
    """How many multiplications take about so long here and now."""
    work = Multiplying()
    bare_loop(work, units_of(1, 5))  # warm up
    each = median(bare_loop(work, units_of(1, 20)).clock / 20 for _ in range(5))
    return max(1, round(seconds / each))


def empty_units(engine: Engine, number: int) -> Measured:
    """What units that do nothing take, in an engine that is open."""
    list(engine.map(Nothing(), units_of(10)))  # starts the workers
    return mapped(engine, Nothing(), units_of(number))


def unit_costs(engine: Engine, name: str, number: int = 1000, large: int = 1_000_000) -> UnitCosts:
    """The costs in an engine that is open and has one worker (or none)."""
    empty = [empty_units(engine, number) for _ in range(3)]
    driver = median(one.driver for one in empty)
    clocks = [float(outcome.value()["clock"]) for outcome in empty[-1].outcomes]
    payload, some = np.zeros(large, dtype=np.uint8), max(10, number // 20)
    moved = median(mapped(engine, Nothing(large), units_of(some, payload)).driver for _ in range(3))
    look, per_worker = look_costs(engine)
    return UnitCosts(
        engine=name,
        round_trip=median(one.clock for one in empty),
        driver=driver,
        driver_per_byte=max(0.0, moved - driver) / (2 * large),
        worker=(clocks[-1] - clocks[0]) / (len(clocks) - 1),
        look=look,
        look_per_worker=per_worker,
    )


def weight_costs(engine: Engine, size: int = 250_000_000) -> tuple[float, float]:
    """Processor time of the driver for each byte that a work holds: when it is first sent, and when the next work holds it too."""
    content = arrays(0, "benchmark", "weights").integers(0, 256, size, dtype=np.uint8)
    list(engine.map(Nothing(), units_of(10)))  # starts the workers
    first, again = (
        mapped(engine, Holding(content, name), units_of(1)).driver / size for name in ("a/1", "b/1")
    )
    return first, again


def look_costs(engine: Engine) -> tuple[float, float]:
    """What it costs to look for messages when there are none, and how much each worker adds."""
    if isinstance(engine, Processes):
        few, many = (_looking_at_processes(workers) for workers in (1, 9))
        return few, max(0.0, many - few) / 8
    if type(engine).__name__ == "Ray":
        few, many = _looking_at_ray([1, 1000])
        return few, max(0.0, many - few) / 999
    return 0.0, 0.0


def _looking_at_processes(workers: int, looks: int = 200) -> float:
    with Processes(workers) as engine:
        list(engine.map(Nothing(), units_of(workers)))
        used = time.process_time()
        for _ in range(looks):
            engine.pool.messages(0.0)
        return (time.process_time() - used) / looks


def _looking_at_ray(numbers: list[int], looks: int = 20) -> Iterator[float]:
    """As the pool of the engine does: two calls that ask about the unit of each worker, here all of one worker that is asleep."""
    import ray

    class Asleep:
        def sleep(self):
            time.sleep(600)

    actor: Any = ray.remote(num_cpus=0)(Asleep).remote()
    try:
        for number in numbers:
            references = [actor.sleep.remote() for _ in range(number)]
            used = time.process_time()
            for _ in range(looks):
                ray.wait(references, timeout=0)
                ray.wait(references, num_returns=number, timeout=0)
            yield (time.process_time() - used) / looks
    finally:
        ray.kill(actor)


def record_costs(number: int = 1000, large: int = 1_000_000) -> RecordCosts:
    """The costs of a ledger in a temporary directory."""
    digest, units = facts_digest(Nothing()), units_of(number)
    used = time.process_time()
    keys = [unit_key(digest, unit) for unit in units]
    key = (time.process_time() - used) / number
    with tempfile.TemporaryDirectory() as folder:
        small, size = _recording(Path(folder, "small"), keys, 8)
        much, _ = _recording(Path(folder, "large"), keys[: max(10, number // 20)], large)
    return RecordCosts(
        key=key,
        record=small,
        record_per_byte=max(0.0, much - small) / large,
        bytes_beside_content=size - 8,
    )


def _recording(folder: Path, keys: list[bytes], size: int) -> tuple[float, float]:
    """Processor time and bytes on disk of one record with content of a given size."""
    ledger, result = Ledger(folder), {"content": np.zeros(size, dtype=np.uint8)}
    ledger.begin("benchmark")
    used = time.process_time()
    for key in keys:
        ledger.add(key, result)
    seconds = (time.process_time() - used) / len(keys)
    return seconds, (folder / UNITS_FILE).stat().st_size / len(keys)


def recitation_units(sequences: int) -> list[Unit]:
    """Units as an audit has them, of random tokens."""
    tokens = arrays(0, "benchmark", "engines").integers(1, 30, (sequences, CONTEXT + SUFFIX), dtype=np.int32)
    questions = Questions(
        samples=[Sample(len(row), 0, 1, place, 0, row) for place, row in enumerate(tokens)],
        which=np.arange(sequences),
        contexts=np.full(sequences, CONTEXT),
        suffix=SUFFIX,
        clusters=np.arange(sequences),
    )
    no_model: Any = None  # it is not asked here
    return list(RecitationWork(no_model, RecitationOptions(suffix=SUFFIX)).units(questions))
