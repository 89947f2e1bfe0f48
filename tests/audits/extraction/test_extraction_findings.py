"""Findings about what came out of a search: at each threshold, with their severity, evidence and subjects."""

import re

import pytest
from scipy import stats

from coalmine import findings_of
from coalmine.audits.extraction.table import extracted_in_plain_words
from coalmine.reports.conclusion import conclusion_of
from reports import verdict_parts as made


def run_of(*canaries, beside=None, others=None, **parts):
    searches = {"s": ({"f0": made.search(size=10**6)} if beside is None else beside, made.verified(canaries))}
    return made.run_of(searches={**searches, **({} if others is None else others)}, **parts)


def found(run, code):
    return [one for one in findings_of(run) if one.code == code]


def the(run, code):
    (one,) = found(run, code)
    return one


SEARCHED = ("CM201", "CM202", "CM203", "CM204", "CM205", "CM206")


@pytest.mark.parametrize(
    ("size", "title"),
    [(50, "Canaries can be extracted"), (49, "Canaries came out, which chance may explain")],
)
def test_a_canary_is_extracted_beyond_chance(size, title):
    """Found first of 50: 2%, which is four fifths of the error."""
    one = the(run_of(made.came("a", 1, expansions=1234), beside={"f0": made.search(1, size)}), "CM201")
    assert one.title == title
    assert "a, trained on 4 times, at place 1 after 1,234 queries" in one.evidence
    assert one.severity == ("critical" if size == 50 else "info")
    if size == 49:
        assert "1 of 1 canary that were trained on came out" in one.evidence
        assert "which chance explains in 2% of models" in one.evidence
        assert "this search alone does not show memorization" in one.evidence


def test_extracted_canaries_come_by_their_place_and_the_first_three_are_named():
    canaries = [
        made.came("d", 4),
        made.came("b", 2),
        made.came("z", 1),
        made.came("a", 1),
        made.came("n"),
        made.came("w", 3, times=0),
    ]
    one = the(run_of(*canaries), "CM201")
    assert (one.severity, one.subject) == ("critical", ("a", "z", "b", "d"))
    assert one.evidence.startswith("4 of 5 canaries that were trained on came out of the model (80%): a, ")
    assert one.evidence.endswith(
        ": a, trained on 4 times, at place 1; z, trained on 4 times, at place 1; b, trained on 4 times, at place 2; and 1 more."
    )
    (share,) = one.estimates
    assert (share.value, share.low, share.high) == (0.8, 0.8, 0.8)  # all of them were looked for
    three = the(run_of(*canaries[:3]), "CM201").evidence
    assert "more" not in three
    many = the(run_of(*[made.came(f"c{n:02}", n + 1) for n in range(51)]), "CM201")
    assert len(many.subject) == 50
    # Which searches found it is all that is known of one whose place is not.
    assert not found(run_of(made.came("w", 3, times=0)), "CM201")
    assert the(run_of(made.came("once", 1, times=1)), "CM201").subject == ("once",)


def test_more_came_out_than_chance_explains():
    """Three of four at a place with a chance of 10 in 100, which is no news of one of them: 0.37% of all."""
    canaries = [made.came("a", 8), made.came("b", 9), made.came("c", 10), made.came("d")]
    run = run_of(*canaries, beside={"f0": made.search(10, 100)})
    one = the(run, "CM201")
    chance = stats.binom.sf(2, 4, 0.1)
    assert chance < 0.025 / 5
    assert (one.severity, one.title) == ("high", "More canaries came out than chance explains")
    assert one.evidence.startswith(
        "Not individually, but together: 3 of 4 of the format f0 is {digits:3} came out; chance gives 0.4 on average, and as "
        f"many with probability {chance:.2g}. Among them: a, trained on 4 times, at place 8; "
    )
    assert one.subject == ("a", "b", "c")
    (share,) = one.estimates
    assert (share.value, share.n) == (0.75, 4)
    # Two of four are 5%.
    two = the(
        run_of(*canaries[:2], made.came("c"), canaries[3], beside={"f0": made.search(10, 100)}), "CM201"
    )
    assert (two.severity, two.estimates[0].value, two.subject) == ("info", 0.5, ("a", "b"))
    # The second best of four is within 9 of 100; the places after the first share half of the error.
    chance = 100 * 4 * stats.binom.sf(1, 4, 0.09)
    assert (
        f"2 of 4 canaries that were trained on came out of the model (50%), which chance explains in {chance:.2g}% of models"
        in two.evidence
    )
    certain = the(run_of(made.came("a", 8), made.came("b", 9), beside={"f0": made.search(10, 10)}), "CM201")
    assert "which chance explains in most models" in certain.evidence


def test_formats_are_counted_apart():
    """Three of three of one format are more than chance gives; the one of the other is not."""
    canaries = [made.came(name, 10) for name in "abc"] + [made.came("x", 10, format_id="f1")]
    beside = {"f0": made.search(10, 100), "f1": made.search(10, 20, template="f1 is {digits:2}")}
    both = found(run_of(*canaries, beside=beside), "CM201")
    assert [(one.severity, one.subject) for one in both] == [("high", ("a", "b", "c")), ("info", ("x",))]
    assert "f1 is" not in both[0].evidence
    # Both say how many came out in all.
    assert [one.estimates[0].statement for one in both] == [
        "4 of 4 canaries that were trained on came out of the model (100%)"
    ] * 2
    # Where both are, their canaries are counted together.
    canaries += [made.came(f"y{n}", 10, format_id="f1") for n in range(9)]
    one = the(run_of(*canaries, beside=beside), "CM201")
    assert (one.severity, one.estimates[0].n, one.estimates[0].value) == ("high", 13, 1.0)
    fifty = [made.came(f"c{n:02}", 60, format_id="f0") for n in range(51)]
    many = the(run_of(*fifty, beside={"f0": made.search(60, 120)}), "CM201")
    assert (many.severity, len(many.subject)) == ("high", 50)
    chance = the(run_of(*fifty, beside={"f0": made.search(60, 60)}), "CM201")
    assert (chance.severity, len(chance.subject)) == ("info", 50)


def test_a_page_has_one_number_for_each_question():
    """7 of 49 came out, 2 of which are each shown to be memorized."""
    names = [f"c{place:02}" for place in range(49)]
    exposed = [
        made.interval(bits, bits, bits, confidence=None, method="exact") for bits in [20.0] * 2 + [7.0] * 47
    ]
    canaries = [made.came(name, place + 1 if place < 7 else None) for place, name in enumerate(names)]
    run = run_of(
        *canaries,
        beside={"f0": made.search(10, 1000)},
        exposures=[made.document([made.result(name, one) for name, one in zip(names, exposed, strict=True)])],
    )
    findings = findings_of(run)
    assert {"CM101", "CM103", "CM201"} <= {one.code for one in findings}
    screen = conclusion_of(findings)
    assert screen.sentence.startswith(
        "The model memorized 2 of 49 canaries, each shown individually, and others that are shown only together, and 7 of 49 can be "
        "extracted."
    )
    assert [one.answer for one in screen.answers[:2]] == ["Yes: 2 of 49, and others together", "Yes: 7 of 49"]
    terminal = extracted_in_plain_words(canaries, {"f0": made.search(10, 1000)})
    page = " ".join(
        [
            screen.sentence,
            *(one.detail for one in screen.answers),
            *(one.evidence for one in findings),
            *(estimate.statement for one in findings for estimate in one.estimates),
            *terminal,
        ]
    )
    assert set(re.findall(r"(\d+) of 49 canaries that were trained on (?:came )?out", page)) == {"7"}
    assert set(re.findall(r"(\d+) of 49 canaries (?:that were trained on are|memorized)", page)) == {"2"}
    assert "interval" not in page


@pytest.mark.parametrize(("many", "status"), [(4, "not_measured"), (5, "clear")])
def test_none_came_out_and_that_is_proven(many, status):
    one = the(run_of(*[made.came(f"c{n}") for n in range(many)], made.came("w", times=0)), "CM202")
    assert (one.status, one.severity) == (status, "pass" if status == "clear" else "info")
    left = 100 * (1 - 0.05 ** (1 / many))
    assert one.evidence == (
        f"It is proven that none of {many} canaries is among the 10 least surprising members of their format; even so, up to "
        f"{left:.0f}% of such canaries could still come out (95% confidence)."
    )
    assert (one.estimates[0].value, one.estimates[0].n) == (0.0, many)
    assert not found(run_of(*[made.came(f"c{n}") for n in range(many)], made.came("x", 1)), "CM202")
    assert not found(run_of(made.came("w", times=0)), "CM202")
    two = {"f0": made.search(10), "f1": made.search(5)}
    several = the(run_of(*[made.came(f"c{n}") for n in range(many)], beside=two), "CM202")
    assert "is among the members that were asked for;" in several.evidence
    alike = the(
        run_of(
            *[made.came(f"c{n}") for n in range(many)], beside={"f0": made.search(7), "f1": made.search(7)}
        ),
        "CM202",
    )
    assert "is among the 7 least surprising members" in alike.evidence


def test_a_search_without_a_proof_leaves_it_open():
    ended = {"f0": made.search(size=1000, proven=False, expansions=2500)}
    canaries = [
        made.came("a", proven=False),
        made.came("b"),
        made.came("c", 1, proven=False),
        made.came("w", times=0, proven=False),
    ]
    run = run_of(*canaries, beside=ended)
    one = the(run, "CM203")
    assert (one.status, one.subject) == ("not_measured", ("a",))
    assert one.evidence == (
        "1 of 3 canaries that were trained on were not found, and it is not proven that they would not be: the search over 1,000 "
        "members ended after 2,500 queries."
    )
    assert not found(run_of(*canaries[:2], beside=ended), "CM202")
    assert "the search has no certificate" in the(run_of(canaries[0]), "CM203").evidence
    # Searches elsewhere say nothing of these.
    others = {"other": ({"f0": made.search(proven=False, expansions=7)}, None)}
    assert " 7 queries" not in the(run_of(canaries[0], beside=ended, others=others), "CM203").evidence
    many = the(run_of(*[made.came(f"c{n:02}", proven=False) for n in range(51)], beside=ended), "CM203")
    assert len(many.subject) == 50


def test_greedy_decoding_that_writes_a_canary():
    rows = [(f"c{n}", "f0", 4, True, None) for n in range(5)]
    manifest = made.manifest_of(*rows)
    texts = {canary.canary_id: canary.text for canary in manifest}
    out = [made.came(f"c{n}", n + 1) for n in range(4)]

    def run(unaided, *, known=True, canaries=out):
        beside = {"f0": made.search(size=10**6, texts=list(texts.values()), unaided=unaided)}
        return run_of(*canaries, beside=beside, manifests=[manifest] if known else [])

    one = the(run({2, 3}), "CM204")
    assert (one.severity, one.status, one.subject) == ("critical", "found", ("c1", "c2"))
    assert "greedy decoding writes c1, c2 without any search" in one.evidence
    assert "writes c0, c1, c2 without any search" in the(run({1, 2, 3, 4}), "CM204").evidence
    # A member that is written and is no canary that came out is not told; nor is anything where nothing is written.
    assert not found(run({5}), "CM204")
    assert not found(run(set()), "CM204")
    unknown = the(run({2, 3, 5}, known=False), "CM204")
    assert (unknown.severity, unknown.status) == ("info", "not_tested")
    assert unknown.evidence.startswith(
        "Greedy decoding writes 3 of the members that were found, and 4 of those found are"
    )
    assert not found(run(set(), known=False), "CM204")


def test_formats_that_were_searched_without_canaries():
    others = {"other": ({"f0": made.search(10, 5000, proven=False, unaided={2, 3})}, None)}
    run = run_of(made.came("a"), others=others)
    one = the(run, "CM206")
    assert (one.severity, one.status) == ("info", "found")
    assert one.subject == ("run/other/extraction-f0.json",)
    assert (
        "10 of 5,000 members were found by search, without proof that no other is less surprising"
        in one.evidence
    )
    assert "greedy decoding writes 2 of them by itself" in one.evidence
    proven = the(made.run_of(searches={"other": ({"f0": made.search()}, None)}), "CM206")
    assert "proven to be the least surprising" in proven.evidence
    nothing = the(made.run_of(searches={"other": ({"f0": made.search(0)}, None)}), "CM206")
    assert (nothing.status, nothing.subject) == ("not_measured", ("run/other/extraction-f0.json",))
