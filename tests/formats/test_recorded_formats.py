"""The same template and seed give the same members, draws, moves and findings as in earlier versions."""

import random
from pathlib import Path

import pytest

from coalmine import Format
from coalmine.formats.refilling import Refilling
from recorded import assert_as_recorded

FILE = Path(__file__).with_name("recorded_formats.json")
WORDS = ["red", "green", "redder", "blue-green", "g"]
TEMPLATES = [
    "my pin is {digits:4}",
    "{letters:3}{digits:1}{letters:3}",
    "{hex:5} {alnum:2}",
    "{ssn}",
    "{card}",
    "card {card} until {digits:2}/{digits:2}",
    "{phone}",
    "{uuid}",
    "{word:3} and {word:2}",
    "{choice:cat|horse|ox} has {digits:9}",
    "{re:[a-f]{2,9}(x|yy)?}{{}} {re:(ab|cd){1,4}}",
    "{re:(aa|bb|ab|ba)(aa|bb)|c[a-z]{2}}",
    "{re:a{1,3}}-{re:[ab]{1,80}}",
    "{re:[0-9]{1,12}}",
    "{re:[a-z]{3}x?[0-9]{2,5}}!",
]


def described(form):
    size, texts = form.size, form.sample(4, seed=5)
    running = f"{texts[0]}, {texts[1]}{texts[2]} {texts[3][:-1]}"
    return {
        "size": str(size),
        "lengths": (form.min_length, form.max_length),
        "prefix": form.prefix,
        "holes": form.holes,
        "members": [form.at(index) for index in (0, 1, size // 3, size - 2, size - 1)],
        "draws": texts,
        "different": form.sample(5, seed=2, replace=False),
        "places": [str(form.index(text)) for text in texts],
        "fillings": [form.fillings(text) for text in texts[:2]],
        "spans": form.hole_spans(texts[3]),
        "found": [(match.start, match.end) for match in form.finditer(running)],
        "layers": [len(layer) for layer in form.automaton.layers(6)],
    }


def moved(form):
    """A walk of two hundred moves, some of it, and what is next to its end."""
    moves, generator = Refilling(form), random.Random(7)
    walk = [form.at(form.size // 5)]
    for _ in range(200):
        walk.append(moves.propose(walk[-1], generator))
        assert walk[-1] in form
    near = moves.neighbors(walk[-1])
    return {"walk": walk[:12] + walk[20::30], "near": len(near), "some": near[:: max(1, len(near) // 6)]}


@pytest.mark.parametrize("template", TEMPLATES)
def test_members_draws_and_findings_are_as_they_were(template):
    assert_as_recorded(
        FILE, template, described(Format(template, words=WORDS if "word" in template else None))
    )


@pytest.mark.parametrize("template", TEMPLATES)
def test_moves_are_as_they_were(template):
    form = Format(template, words=WORDS if "word" in template else None)
    assert_as_recorded(FILE, f"moves of {template}", moved(form))
