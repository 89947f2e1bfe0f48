"""Which texts are scored again in other contexts, and when a context matters."""

import pytest

from coalmine import Canary, CanarySet, Format
from coalmine.audits.exposure.context_check import _matters, _texts
from coalmine.statistics.roc import PairedAreas

FORM = Format("pin {digits:4}")


@pytest.mark.parametrize(
    ("first", "second", "error", "matters"),
    [
        (0.64, 0.69, 0.01, False),  # they stand out in neither
        (0.60, 0.75, 0.01, True),
        (0.70, 0.7199, 0.001, False),  # too little
        (0.70, 0.80, 0.0501, False),  # within two standard errors
        (0.70, 0.80, 0.0499, True),
    ],
)
def test_a_context_matters_where_canaries_stand_out_and_the_areas_differ_beyond_error(
    first, second, error, matters
):
    assert _matters(PairedAreas(first, second, error, 0.9)) == matters


def canaries(times, withheld=3, references=5):
    texts = iter(FORM.sample(len(times) + withheld + references, seed=1, replace=False))
    listed = [
        Canary(canary_id=f"c{place}", format_id="f0", text=next(texts), repetitions=one, planted=True)
        for place, one in enumerate(times)
    ]
    listed += [
        Canary(canary_id=f"w{place}", format_id="f0", text=next(texts), repetitions=1, planted=False)
        for place in range(withheld)
    ]
    return CanarySet(listed, {"f0": FORM}, references={"f0": list(texts)})


def test_canaries_of_every_number_of_copies_take_turns_the_most_repeated_first():
    chosen = canaries([1, 1, 1, 4, 4, 16])
    planted, others = _texts(chosen, "f0")
    named = {one.text: one.canary_id for one in chosen}
    assert [named[text] for text in planted] == ["c5", "c3", "c0", "c4", "c1", "c2"]
    assert [named.get(text) for text in others] == ["w0", "w1", "w2", *[None] * 5]
    assert _texts(chosen, "another") == ([], [])
