"""Audits at their edges: texts without a format, and results of earlier versions."""

import pytest

from coalmine import Canary, CanarySet, Format, ScriptedModel, expose

MODEL = ScriptedModel("abcdefghij", memory={"abc": 0.2})
TEXTS = Format("{choice:abc|bcd|cde|def|efg|fgh|ghi}")


def listed():
    """Texts that nobody drew from a format."""
    canaries = [
        Canary(canary_id=f"c{place}", format_id="f0", text=TEXTS.at(place), repetitions=2, planted=True)
        for place in (0, 1)
    ]
    others = [TEXTS.at(place) for place in range(2, 7)]
    return CanarySet(canaries, {"f0": TEXTS}, references={"f0": others}, listed=["f0"])


@pytest.mark.parametrize("method", ["auto", "references"])
def test_texts_without_a_format_are_ranked_among_references(method):
    found = expose(MODEL, listed(), method=method)
    assert [one.method for one in found] == ["references"] * 2
    assert found[0].rank == 1


@pytest.mark.parametrize("method", ["exact", "sampled", "guided"])
def test_texts_without_a_format_have_no_other_members(method):
    # Their scores are worth having all the same: membership compares them.
    for one in expose(MODEL, listed(), method=method):
        assert one.estimate.status == "not_measured"
        assert "a list of texts without one" in one.estimate.statement
        assert one.log_perplexity_bits == pytest.approx(
            MODEL.log_perplexity_bits(TEXTS.at(int(one.canary_id[1:])))
        )
