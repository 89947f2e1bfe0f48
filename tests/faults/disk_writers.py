"""In a child: writes to one file with each library that coalmine or its dependencies write with, on a disk that fails."""

import errno
import json
import sqlite3
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from faults import faulty_disk
from faults.faulty_disk import CHANGES, READS, Fault

CONTENT = bytes(100_000)


def by_python(path):
    path.write_bytes(CONTENT)


def by_arrow(path):
    pq.write_table(pa.table({"a": np.arange(50_000)}), path)


def by_zstandard(path):
    with pa.CompressedOutputStream(str(path), "zstd") as stream:
        stream.write(np.random.default_rng(0).bytes(200_000))


def by_safetensors(path):
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(50_000)}, path)


def by_numpy(path):
    np.savez(path.with_suffix(".npz"), a=np.zeros(50_000))


def by_memory_map(path):
    np.memmap(path, dtype=np.uint8, mode="w+", shape=(100_000,)).flush()


def by_sqlite(path):
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("CREATE TABLE answers (answer BLOB)")
        connection.execute("INSERT INTO answers VALUES (?)", (CONTENT,))
    connection.close()


WRITERS = (by_python, by_arrow, by_zstandard, by_safetensors, by_numpy, by_memory_map, by_sqlite)


def try_each():
    """Print, for each writer, the kinds of calls that were seen, and whether it failed when its first write did."""
    folder = Path(sys.argv[1])
    found = {}
    for writer in WRITERS:
        log, path = folder / "log", folder / "disk" / writer.__name__
        log.unlink(missing_ok=True)
        path.parent.mkdir(exist_ok=True)
        faulty_disk.arm(Fault(str(path.parent), (*CHANGES, "read"), 0, 0), log)
        writer(path)
        seen = sorted({kind for kind, _ in faulty_disk.said(log)})
        failed = None
        faulty_disk.arm(Fault(str(path.parent), ("write",), 1, errno.ENOSPC), log)
        try:
            writer(path.with_name(f"{path.name}-again"))
        except Exception as error:  # noqa: BLE001 - each library has errors of its own
            failed = str(error)
        faulty_disk.disarm()
        found[writer.__name__] = [seen, failed]
    print(json.dumps(found))


def read_back():
    """Print what reading a file gives when its first read fails."""
    path = Path(sys.argv[1], "file")
    path.write_bytes(CONTENT)
    faulty_disk.arm(Fault(str(path.parent), READS, 2, errno.EIO), "/dev/null")
    try:
        path.read_bytes()
    except OSError as error:
        print(error.errno)


def half_a_write():
    """Print how much of a file is there when the disk becomes full in the middle of it."""
    path = Path(sys.argv[1], "file")
    faulty_disk.arm(Fault(str(path.parent), ("write",), 1, errno.ENOSPC, keep_on=True), "/dev/null")
    try:
        path.write_bytes(CONTENT)
    except OSError as error:
        print(error.errno, path.stat().st_size)
