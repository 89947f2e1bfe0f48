"""Findings about the control, canaries that were withheld: at each threshold, by their exposures and by what a search found."""

import pytest
from scipy import stats

from coalmine import findings_of
from reports import verdict_parts as made


def exactly(bits):
    return made.interval(bits, bits, bits, confidence=None, method="exact")


def found(run, code):
    return [one for one in findings_of(run) if one.code == code]


def the(run, code):
    (one,) = found(run, code)
    return one


def control(*estimates, formats=None, **parts):
    names = ["f0"] * len(estimates) if formats is None else formats
    results = [
        made.result(f"w{place}", one, times=0, planted=False, format_id=name)
        for place, (one, name) in enumerate(zip(estimates, names, strict=True))
    ]
    return made.run_of(made.document(results, formats=tuple(dict.fromkeys(names))), **parts)


@pytest.mark.parametrize(("bits", "status"), [(8.7, "found"), (8.6, "clear")])
def test_one_withheld_canary_spoils_the_control_beyond_chance(bits, status):
    """Of five the best, with half of the error: 10 * 2^-8.65 is 2.5%."""
    one = the(control(exactly(bits), *[exactly(0.1)] * 4), "CM105")
    assert (one.status, one.severity) == (status, "high" if status == "found" else "pass")
    assert one.subject == ("w0", "w1", "w2", "w3", "w4")
    assert f"which chance gives with probability {10 * 2.0**-bits:.2g}" in one.evidence


def test_withheld_canaries_together_spoil_the_control():
    # Four of five or more among the first sixteenth; the places after the first share half of the error.
    p_value = 4 * stats.binom.sf(3, 5, 2.0**-4)
    one = the(control(*[exactly(4.0)] * 5), "CM105")
    assert one.status == "found"
    assert (
        f"median exposure 4.0 bits where guessing gives 1, which chance gives with probability {p_value:.2g}"
        in one.evidence
    )


@pytest.mark.parametrize(("many", "status"), [(4, "not_measured"), (5, "clear")])
def test_five_withheld_canaries_are_a_control(many, status):
    one = the(control(*[exactly(1.0)] * many, made.unknown()), "CM105")
    assert one.status == status
    assert one.evidence.startswith(
        f"{many + 1} canaries were withheld, and {many} of them could be measured: "
    )
    assert ("too few" in one.evidence) == (status == "not_measured")
    assert len(one.estimates) == many + 1
    whole = the(control(*[exactly(1.0)] * many), "CM105")
    assert whole.evidence.startswith(f"{many} canaries were withheld: median exposure 1.0 bits")
    assert f"with probability {4 * stats.binom.sf(3, many, 0.5):.2g}" in whole.evidence


def test_a_control_without_numbers_and_one_of_bounds():
    one = the(control(made.unknown(), made.unknown()), "CM105")
    assert (one.status, one.evidence) == (
        "not_measured",
        "2 canaries were withheld, and none of them could be measured.",
    )
    bounds = the(control(*[made.interval(None, 0.75, None)] * 3, *[exactly(0.25)] * 2), "CM105")
    assert "median exposure 0.8 bits" in bounds.evidence
    assert len(the(control(*[exactly(1.0)] * 51), "CM105").subject) == 50
    assert len(the(control(*[exactly(1.0)] * 51), "CM105").estimates) == 50


def test_formats_share_the_error_of_the_control():
    """20 * 2^-9.65 is 2.5%: ten of five canaries, and two formats."""
    for bits, status in ((9.7, "found"), (9.6, "clear")):
        run = control(exactly(bits), *[exactly(0.1)] * 9, formats=["f0"] * 5 + ["f1"] * 5)
        one = the(run, "CM105")
        assert one.status == status
        assert f"with probability {20 * 2.0**-bits:.2g}" in one.evidence


def withheld_search(*places, size=1000, found=10):
    canaries = [made.came(f"w{n}", place, times=0) for n, place in enumerate(places)]
    return {"s": ({"f0": made.search(found, size)}, made.verified(canaries))}


@pytest.mark.parametrize(("place", "severity"), [(12, "high"), (13, "info")])
def test_a_withheld_canary_that_came_out(place, severity):
    """Two were looked for: 2 * 12 / 1000 is 2.4%."""
    run = made.run_of(searches=withheld_search(None, place))
    one = the(run, "CM205")
    assert (one.severity, one.status, one.subject) == (severity, "found", ("w1",))
    assert (
        f"1 canary came out that was never trained on: w1, trained on never, at place {place}."
        in one.evidence
    )
    assert ("which chance explains" in one.title) == (severity == "info")


def test_of_several_that_came_out_those_beyond_chance_are_told_apart():
    run = made.run_of(searches=withheld_search(1, 2, 500, None))
    high, info = found(run, "CM205")
    assert (high.severity, high.subject) == ("high", ("w0", "w1"))
    assert (info.severity, info.subject) == ("info", ("w2",))
    assert high.evidence.startswith(
        "2 canaries came out that were never trained on: w0, trained on never, at place 1; w1"
    )
    # At 25 of 4 * 1,000 one is still shown.
    edge = made.run_of(searches=withheld_search(1, 6, 7, None))
    assert [one.subject for one in found(edge, "CM205")] == [("w0", "w1"), ("w2",)]
    many = made.run_of(searches=withheld_search(*range(1, 61), size=10**7, found=100))
    (one,) = found(many, "CM205")
    assert len(one.subject) == 50
    assert one.evidence.count("at place") == 3
    chance = made.run_of(searches=withheld_search(*range(1, 61), size=100, found=100))
    (one,) = found(chance, "CM205")
    assert (one.severity, len(one.subject)) == ("info", 50)


def test_a_search_that_found_withheld_canaries_spoils_a_calm_control():
    calm = [exactly(1.0)] * 5
    spoiled = the(control(*calm, searches=withheld_search(1)), "CM105")
    assert spoiled.status == "not_measured"
    assert spoiled.evidence.endswith("But a search found withheld canaries; see CM205.")
    assert the(control(*calm, searches=withheld_search(900)), "CM105").status == "clear"
    assert the(control(*calm, searches=withheld_search(None)), "CM105").status == "clear"
    # Canaries that were trained on are no control.
    trained = made.run_of(searches={"s": ({"f0": made.search()}, made.verified([made.came("a", 1)]))})
    assert not found(trained, "CM205")
    exposed = made.run_of(made.document([made.result("a", exactly(20.0))]))
    assert not found(exposed, "CM105")
