"""How fast are shadow models trained beside bare torch loops over the same batches, and what does padding cost? The promise is 95%.

`training` trains shadow models of words with the recipe of the paper, with all that surrounds it: hashing, tokenizing, progress, checks and
saving. The bare loop has the same batches, tokenized beforehand. `padding` is an epoch of pairs with and without a projection of padding.
`scoring` asks about a user's texts: `benchmarks/provenance_scoring.py`. All times are CPU seconds of one thread, because those of a clock
say more about what else the machine does.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks import provenance_scoring
from coalmine.audits.provenance.fit import halves, recipe_of, train_shadows
from coalmine.audits.provenance.options import FitOptions
from coalmine.audits.provenance.users import User, UserText
from coalmine.corpus import write_embedded_corpus
from coalmine.randomness import arrays
from coalmine.training.data import IGNORED, Documents, text_of, tokenized
from coalmine.training.lessons import lessons_of
from coalmine.training.options import options_of

PARTS = ("training", "padding", "scoring")
TEXTS, WORDS = 60, 14


def reference_users(folder: Path, number: int) -> list[User]:
    """Users whose words have the frequencies of the embedded corpus; texts are as unequal in length as posts are."""
    write_embedded_corpus(folder / "words.txt", 400_000)
    words = np.array((folder / "words.txt").read_text().split())
    drawn = arrays(0, "benchmark", "users")
    return [
        User(
            f"user {one}",
            tuple(
                UserText(" ".join(drawn.choice(words, min(60, 1 + drawn.geometric(1 / WORDS)))))
                for _ in range(TEXTS)
            ),
        )
        for one in range(number)
    ]


def bare_loop(data, options) -> float:
    """Seconds that a training takes with nothing but torch, on the batches that the trainer has."""
    torch.manual_seed(0)
    lessons = lessons_of(data, options)
    network: Any = lessons.network
    optimizer = torch.optim.Adam(network.parameters(), lr=options.rate, fused=True)
    network.train()
    began = time.process_time()
    for epoch in range(options.epochs):
        state: tuple[Any, ...] = ()
        for batch in lessons.training(epoch):
            optimizer.zero_grad(set_to_none=True)
            (tokens,) = batch.read
            state = state or network.initial_state(tokens.shape[0])
            hidden, state = network.read_hidden(tokens, state, tokens.shape[1])
            state = tuple(part.detach() for part in state)
            loss = F.cross_entropy(network.project(batch.with_loss(hidden)), batch.with_loss(batch.expected))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), options.clip)
            optimizer.step()
    return time.process_time() - began


def training(folder: Path, rounds: int, epochs: int) -> None:
    """Two shadow models in this process, against two bare loops."""
    users = reference_users(folder, 40)
    ratios = []
    for turn in range(rounds):
        trained_on = halves(len(users), 2, seed=turn)
        recipe = recipe_of(FitOptions(shadows=2, seed=turn), training={"epochs": epochs})
        theirs = 0.0
        for number, column in enumerate(trained_on.T):
            texts = [
                text.text for user, chosen in zip(users, column, strict=True) if chosen for text in user.texts
            ]
            options = recipe.options[number]
            theirs += bare_loop(tokenized(text_of(Documents(texts, None)), options), options)
        began = time.process_time()
        train_shadows(users, trained_on, recipe, folder / f"shadows{turn}")
        ours = time.process_time() - began
        ratios.append(theirs / ours)
        print(
            f"round {turn + 1}: bare loops {theirs:.2f} CPU s, shadow models {ours:.2f} CPU s, throughput {theirs / ours:.3f}",
            flush=True,
        )
    print(f"training: median throughput {median(ratios):.3f} of a bare loop's (promised: at least 0.95)")


def padding(folder: Path, rounds: int) -> None:
    """An epoch of pairs with the loss at all places, and with the loss at those that are not padding."""
    users = reference_users(folder, 30)
    texts = [text.text for user in users for text in user.texts]
    options = options_of("provenance-dialog", {"shuffle": True})
    # Replies are as long as they are, whatever was said before.
    documents = Documents(texts, [texts[(7 * place) % len(texts)] for place in range(len(texts))])
    data = tokenized(text_of(documents), options)
    lessons = lessons_of(data, options)
    batches = lessons.training(0)
    network: Any = lessons.network
    share = sum(batch.tokens for batch in batches) / sum(batch.expected.numel() for batch in batches)

    def seconds(whole: bool) -> float:
        began = time.process_time()
        for batch in batches:
            network.zero_grad(set_to_none=True)
            hidden = network.read_hidden(*batch.read)
            if whole:
                logits, expected = network.project(hidden).flatten(0, 1), batch.expected.flatten()
            else:
                logits, expected = network.project(batch.with_loss(hidden)), batch.with_loss(batch.expected)
            F.cross_entropy(logits, expected, ignore_index=IGNORED).backward()
        return time.process_time() - began

    ratios = [seconds(whole=True) / seconds(whole=False) for _ in range(rounds)]
    print(
        f"padding: {1 - share:.0%} of the places of pairs are padding; not projecting them is {median(ratios):.2f} times as fast"
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    parts = given.part or PARTS
    if "scoring" in parts:
        provenance_scoring.main([])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "training" in parts:
            training(folder, given.rounds, given.epochs)
        if "padding" in parts:
            padding(folder, given.rounds)


if __name__ == "__main__":
    main()
