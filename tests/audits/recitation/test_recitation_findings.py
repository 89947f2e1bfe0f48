"""Findings about recitation: at each threshold, beside a baseline and without one, with their severity and evidence."""

import msgspec
import pytest
from scipy import stats

from coalmine import findings_of
from coalmine.audits.recitation.records import RecitationTrend, share_estimate
from coalmine.audits.recitation.report import measures, share_chance
from coalmine.statistics import Trend
from reports import verdict_parts as made


def share(hits, n=1000, **limits):
    """So many of n, with limits of their own where a threshold is to be met exactly."""
    return msgspec.structs.replace(share_estimate(hits, n, "were recited", 0.95), **limits)


def run_of(*groups, **parts):
    return made.run_of(recitations=[made.recitations(*groups, **parts)])


def found(run, key):
    return [one for one in findings_of(run) if one.key == key]


def the(run, key="recitation.share"):
    (one,) = found(run, key)
    return one


def p_values(run):
    own = [one for one in measures(run) if one.key == "recitation.share" and one.p_value is not None]
    return {one.test[1:]: one.p_value for one in own}


def test_without_a_baseline_one_percent_is_common_text():
    run = run_of(made.group(share(21)))
    assert p_values(run) == {("0", "asked"): pytest.approx(stats.binom.sf(20, 1000, 0.01))}
    # 2.5% is between 17 and 18 of 1,000.
    assert stats.binom.sf(16, 1000, 0.01) > 0.025 > stats.binom.sf(17, 1000, 0.01)
    assert the(run_of(made.group(share(18))), "recitation.share").status == "found"
    assert the(run_of(made.group(share(17))), "recitation.share").status == "not_measured"
    assert bool(found(run, "recitation.baseline"))


def test_beside_a_baseline_fishers_exact_test_decides():
    groups = [made.group(share(20, 400)), made.group(share(5, 300), model="other")]
    run = run_of(*groups, baseline=True)
    exact = stats.fisher_exact([[20, 380], [5, 295]], alternative="greater").pvalue
    assert p_values(run) == {("0", "asked"): pytest.approx(exact)}
    assert not found(run, "recitation.baseline")
    assert p_values(run_of(made.group(share(0, 400)), groups[1], baseline=True)) == {("0", "asked"): 1.0}
    # A baseline at another context says nothing of this one.
    other = run_of(groups[0], made.group(share(5, 300), model="other", context=99), baseline=True)
    assert p_values(other) == {("0", "asked"): pytest.approx(stats.binom.sf(19, 400, 0.01))}


def test_sequences_of_one_document_count_as_many_as_they_are_worth():
    half = share(40, 1000, effective_n=500.9)
    assert p_values(run_of(made.group(half))) == {
        ("0", "asked"): pytest.approx(stats.binom.sf(19, 500, 0.01))
    }
    more = share(40, 1000, effective_n=2000.0)
    assert share_chance(more, 0.01) == pytest.approx(stats.binom.sf(39, 1000, 0.01))
    none = share(40, 1000, effective_n=None)
    assert share_chance(none, 0.02) == pytest.approx(stats.binom.sf(39, 1000, 0.02))
    # Worth less than one sequence, it is one; and nothing recited is no evidence.
    assert share_chance(share(1000, 1000, effective_n=0.4), 0.01) == pytest.approx(0.01)
    assert share_chance(share(0), 0.01) == share_chance(made.unknown(), 0.01) == 1.0
    assert share_chance(share(1, 100), 0.01) == pytest.approx(1 - 0.99**100)


def test_contexts_share_the_error_and_models_are_tests_of_their_own():
    one, two = made.group(share(21)), made.group(share(12), context=100)
    assert p_values(run_of(one, two)) == {("0", "asked"): pytest.approx(2 * stats.binom.sf(20, 1000, 0.01))}
    assert p_values(run_of(made.group(share(1)), made.group(share(2), context=100))) == {("0", "asked"): 1.0}
    second = made.group(share(30), model="second")
    assert set(p_values(run_of(one, second, names=("asked", "second")))) == {("0", "asked"), ("0", "second")}
    # Parts of a context, and groups without sequences, take no part.
    parts = [made.group(share(900), bucket=1), made.group(share(0, 0), context=7)]
    assert p_values(run_of(one, *parts)) == p_values(run_of(one))
    assert p_values(run_of(made.group(share(0, 0)))) == {}
    nothing = the(run_of(made.group(share(0, 0))), "recitation.share")
    assert (nothing.status, nothing.severity, nothing.subject) == ("not_measured", "info", ("asked",))
    assert "no sequence was tried" in nothing.evidence


@pytest.mark.parametrize(
    ("high", "status"), [(0.01, "clear"), (0.0101, "not_measured"), (None, "not_measured")]
)
def test_hardly_anything_is_recited_where_all_upper_limits_are_within_one_percent(high, status):
    one = the(run_of(made.group(share(1, high=high))), "recitation.share")
    assert (one.status, one.severity) == (status, "pass" if status == "clear" else "info")
    calm = made.group(share(0), context=100)
    assert the(run_of(calm, made.group(share(1, high=high))), "recitation.share").status == status
    assert the(run_of(made.group(share(1, high=high)), calm), "recitation.share").status == status


@pytest.mark.parametrize(
    ("low", "status"), [(0.3, "clear"), (0.29, "not_measured"), (None, "not_measured"), (0.0, "not_measured")]
)
def test_what_the_baseline_certainly_recites_is_easy(low, status):
    groups = [made.group(share(280, high=0.3)), made.group(share(300, low=low), model="other")]
    one = the(run_of(*groups, baseline=True), "recitation.share")
    assert one.status == status
    assert "; the baseline: 300 of 1,000 sequences were recited" in one.evidence


def test_models_and_files_are_told_apart():
    second = made.group(share(0), model="second")
    run = run_of(made.group(share(60)), second, names=("asked", "second"))
    assert [(one.status, one.subject) for one in found(run, "recitation.share")] == [
        ("found", ("asked",)),
        ("clear", ("second",)),
    ]
    documents = [made.recitations(made.group(share(hits))) for hits in (0, 60)]
    statuses = {one.status for one in found(made.run_of(recitations=documents), "recitation.share")}
    # Of one model that recites in one result, the other result is not called clear.
    assert statuses == {"not_measured", "found"}
    # A baseline is not accused, and is no model that was asked.
    beside = run_of(made.group(share(1)), made.group(share(900), model="other"), baseline=True)
    assert the(beside, "recitation.share").subject == ("asked",)


# Trends


def trend(by, low, *, value=0.2, model="asked", measured=True, r_squared=0.934):
    slope = (
        made.interval(value, low, max(0.5, value or 0.0), statement=f"slope {value}")
        if measured
        else made.unknown()
    )
    return RecitationTrend(
        by=by, model=model, context=50, trend=Trend(slope=slope, intercept=0.0, r_squared=r_squared)
    )


RECITING, CALM = made.group(share(60)), made.group(share(0))


@pytest.mark.parametrize("by", ["repetitions", "context", "size"])
def test_what_makes_a_model_recite_more(by):
    def told(group, *trends):
        return [
            one for one in found(run_of(group, trends=trends), "recitation.trend") if one.status == "found"
        ]

    (one,) = told(RECITING, trend(by, 0.001))
    assert one.subject == ("asked",)
    assert "slope 0.2 (R² 0.93)" in one.evidence
    # Only of a model that is shown to recite, and only with a limit above 0.
    assert told(CALM, trend(by, 0.001)) == []
    assert told(RECITING, trend(by, 0.0)) == told(RECITING, trend(by, None)) == []
    assert told(RECITING, trend(by, 0.001, model="other")) == []
    (steepest,) = told(RECITING, trend(by, 0.001), trend(by, 0.001, value=0.4), trend(by, -0.1, value=0.9))
    assert "slope 0.4" in steepest.evidence
