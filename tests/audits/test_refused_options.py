"""Where options of audits begin to be refused, before any model is asked; the last value that is taken is tried too."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from audits.compared_runs import LESS, MORE, strategy
from coalmine import CanarySet, ExposureWatch, Format, ScriptedModel, expose, extract, membership_of_scores
from coalmine.audits import RecitationOptions
from coalmine.audits.comparison.measure import compare
from coalmine.audits.recitation.questions import plan_sizes
from coalmine.audits.recitation.shares import log2_chance_in_tries
from coalmine.errors import CoalmineError

MODEL = ScriptedModel("pin 0123456789", memory={"pin 47": 0.1})
FORM = Format("pin {digits:2}")
SET = CanarySet.of(FORM, ["pin 47", "pin 08"], references=8, seed=1)


def exposed(**options):
    return expose(MODEL, SET, **{"method": "sampled", "samples": 5, **options})


def recited(*, suffix=6, **options):
    RecitationOptions(suffix=suffix, **options).check()
    return True


def whole_reader(longest):
    """A model that reads texts of up to so many tokens, after a context of one token."""
    return reader(longest + 1)


def reader(longest):
    """A model of which only matters how many tokens it can read."""
    return SimpleNamespace(
        max_length=longest,
        context=(0,),
        name=f"reads {longest}",
        tokenizer=None,
        resolution_bits=0.0,
        describe=dict,
    )


def cut(*longest, contexts=None, lengths=None, suffix=4):
    options = RecitationOptions(contexts=contexts, lengths=lengths, suffix=suffix)
    return plan_sizes([reader(one) for one in longest], options)


def cut_whole(*longest, lengths=None):
    return plan_sizes([whole_reader(one) for one in longest], RecitationOptions(lengths=lengths), masked=True)


def compared(**options):
    return compare([strategy("one", MORE), strategy("two", LESS)], **options)


REFUSED = {
    "no samples": (lambda: exposed(samples=0), "samples"),
    "half a sample": (lambda: exposed(samples=2.5), "samples"),
    "no budget": (lambda: exposed(budget=0), "budget"),
    "no memory": (lambda: exposed(memory=0), "memory"),
    "no batch": (lambda: exposed(batch=0), "batch"),
    "no minutes": (lambda: exposed(minutes=0.0), "got 0.0"),
    "minutes that are no number": (lambda: exposed(minutes=math.nan), "got nan"),
    "no confidence": (lambda: exposed(confidence=0.0), "got 0.0"),
    "all confidence": (lambda: exposed(confidence=1.0), "got 1.0"),
    "another method": (lambda: exposed(method="guess"), "guess"),
    "the best none": (lambda: extract(MODEL, FORM, top=0), "top must be at least 1, got 0"),
    "a beam of none": (lambda: extract(MODEL, FORM, width=0), "width must be at least 1, got 0"),
    "a search of none": (lambda: extract(MODEL, FORM, budget=0), "budget must be at least 1, got 0"),
    "another search": (lambda: extract(MODEL, FORM, method="guess"), "guess"),
    "a watch of none": (lambda: ExposureWatch(SET, every=0), "got 0"),
    "a watch of another method": (lambda: ExposureWatch(SET, method="guess"), "guess"),
    "neither one run nor many": (lambda: membership_of_scores([1.0], [0.0], runs="two"), "'two'"),
    "a claimed delta alone": (lambda: membership_of_scores([1.0], [0.0], claimed_delta=1e-5), "claimed epsilon"),
    "a coin that never says in": (lambda: membership_of_scores([1.0], [0.0], inclusion=0.0), "0.0"),
    "a coin that always says in": (lambda: membership_of_scores([1.0], [0.0], inclusion=1.0), "1.0"),
    "no copies": (lambda: membership_of_scores([1.0], [0.0], copies=0), "copies must be at least 1"),
    "one training": (lambda: compare([strategy("one", MORE)]), "got 1"),
    "copies that no canary has": (lambda: compared(repetitions=3), "planted 3 times"),
    "no try": (lambda: recited(tries=[5, 0]), "from 1 to"),
    "more tries than floats count": (lambda: recited(tries=[2**53 + 1]), "from 1 to"),
    "no chance": (lambda: recited(chance=0.0), "got 0.0"),
    "certainty": (lambda: recited(chance=1.0), "got 1.0"),
    "beams of none": (lambda: recited(beam=0), "got 0"),
    "more beams than fit anywhere": (lambda: recited(beam=2**31), "from 1 to 1000000, got 2147483648"),
    "fewer edits than none": (lambda: recited(near=-1), "got -1"),
    "as many edits as tokens": (lambda: recited(near=6), "got 6"),
    "nothing hidden": (lambda: recited(hidden_share=0.0), "got 0.0"),
    "all hidden": (lambda: recited(hidden_share=1.0), "got 1.0"),
    "no suffix": (lambda: recited(suffix=0), "suffix must be at least 1, got 0"),
    "no contexts": (lambda: recited(contexts=[]), "contexts must be"),
    "a context of nothing": (lambda: recited(contexts=[3, 0]), "contexts must be"),
    "no lengths": (lambda: recited(lengths=[]), "lengths must be"),
    "a length of nothing": (lambda: recited(lengths=[9, 0]), "lengths must be"),
    "no sequences": (lambda: recited(max_sequences=0), "max_sequences must be"),
    "another sample": (lambda: recited(sample="both"), "uniform"),
    "more context than is read": (lambda: cut(20, 10, contexts=[2, 7]), "contexts of up to 6"),
    "a context that does not fit": (lambda: cut(contexts=[2, 7], lengths=[5, 10]), "sequences of 5, 10 tokens"),
    "no room for a context": (lambda: cut(lengths=[3, 4]), "3, 4 tokens"),
    "models that read nothing": (lambda: cut(4, lengths=[5, 9]), "up to 0 tokens"),
    "whole texts that are not read": (lambda: cut_whole(9, 7, lengths=[5, 8]), "8 tokens.*up to 7"),
    "models that read next to nothing": (lambda: cut_whole(1), "up to 1 tokens"),
    "a probability above 1": (lambda: log2_chance_in_tries([-1.0, 0.01], 2), "at most 0"),
    "a probability that is no number": (lambda: log2_chance_in_tries([-1.0, math.nan], 2), "at most 0"),
}  # fmt: skip

TAKEN = {
    "one of each": lambda: exposed(samples=1, budget=1, memory=1, batch=1, minutes=1e-9),
    "the best one": lambda: extract(MODEL, FORM, top=1, width=1, budget=1),
    "each batch": lambda: ExposureWatch(SET, every=1),
    "two trainings": lambda: compared(equal_within=0.0),
    "copies that all canaries have": lambda: compared(repetitions=4),
    "few and many tries": lambda: recited(tries=[1, 2**53]),
    "a beam of one, and no edits": lambda: recited(beam=1, near=0),
    "one edit less than there are tokens": lambda: recited(near=5),
    "nearly all hidden": lambda: recited(hidden_share=0.99),
    "as much as is read": lambda: cut(20, 10, contexts=[2, 6]),
    "a suffix of one": lambda: cut(contexts=[1], suffix=1),
    "a context that just fits": lambda: cut(contexts=[6], lengths=[5, 10]),
    "a sequence with room for one": lambda: cut(lengths=[4, 5]),
    "whole texts that are read": lambda: cut_whole(9, 8, lengths=[1, 8]),
    "one try": lambda: log2_chance_in_tries(-1.0, 1.0),
    "a probability of 1, but for rounding": lambda: log2_chance_in_tries([0.0, 1e-4], 2),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_refused_and_named(name):
    call, words = REFUSED[name]
    with pytest.raises(CoalmineError, match=words):
        call()


@pytest.mark.parametrize("name", TAKEN)
def test_the_last_that_is_not_wrong_is_taken(name):
    assert TAKEN[name]() is not None


# What is planned


def test_usual_contexts_that_a_model_cannot_read_are_left_out_and_that_is_said():
    # The last token of a suffix is predicted and not read, and the separator comes before the prompt.
    lengths, contexts, left_out = cut(10, 12, lengths=[6, 10, 11])
    assert (contexts, lengths) == ((2, 6), (6, 10))
    assert "contexts of more than 6 tokens were left out" in left_out[0]
    assert cut(11, lengths=[6, 10, 11])[2] == ()
    assert cut(lengths=[6, 4, 10])[1] == (2, 6)


def test_usual_texts_that_a_model_cannot_read_whole_are_left_out_and_that_is_said():
    usual, _, _ = cut_whole()
    most = usual[len(usual) // 2]
    readers = [whole_reader(most), SimpleNamespace(name="reads all")]
    lengths, _, left_out = plan_sizes(readers, RecitationOptions(), masked=True)
    assert lengths == tuple(one for one in usual if one <= most)
    assert f"more than {most} tokens" in left_out[0]


@pytest.mark.parametrize("tries", [1, 2, 7, 1000])
def test_chances_in_some_tries_are_those_of_the_definition(tries):
    chances = np.array([1.0, 0.9, 0.5, 0.49, 0.1, 1e-3, 1e-9])
    found = np.exp2(log2_chance_in_tries(np.log2(chances), tries))
    assert found == pytest.approx(
        [-math.expm1(tries * math.log1p(-q)) if q < 1 else 1.0 for q in chances], rel=1e-12
    )
