"""How much of the time of walking, scoring, recitation and training is matrix products, by the size of the vocabulary?

The promise is 80% at 100, 5,000, 50,000 and 128,000 tokens: the throughput against that of nothing but the network's matrix products for
the same rows, measured by turns, in processor time (user and system) on one thread. Memory is the peak of a process of its own, beyond what
the libraries and the weights take.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

VOCABULARIES = (100, 5_000, 50_000, 128_000)
WORKS = ("walking", "scoring", "recitation", "training")
EMBEDDING, HIDDEN, LAYERS = 200, 200, 2
# The digits of the walk: one more in a small vocabulary, in which a node takes little time.
DIGITS, MORE_DIGITS, SMALL = 5, 6, 1_000
TEXTS, CONTEXT, TARGET = 64, 32, 32
ROWS, WINDOW, STEPS = 32, 32, 3
# The products of the last layer are made in blocks of this many rows and tokens, which is the fastest way.
BLOCK = 1024, 1024


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocabularies", type=int, nargs="+", default=VOCABULARIES)
    parser.add_argument("--works", nargs="+", choices=WORKS, default=WORKS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one", nargs=2, metavar=("WORK", "VOCABULARY"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one:
        print(json.dumps(measure(given.one[0], int(given.one[1]), given.rounds)))
        return
    print(
        "| vocabulary | work | share of the products' throughput (range) | system time | page faults | memory |"
    )
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    for vocabulary in given.vocabularies:
        for work in given.works:
            one = [sys.executable, "-m", "benchmarks.vocabularies", "--one", work, str(vocabulary)]
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            done = subprocess.run(
                [*one, "--rounds", str(given.rounds)], env=environment, stdout=subprocess.PIPE, check=True
            )
            found = json.loads(done.stdout.splitlines()[-1])
            shares = sorted(found["shares"])
            print(
                f"| {vocabulary:,} | {work} | {median(shares):.0%} ({shares[0]:.0%} to {shares[-1]:.0%}) | "
                f"{found['system']:.0%} | {found['faults']:,} | {found['megabytes']:,.0f} MB |",
                flush=True,
            )


def measure(work: str, vocabulary: int, rounds: int) -> dict[str, Any]:
    """The shares of some rounds; the share of system time, the page faults of a round, and the memory that the work took at its peak."""
    import torch

    from coalmine.pages import keep_pages

    torch.set_num_threads(1)
    keep_pages()  # as every command does
    with tempfile.TemporaryDirectory() as folder:
        whole, shapes = PREPARED[work](vocabulary, Path(folder))
        held = forget_peak()
        whole()
        megabytes = (status("VmHWM") - held) / 1024
        products = Products(shapes, backward=work == "training")
        products()
        shares, seconds, system, faults = [], 0.0, 0.0, 0
        for _ in range(rounds):
            bare = sum(taken(products)[:2])
            user, kernel, faulted = taken(whole)
            shares.append(bare / (user + kernel))
            seconds, system, faults = seconds + user + kernel, system + kernel, faults + faulted
    return {
        "shares": shares,
        "system": system / seconds,
        "faults": faults // rounds,
        "megabytes": megabytes,
    }


def taken(work: Callable[[], object]) -> tuple[float, float, int]:
    """User seconds, system seconds and page faults."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    work()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return (
        after.ru_utime - before.ru_utime,
        after.ru_stime - before.ru_stime,
        after.ru_minflt - before.ru_minflt,
    )


def status(name: str) -> int:
    """A number of kilobytes that Linux knows of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    raise LookupError(name)


def forget_peak() -> int:
    """Start to measure the peak anew; returns the kilobytes that are held now."""
    Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def network_of(vocabulary: int) -> Any:
    """The paper's LSTM with random weights, and one token per character."""
    import torch

    from coalmine.models import CharacterTokenizer
    from coalmine.models.reference.networks import NetworkConfig, build_network

    torch.manual_seed(0)
    points = (point for point in range(32, 1 << 20) if not 0xD800 <= point < 0xE000)
    tokenizer = CharacterTokenizer(
        chr(point) for point, _ in zip(points, range(vocabulary - 1), strict=False)
    )
    config = NetworkConfig(
        architecture="lstm", vocabulary=tokenizer.size, embedding=EMBEDDING, hidden=HIDDEN, layers=LAYERS
    )
    return build_network(config), tokenizer


def model_of(vocabulary: int) -> Any:
    from coalmine.models.inference.incremental import StatefulModel

    return StatefulModel(*network_of(vocabulary))


# What a work makes products of: for each call of the network its rows, the tokens of each that it reads, and at how many positions in all
# the last layer is applied.
Shapes = tuple[int, list[tuple[int, int, int]]]


def walking(vocabulary: int, _: Path) -> tuple[Callable[[], object], Shapes]:
    from coalmine import Format
    from coalmine.search.tree.token_tree import TokenTree
    from coalmine.search.walks.enumeration import enumerate_members
    from coalmine.search.walks.frontier import Frontier

    model = model_of(vocabulary)
    digits = MORE_DIGITS if vocabulary < SMALL else DIGITS
    tree = TokenTree(Format(f"pin {{digits:{digits}}}"), model.tokenizer)

    def walk() -> None:
        for _ in enumerate_members(Frontier(model, tree)):
            pass

    return walk, (vocabulary, [(rows, 1, rows) for rows in rows_of_steps(tree)])


def rows_of_steps(tree: Any) -> list[int]:
    """The rows of each step of a walk, from one with a model that takes no time."""
    from coalmine import ScriptedModel
    from coalmine.search.tree.token_tree import TokenTree
    from coalmine.search.walks.enumeration import enumerate_members
    from coalmine.search.walks.frontier import Frontier

    rows: list[int] = []

    class Counted(Frontier):
        def advance(self, block: Any, children: Any) -> Any:
            rows.append(len(children.costs))
            return super().advance(block, children)

    model = ScriptedModel("pin 0123456789")
    for _ in enumerate_members(Counted(model, TokenTree(tree.format, model.tokenizer))):
        pass
    return rows


def sequences_of(vocabulary: int) -> list[Any]:
    from coalmine.models import TokenSequence
    from coalmine.randomness import arrays

    drawn = arrays(0, "benchmark", "vocabularies").integers(0, vocabulary, (TEXTS, CONTEXT + TARGET)).tolist()
    return [TokenSequence(tuple(row[:CONTEXT]), tuple(row[CONTEXT:])) for row in drawn]


def scoring(vocabulary: int, _: Path) -> tuple[Callable[[], object], Shapes]:
    from coalmine.models import TokenSequence

    model = model_of(vocabulary)
    # A text is scored from its first token on.
    texts = [TokenSequence(one.context[:1], one.context[1:] + one.target) for one in sequences_of(vocabulary)]
    read = CONTEXT + TARGET - 1
    return lambda: model.score(texts), (vocabulary, [(TEXTS, read, TEXTS * read)])


def recitation(vocabulary: int, _: Path) -> tuple[Callable[[], object], Shapes]:
    from coalmine.models import Sampling

    model, sequences = model_of(vocabulary), sequences_of(vocabulary)
    whole = (TEXTS, CONTEXT + TARGET - 1, TEXTS * TARGET)
    return lambda: model.follow(sequences, samplings=[Sampling()]), (vocabulary, [whole])


class Alone:
    """A run that nothing watches, stops or keeps."""

    def advance(self, amount: int = 1, note: str = "") -> None:
        pass

    def kept(self) -> None:
        return None

    def keep(self, state: Callable[[], Any]) -> None:
        pass


def training(vocabulary: int, _: Path) -> tuple[Callable[[], object], Shapes]:
    from coalmine.randomness import arrays
    from coalmine.training.data import TrainingData
    from coalmine.training.options import options_of
    from coalmine.training.run import TrainingRun

    _, tokenizer = network_of(vocabulary)
    drawn = arrays(0, "benchmark", "vocabularies").integers(0, vocabulary - 1, ROWS * WINDOW * STEPS - 1)
    data = TrainingData(tokenizer, [drawn], [], "")
    options = options_of("word-lstm", {"batch_size": ROWS, "window": WINDOW})
    run = TrainingRun(data, options, Alone(), watch=None, size=1, label="")
    # The steps alone, without reading the data, snapshots and saving.
    run._prepare()
    batches = run.lessons.training(0)
    run.network.train()

    def learn() -> None:
        run.carried = ()
        for batch in batches:
            run._learn(batch)

    return learn, (vocabulary, [(len(one.expected), one.expected.shape[1], one.tokens) for one in batches])


PREPARED: dict[str, Callable[[int, Path], tuple[Callable[[], object], Shapes]]] = {
    "walking": walking,
    "scoring": scoring,
    "recitation": recitation,
    "training": training,
}


class Products:
    """Nothing but the matrix products of the network, with numbers at random, in memory that was there before."""

    def __init__(self, shapes: Shapes, *, backward: bool) -> None:
        import torch

        self.vocabulary, self.calls = shapes
        self.backward = backward
        tokens = max(rows * time for rows, time, _ in self.calls)
        gates = 4 * HIDDEN
        self.layers = [
            (torch.randn(gates, EMBEDDING if layer == 0 else HIDDEN), torch.randn(gates, HIDDEN))
            for layer in range(LAYERS)
        ]
        self.head = torch.randn(self.vocabulary, HIDDEN)
        self.read, self.made = torch.randn(tokens, HIDDEN), torch.randn(tokens, gates)
        self.block = torch.randn(BLOCK[0] * BLOCK[1])
        self.of_layer, self.of_block = torch.empty(gates, HIDDEN), torch.empty(BLOCK[1], HIDDEN)
        self.back = torch.empty(tokens, HIDDEN)

    def __call__(self) -> None:
        import torch

        with torch.inference_mode():
            for rows, time, positions in self.calls:
                for of_input, of_state in self.layers:
                    self.product(rows * time, of_input, self.of_layer)
                    for _ in range(time):
                        self.product(rows, of_state, None)
                    if self.backward:
                        torch.mm(self.made[: rows * time].T, self.read[: rows * time], out=self.of_layer)
                self.last(positions)

    def product(self, rows: int, weight: Any, of_weight: Any) -> None:
        import torch

        torch.mm(self.read[:rows], weight.T, out=self.made[:rows])
        if self.backward:
            torch.mm(self.made[:rows], weight, out=self.back[:rows, : weight.shape[1]])
            if of_weight is not None:
                torch.mm(self.made[:rows].T, self.read[:rows, : weight.shape[1]], out=of_weight)

    def last(self, positions: int) -> None:
        import torch

        for begin in range(0, self.vocabulary, BLOCK[1]):
            weight = self.head[begin : begin + BLOCK[1]]
            for start in range(0, positions, BLOCK[0]):
                read = self.read[start : min(positions, start + BLOCK[0])]
                made = self.block[: len(read) * len(weight)].view(len(read), len(weight))
                torch.mm(read, weight.T, out=made)
                if self.backward:
                    torch.mm(made, weight, out=self.back[: len(read)])
                    torch.mm(made.T, read, out=self.of_block[: len(weight)])


if __name__ == "__main__":
    main()
