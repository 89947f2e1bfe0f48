"""Another version of coalmine against this one: walking, recitation and indexing, by turns, in CPU seconds.

`python -m benchmarks.versions SRC`, where SRC is the `src` directory of a checkout of the other version. CPU seconds, because wall time on
a shared machine says more about the others; every turn is a process of its own, with one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

# Only what both versions have; the first call of each warms up libraries and is not measured.
WORKER = """
import json, sys, time
from pathlib import Path
from coalmine import Format, CanarySet, expose, load_model, recite
from coalmine.corpus.index.building import build_index

work, out = Path(sys.argv[1]), Path(sys.argv[2])
model = load_model(work / "model")
canaries = CanarySet.load(work / "planted")

def seconds(run):
    before = time.process_time()
    run()
    return time.process_time() - before

expose(model, canaries, method="references")
index = build_index(work / "planted" / "corpus.txt", out / "warm", tokenizer=model.tokenizer)
recite(model, index, contexts=[20], suffix=20)
print(json.dumps({
    "walking": seconds(lambda: expose(model, canaries, method="exact")),
    "indexing": seconds(lambda: build_index(work / "large.txt", out / "index", tokenizer=model.tokenizer)),
    "recitation": seconds(lambda: recite(model, index, contexts=[50], suffix=50)),
}))
"""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, help="the src directory of another version")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    own = Path(__file__).parent.parent / "src"
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        prepare(work)
        taken: dict[str, list[dict[str, float]]] = {"this": [], "other": []}
        for number in range(options.rounds):
            for version, source in (("this", own), ("other", options.other)):
                taken[version].append(turn(source, work, work / f"{version}-{number}"))
    print(f"| what | this version (CPU s) | the other | ratio, median of {options.rounds} (range) |")
    print("| --- | --- | --- | --- |")
    for what in taken["this"][0]:
        this, other = ([one[what] for one in taken[version]] for version in ("this", "other"))
        ratios = sorted(mine / theirs for mine, theirs in zip(this, other, strict=True))
        print(
            f"| {what} | {statistics.median(this):.2f} | {statistics.median(other):.2f} | "
            f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) |"
        )


def prepare(work: Path) -> None:
    """A planted corpus, and a model that was trained on it."""
    from coalmine import plant, train
    from coalmine.corpus import write_embedded_corpus

    write_embedded_corpus(work / "corpus.txt", 1_000_000)
    plant(
        work / "corpus.txt",
        "the random number is {digits:6}",
        repeat=[1, 16],
        canaries=5,
        out=work / "planted",
    )
    (work / "large.txt").write_bytes((work / "corpus.txt").read_bytes() * 10)
    train(work / "planted", out=work / "model", epochs=1, hidden=64)


def turn(source: Path, work: Path, out: Path) -> dict[str, float]:
    """The CPU seconds of each piece of work, in a process with this version."""
    out.mkdir()
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", WORKER, work, out], env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
