"""What does a step of private training cost beside a plain step at the same batch size? The promise is at most 1.5 times.

Ghost clipping, the loop over units, opacus, and torch's vmap over per-row gradients, for the LSTM with two layers of 200 and for the
preset "transformer": by turns on the same batch, in processor time of one thread. A step is a forward and a backward pass, clipping,
and Adam; noise is left out everywhere. Memory is what three steps take beyond the libraries, the weights and the batch. Opacus is
not a dependency of coalmine, and is left out if it is not installed: `pip install --no-deps --target DIR opacus opt_einsum`, and
`PYTHONPATH=DIR`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from benchmarks.vocabularies import forget_peak, status
from coalmine.corpus import embedded_documents
from coalmine.models.reference.networks import Network, NetworkConfig, build_network
from coalmine.models.reference.tokens import CharacterTokenizer
from coalmine.pages import keep_pages
from coalmine.training.data import IGNORED
from coalmine.training.options import options_of
from coalmine.training.private.clipping.clipping import clipping_for
from coalmine.training.private.clipping.loop import LoopClipping, kept

CLIP = 0.1
Step = Callable[[], Tensor]


class Lesson:
    """A network, and documents of unequal length as rows that are padded to the longest; every row is a unit."""

    def __init__(self, preset: str) -> None:
        options = options_of(preset, {})
        texts = embedded_documents(200_000)
        tokenizer = CharacterTokenizer("".join(sorted(set("".join(texts)))))
        shape = {
            name: getattr(options, name)
            for name in ("architecture", "embedding", "hidden", "layers", "heads")
        }
        torch.manual_seed(0)
        self.network: Network = build_network(NetworkConfig(vocabulary=tokenizer.size, **shape))
        lengths = np.random.default_rng(0).integers(
            options.window // 2, options.window + 1, options.batch_size
        )
        lengths[0] = options.window
        rows = torch.full((options.batch_size, options.window + 1), IGNORED)
        stream = np.concatenate([tokenizer.encode_document(text) for text in texts])
        for row, length in enumerate(lengths):
            begin = row * (options.window + 1)
            rows[row, : length + 1] = torch.from_numpy(stream[begin : begin + length + 1].astype(np.int64))
        self.expected = rows[:, 1:]
        self.read = rows[:, :-1].clamp(min=0)
        self.lengths = torch.from_numpy(lengths)
        self.units = torch.arange(options.batch_size)

    def __str__(self) -> str:
        config = self.network.config
        rows, time_steps = self.read.shape
        return f"{config.architecture}, {config.layers} layers of {config.hidden}, {rows} rows of up to {time_steps} characters"

    def losses(self, network: nn.Module | None = None, rows: slice = slice(None)) -> Tensor:
        """The mean loss of each row."""
        read, expected = self.read[rows], self.expected[rows]
        logits, _ = (network or self.network)(read, self.network.initial_state(len(read)))
        of_places = F.cross_entropy(logits.transpose(1, 2), expected, ignore_index=IGNORED, reduction="none")
        return of_places.sum(1) / (expected != IGNORED).sum(1)


def plain(lesson: Lesson) -> Step:
    """No clipping."""

    def step() -> Tensor:
        lesson.losses().sum().backward()
        return torch.tensor([])

    return step


def ghost(lesson: Lesson) -> Step:
    """Ours."""
    clipping = clipping_for(lesson.network)

    def step() -> Tensor:
        norms = clipping.add_clipped(lesson.losses, lesson.units, len(lesson.units), CLIP, lesson.lengths)
        if clipping.name != "ghost":
            raise RuntimeError(clipping.reason)
        return norms

    return step


def loop(lesson: Lesson) -> Step:
    """One unit after the other, each with a forward pass of its own."""
    clipping = LoopClipping(lesson.network, "for comparison")

    def step() -> Tensor:
        one = torch.tensor([0])
        return torch.cat(
            [
                clipping.add_clipped(partial(lesson.losses, rows=slice(row, row + 1)), one, 1, CLIP)
                for row in range(len(lesson.units))
            ]
        )

    return step


def opacus(lesson: Lesson) -> Step:
    """Opacus's gradients of each row, with its own LSTM, which holds the same weights."""
    from opacus.grad_sample import GradSampleModule
    from opacus.layers import DPLSTM

    config = lesson.network.config
    if config.architecture == "lstm":
        theirs = DPLSTM(config.embedding, config.hidden, config.layers, batch_first=True)
        theirs.load_state_dict(lesson.network.get_submodule("recurrent").state_dict())
        lesson.network.recurrent = theirs
    network = GradSampleModule(lesson.network, loss_reduction="sum")

    def step() -> Tensor:
        lesson.losses(network).sum().backward()
        norms = add_clipped({each: each.grad_sample for each in network.parameters()})
        for parameter in network.parameters():
            parameter.grad_sample = None
        return norms

    return step


def vectorized(lesson: Lesson) -> Step:
    """Torch's vmap over the gradient of one row."""
    network = lesson.network

    def loss(weights: dict[str, Tensor], read: Tensor, expected: Tensor) -> Tensor:
        logits, _ = functional_call(network, weights, (read[None], network.initial_state(1)))
        found = F.cross_entropy(logits[0], expected, ignore_index=IGNORED, reduction="sum")
        return found / (expected != IGNORED).sum()

    of_rows = vmap(grad(loss), in_dims=(None, 0, 0))

    def step() -> Tensor:
        weights = {name: each.detach() for name, each in network.named_parameters()}
        found = of_rows(weights, lesson.read, lesson.expected)
        return add_clipped({each: found[name] for name, each in network.named_parameters()})

    return step


def add_clipped(gradients: dict[nn.Parameter, Tensor]) -> Tensor:
    """The clipped sum of the gradients of each row."""
    norms = torch.stack([each.flatten(1).norm(dim=1) for each in gradients.values()]).norm(dim=0)
    for parameter, of_rows in gradients.items():
        parameter.grad = torch.tensordot(kept(norms, CLIP), of_rows, dims=1)
    return norms


WAYS: dict[str, Callable[[Lesson], Step]] = {
    "plain step": plain,
    "ghost clipping": ghost,
    "loop over units": loop,
    "opacus": opacus,
    "vmap": vectorized,
}


def measured(preset: str, rounds: int) -> None:
    """Prints a table for one network."""
    steps: dict[str, tuple[Step, torch.optim.Optimizer]] = {}
    norms: dict[str, Tensor] = {}
    print(Lesson(preset), flush=True)
    for name, way in WAYS.items():
        lesson = Lesson(preset)
        try:
            step = way(lesson)
            norms[name] = step()
        except (ImportError, RuntimeError) as problem:
            print(f"{name}: left out: {str(problem).splitlines()[0]}")
            continue
        steps[name] = step, torch.optim.Adam(lesson.network.parameters(), lr=1e-4, fused=True)
    for name in [each for each in steps if each not in ("plain step", "loop over units")]:
        apart = float((norms[name] / norms["loop over units"] - 1).abs().max())
        print(f"{name}: the largest difference of a norm from the loop's is {apart:.1e} of it")
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds + 1):
        for name, (step, optimizer) in steps.items():
            optimizer.zero_grad(set_to_none=True)
            began = time.process_time()
            step()
            optimizer.step()
            if turn:  # the first one warms up
                seconds[name].append(time.process_time() - began)
    for name, own in seconds.items():
        ratios = [one / plain for one, plain in zip(own, seconds["plain step"], strict=True)]
        print(
            f"{name}: {1000 * median(own):.0f} ms, {median(ratios):.2f} times a plain step ({min(ratios):.2f} to {max(ratios):.2f}), "
            f"{memory(preset, name)}",
            flush=True,
        )


def memory(preset: str, name: str) -> str:
    """What steps take, from a process of their own."""
    child = [sys.executable, "-m", "benchmarks.private_step", "--grown", preset, name]
    return subprocess.run(child, check=True, capture_output=True, text=True).stdout.strip()


def grown(preset: str, name: str) -> str:
    """By how much three steps make this process grow."""
    lesson = Lesson(preset)
    step = WAYS[name](lesson)
    before = forget_peak()
    for _ in range(3):
        lesson.network.zero_grad(set_to_none=True)
        step()
    return f"{(status('VmHWM') - before) / 1024:.0f} MB"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--grown", nargs=2, metavar=("PRESET", "WAY"), help="print the memory of one way only"
    )
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    keep_pages()  # as commands do
    if given.grown:
        print(grown(*given.grown))
        return
    for preset in ("char-lstm", "transformer"):
        measured(preset, given.rounds)


if __name__ == "__main__":
    main()
