"""Puts a pipe, a socket, a device or a link where a command writes a file, and says what is wrong with what it does about that."""

import contextlib
import json
import os
import signal
import socket
import stat
import sys

from faults import faulty_disk
from faults.faulty_disk import READS, Fault
from faults.write_cases import case_named
from faults.write_faults import Bench

# Inputs that are read only once it is known that there will be a place for the result.
LARGE = ("model.safetensors", "corpus.", ".symbols", ".suffixes", "exposure.json", "theirs.csv")

# Names that are only known when some of that is read; the long work comes after.
LATE = ("extraction-f0.json", ".png", ".symbols", ".suffixes", ".starts", ".numbers")


def make_link(path):
    path.symlink_to(path.with_name("precious"))


def make_dangling_link(path):
    path.symlink_to(path.with_name("nowhere"))


def make_socket(path):
    with (
        contextlib.chdir(path.parent),
        socket.socket(socket.AF_UNIX) as server,
    ):  # of long paths it takes no whole one
        server.bind(path.name)


def make_device(path):
    os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))


def makers():
    """What may be in the way, as far as it can be made here."""
    found = {
        "a pipe": os.mkfifo,
        "a socket": make_socket,
        "a link": make_link,
        "a dangling link": make_dangling_link,
    }
    return {**found, "a device": make_device} if os.getuid() == 0 else found


def problems(bench, name, kind):
    """What is wrong after a run in which something of a kind is where a file is to be written."""
    bench.fresh()
    place = bench.out / name
    place.unlink(missing_ok=True)
    (bench.out / "precious").write_bytes(b"precious")
    makers()[kind](place)
    before, there = place.lstat(), others(bench, place)
    signal.alarm(60)  # whoever opens a pipe waits for ever
    ended = bench.run(Fault(str(bench.inputs), READS, 0, 0))
    signal.alarm(0)
    wrong = []
    if ended.code != 2 or not ended.err.startswith("coalmine: ") or ended.err.count("\n") != 1:
        wrong.append(f"not refused in one sentence: {ended.code}, {ended.err!r}")
    after = place.lstat()
    if (after.st_ino, after.st_mode, after.st_size) != (before.st_ino, before.st_mode, before.st_size):
        wrong.append("it was replaced")
    if others(bench, place) != there:
        wrong.append("other files were changed")
    if name in bench.new and not name.endswith(LATE):
        read = {
            path
            for call, path in ended.calls
            if not path.startswith("/out/") and any(one in path for one in LARGE)
        }
        if any(call == "read" and path in read for call, path in ended.calls):
            wrong.append(f"refused only after reading {sorted(read)}")
    return [f"{bench.case.name}, {kind} at {name}: {one}" for one in wrong]


def others(bench, place):
    """The files next to a path."""
    found = bench.out.rglob("*")
    return {
        str(path): path.read_bytes()
        for path in found
        if path != place and path.is_file() and not path.is_symlink()
    }


def sweep():
    """In a child: try every place of one case, and print what was wrong."""
    inputs, name, _ = sys.argv[1:]
    case = case_named(name)
    faulty_disk.prepare(case.without, case.changes)
    bench = Bench(case, inputs)
    # All that took a name in the directory itself, those files among it that are gone in the end.
    renamed = {path[1:] for kind, path in bench.calls if kind == "rename" and ".work." not in path}
    written = sorted(name for name in renamed if "/" not in name)
    wrong = [problem for place in written for kind in makers() for problem in problems(bench, place, kind)]
    bench.close()
    print(json.dumps({"calls": len(written), "faults": len(written) * len(makers()), "wrong": wrong}))
