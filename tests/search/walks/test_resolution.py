"""How far apart costs must be for their order to be known: measured on models that answer a little differently in another way."""

import numpy as np
import pytest

from coalmine import Format, ScriptedModel
from coalmine.errors import ModelOutputError
from coalmine.models import SequenceScore, Step
from coalmine.search.walks.members import Members
from coalmine.search.walks.resolution import Resolution, check_same, measure_resolution
from coalmine.search.walks.thresholds import STEP_BITS

FORM = Format("pin {digits:2}")
TEXTS = [f"pin {number}" for number in (11, 23, 35, 47, 59, 62, 74, 86, 98)]


class Rough(ScriptedModel):
    """Costs `alone` bits more where a text is asked about by itself, and `walked` bits more where it is walked."""

    def __init__(self, *, alone=0.0, walked=0.0, declared=0.064):
        super().__init__("pin 0123456789", frequencies={"1": 5, "7": 3})
        self.alone, self.walked, self.resolution_bits, self.asked_alone = alone, walked, declared, []

    def score(self, sequences, *, ranks=False):
        found = super().score(sequences, ranks=ranks)
        if len(sequences) > 1 or len(sequences[0].target) < len(TEXTS[0]):  # what all members begin with
            return found
        self.asked_alone.append(self.tokenizer.decode(sequences[0].target))
        [one] = found
        bits = one.log2_probabilities.copy()
        bits[-1] -= self.alone
        return [SequenceScore(bits, one.is_argmax, one.ranks)]

    def step(self, states, parents, tokens, *, columns=None):
        made = super().step(states, parents, tokens, columns=columns)
        last = np.array([len(state) == 5 for state in made.states])  # one digit is left
        return Step(made.states, made.log2_probabilities - self.walked * last[:, None])


class OnlyTexts(Rough):
    """As an endpoint is, which cuts texts itself."""

    def score_text(self, texts):
        return [SequenceScore(np.array([-9.0]), np.zeros(1, dtype=bool), None) for _ in texts]


def measured(model, texts=TEXTS):
    members = Members(model, FORM)
    return measure_resolution(members, texts, texts, members.score(texts)), members.score(texts)


def test_where_all_ways_agree_a_share_of_what_the_precision_allows_is_taken():
    found, _ = measured(Rough())
    assert found.measured_bits == pytest.approx(0.0, abs=STEP_BITS)
    assert found.relative == pytest.approx(0.064 / 32 / 640)
    assert found.least_bits == pytest.approx(8 * found.relative)
    assert found.texts == len(TEXTS)


@pytest.mark.parametrize("way", ["alone", "walked"])
@pytest.mark.parametrize("bits", [0.0005, -0.0005, 0.002])
def test_four_times_the_largest_difference_is_the_resolution(way, bits):
    found, costs = measured(Rough(**{way: bits}))
    assert found.measured_bits == pytest.approx(abs(bits), abs=1e-8)
    asked = costs if way == "walked" else costs[[0, 3, 6]]
    assert found.relative == pytest.approx(4 * abs(bits) / max(8.0, asked.min()), rel=1e-4)
    assert found.least_bits == pytest.approx(8 * found.relative)


@pytest.mark.parametrize("way", ["alone", "walked"])
def test_no_more_is_taken_than_the_precision_allows_and_beyond_it_the_model_is_refused(way):
    found, _ = measured(Rough(**{way: 0.0639}))
    assert found.relative == pytest.approx(0.064 / 32)
    with pytest.raises(ModelOutputError, match="scores pin 11 differently"):
        measured(Rough(**{way: 0.0641}))


@pytest.mark.parametrize(
    ("number", "places"), [(1, [0]), (3, [0, 1, 2]), (4, [0, 1, 2, 3]), (5, [0, 2, 4]), (9, [0, 3, 6])]
)
def test_four_texts_at_most_are_asked_about_alone(number, places):
    model = Rough()
    members = Members(model, FORM)
    costs = members.score(TEXTS[:number])
    model.asked_alone.clear()
    measure_resolution(members, TEXTS[:number], TEXTS, costs)
    assert model.asked_alone == [TEXTS[place] for place in places]


def test_what_a_server_declares_is_taken_as_it_is():
    found, _ = measured(OnlyTexts())
    assert (found.relative, found.least_bits, found.measured_bits) == (0.0, 0.064, None)
    assert measured(OnlyTexts(declared=0.0))[0].least_bits == STEP_BITS


def test_the_resolution_grows_with_the_cost_from_the_least_on():
    found = Resolution(relative=0.01, least_bits=0.08, measured_bits=None, texts=1)
    assert found.at([0.0, 8.0, 20.0]).tolist() == pytest.approx([0.08, 0.08, 0.2])


def test_the_first_text_that_differs_is_named_with_what_is_allowed():
    members = Members(Rough(), FORM)
    bits, allowed = np.array([10.0, 10.0, 10.0]), np.array([0.1, 0.2, 0.3])
    check_same(members, ["a", "b", "c"], np.array([0.1, 0.2, 0.3]), bits, allowed)
    with pytest.raises(
        ModelOutputError, match=r"scores b differently .* by 0.25 bits where its resolution allows 0.2;"
    ):
        check_same(members, ["a", "b", "c"], np.array([0.1, 0.25, 0.9]), bits, allowed)
