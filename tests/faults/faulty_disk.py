"""Arms the disk of faulty_disk.c: which call of a process fails, how, and whether all later ones do too."""

import ctypes
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from faults import moments

SOURCE = Path(__file__).with_suffix(".c")
KINDS = ("open", "create", "write", "sync", "rename", "truncate", "mkdir", "unlink", "chmod", "close", "read")
# What a process does to files that it writes, and to files that it reads.
CHANGES = tuple(kind for kind in KINDS if kind != "read")
READS = ("open", "read")
# How a disk fails once it has begun to: which calls it refuses from then on.
FULL = {
    errno.ENOSPC: ("create", "write", "sync", "truncate", "mkdir"),
    errno.EFBIG: ("write", "truncate"),
    errno.EACCES: ("create", "rename", "mkdir", "unlink", "chmod"),
    errno.EIO: CHANGES,
}


class Fault(NamedTuple):
    """A call that fails; with `keep_on`, and all that follow."""

    directory: str
    kinds: tuple[str, ...]
    number: int
    error: int
    keep_on: bool = False


def build(folder):
    """Compile the shared library; `scripts/install-compiler.sh` installs what that needs."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler, "no C compiler, which the failing disk is built with: run scripts/install-compiler.sh"
    library = Path(folder, "faulty_disk.so")
    command = [compiler, "-Wall", "-Werror", "-O1", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"]
    subprocess.run(command, check=True)
    return library


def arm(fault, log):
    """In the process that is to fail: let it begin."""
    directory, kinds, number, error, keep_on = fault
    mask = sum(1 << KINDS.index(kind) for kind in kinds)
    ctypes.CDLL(None).faulty_disk_arm(
        os.fsencode(directory), mask, ctypes.c_long(number), error, int(keep_on), os.fsencode(log)
    )


def disarm():
    """Let the disk be as good as any."""
    arm(Fault("/", (), 0, 0), os.devnull)


def prepare(without=(), changes=()):
    """In the process: keep what is unfinished after each step, take small steps, and be quick about the rest."""
    from coalmine import expose
    from coalmine.audits.recitation import answers as recitation_answers
    from coalmine.corpus.index import building
    from coalmine.engines import ledger
    from coalmine.search.walks.members import Members

    ledger.SECONDS_BETWEEN_SAVES = 0.0
    expose.__kwdefaults__["batch"] = Members.__init__.__kwdefaults__["batch"] = 512
    recitation_answers.AT_A_TIME = 16
    building.LARGEST_SORT = 6_000
    sys.modules.update(dict.fromkeys(without))
    for change in changes:
        moments.CHANGES[change]()


def said(log):
    """The calls that were made, or of a disk that fails, those that failed: (kind, path)."""
    return [tuple(line.split(" ", 1)) for line in Path(log).read_text(errors="replace").splitlines()]
