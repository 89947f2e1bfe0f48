"""Trainings compared: limits that follow from the error of references, by their exact distribution, and what is warned of."""

import math

import msgspec
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import beta

from audits.compared_runs import SIZE_BITS, document, strategy, strategy_among
from coalmine.audits.comparison.measure import compare
from coalmine.audits.comparison.references import _error_limits

# Five of fifty references are no more surprising than any canary of this training.
REFERENCES, BELOW = 50, 5


def at_one_place(canaries=12, **options):
    scores = np.full(canaries, BELOW - 0.5)
    return strategy_among("few", scores, np.arange(float(REFERENCES)), scored=False, **options)


def constant(value, canaries=12):
    """A training whose exposures are known exactly, and all the same."""
    own = strategy("known", [value] * canaries)
    facts = [msgspec.structs.replace(facts, template="pin {digits:9}") for facts in own.exposure.formats]
    return own._replace(exposure=msgspec.structs.replace(own.exposure, formats=tuple(facts)))


def share_below(probability):
    """Of the mass at or below the canaries, how likely it is no more than this: that of an end between two references, by a coin."""
    ends = (beta(BELOW, REFERENCES - BELOW + 1), beta(BELOW + 1, REFERENCES - BELOW))
    return sum(end.cdf(probability) for end in ends) / 2


def exposure_at(share):
    """The exposure that the canaries exceed with this probability."""
    return -math.log2(brentq(lambda p: share_below(p) - share, 1e-6, 1 - 1e-6))


def test_the_limits_of_a_median_are_those_of_a_place_among_references():
    run, _ = compare([at_one_place(), constant(1.0)]).runs
    value = run.exposure.value
    assert value == pytest.approx(math.log2((REFERENCES + 1) / (BELOW + 1)), abs=0.2)
    # All canaries are at one place, so that all of the interval is the error of references.
    assert run.exposure.low == pytest.approx(exposure_at(0.975), abs=0.06)
    assert run.exposure.high == pytest.approx(exposure_at(0.025), abs=0.06)


def test_the_limits_and_the_p_value_of_a_difference_are_those_of_a_place_among_references():
    other = exposure_at(0.98)  # one in fifty that the difference is no more than nothing
    [pair] = compare([at_one_place(), constant(other)]).pairs
    found = pair.exposure
    assert found.estimate.low == pytest.approx(exposure_at(0.975) - other, abs=0.06)
    assert found.estimate.high == pytest.approx(exposure_at(0.025) - other, abs=0.06)
    assert found.p_value == pytest.approx(2 * 0.02, rel=0.15)
    [turned] = compare([constant(other), at_one_place()]).pairs
    assert turned.exposure.estimate.low == pytest.approx(-found.estimate.high, abs=0.06)
    assert turned.exposure.p_value == pytest.approx(found.p_value, rel=0.15)


def test_a_median_that_may_be_nothing_stays_so():
    scores = np.array(
        [100.0] * 5 + [BELOW - 0.5] * 7
    )  # five canaries are more surprising than all references
    own = strategy_among("few", scores, np.arange(float(REFERENCES)), scored=False)
    run, _ = compare([own, constant(1.0)]).runs
    assert run.exposure.value > 2
    assert run.exposure.low == 0


@pytest.mark.parametrize("hair", [1e-6, -1e-6])
def test_the_p_value_and_the_interval_agree_however_close_it_is(hair):
    [pair] = compare([at_one_place(), constant(0.0)]).pairs
    limit = pair.exposure.estimate.low
    [pair] = compare([at_one_place(), constant(limit - hair)]).pairs
    assert pair.exposure.estimate.low == pytest.approx(hair, abs=1e-9)
    assert (pair.exposure.p_value <= 1 - 0.95) == (hair > 0)


def test_of_ninety_nine_errors_the_fifth_has_five_in_a_hundred_beyond_it():
    errors = np.random.default_rng(0).permutation(np.arange(-49.0, 50.0) + 10)
    assert _error_limits(errors, 0.05) == (35.0, 55.0)
    assert _error_limits(errors, 0.01) == (39.0, 59.0)
    assert _error_limits(errors, 0.0099) == (math.inf, math.inf)
    # Errors that all go one way leave nothing on the other.
    assert _error_limits(errors + 100, 0.05) == (0.0, 155.0)


@pytest.mark.parametrize(("references", "warned"), [(119, True), (120, False)])
def test_fewer_than_ten_references_for_each_canary_are_warned_of_also_if_some_were_ranked(references, warned):
    one = strategy_among("some", np.full(12, 3.5), np.arange(float(references)))
    exact = document([1.0] * 12).results
    mixed = msgspec.structs.replace(one.exposure, results=(*one.exposure.results[:6], *exact[6:]))
    found = compare([one._replace(exposure=mixed), constant(1.0)])
    assert any("share the error" in warning for warning in found.warnings) == warned


def test_the_largest_possible_exposure_is_that_of_the_format():
    """Three pairs exclude nothing, so that the difference can be anything that the format allows."""
    [pair] = compare([strategy("a", [3.0, 4.0, 5.0]), strategy("b", [1.0, 1.0, 1.0])]).pairs
    assert (pair.exposure.estimate.low, pair.exposure.estimate.high) == (-SIZE_BITS, SIZE_BITS)
    [pair] = compare([at_one_place(3), constant(1.0, 3)]).pairs
    assert (pair.exposure.estimate.low, pair.exposure.estimate.high) == (-math.log2(10**9), math.log2(10**9))
