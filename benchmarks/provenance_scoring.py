"""What does asking about a user's texts cost? Ranks by counting against ranks by sorting the vocabulary, positions that are scored
against all padded ones, one batch against one text at a time, and all that a distribution says against log-probabilities alone.

Processor time on one thread, measured by turns: the median of the ratios of some rounds, and their range.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import torch
from torch import Tensor

from coalmine.models import TokenSequence, WordTokenizer
from coalmine.models.inference.incremental import StatefulModel
from coalmine.models.inference.memory import LOGITS_AT_A_TIME
from coalmine.models.inference.projection import Projection
from coalmine.models.reference.networks import Network, NetworkConfig, build_network
from coalmine.pages import keep_pages
from coalmine.randomness import arrays

EMBEDDING, HIDDEN = 128, 256
# The words of a post; a tweet has 5 to 30.
SHORTEST, LONGEST = 5, 30


def word_model(vocabulary: int) -> StatefulModel:
    """An LSTM over words with random weights: speed does not depend on what it has learned."""
    torch.manual_seed(0)
    tokens = WordTokenizer(f"w{number:06d}" for number in range(vocabulary - 2))
    shape = NetworkConfig(
        architecture="lstm", vocabulary=tokens.size, embedding=EMBEDDING, hidden=HIDDEN, layers=1
    )
    return StatefulModel(build_network(shape), tokens)


def posts(model: StatefulModel, many: int) -> list[TokenSequence]:
    """The texts of a user, of different lengths."""
    draw = arrays(0, "benchmark", "posts")
    lengths = draw.integers(SHORTEST, LONGEST + 1, many)
    size = model.tokenizer.size - 2
    return [
        TokenSequence(model.context, tuple(draw.integers(0, size, length).tolist()))
        for length in lengths.tolist()
    ]


class Padded:
    """The hidden numbers of all texts, padded to one length, and which positions count."""

    def __init__(self, network: Network, sequences: list[TokenSequence]) -> None:
        rows = [sequence.context + sequence.target for sequence in sequences]
        width = max(map(len, rows))
        padded = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
        hidden, _ = network.read_hidden(padded[:, :-1], network.initial_state(len(rows)), width - 1)
        self.counts = np.arange(width - 1) < np.array([len(row) - 1 for row in rows])[:, None]
        self.all = hidden.flatten(0, 1)
        self.all_tokens = padded[:, 1:].flatten().numpy()
        self.hidden = self.all[torch.from_numpy(np.flatnonzero(self.counts))]
        self.tokens = self.all_tokens[self.counts.flatten()]


def sorted_ranks(network: Network, hidden: Tensor, tokens: Tensor) -> Tensor:
    """The plain way: all logits at once, sorted, and the place of each token among them."""
    order = network.project(hidden).argsort(dim=1, descending=True)
    return torch.nonzero(order == tokens[:, None])[:, 1] + 1


def by_turns(slow: Callable[[], object], fast: Callable[[], object], rounds: int) -> tuple[float, str]:
    """The seconds of the fast one, and how many times the slow one takes as long, with the range over rounds."""
    times, ratios = [], []
    for _ in range(rounds):
        first, second = taken(slow), taken(fast)
        ratios.append(first / second)
        times.append(second)
    return median(times), f"{median(ratios):.2f} times ({min(ratios):.2f} to {max(ratios):.2f})"


def taken(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


@torch.inference_mode()
def scoring(vocabulary: int, queries: int, rounds: int) -> None:
    model = word_model(vocabulary)
    network = model._network
    sequences = posts(model, queries)
    padded = Padded(network, sequences)
    ask = Projection(network, whole_at_a_time=LOGITS_AT_A_TIME)
    known = torch.from_numpy(padded.tokens)
    every, own = np.arange(len(padded.all)), np.arange(len(padded.tokens))

    def counted(moments: bool = False) -> Callable[[], object]:
        return lambda: ask.judge(padded.hidden, own, padded.tokens, ranks=True, moments=moments)

    def with_padding() -> object:
        return ask.judge(padded.all, every, padded.all_tokens, ranks=True, moments=True)

    found = ask.judge(padded.hidden, own, padded.tokens, ranks=True).ranks
    same = int((sorted_ranks(network, padded.hidden, known).numpy() == found).sum())
    print(
        f"{vocabulary:,} words, {queries} texts of {SHORTEST} to {LONGEST} words: {len(known)} positions of {len(every)} with padding; "
        f"ranks by sorting and by counting agree for {same} of {len(known)}"
    )
    lines = (
        (
            "sorting the vocabulary, against counting",
            lambda: sorted_ranks(network, padded.hidden, known),
            counted(),
        ),
        ("all padded positions, against those that count", with_padding, counted(moments=True)),
        (
            "one text at a time, against one batch",
            lambda: [model.score_distribution([sequence]) for sequence in sequences],
            lambda: model.score_distribution(sequences),
        ),
        (
            "ranks and moments, against log-probabilities alone",
            lambda: model.score_distribution(sequences),
            lambda: model.score(sequences),
        ),
        (
            "ranks and moments, against ranks alone",
            lambda: model.score_distribution(sequences),
            lambda: model.score(sequences, ranks=True),
        ),
    )
    for label, slow, fast in lines:
        slow(), fast()
        seconds, ratio = by_turns(slow, fast, rounds)
        print(f"  {label}: {ratio}; the latter takes {1000 * seconds:.1f} ms", flush=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocabularies", type=int, nargs="+", default=[5_000, 50_000])
    parser.add_argument("--queries", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    keep_pages()  # as every command does
    for vocabulary in given.vocabularies:
        scoring(vocabulary, given.queries, given.rounds)


if __name__ == "__main__":
    main()
