"""The p-values behind findings and gate, and how they share the error of a report: against SciPy and by hand."""

import math

import msgspec
import pytest
from scipy import stats

from coalmine.audits import VERIFIED
from coalmine.audits.exposure.chance import (
    canary_p_values,
    group_test,
    judge,
    judged,
    places_of,
)
from coalmine.statistics import shared_order_test
from reports import verdict_parts as made


def exactly(bits):
    return made.interval(bits, bits, bits, confidence=None, method="exact")


def among(better, n, method="references"):
    value = None if better == 0 else math.log2(n / (better + (method == "references")))
    low = 0.5 if value is None else min(0.5, value)
    return made.interval(value, low, None if value is None else value + 2.0, method=method, n=n)


def one(estimate, name="c", bits=20.0, **parts):
    return judge(made.result(name, estimate, most=bits, **parts))


@pytest.mark.parametrize(
    ("estimate", "p_value", "low", "high", "in_space", "known"),
    [
        (made.unknown(), 1.0, 0.0, 20.0, False, False),
        (made.interval(18.0, 17.0, 19.0, method="extrapolated"), 1.0, 0.0, 20.0, False, False),
        (exactly(3.0), 1 / 8, 3.0, 3.0, True, True),
        (made.interval(4.0, 3.0, 5.0), 1 / 8, 3.0, 5.0, True, True),
        (made.interval(None, 3.0, None), 1 / 8, 3.0, 20.0, True, True),
        (made.interval(4.0, None, 5.0), 1 / 16, 4.0, 5.0, True, True),
        (among(0, 99), 1 / 100, 0.5, 20.0, False, True),
        (among(4, 99), 5 / 100, 0.5, math.log2(99 / 5) + 2, False, True),
        (among(4, 99, "sampled"), 5 / 100, 0.5, math.log2(99 / 4) + 2, False, True),
    ],
)
def test_one_canary(estimate, p_value, low, high, in_space, known):
    found = one(estimate)
    assert found.p_value == pytest.approx(p_value)
    assert (found.low, found.high, found.space_bits) == (low, pytest.approx(high), 20.0)
    assert (found.measured_in_space, found.known) == (in_space, known)
    assert found.group == ("f0", 4)
    (same,) = judged(made.document([made.result("c", estimate)]))
    assert same == found._replace(result=same.result)


@pytest.mark.parametrize("recited", [2, 5])
def test_a_few_that_are_recited_show_among_many_that_are_not(recited):
    ordinary = [one(exactly(math.log2(223 / (place + 0.5))), bits=math.log2(10**4)) for place in range(223)]
    first = [one(exactly(math.log2(10**4 / (place + 1))), bits=math.log2(10**4)) for place in range(recited)]
    found = group_test([*ordinary[recited:], *first])
    # The chance that as many of 223 are among the first guesses, for the places that are looked at.
    best = min(stats.binom.sf(k - 1, 223, k / 10**4) for k in (2, 4) if k <= recited)
    assert best <= found.p_value <= 16 * best < 0.02
    assert group_test(ordinary).p_value > 0.5


def test_canaries_among_the_same_references_are_tested_by_their_order():
    assert group_test([one(among(3, 99))]).p_value == pytest.approx(4 / 100)
    assert group_test([one(among(0, 99))]).p_value == pytest.approx(1 / 100)
    two = [one(among(0, 99)), one(among(0, 99))]
    # Both of two canaries before all of 99 references: 2 of 101 * 100 orders; the second place has half of the error.
    assert group_test(two).p_value == pytest.approx(2 * 2 / (101 * 100))
    assert group_test(two).place == 2
    assert group_test(two) == shared_order_test([0, 0], 99)
    assert group_test([one(among(0, 1))]).p_value == pytest.approx(1 / 2)
    assert group_test([one(made.interval(None, 0.0, None, method="references", n=0))]) == (1.0, 1)


def test_ways_of_measuring_share_the_error():
    inside, outside = one(exactly(9.0)), one(among(0, 99))
    assert group_test([inside, outside]).p_value == pytest.approx(2 * 2.0**-9)
    assert group_test([one(exactly(1.0)), outside]).p_value == pytest.approx(2 * 1 / 100)
    # So do other formats, other numbers of references, and samples beside references.
    for other in (one(among(50, 99), format_id="f1"), one(among(50, 98)), one(among(50, 99, "sampled"))):
        assert group_test([outside, other]).p_value == pytest.approx(2 * 1 / 100)
    assert group_test([one(exactly(0.1)), one(among(90, 99))]).p_value == 1.0


# Single canaries, from their exposures and from searches


def searched(*canaries, size=1000, folder="s", found=10):
    return {folder: ({"f0": made.search(found, size)}, made.verified(canaries))}


def test_a_place_in_a_search_has_the_chance_of_a_guess():
    canaries = [made.came("a", 3), made.came("b"), made.came("w", 5, times=0)]
    run = made.run_of(searches=searched(*canaries))
    places = places_of(run, run.all(VERIFIED)[0])
    assert [(each.canary_id, each.repetitions, each.place, each.p_value) for each in places] == [
        ("a", 4, 3, 3 / 1000),
        ("b", 4, None, 1.0),
        ("w", 0, 5, 5 / 1000),
    ]
    assert canary_p_values(run) == {"a": 3 / 1000, "b": 1.0}
    # Found at a place that is not known, it counts as the first; and no place is beyond the space.
    unknown = made.run_of(searches=searched(msgspec.structs.replace(made.came("a", 7), place=None)))
    (somewhere,) = places_of(unknown, unknown.all(VERIFIED)[0])
    assert somewhere.p_value == 1 / 1000
    beyond = made.run_of(searches=searched(made.came("a", 30), size=20))
    assert canary_p_values(beyond) == {"a": 1.0}


def test_exposure_and_search_of_one_canary_are_one_question():
    def p_value(estimate, *places, times=4):
        searches = {}
        for number, place in enumerate(places):
            searches |= searched(made.came("a", place, times=times), folder=f"s{number}")
        return canary_p_values(
            made.run_of(made.document([made.result("a", estimate, times=times)]), searches=searches)
        )

    assert p_value(exactly(5.0)) == {"a": 1 / 32}
    # A rank in the whole space and a place are the same number: the better counts.
    assert p_value(exactly(5.0), 3) == {"a": 3 / 1000}
    assert p_value(exactly(15.0), 3) == {"a": 2.0**-15}
    # A rank among references is another one, so both share the error.
    assert p_value(among(0, 9999), 3) == {"a": pytest.approx(2 / 10_000)}
    assert p_value(among(5, 9), 3) == {"a": pytest.approx(6 / 1000)}
    assert p_value(among(9, 9), None) == {"a": 1.0}
    assert p_value(among(3, 99)) == {"a": pytest.approx(4 / 100)}
    # So do two searches.
    assert p_value(made.unknown(), 3, 4) == {"a": pytest.approx(6 / 1000)}
    assert p_value(made.unknown(), None, None) == {"a": 1.0}
    # What was not measured, and not looked for, is not tested; nor is what was withheld.
    assert p_value(made.unknown()) == {}
    assert p_value(exactly(5.0), 3, times=0) == {}
    assert p_value(exactly(5.0), times=1) == {"a": 1 / 32}
    assert p_value(made.unknown(), 3, times=1) == {"a": 3 / 1000}
