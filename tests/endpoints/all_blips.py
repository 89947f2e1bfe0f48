"""How often a switch of models that is over again is found, and how often a noisy server is accused of one: a longer series by hand.

From tests/: `python -m endpoints.all_blips --runs 40 --concurrency 1`. What is computed is in the last column.
"""

import argparse
import random
import warnings

from coalmine import serve
from coalmine.errors import ModelChangedError
from coalmine.models import connect
from coalmine.models.endpoints.detection import unnoticed_in_a_row, unnoticed_scattered
from endpoints.fault_proxy import FaultProxy, Switch
from models.endpoint_servers import twisted
from models.switching import QUICK, TRIED, bits, scripted

TEXTS = [f"a text with number {number}" for number in range(116)]
LENGTHS = (1, 4, 8, 12, 14, 20)
SHARES = (0.01, 0.05, 0.1, 0.2)
# How many answers of a server are noisy, and by how many nats at most.
NOISE = ((0.01, 0.03), (0.05, 0.03), (0.2, 0.03), (0.5, 0.03), (1.0, 0.03), (0.05, 0.2), (0.2, 0.2))


class Scattered(Switch):
    """Each request after the server was tried, by chance; another draw for each `run`."""

    def takes(self, number):
        return number > TRIED and random.Random(f"{self.every} {number}").random() < self.rate


def is_found(url, options, switch=None):
    """Whether a run ends because the model changed."""
    with FaultProxy(url, switch=switch) as proxy, connect(proxy.url, **options) as model:
        try:
            bits(model, TEXTS)
        except ModelChangedError:
            return True
    return False


def blips(options, runs):
    with serve(scripted(), port=0, name="m") as one, serve(scripted(a=5), port=0, name="m") as other:
        with connect(one.url, **options) as model:
            bits(model, TEXTS)
            checks = model._client.checks()
            print(model.checks())
        dice = random.Random(0)
        for length in LENGTHS:
            found = 0
            for _ in range(runs):
                first = TRIED + 1 + dice.randrange(len(TEXTS) - length + 1)
                found += is_found(one.url, options, Switch(other.url, first=first, last=first + length - 1))
            computed = 1 - unnoticed_in_a_row(length, checks.answers, checks.stretches)
            print(f"{length} in a row: {found} of {runs} found, {computed:.3f}", flush=True)
        for share in SHARES:
            found = sum(
                is_found(one.url, options, Scattered(other.url, every=run, rate=share))
                for run in range(1, runs + 1)
            )
            computed = 1 - unnoticed_scattered(share, checks.probes, checks.repeats)
            print(f"{share:.0%} scattered: {found} of {runs} found, {computed:.3f}", flush=True)


def noise(options, runs):
    with serve(scripted(), port=0, name="m") as server:
        for share, most_nats in NOISE:
            accused = sum(is_accused(server.url, options, share, most_nats, run) for run in range(runs))
            print(
                f"noise of {most_nats} nats in {share:.0%} of answers: {accused} of {runs} accused",
                flush=True,
            )


def is_accused(url, options, share, most_nats, seed):
    """Whether a server is taken for two that is noisy from when it was tried; three windows of answers."""
    dice, numbers = random.Random(seed), iter(range(1_000_000))

    def twist(_, document):
        told = document["choices"][0]["logprobs"]
        if next(numbers) >= TRIED and told and dice.random() < share:
            shift = dice.uniform(0.001, most_nats)
            told["token_logprobs"] = [nats - shift for nats in told["token_logprobs"]]
        return document

    with twisted(url, twist) as place, connect(place.url, **options) as model:
        try:
            bits(model, [f"{part} {text}" for part in range(3) for text in TEXTS])
        except ModelChangedError:
            return True
    return False


def main():
    parser = argparse.ArgumentParser(description="How often a switch that is over again is found.")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--concurrency", type=int, default=1)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    asked = {**QUICK, "concurrency": options.concurrency}
    blips(asked, options.runs)
    noise(asked, options.runs)


if __name__ == "__main__":
    main()
