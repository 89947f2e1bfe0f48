"""Every fault of every command, which takes too long for the suite: `make fuzz-writes`, or `python -m faults.all_faults NAME ...`.

Prints a line for each command and each way of failing, with what was wrong; ends with 1 if anything was.
"""

import json
import os
import queue
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from faults.faulty_disk import build
from faults.fork_server import ForkServer
from faults.write_cases import cases, endpoint_cases, make_inputs, reading_cases, serving

WAYS = ("write_faults", "read_faults", "special_places")


class Totals:
    """What all workers found together."""

    def __init__(self):
        self.faults = self.problems = 0
        self._lock = threading.Lock()

    def add(self, name, way, took, told):
        """Count and print what one sweep found."""
        with self._lock:
            self.faults += told["faults"]
            self.problems += len(told["wrong"])
            print(
                f"{way} of {name}: {told['calls']} calls, {told['faults']} faults, {took:.0f} s", flush=True
            )
            for one in told["wrong"]:
                print(f"  {one}", flush=True)


def work(library, inputs, tasks, totals):
    """One worker, with a warm process and inputs of its own: take tasks until there are none."""
    with ForkServer(environment={"LD_PRELOAD": str(library)}) as server:
        make_inputs(server, inputs)
        with serving(server, inputs):
            while True:
                try:
                    name, way = tasks.get_nowait()
                except queue.Empty:
                    return
                began = time.monotonic()
                ended = server.run([inputs, name, "all"], call=f"faults.{way}:sweep")
                assert ended.code == 0, ended.err
                totals.add(name, way, time.monotonic() - began, json.loads(ended.out))


def main():
    """All faults, or those of the commands that are named."""
    wanted = sys.argv[1:]
    tasks, totals = queue.SimpleQueue(), Totals()
    every = [(case.name, way) for case in (*cases(), *endpoint_cases()) for way in WAYS]
    every += [(case.name, "read_faults") for case in reading_cases()]
    for name, way in every:
        if not wanted or name in wanted:
            tasks.put((name, way))
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="coalmine-faults-") as folder:
        library = build(folder)
        with ThreadPoolExecutor() as pool:
            workers = range(os.cpu_count() or 1)
            places = [Path(folder, str(number), "inputs") for number in workers]
            for ended in [pool.submit(work, library, place, tasks, totals) for place in places]:
                ended.result()
    minutes = (time.monotonic() - began) / 60
    print(f"{totals.faults:,} faults, {totals.problems:,} problems, {minutes:.0f} minutes")
    return 1 if totals.problems else 0


if __name__ == "__main__":
    sys.exit(main())
