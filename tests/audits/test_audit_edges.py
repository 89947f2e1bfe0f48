"""Texts that nobody drew from a format are ranked among references, and are not measured against members that there are not."""

import pytest

from coalmine import Canary, CanarySet, Format, ScriptedModel, expose

MODEL = ScriptedModel("abcdefghij", memory={"abc": 0.2})
TEXTS = Format("{choice:abc|bcd|cde|def|efg|fgh|ghi}")


@pytest.mark.parametrize("method", ["auto", "exact", "sampled", "guided"])
def test_texts_without_a_format(method):
    canary = Canary(canary_id="c", format_id="f0", text="abc", repetitions=2, planted=True)
    others = [TEXTS.at(place) for place in range(2, 7)]
    listed = CanarySet([canary], {"f0": TEXTS}, references={"f0": others}, listed=["f0"])
    (one,) = expose(MODEL, listed, method=method)
    if method == "auto":
        assert (one.method, one.rank) == ("references", 1)
    else:
        assert one.estimate.status == "not_measured"
        assert one.log_perplexity_bits == pytest.approx(MODEL.log_perplexity_bits("abc"))
