"""How fast is indexing, as a ratio to the compiled sort alone, how much memory does it take, and how fast are its answers?

Run: python benchmarks/index.py --megabytes 50
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from coalmine.corpus import CorpusIndex, build_index, embedded_documents, normalized_sample
from coalmine.models import WordTokenizer

# Each measurement of memory has a process of its own, so that its peak is its own.
CHILD = "import sys; sys.path.insert(0, sys.argv[1]); import index; index.measure_memory(*sys.argv[2:])"
ROUNDS = 3


def generate(path: Path, megabytes: int) -> None:
    """Write lines of words as often as in English; one in eight lines repeats an earlier one, some of them many times."""
    chance = random.Random(0)
    words = " ".join(embedded_documents()).split()
    favorites: list[str] = []
    written = 0
    with open(path, "w", encoding="ascii") as out:
        while written < megabytes * 1_000_000:
            if favorites and chance.random() < 0.125:
                # The earlier a line stands in the list, the more often it comes again.
                line = favorites[int(len(favorites) * chance.random() ** 4)]
            else:
                line = " ".join(chance.choices(words, k=chance.randint(10, 400)))
                favorites.append(line)
            written += out.write(line + "\n")


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds and processor seconds."""
    begin, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - begin, time.process_time() - used


def compare_with_sort(corpus: Path, folder: Path) -> CorpusIndex:
    """Build and sort by turns; print the ratio of the times, and the index to go on with."""
    from pydivsufsort import divsufsort

    content = np.frombuffer(corpus.read_bytes(), dtype=np.uint8).copy()
    ratios, processor_ratios = [], []
    print(f"{'round':>7} {'sort alone':>12} {'index':>10} {'throughput':>12} {'of processor time':>18}")
    for number in range(ROUNDS):
        sort, sort_used = timed(lambda: divsufsort(content))
        index, index_used = timed(lambda: build_index(corpus, folder, overwrite=True))
        ratios.append(sort / index)
        processor_ratios.append(sort_used / index_used)
        print(
            f"{number + 1:>7} {sort:>10.1f} s {index:>8.1f} s {100 * ratios[-1]:>10.0f} % {100 * processor_ratios[-1]:>16.0f} %"
        )
    middle, used = statistics.median(ratios), statistics.median(processor_ratios)
    print(f"median throughput: {100 * middle:.0f} % of the sort's, {100 * used:.0f} % by processor time")
    return CorpusIndex.open(folder, verify=False)


def measure_memory(corpus: str, folder: str, kind: str) -> None:
    """Build an index in this process; print the tokens, and the peak memory of it above what was there before, in bytes."""
    tokenizer: object = "bytes"
    if kind != "bytes":
        words = {word for line in open(corpus, encoding="ascii") for word in line.split()}  # noqa: SIM115 - closed at exit
        # As many more words as it takes to need symbols of 2 or 3 bytes.
        more = {f"~{number}" for number in range({"words": 0, "many words": 70_000}[kind])}
        tokenizer = WordTokenizer(words | more)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    index = build_index(corpus, folder, tokenizer=tokenizer)
    print(index.tokens, resident("VmHWM") - before, index.manifest.symbol_bytes)


def resident(field: str) -> int:
    """A line of this process's status, in bytes."""
    return int(Path("/proc/self/status").read_text().partition(f"{field}:")[2].split()[0]) * 1024


def compare_memory(corpus: Path, folder: Path) -> None:
    print(f"\n{'tokens':>14} {'of bytes':>10} {'memory a token':>16}")
    for kind in ("bytes", "words", "many words"):
        command = [
            sys.executable,
            "-c",
            CHILD,
            str(Path(__file__).parent),
            str(corpus),
            str(folder / kind),
            kind,
        ]
        answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        tokens, peak, width = map(int, answer)
        print(f"{tokens:>14,} {width:>10} {peak / tokens:>10.1f} bytes")


def count_queries(index: CorpusIndex, corpus: Path, size: int) -> None:
    """Look up parts of the corpus of 10 to 50 bytes, and as many that are not in it."""
    content = corpus.read_text()
    chance = random.Random(1)
    there = []
    for _ in range(size // 2):
        start = chance.randrange(len(content) - 50)
        there.append(content[start : start + chance.randint(10, 50)].replace("\n", " "))
    queries = there + [query[:-1] + "#" for query in there]
    index.counts(queries[:10])
    seconds, used = timed(lambda: index.counts(queries))
    print(f"\ncounts: {size / seconds:,.0f} a second, {size / used:,.0f} a second of processor time")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=50)
    parser.add_argument("--corpus", type=Path, help="a .txt corpus to take instead of a made one")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as name:
        folder = Path(name)
        corpus = options.corpus or folder / "corpus.txt"
        if options.corpus is None:
            generate(corpus, options.megabytes)
        print(f"corpus: {corpus.stat().st_size / 1e6:.0f} MB")
        index = compare_with_sort(corpus, folder / "index")
        compare_memory(corpus, folder)
        count_queries(index, corpus, 200_000)
        samples: list[object] = []
        seconds, used = timed(lambda: samples.extend(normalized_sample(index)))
        print(
            f"normalized sample: {len(samples):,} sequences in {seconds:.0f} s ({used:.0f} s of processor time)"
        )


if __name__ == "__main__":
    main()
