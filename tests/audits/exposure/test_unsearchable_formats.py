"""Where tokens cannot be determined for certain, exposure still has a number, and the result says why it is an estimate."""

import math

import pytest

from coalmine import CanarySet, Format, expose, score_texts
from coalmine.errors import NotMeasurableError
from coalmine.models import from_transformers
from models.tiny_transformers import tiny, unigram

FORM = Format("the value is {digits:9}")


def test_nine_digits_in_tokens_that_pairs_do_not_decide():
    model = from_transformers(tiny("gpt2", len(unigram())), unigram())
    drawn = FORM.sample(40, seed=1)
    bits = score_texts(model, drawn)
    canaries = CanarySet.of(FORM, [drawn[place] for place in bits.argsort()[[20, 39]]], repetitions=3)
    found = expose(model, canaries, seed=2)
    (facts,) = found.formats
    assert facts.method == "splitting"
    assert "neighboring tokens do not decide how it splits a text" in facts.why
    assert "splitting, sampled and references" in facts.why
    for result, place in zip(found, (20, 39), strict=True):
        low, high = result.interval
        assert low <= result.exposure <= high
        # Among 40 random members, the rank of a canary is known to within a few.
        assert low - 3 <= math.log2(40 / (place + 1)) <= high + 3
    for method in ("bounded", "guided", "exact"):
        with pytest.raises(NotMeasurableError, match=r"do not decide.*splitting, sampled and references"):
            expose(model, canaries, method=method)
