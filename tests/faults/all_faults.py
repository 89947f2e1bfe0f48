"""Every fault of every command, which takes too long for the suite: `make fuzz-writes`, or `python -m faults.all_faults NAME ...`.

Prints a line for each command and each way of failing, with what was wrong; ends with 1 if anything was.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from faults.faulty_disk import build
from faults.fork_server import ForkServer
from faults.write_cases import cases, endpoint_cases, make_inputs, serving

WAYS = ("write_faults", "read_faults", "special_places")


def run_all(server, workplaces, tasks):
    """Run all tasks, as many at a time as there are workplaces; gives the numbers of faults and of problems."""
    waiting, running = list(tasks), {}
    faults = problems = 0
    while waiting or running:
        for place in workplaces:
            if waiting and place not in running:
                name, way = waiting.pop(0)
                child = server.start([place, name, "all"], call=f"faults.{way}:sweep")
                running[place] = (name, way, time.monotonic(), child)
        # The one that was started first; the others go on meanwhile.
        place = next(iter(running))
        name, way, began, child = running.pop(place)
        ended = server.wait(child)
        assert ended.code == 0, ended.err
        told = json.loads(ended.out)
        faults, problems = faults + told["faults"], problems + len(told["wrong"])
        took = time.monotonic() - began
        print(f"{way} of {name}: {told['calls']} calls, {told['faults']} faults, {took:.0f} s", flush=True)
        for one in told["wrong"]:
            print(f"  {one}", flush=True)
    return faults, problems


def main():
    wanted = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="coalmine-faults-") as folder:
        library = build(folder)
        workplaces = [Path(folder, f"{number}", "inputs") for number in range(os.cpu_count() or 1)]
        with ForkServer(environment={"LD_PRELOAD": str(library)}) as server:
            make_inputs(server, workplaces[0])
            with serving(server, workplaces[0]):
                for other in workplaces[1:]:
                    shutil.copytree(workplaces[0], other)
                names = [case.name for case in (*cases(), *endpoint_cases())]
                tasks = [(name, way) for name in names for way in WAYS if not wanted or name in wanted]
                faults, problems = run_all(server, workplaces, tasks)
    print(f"{faults:,} faults, {problems:,} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
