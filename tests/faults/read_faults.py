"""Runs a command whose inputs fail at one call, and says what is wrong with how it ends."""

import errno
import json
import sys

from faults import faulty_disk
from faults.faulty_disk import READS, Fault
from faults.write_cases import case_named
from faults.write_faults import Bench, each_alone

ERRORS = (errno.EIO, errno.EACCES, errno.ESTALE)


def faults_of(bench):
    """Each call about a file that is read, with each error; first each with one of them, and those like earlier ones last."""
    bench.fresh()
    calls = bench.run(Fault(str(bench.inputs), READS, 0, 0)).calls
    return each_alone(calls, bench.inputs, READS, ERRORS)


def problems(bench, fault):
    """What is wrong after a run with a fault: a bug, or a result that is not the one that it should be."""
    bench.fresh()
    ended = bench.run(fault)
    wrong = [*bench.wrong_in_words(ended), *bench.wrong_on_disk(ended)] if ended.calls else []
    return [f"{bench.case.name}, {ended.calls[0]} failed with {fault.error}: {one}" for one in wrong]


def sweep():
    """In a child: try faults of one case, all of them or so many that there is time for, and print what was wrong."""
    inputs, name, how_many = sys.argv[1:]
    case = case_named(name)
    faulty_disk.prepare(case.without, case.changes)
    bench = Bench(case, inputs)
    found = faults_of(bench)
    faults = found[: case.most // 3] if how_many == "some" else found
    wrong = [problem for fault in faults for problem in problems(bench, fault)]
    bench.close()
    print(json.dumps({"calls": len(found) // len(ERRORS), "faults": len(faults), "wrong": wrong}))
