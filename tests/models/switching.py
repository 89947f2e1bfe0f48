"""Models that an endpoint may be switched between, and what the tests of that share."""

import random

from coalmine import ScriptedModel
from coalmine.models.endpoints import client as clients
from coalmine.models.endpoints import identity, probe_schedule
from models.random_networks import CHARACTERS

TEXTS = [f"text number {number}" for number in range(40)]
QUICK = {"back_off": 0.001, "timeout": 10.0, "probe_texts": ["the cat sat"], "concurrency": 1}
TRIED = 10  # requests until the server is known


def scripted(**frequencies):
    """A model whose numbers depend on these frequencies of characters."""
    return ScriptedModel(
        CHARACTERS, memory={"my pin is 4921": 0.01}, frequencies={"e": 3, "t": 2, " ": 4, **frequencies}
    )


def bits(model, texts=TEXTS):
    return [score.log_perplexity_bits for score in model.score_text(texts)]


def check_often(monkeypatch):
    """A check after every 16 answers and no probe in between, so that a short run has several; with draws that are the same each time."""
    monkeypatch.setattr(clients, "ANSWERS_PER_CHECK", 16)
    monkeypatch.setattr(clients, "ROUNDS_PER_CHECK", 1)
    monkeypatch.setattr(probe_schedule, "SHORTEST_STRETCH", 16)
    monkeypatch.setattr(probe_schedule, "LONGEST_STRETCH", 16)
    seeded(monkeypatch)


def seeded(monkeypatch, seed=0):
    """Which questions are asked again is drawn with this seed."""
    monkeypatch.setattr(identity, "DICE", random.Random(seed))
