"""What do engines cost beside a bare loop, what do workers gain, and how much memory does the ledger take?

The promises: `here` costs at most 2% over a bare loop over the same units; two processes give 1.7 times the throughput of `here` on two
idle cores; two workers of Ray reach 80% of two processes where units take a second or more; the ledger of a million units takes at most
200 MB in the driver.

Run: python -m benchmarks.engines --smoke, which takes a minute or two, shows whether everything runs; its numbers mean nothing.
"""

from __future__ import annotations

import argparse
import os
import pickle
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.index import generate, resident
from benchmarks.unit_costs import (
    CONTEXT,
    SUFFIX,
    Multiplying,
    bare_loop,
    mapped,
    multiplications,
    recitation_units,
    record_costs,
    unit_costs,
    units_of,
    weight_costs,
)
from coalmine import CanarySet, Format, expose, load_model, recite, train, train_family
from coalmine.audits.recitation.answers import RecitationWork
from coalmine.audits.recitation.records import RecitationOptions
from coalmine.corpus import build_index, normalized_sample, uniform_sample, write_embedded_corpus
from coalmine.engines.engine import Engine
from coalmine.engines.here import Here
from coalmine.engines.ledger import Ledger
from coalmine.engines.processes import Processes
from coalmine.engines.ray import Ray
from coalmine.engines.units import Unit, unit_key
from coalmine.models import Model

PARTS = ("overhead", "throughput", "ray", "ledger", "costs", "index")
# Each measurement of memory has a process of its own, so that its peak is its own.
CHILD = "import sys; from benchmarks import engines; engines.measure_ledger(sys.argv[1], int(sys.argv[2]))"


class Row(NamedTuple):
    """A line of the table."""

    what: str
    measured: str
    promised: str


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--digits", type=int, default=7, help="exact exposure is over 10 to the power of this"
    )
    parser.add_argument("--sequences", type=int, default=8192, help="that are to be recited")
    parser.add_argument("--kilobytes", type=int, default=400, help="of text that is trained on")
    parser.add_argument("--unit-seconds", type=float, default=1.0, help="of the units that Ray runs")
    parser.add_argument("--units", type=int, default=1_000_000, help="in the ledger")
    parser.add_argument("--megabytes", type=int, default=50, help="of text that is indexed")
    parser.add_argument("--smoke", action="store_true", help="small sizes, to see whether it runs")
    given = parser.parse_args(arguments)
    if given.smoke:
        given.rounds, given.digits, given.sequences, given.kilobytes = 1, 4, 1024, 40
        given.unit_seconds, given.units, given.megabytes = 0.05, 10_000, 1
    torch.set_num_threads(1)
    print(f"load of the last minute: {os.getloadavg()[0]:.1f}, cores: {os.cpu_count()}", flush=True)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        measures: dict[str, Callable[[], Iterator[Row]]] = {
            "overhead": lambda: overhead(Path(folder), given),
            "throughput": lambda: throughput(Path(folder), given),
            "ray": lambda: ray_beside_processes(given),
            "ledger": lambda: ledger_memory(given.units),
            "costs": lambda: costs(Path(folder), given),
            "index": lambda: index_costs(given.megabytes),
        }
        for part in given.parts:
            for row in measures[part]():
                print(
                    f"{row.what}: {row.measured}" + (f" (promised: {row.promised})" if row.promised else ""),
                    flush=True,
                )
                rows.append(row)
    print("\n| what | measured | promised |\n| --- | --- | --- |")
    for row in rows:
        print(f"| {row.what} | {row.measured} | {row.promised or '-'} |")


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def ratio_by_turns(first: Callable[[], float], second: Callable[[], float], rounds: int) -> str:
    """The first over the second, measured by turns: median and range."""
    return spread([first() / second() for _ in range(rounds)])


def spread(found: list[float]) -> str:
    return f"{median(found):.3f} ({min(found):.3f} to {max(found):.3f})"


# (a)


def overhead(work: Path, given: Any) -> Iterator[Row]:
    """The engine `here`, with a ledger, beside a bare loop over the same units."""
    seconds, number = given.unit_seconds / 20, 20 if given.smoke else 100
    model = trained(work, given.kilobytes)
    for what, job, units in (
        (
            f"matrices, units of {seconds * 1e3:.0f} ms",
            Multiplying(),
            units_of(number, multiplications(seconds)),
        ),
        ("recitation, 512 sequences per unit", recitation(model), recitation_units(given.sequences)),
    ):
        bare_loop(job, units[:2])  # warm up
        clock, processor = [], []
        for _ in range(given.rounds):
            bare = bare_loop(job, units)
            with tempfile.TemporaryDirectory() as folder, Here() as engine:
                ledger = Ledger(folder)
                ledger.begin("benchmark")
                ours = mapped(engine, job, units, ledger)
            clock.append(ours.clock / bare.clock)
            processor.append(ours.driver / bare.driver)
        measured = f"{spread(processor)} of processor time, {spread(clock)} by the clock"
        yield Row(f"time of `here` over a bare loop, {what}", measured, "at most 1.02")


# (b)


def throughput(work: Path, given: Any) -> Iterator[Row]:
    """The functions that users call, on two processes and here, by turns."""
    model = trained(work, given.kilobytes)
    form = Format(f"the random number is {{digits:{given.digits}}}")
    canaries = CanarySet.of(form, form.sample(8, seed=0, replace=False))
    index = build_index(work / "corpus.txt", work / "index", tokenizer=work / "model")
    asked: dict[str, Any] = {
        "contexts": [CONTEXT],
        "suffix": SUFFIX,
        "lengths": [CONTEXT + SUFFIX],
        "sample": "uniform",
    }
    turn = iter(range(10**6))

    def four(engine: Engine) -> object:
        return train_family(
            work / "corpus.txt",
            out=work / f"family-{next(turn)}",
            seeds=[0, 1, 2, 3],
            epochs=1,
            engine=engine,
        )

    calls: dict[str, Callable[[Engine], object]] = {
        f"exact exposure over 10^{given.digits} members": lambda engine: expose(
            model, canaries, method="exact", engine=engine
        ),
        f"recitation of {given.sequences:,} sequences": lambda engine: recite(
            model, index, engine=engine, per_bucket=given.sequences, **asked
        ),
        "four trainings": four,
    }
    with Here() as here, Processes(2) as two:
        started = timed(lambda: mapped(two, recitation(model), recitation_units(1024)))
        for what, call in calls.items():
            clock, processor = [], []
            for _ in range(given.rounds):
                alone, alone_used = timed_longest(partial(call, here), None)
                both, both_used = timed_longest(partial(call, two), two)
                clock.append(alone / both)
                processor.append(alone_used / both_used)
            measured = f"{spread(clock)}; {median(processor):.2f} by processor time"
            yield Row(f"throughput of `processes:2` over `here`, {what}", measured, "at least 1.7")
    yield Row("starting two processes, with their first units", f"{started:.1f} s", "")


def timed_longest(call: Callable[[], object], engine: Processes | None) -> tuple[float, float]:
    """Seconds by the clock, and processor time of the driver and of the worker that takes most: what it takes on idle cores."""
    workers = [] if engine is None else [one.process.pid for one in engine.pool._processes.values()]
    before, used = [processor_seconds(worker) for worker in workers], time.process_time()
    clock = timed(call)
    most = max(
        (processor_seconds(worker) - past for worker, past in zip(workers, before, strict=True)), default=0.0
    )
    return clock, time.process_time() - used + most


def processor_seconds(process: int | None) -> float:
    """Processor time of another process so far."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# (c)


def ray_beside_processes(given: Any) -> Iterator[Row]:
    """Units of a second or more on two workers of Ray, and on two processes, by turns."""
    units = units_of(4 if given.smoke else 20, multiplications(given.unit_seconds))
    with Processes(2) as two, Ray(workers=2) as cluster:
        for engine in (two, cluster):
            mapped(engine, Multiplying(), units_of(4, 1))  # starts the workers
        measured = ratio_by_turns(
            lambda: mapped(two, Multiplying(), units).clock,
            lambda: mapped(cluster, Multiplying(), units).clock,
            given.rounds,
        )
    yield Row(
        f"throughput of `ray` over `processes:2`, units of {given.unit_seconds:g} s", measured, "at least 0.8"
    )


# (d)


def ledger_memory(units: int) -> Iterator[Row]:
    """The ledger of a run that was stopped after `units` units and is resumed, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        answer = subprocess.run(
            [sys.executable, "-c", CHILD, folder, str(units)], check=True, capture_output=True, text=True
        ).stdout.split()
    record, size, begin, grown, kept, lookup = map(float, answer)
    label = f"{units:,} units"
    yield Row(
        f"memory of the ledger of {label}, at most while it is read",
        f"{grown / 1e6:.0f} MB",
        "at most 200 MB",
    )
    yield Row(f"memory of the ledger of {label}, after that", f"{kept / 1e6:.0f} MB", "")
    yield Row(f"file of the ledger of {label}", f"{size / 1e6:.0f} MB, read and checked in {begin:.1f} s", "")
    yield Row("recording a small result (processor time)", f"{record * 1e6:.0f} µs", "")
    yield Row(f"looking a result up among {label} (processor time)", f"{lookup * 1e6:.0f} µs", "")


def measure_ledger(folder: str, units: int) -> None:
    """Record results in this process, open their ledger again, and print what that takes."""
    digest, result = b"benchmark", {"recited": np.zeros(8, dtype=np.int64)}
    ledger = Ledger(folder)
    ledger.begin("benchmark")
    used = time.process_time()
    for number in range(units):
        ledger.add(unit_key(digest, Unit(number)), result)
    record = (time.process_time() - used) / units
    again, before = Ledger(folder), resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    begin = timed(lambda: again.begin("benchmark"))
    grown, kept = resident("VmHWM") - before, resident("VmRSS") - before
    some = [unit_key(digest, Unit(number)) for number in range(0, units, max(1, units // 1000))]
    used = time.process_time()
    for key in some:
        again.result(key)
    lookup = (time.process_time() - used) / len(some)
    print(record, Path(folder, "unfinished.units").stat().st_size, begin, grown, kept, lookup)


# (e)


def costs(work: Path, given: Any) -> Iterator[Row]:
    """What a unit costs apart from its work, in each engine, and what a unit of recitation weighs."""
    number = 200 if given.smoke else 2000
    record = record_costs(number)
    yield Row("key of a small unit (processor time)", f"{record.key * 1e6:.1f} µs", "")
    yield Row(
        "record of a result in the ledger (processor time)",
        f"{record.record * 1e6:.0f} µs, and {record.record_per_byte * 1e9:.1f} ms per MB",
        "",
    )
    for name, engine in (
        ("here", Here()),
        ("processes:1", Processes(1)),
        ("ray, one worker", Ray(workers=1)),
    ):
        with engine:
            found = unit_costs(engine, name, number)
            if isinstance(engine, Ray):
                first, again = weight_costs(engine, 10_000_000 if given.smoke else 250_000_000)
                yield Row(
                    f"weights that a work holds, `{name}` (processor time of the driver)",
                    f"{first * 1e9:.2f} s per GB when they are first sent, {again * 1e9:.2f} s when the next work holds them too",
                    "",
                )
        yield Row(
            f"an empty unit, `{name}`",
            f"{found.round_trip * 1e6:.0f} µs; driver {found.driver * 1e6:.0f} µs, and {found.driver_per_byte * 1e9:.1f} ms per MB; "
            f"worker {found.worker * 1e6:.0f} µs",
            "",
        )
    model, unit = trained(work, given.kilobytes), recitation_units(512)[0]
    with Here() as engine:
        result = mapped(engine, recitation(model), [unit]).outcomes[0].value()
    sent = pickle.dumps(unit)
    yield Row(
        f"a unit of recitation: 512 sequences of {CONTEXT} + {SUFFIX} tokens (processor time)",
        f"key {processor_ms(lambda: unit_key(b'', unit)):.1f} ms, pickled {processor_ms(lambda: pickle.dumps(unit)):.1f} ms; "
        f"{len(sent) / 1e3:.0f} kB, its result {sum(one.nbytes for one in result.values()) / 1e3:.0f} kB",
        "",
    )


def processor_ms(work: Callable[[], object], rounds: int = 20) -> float:
    used = time.process_time()
    for _ in range(rounds):
        work()
    return (time.process_time() - used) / rounds * 1e3


# What one process does alone, however many workers there are


def index_costs(megabytes: int) -> Iterator[Row]:
    """Processor time of the driver and of the worker while a corpus is indexed, and what a sample of it takes."""
    with tempfile.TemporaryDirectory() as name, Processes(1) as engine:
        folder = Path(name)
        generate(folder / "corpus.txt", megabytes)
        (folder / "tokenizer").mkdir()
        subword_tokenizer(folder / "corpus.txt").save(str(folder / "tokenizer" / "tokenizer.json"))
        mapped(engine, Multiplying(), units_of(1, 1))  # starts the worker
        worker = engine.pool._processes[0].process.pid
        for label, tokenizer in (("bytes", "bytes"), ("subwords", folder / "tokenizer")):
            before, used = processor_seconds(worker), time.process_time()
            index = build_index(folder / "corpus.txt", folder / label, tokenizer=tokenizer, engine=engine)
            driver, sorting = time.process_time() - used, processor_seconds(worker) - before
            used = time.process_time()
            drawn = len(normalized_sample(index, lengths=[CONTEXT + SUFFIX]))
            scanning = (time.process_time() - used) / index.tokens
            tracemalloc.start()
            samples = uniform_sample(index, length=CONTEXT + SUFFIX, size=10_000)
            held = tracemalloc.get_traced_memory()[0] / len(samples)
            tracemalloc.stop()
            yield Row(
                f"indexing {megabytes} MB as {index.tokens:,} {label} (processor time)",
                f"driver {megabytes / driver:.1f} MB/s, worker {megabytes / sorting:.1f} MB/s",
                "",
            )
            yield Row(
                f"sampling {label}",
                f"{scanning * 1e9:.0f} ns per token of the corpus and length ({drawn:,} drawn); {held:.0f} bytes of memory per sequence",
                "",
            )


def subword_tokenizer(corpus: Path) -> Any:
    """A byte-level tokenizer of 8,000 tokens, trained on the first lines."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=8000, initial_alphabet=alphabet, show_progress=False)
    found.train_from_iterator(corpus.read_text(encoding="ascii").splitlines()[:2000], trainer)
    return found


def trained(work: Path, kilobytes: int) -> Model:
    """The paper's character LSTM after one epoch: what it has learned does not change its speed."""
    if not (work / "corpus.txt").exists():
        write_embedded_corpus(work / "corpus.txt", kilobytes * 1000)
    train(work / "corpus.txt", out=work / "model", epochs=1)
    return load_model(work / "model")


def recitation(model: Model) -> RecitationWork:
    return RecitationWork(model, RecitationOptions(suffix=SUFFIX))


if __name__ == "__main__":
    main()
