"""How fast is planting, as a ratio to a bare copy of the file, and does its memory depend on the size of the corpus?

Run: python benchmarks/planting.py --megabytes 200
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from coalmine.corpus import plant

FORMAT = "the random number is {digits:9}"
# Planting runs in a process of its own, so that its peak memory is its own.
CHILD = (
    "import sys; sys.path.insert(0, sys.argv[1]); import planting; planting.measure(sys.argv[2], sys.argv[3])"
)


def generate(path: Path, megabytes: int) -> None:
    """Write lines of 20 to 200 made-up words, of which there are a few thousand."""
    chance = random.Random(0)
    words = [
        "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9))) for _ in range(5000)
    ]
    lines = [" ".join(chance.choices(words, k=chance.randint(20, 200))) for _ in range(2000)]
    written = 0
    with open(path, "w") as out:
        while written < megabytes * 1_000_000:
            written += out.write("\n".join(chance.choices(lines, k=1000)) + "\n")


def bare_copy(source: Path, target: Path) -> float:
    """Seconds to copy a file a megabyte at a time."""
    begin = time.perf_counter()
    with open(source, "rb", buffering=0) as reading, open(target, "wb", buffering=0) as writing:
        while block := reading.read(1 << 20):
            writing.write(block)
        # Planting does not return before its files are on the disk, either.
        os.fsync(writing.fileno())
    return time.perf_counter() - begin


def measure(source: str, out: str) -> None:
    """Plant 2,000 canaries with 10,000 references; print seconds, processor seconds and the peak memory in megabytes."""
    begin = time.perf_counter()
    plant(source, FORMAT, repeat=[1, 4], canaries=1000, references=10_000, withhold=0.0, out=out)
    seconds = time.perf_counter() - begin
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(seconds, used.ru_utime + used.ru_stime, peak_megabytes())


def peak_megabytes() -> float:
    """The most memory that this process held; unlike that of getrusage, it does not begin with the parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1000


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200)
    megabytes = parser.parse_args(arguments).megabytes
    print(
        f"{'corpus':>10} {'planting':>12} {'processor':>11} {'bare copy':>12} {'ratio':>7} {'peak memory':>12}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for size in (max(1, megabytes // 100), megabytes):
            source = Path(folder, f"{size}.txt")
            generate(source, size)
            copying = bare_copy(source, Path(folder, "copy"))
            command = [
                sys.executable,
                "-c",
                CHILD,
                str(Path(__file__).parent),
                str(source),
                str(Path(folder, str(size))),
            ]
            answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
            seconds, processor, peak = map(float, answer)
            print(
                f"{size:>7} MB {size / seconds:>7.0f} MB/s {processor:>9.1f} s {size / copying:>7.0f} MB/s "
                f"{seconds / copying:>6.1f}x {peak:>9.0f} MB"
            )


if __name__ == "__main__":
    main()
