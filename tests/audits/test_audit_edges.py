"""Audits at their edges: texts without a format, and results of earlier versions."""

import numpy as np
import pytest

from audits.compared_runs import strategy_among
from coalmine import Canary, CanarySet, Format, ScriptedModel, expose
from coalmine.audits.comparison.references import _count

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


def test_how_many_others_are_no_more_surprising_is_told_by_the_rank_or_by_the_exposure():
    others = np.arange(40.0)
    scores = np.array([-5.0, 3.5, 20.5])
    for method in ("references", "sampled"):
        results = strategy_among("one", scores, others, method=method).exposure.results
        assert [_count(one) for one in results] == [0, 4, 21]
