"""Pairs to train on, planted with canaries."""

import json

from coalmine import plant
from coalmine.corpus import Fields, write_embedded_corpus


def write_pairs(path, number):
    """English, and a language that is spoken backwards; numbers stay as they are, so that all digits occur."""
    write_embedded_corpus(path.with_suffix(".txt"), number * 20)
    words = path.with_suffix(".txt").read_text().split()
    with path.open("w") as stream:
        for i in range(number):
            first, second = words[2 * i : 2 * i + 2]
            row = {"en": f"{first} {second} {i}", "rev": f"{i} {second[::-1]} {first[::-1]}"}
            stream.write(json.dumps(row) + "\n")


def planted_pairs(folder):
    """80 pairs with canaries on both sides."""
    write_pairs(folder / "pairs.jsonl", 80)
    return plant(
        folder / "pairs.jsonl",
        "{digits:3} nip",
        source_format="pin {digits:3}",
        fields=Fields(source="en", target="rev"),
        repeat=[1, 16],
        canaries=2,
        references=50,
        withhold=0.5,
        seed=3,
        out=folder / "planted",
    )
