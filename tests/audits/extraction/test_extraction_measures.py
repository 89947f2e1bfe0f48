"""What searches tell reports: which canaries came out beyond chance, together or alone, and what is proven of the others."""

import pytest
from scipy import stats

from coalmine import check, findings_of, parse_policy
from reports import verdict_parts as made


def run_of(*canaries, beside=None, **parts):
    searches = {"s": ({"f0": made.search(size=10**6)} if beside is None else beside, made.verified(canaries))}
    return made.run_of(searches=searches, **parts)


def found(run, key):
    return [one for one in findings_of(run) if one.key == key]


@pytest.mark.parametrize(("size", "status"), [(50, "found"), (49, None)])
def test_a_canary_is_extracted_beyond_chance(size, status):
    """Found first of 50: 2%, which is four fifths of the error."""
    run = run_of(made.came("a", 1, expansions=1234), beside={"f0": made.search(1, size)})
    assert [one.status for one in found(run, "extraction.canary")] == ([] if status is None else [status])
    if status is None:
        (one,) = found(run, "extraction.format")
        assert (one.code, one.status) == ("CM203", "not_measured")
        assert "1 of 1 came out, which chance explains in 2% of models" in one.evidence
    else:
        (one,) = found(run, "extraction.canary")
        assert "a, trained on 4 times: at place 1 after 1,234 queries" in one.evidence


def test_more_came_out_than_chance_explains():
    """Three of four at a place with a chance of 10 in 100, which is no news of one of them: 0.37% of all."""
    canaries = [made.came("a", 8), made.came("b", 9), made.came("c", 10), made.came("d")]
    (one,) = found(run_of(*canaries, beside={"f0": made.search(10, 100)}), "extraction.format")
    assert stats.binom.sf(2, 4, 0.1) < 0.025 / 5
    assert (one.severity, one.code, one.subject) == ("high", "CM201", ("a", "b", "c"))
    two = run_of(*canaries[:2], made.came("c"), canaries[3], beside={"f0": made.search(10, 100)})
    assert found(two, "extraction.format")[0].status == "not_measured"


@pytest.mark.parametrize(("many", "status"), [(4, "not_measured"), (5, "clear")])
def test_none_came_out_and_that_is_proven(many, status):
    (one,) = found(
        run_of(*[made.came(f"c{n}") for n in range(many)], made.came("w", times=0)), "extraction.format"
    )
    left = f"up to {100 * (1 - 0.05 ** (1 / many)):.0f}%"
    assert one.status == status
    assert left in one.evidence


def test_what_is_not_proven_is_not_clear_and_breaks_no_rule():
    run = run_of(made.came("a"), *[made.came(f"c{n}", proven=False) for n in range(9)])
    assert {one.status for one in found(run, "extraction.format")} == {"not_measured"}
    for limit, outcome in ((0, "not_shown"), (8, "not_shown"), (9, "holds")):
        assert check(run, parse_policy(f"[extraction]\nat_most_extracted = {limit}")).outcome == outcome


def test_withheld_canaries_that_come_out_spoil_the_report():
    """Two were looked for: 2 * 12 / 1000 is 2.4%."""
    for place, status in ((12, "found"), (13, "not_measured")):
        run = run_of(
            made.came("v", times=0), made.came("w", place, times=0), beside={"f0": made.search(20, 1000)}
        )
        (one,) = found(run, "exposure.control_out")
        assert (one.code, one.status, one.subject) == ("CM105", status, ("w",))
