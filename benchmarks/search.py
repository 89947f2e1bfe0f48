"""What does sharing prefixes and batching the frontier save? Ratios against the naive way with the same model.

- Exact exposure over 10^6 members, against scoring the full strings of all of them in large batches.
- Stepping through the adapter, against a bare torch LSTM loop at the same batch size.
- Extracting a fully memorized 9-digit canary, against expanding one node a step.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.reference_model import SECRET, reference_model
from coalmine import CanarySet, Format, expose
from coalmine.search.tree.token_tree import TokenTree
from coalmine.search.walks.frontier import Frontier
from coalmine.search.walks.shortest_path import ShortestPaths


def seconds(work) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def best_of(rounds, *works) -> list[float]:
    """The best time of each, taken by turns, so that a busy moment of the machine does not hit one of them alone."""
    times = [[seconds(work) for work in works] for _ in range(rounds)]
    return [min(column) for column in zip(*times, strict=True)]


@torch.inference_mode()
def score_full_strings(model, texts, batch=4096) -> None:
    """The naive way: each text from its first character, in large batches, with nothing but torch."""
    network = model._network
    rows = torch.tensor([[*model.context, *model.tokenizer.encode(text)] for text in texts])
    for start in range(0, len(rows), batch):
        part = rows[start : start + batch]
        logits, _ = network(part[:, :-1], network.initial_state(len(part)))
        log2 = torch.log_softmax(logits, dim=-1) / np.log(2)
        log2.gather(2, part[:, 1:, None]).sum(dim=(1, 2))


def exact_exposure(model, sample: int) -> None:
    form = Format("the random number is {digits:6}")
    canaries = CanarySet.of(form, form.sample(4, seed=0, replace=False))
    results = expose(model, canaries, method="exact")
    texts = form.sample(sample, seed=1)
    ours, naive = best_of(
        3, lambda: expose(model, canaries, method="exact"), lambda: score_full_strings(model, texts)
    )
    naive *= form.size / sample
    print(f"exact exposure over 10^6 members: {results.expansions:,} expansions (at most 111,110)")
    print(
        f"  tree walk {ours:.2f} s, full strings {naive:.0f} s (measured on {sample:,}, scaled): {naive / ours:.0f} times less time"
    )


@torch.inference_mode()
def bare_steps(model, batch: int, steps: int) -> None:
    network = model._network
    state = network.initial_state(batch)
    tokens = torch.zeros((batch, 1), dtype=torch.long)
    for _ in range(steps):
        logits, state = network(tokens, state)
        torch.log_softmax(logits[:, 0], dim=-1)


def stepping(model) -> None:
    columns = np.array(model.tokenizer.encode("0123456789"))
    for batch in (256, 1024, 2048):
        steps = 40_000 // batch
        parents, tokens = np.arange(batch), np.full(batch, columns[3])
        start = model.start([model.context])
        wide = model.gather([(start.states, np.zeros(batch, dtype=np.int64))])

        def adapter(wide=wide, parents=parents, tokens=tokens, steps=steps) -> None:
            states = wide
            for _ in range(steps):
                states = model.step(states, parents, tokens, columns=columns).states

        ours, bare = best_of(5, adapter, lambda batch=batch, steps=steps: bare_steps(model, batch, steps))
        rate = batch * steps / ours
        print(
            f"stepping, batch {batch}: {bare / ours:.0%} of the bare loop's throughput ({rate:,.0f} nodes a second)"
        )


def extraction(model, canaries) -> None:
    form = Format(SECRET)
    memorized = {canary.text for canary in canaries if canary.repetitions == 64}

    def search(nodes_a_step, top):
        found = ShortestPaths(
            Frontier(model, TokenTree(form, model.tokenizer)), top, nodes_a_step=nodes_a_step
        )
        found.start()
        found.run()
        return found

    for top in (1, 10, 100):
        result, one_by_one = search(None, top), search(1, top)
        assert result.certificate().proven
        out = [form.at(found.member) for found in result.found()]
        batched, single = best_of(3, lambda top=top: search(None, top), lambda top=top: search(1, top))
        print(
            f"extraction over 10^9, top {top}: {len(memorized & set(out))} memorized canaries, the first at place "
            f"{1 + min(out.index(text) for text in memorized & set(out))}; proven in {result.frontier.expansions:,} expansions "
            f"(one node a step: {one_by_one.frontier.expansions:,}), {single / batched:.0f} times less time than one node a step"
        )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, help="directory to keep the trained model in")
    parser.add_argument("--sample", type=int, default=20_000, help="full strings to score")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as folder:
        model, canaries = reference_model(given.work or Path(folder))
        exact_exposure(model, given.sample)
        stepping(model)
        extraction(model, canaries)


if __name__ == "__main__":
    main()
