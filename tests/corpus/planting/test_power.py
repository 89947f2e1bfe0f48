"""What canaries can show at most, against what an audit of perfectly separated scores does show."""

import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from coalmine import Canary, CanarySet, Format, membership_of_scores

FORM = Format("pin {digits:4}")
GUIDE = Path(__file__).parents[3] / "docs" / "tutorial" / "quickstart.md"


def canary_set(planted, withheld, *, copies=(1,), references=200, withhold=0.5):
    drawn = iter(FORM.sample(9_000, seed=1, replace=False))
    canaries = [
        Canary(
            canary_id=f"c{number}-{place}",
            format_id="f0",
            text=next(drawn),
            repetitions=number,
            planted=place < planted,
        )
        for number in copies
        for place in range(planted + withheld)
    ]
    others = [next(drawn) for _ in range(references)]
    return CanarySet(canaries, {"f0": FORM}, references={"f0": others}, withhold=withhold)


@pytest.mark.parametrize(
    ("planted", "withheld", "copies"), [(16, 16, 1), (10, 30, 1), (16, 16, 4), (3, 3, 1)]
)
def test_epsilon_is_what_the_headline_bound_of_perfect_scores_shows(planted, withheld, copies):
    shown = canary_set(planted, withheld, copies=(copies,), references=0).power().formats[0].by_copies[0]
    audit = membership_of_scores(np.arange(planted) + 100.0, np.arange(withheld), copies=copies)
    best = audit.populations[0].best
    assert (shown.epsilon or 0.0) == pytest.approx(best.canary.low or 0.0, abs=1e-6)
    if copies > 1:
        assert shown.epsilon_per_copy < shown.epsilon


def test_more_coins_show_more_and_too_few_show_nothing():
    shown = [
        canary_set(half, half).power().formats[0].by_copies[0].epsilon for half in (16, 32, 64)
    ]  # fmt: skip
    assert shown == sorted(shown)
    assert len(set(shown)) == 3


@pytest.mark.parametrize(
    ("references", "withheld", "rates"),
    [(0, 0, ()), (9, 0, ()), (9, 1, (0.1,)), (995, 5, (0.1, 0.01, 0.001)), (99, 0, (0.1,)), (100, 0, (0.1, 0.01)), (4000, 0, (0.1, 0.01, 0.001))],
)  # fmt: skip
def test_a_rate_takes_as_many_comparisons_as_an_audit_of_it_does(references, withheld, rates):
    shown = canary_set(20, withheld, references=references).power().formats[0]
    assert shown.compared_with == references + withheld
    assert shown.false_positive_rates == rates
    if shown.compared_with:
        audit = membership_of_scores(np.ones(20), np.zeros(shown.compared_with)).populations[0]
        measured = [one.status != "not_measured" for one in audit.tpr_at_fpr]
        assert measured == [rate in rates for rate in (0.1, 0.01, 0.001)]
        bounded = [(one.low or 0.0) > 0 for one in audit.tpr_at_fpr]
        assert bounded == [rate in shown.bounded_false_positive_rates for rate in (0.1, 0.01, 0.001)]


def test_each_reason_for_showing_nothing_about_epsilon_is_said():
    never = canary_set(8, 0, withhold=0.0).power()
    assert "one training run can show nothing about epsilon; plant with --withhold 0.5" in never.warnings[0]
    assert never.formats[0].by_copies[0].epsilon is None
    unlucky = canary_set(8, 0, withhold=0.5).power()
    assert "can show nothing about epsilon (the coins withheld none of them)" in unlucky.warnings[0]
    nothing = canary_set(0, 8, withhold=0.5).power()
    assert "the coins planted no canary at all" in nothing.warnings[0]
    by_hand = CanarySet.of(FORM, ["pin 0001"], withheld=["pin 0002"]).power()
    assert by_hand.formats[0].by_copies[0].why_no_epsilon.startswith("it is not known that a coin")
    alone = CanarySet.of(FORM, ["pin 0001"]).power()
    assert any("--references 1000" in warning for warning in alone.warnings)
    assert alone.formats[0].smallest_p_value is None


def test_exposure_is_limited_by_the_space_and_by_the_references():
    shown = canary_set(4, 4, references=512).power().formats[0]
    assert shown.exposure_bits == pytest.approx(np.log2(10_000))
    assert shown.reference_exposure_bits == 9.0
    assert shown.smallest_p_value == 1 / 517


def test_the_table_of_the_guide_is_what_the_coins_can_show():
    [table] = re.findall(
        r"^\| canaries \|(.*)\n.*\n\| epsilon, .*?\|(.*)\n\| lowest .*?\|(.*)\n",
        GUIDE.read_text(),
        re.MULTILINE,
    )
    numbers, means, ranges = ([cell.strip() for cell in row.strip(" |").split("|")] for row in table)
    for number, mean, limits in zip(numbers, means, ranges, strict=True):
        # All splits of the coins that are likelier than one in a thousand.
        chances = {planted: binom.pmf(planted, int(number), 0.5) for planted in range(1, int(number))}
        likely = {planted: chance for planted, chance in chances.items() if chance > 1e-3}
        shown = [_shown(planted, int(number) - planted) for planted in likely]
        assert f"{np.average(shown, weights=list(likely.values())):.2f}" == mean
        assert [float(limit) for limit in limits.split(" to ")] == pytest.approx(
            [min(shown), max(shown)], abs=0.0051
        )


def _shown(planted, withheld):
    return canary_set(planted, withheld, references=0).power().formats[0].by_copies[0].epsilon or 0.0
