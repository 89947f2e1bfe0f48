"""What does the reference trainer cost beside a bare torch loop over the same batches? The promise is at most 5 %.

Both train the paper's character LSTM on the same windows with the same optimizer, by turns, in one process. The trainer
additionally counts, reports progress, checks the loss, looks for Ctrl-C and keeps its state every ten seconds.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

import torch
from torch.nn import functional as F

from coalmine import train
from coalmine.corpus import write_embedded_corpus
from coalmine.models.reference.networks import NetworkConfig, build_network
from coalmine.training.data import IGNORED, epoch_order, read_corpus, rows_of, tokenized
from coalmine.training.options import TrainingOptions


def bare_loop(data, options) -> float:
    """Seconds that one epoch takes with nothing but torch."""
    torch.manual_seed(0)
    network = build_network(NetworkConfig(architecture="lstm", vocabulary=data.tokenizer.size))
    optimizer = torch.optim.Adam(network.parameters(), lr=options.rate, fused=True)
    began = time.perf_counter()
    documents = [data.training[place] for place in epoch_order(len(data.training), options, 0)]
    inputs, targets = rows_of(documents, data.tokenizer.separator, options.batch_size)
    read, expected = torch.from_numpy(inputs), torch.from_numpy(targets)
    state = network.initial_state(len(inputs))
    for start in range(0, inputs.shape[1], options.window):
        window = slice(start, start + options.window)
        optimizer.zero_grad(set_to_none=True)
        logits, state = network(read[:, window], state)
        state = tuple(part.detach() for part in state)
        loss = F.cross_entropy(logits.flatten(0, 1), expected[:, window].flatten(), ignore_index=IGNORED)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), options.clip)
        optimizer.step()
    return time.perf_counter() - began


def our_trainer(corpus: Path, out: Path) -> float:
    """Seconds that one epoch takes with `coalmine.train`, reading and tokenizing left out as in the bare loop."""

    class Clock:
        """The trainer's own progress reports say when the first batch begins and the last one ends."""

        began = 0.0

        def start(self, task, total):
            pass

        def advance(self, amount=1, note=""):  # noqa: ARG002 - the protocol's
            self.began = self.began or time.perf_counter()

        def finish(self):
            self.ended = time.perf_counter()

    clock = Clock()
    train(corpus, out=out, epochs=1, holdout=0.0, progress=clock)
    return clock.ended - clock.began


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kilobytes", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    options = TrainingOptions(epochs=1, holdout=0.0)
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "corpus.txt")
        write_embedded_corpus(corpus, given.kilobytes * 1000)
        data = tokenized(read_corpus(corpus, None, None, [options]), options)
        bare_loop(data, options)  # warm up
        ratios = []
        for turn in range(given.rounds):
            theirs = bare_loop(data, options)
            ours = our_trainer(corpus, Path(folder, f"model{turn}"))
            ratios.append(ours / theirs)
            print(
                f"round {turn + 1}: bare loop {theirs:.2f} s, coalmine {ours:.2f} s, ratio {ours / theirs:.3f}",
                flush=True,
            )
    print(f"median ratio {median(ratios):.3f} (promised: at most 1.05)")


if __name__ == "__main__":
    main()
