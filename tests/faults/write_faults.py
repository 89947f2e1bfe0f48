"""Runs a command on a disk that fails at one call, again and again in one process, and says what is wrong with what it leaves."""

import contextlib
import errno
import fnmatch
import json
import os
import re
import shutil
import sqlite3
import sys
import tempfile
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from faults import faulty_disk
from faults.faulty_disk import CHANGES, FULL, Fault
from faults.write_cases import case_named

ERRORS = (errno.ENOSPC, errno.EIO, errno.EFBIG, errno.EACCES)
RUN_FILE = "run.json"
# What differs each time: each run of an endpoint asks who it is.
CLOCKS = ("started_at", "elapsed_seconds", "checksum", "identity")
MISSING = object()
RANDOM = re.compile(r"[0-9a-f]{8,16}-[0-9]+")


class Ended(NamedTuple):
    """How a run ended."""

    code: int
    out: str
    err: str
    # The calls that failed, or where none was to fail, all that were made.
    calls: list


class Bench:
    """One case, run again and again from the same state; its results are in `out` below the directory of inputs."""

    def __init__(self, case, inputs):
        self.case, self.inputs = case, Path(inputs)
        self.out, self._kept = self.inputs / "out", self.inputs / "out-before"
        self._notes = Path(tempfile.mkdtemp(prefix="coalmine-faults-"))
        for folder in (self.out, self._kept):
            shutil.rmtree(folder, ignore_errors=True)
        if case.earlier is not None:
            ended = self.run(None, case.earlier)
            assert ended.code in (0, 2), ended
        self.out.mkdir(exist_ok=True)
        self.out.rename(self._kept)
        self.old = contents(self._kept)
        self.fresh()
        whole = self.run(Fault(str(self.out), CHANGES, 0, 0))
        assert whole.code == case.code, whole
        self.new, self.calls, self._printed = contents(self.out), whole.calls, whole.out

    def close(self):
        """Remove what is left of it all."""
        for folder in (self.out, self._kept, self._notes):
            shutil.rmtree(folder, ignore_errors=True)

    def fresh(self):
        """As it was before the command."""
        shutil.rmtree(self.out, ignore_errors=True)
        shutil.copytree(self._kept, self.out)

    def run(self, fault, argv=None):
        """The command, on a disk with a fault."""
        from coalmine.cli import main

        log = self._notes / "calls"
        log.unlink(missing_ok=True)
        sys.argv = [
            "coalmine",
            *(argv or self.case.argv),
            "--quiet",
            *(["--json"] if self.case.prints else []),
        ]
        os.chdir(self.inputs)
        with streams_to(self._notes) as said:
            faulty_disk.arm(fault or Fault(str(self.out), (), 0, 0), log)
            try:
                main.main()
            except SystemExit as end:
                code = end.code or 0
            finally:
                faulty_disk.disarm()
        return Ended(code, said("out"), said("err"), faulty_disk.said(log) if fault is not None else [])

    def problems(self, fault, *, again):
        """What is wrong after a run with a fault, and if wanted, after the next one without; an empty list where all is as promised."""
        self.fresh()
        ended = self.run(fault)
        if not ended.calls:
            return []  # threads made fewer calls than before
        wrong = [*self.wrong_in_words(ended), *self.wrong_on_disk(ended)]
        if again:
            wrong += self._wrong_next_time(ended)
        return [f"{self.case.name}, {ended.calls[0]} failed with {fault.error}: {one}" for one in wrong]

    def wrong_in_words(self, ended):
        if ended.code == 70:
            return [f"a bug: {ended.err[-1500:]}"]
        if ended.code == 2 and self.case.prints and not ended.err:
            return []  # that something cannot be read is its answer
        if ended.code == 0 and ended.out != self._printed:
            return [f"another answer: {ended.out[:500]}"]
        if ended.code == 0:
            wrong = difference(contents(self.out), self.new)
            # What was there before and could not even be looked at stays.
            wrong = {name: how for name, how in wrong.items() if how != "extra" or name not in self.old}
            return [f"exit 0, but {wrong}"] if wrong else []
        if not ended.err.startswith("coalmine: ") or ended.err.count("\n") != 1:
            return [] if ended.code == self.case.code and not ended.err else [f"not one sentence: {ended}"]
        return []

    def wrong_on_disk(self, ended):
        wrong = []
        found = contents(self.out)
        for name, content in found.items():
            last = name.rpartition("/")[2]
            if content in (self.old.get(name, MISSING), self.new.get(name, MISSING)):
                continue
            if any(fnmatch.fnmatch(last, pattern) for pattern in self.case.unfinished):
                continue
            if (last.endswith(".part") or ".work." in name) and self._hinders_removal(ended.calls):
                continue  # what could not be removed goes with the next run
            wrong.append(f"{name} is neither what was there nor what should be")
        for teller, told in self.case.pairs:
            both = {(state.get(teller), state.get(told)) for state in (self.old, self.new)}
            if teller in found and (found[teller], found.get(told)) not in both:
                wrong.append(f"{teller} is there, and {told} is not the one that it tells of")
        return wrong

    def _wrong_next_time(self, failed):
        """The same command, once the disk is well again, does what it would have done."""
        ended = self.run(None)
        if ended.code != self.case.code:
            return [f"the next run ends with {ended}"]
        wrong = difference(contents(self.out), self.new)
        if self._hinders_removal(failed.calls):  # goes with this process
            wrong = {
                name: how for name, how in wrong.items() if not (name.endswith(".part") or ".work." in name)
            }
        return [f"after the next run {wrong}"] if wrong else []

    @staticmethod
    def _hinders_removal(calls):
        """Whether what fails may be what removes files; a directory is opened for that."""
        return any(
            kind == "unlink" or (kind in {"open", "close"} and ".work." in path) for kind, path in calls
        )


@contextlib.contextmanager
def streams_to(folder):
    """Send what is printed to files; what the block gets reads them back."""
    kept = {}
    for name, number in (("out", 1), ("err", 2)):
        kept[number] = os.dup(number)
        file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, number)
        os.close(file)
    try:
        yield lambda name: (folder / name).read_text(errors="replace")
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for number, file in kept.items():
            os.dup2(file, number)
            os.close(file)


def contents(folder):
    """All files below a directory, without what the clock put there."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            continue
        name = str(path.relative_to(folder))
        if path.name.endswith((".sqlite-wal", ".sqlite-shm")):
            continue  # part of the database
        found[name] = path.read_bytes() if path.suffix != ".sqlite" else answers_in(path)
        if path.name == "report.html" and (path.parent / "review.json").exists():
            found[name] = path.read_bytes().rstrip().endswith(b"</html>")  # it says when its command was run
        if path.name == RUN_FILE:
            record = json.loads(path.read_bytes())
            found[name] = {key: value for key, value in record.items() if key not in CLOCKS}
    return found


def answers_in(path):
    """The rows of a database, whatever is still in its log; raises where it is damaged."""
    with tempfile.TemporaryDirectory() as folder:
        for part in path.parent.glob(f"{path.name}*"):
            shutil.copy(part, folder)  # opening one changes it
        connection = sqlite3.connect(Path(folder, path.name))
        [said] = connection.execute("PRAGMA integrity_check").fetchone()
        assert said == "ok", said
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        rows = sorted(connection.execute("SELECT key FROM answers")) if tables else []
        connection.close()
    return rows


def difference(found, expected):
    """How two directories differ, in a few words."""
    return {
        name: "absent" if name not in found else "extra" if name not in expected else "other"
        for name in sorted({*found, *expected})
        if found.get(name, MISSING) != expected.get(name, MISSING)
    }


def once(bench):
    """Each call, failing alone, with each error; first each with one of them, and those that are like earlier ones last."""
    return each_alone(bench.calls, bench.out, CHANGES, ERRORS)


def each_alone(calls, below, kinds, errors):
    """A fault for each call below a directory and each error; calls that are like earlier ones come last."""
    seen = set()
    first, rest = [], []
    for number, (kind, path) in enumerate(calls, 1):
        like = (kind, RANDOM.sub("", path))
        (rest if like in seen else first).append(number)
        seen.add(like)
    return [
        Fault(str(below), kinds, number, errors[(number + turn) % len(errors)])
        for numbers in (first, rest)
        for turn in range(len(errors))
        for number in numbers
    ]


def from_then_on(bench):
    """A disk that begins to fail at each call and does not recover; the first, the last and the one in the middle first."""
    found = []
    for error, kinds in FULL.items():
        many = sum(kind in kinds for kind, _ in bench.calls)
        numbers = dict.fromkeys([1, many, (many + 1) // 2, *range(1, many + 1)] if many else [])
        found.append([Fault(str(bench.out), kinds, number, error, keep_on=True) for number in numbers])
    return [fault for turn in zip_longest(*found) for fault in turn if fault is not None]


def sweep():
    """In a child: try faults of one case, all of them or so many that there is time for, and print what was wrong."""
    inputs, name, how_many = sys.argv[1:]
    case = case_named(name)
    faulty_disk.prepare(case.without, case.changes)
    bench = Bench(case, inputs)
    alone, on = once(bench), from_then_on(bench)
    if how_many == "some":
        on = on[: case.most // 4]
        alone = alone[: case.most - len(on)]
    wrong = []
    for number, fault in enumerate([*alone, *on]):
        wrong += bench.problems(fault, again=how_many == "all" or number % 10 == 0)
    bench.close()
    print(json.dumps({"calls": len(bench.calls), "faults": len(alone) + len(on), "wrong": wrong}))
