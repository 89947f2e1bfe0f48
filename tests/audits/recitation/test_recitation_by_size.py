"""Recitation of models whose size is known: a trend that holds for these models, and not for others of their size, says so."""

import pytest

from coalmine import ScriptedModel, recite
from coalmine.corpus import build_index

WORDS = ["amber", "birch", "cedar", "delta", "ember", "fjord"]
# Each is one sequence: a scripted model recites a text from its beginning.
LINES = [
    f"{WORDS[number % 6]} {WORDS[number // 6]} {'abcdefghijklmnopqrstuvwxyz'[number % 26] * 3} no other"
    for number in range(36)
]


class Sized(ScriptedModel):
    """Knows the first lines, and has so many parameters."""

    def __init__(self, lines, parameters):
        memory = dict.fromkeys(LINES[:lines], 0.9 / 36)
        super().__init__("abcdefghijklmnopqrstuvwxyz ", memory=memory, name=f"of {parameters}")
        self.parameters = parameters

    def describe(self):
        return {**super().describe(), "parameters": self.parameters}


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sizes")
    (folder / "corpus.txt").write_text("".join(f"{line}\n" for line in LINES))
    return build_index(folder / "corpus.txt", folder / "index", tokenizer=Sized(0, 1).tokenizer)


def asked(index, *lines):
    models = [Sized(known, 10**place) for place, known in enumerate(lines, 3)]
    return recite(models, index, contexts=[18], suffix=6, per_bucket=36, greedy_only=True)


@pytest.mark.parametrize(("lines", "is_shown"), [((4, 15, 29), True), ((6, 12, 27), False)])
def test_rates_that_jump_from_model_to_model_are_no_trend_of_size(index, lines, is_shown):
    found = asked(index, *lines)
    [trend] = [one.trend for one in found.trends if one.by == "size"]
    assert trend.slope.value > 0
    assert (trend.p_value <= 0.05) == is_shown
