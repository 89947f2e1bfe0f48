"""Findings about recitation: at each threshold, beside a baseline and without one, with their severity and evidence."""

import msgspec
import pytest
from scipy import stats

from coalmine import findings_of
from coalmine.audits.recitation.findings import recitation_suspicions, share_chance
from coalmine.audits.recitation.records import RecitationTrend, share_estimate
from coalmine.statistics import Trend
from reports import verdict_parts as made


def share(hits, n=1000, **limits):
    """So many of n, with limits of their own where a threshold is to be met exactly."""
    return msgspec.structs.replace(share_estimate(hits, n, "were recited", 0.95), **limits)


def run_of(*groups, **parts):
    return made.run_of(recitations=[made.recitations(*groups, **parts)])


def found(run, code):
    return [one for one in findings_of(run) if one.code == code]


def the(run, code):
    (one,) = found(run, code)
    return one


def p_values(run):
    return {one.key: one.p_value for one in recitation_suspicions(run)}


def test_without_a_baseline_one_percent_is_common_text():
    run = run_of(made.group(share(21)))
    assert p_values(run) == {("0", "asked"): pytest.approx(stats.binom.sf(20, 1000, 0.01))}
    # 2.5% is between 17 and 18 of 1,000.
    assert stats.binom.sf(16, 1000, 0.01) > 0.025 > stats.binom.sf(17, 1000, 0.01)
    assert the(run_of(made.group(share(18))), "CM401").status == "found"
    assert the(run_of(made.group(share(17))), "CM401").status == "not_measured"
    assert bool(found(run, "CM909"))


def test_beside_a_baseline_fishers_exact_test_decides():
    groups = [made.group(share(20, 400)), made.group(share(5, 300), model="other")]
    run = run_of(*groups, baseline=True)
    exact = stats.fisher_exact([[20, 380], [5, 295]], alternative="greater").pvalue
    assert p_values(run) == {("0", "asked"): pytest.approx(exact)}
    assert not found(run, "CM909")
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
    parts = [
        made.group(share(900), bucket=1),
        made.group(share(900), length=100),
        made.group(share(0, 0), context=7),
    ]
    assert p_values(run_of(one, *parts)) == p_values(run_of(one))
    assert p_values(run_of(made.group(share(0, 0)))) == {}
    nothing = the(run_of(made.group(share(0, 0))), "CM401")
    assert (nothing.status, nothing.severity, nothing.subject) == ("not_measured", "info", ("asked",))
    assert nothing.evidence == "asked: no sequence was tried, so the share that is recited is not known."


@pytest.mark.parametrize(
    ("high", "severity"),
    [(0.05, "high"), (0.0499, "medium"), (None, "high")],
)
def test_the_severity_goes_by_the_upper_limit(high, severity):
    one = the(run_of(made.group(share(30, high=high))), "CM401")
    assert (one.status, one.severity, one.subject) == ("found", severity, ("asked",))


@pytest.mark.parametrize(
    ("high", "status"), [(0.01, "clear"), (0.0101, "not_measured"), (None, "not_measured")]
)
def test_hardly_anything_is_recited_where_all_upper_limits_are_within_one_percent(high, status):
    one = the(run_of(made.group(share(1, high=high))), "CM401")
    assert (one.status, one.severity) == (status, "pass" if status == "clear" else "info")
    calm = made.group(share(0), context=100)
    assert the(run_of(calm, made.group(share(1, high=high))), "CM401").status == status
    assert the(run_of(made.group(share(1, high=high)), calm), "CM401").status == status


@pytest.mark.parametrize(
    ("low", "status"), [(0.3, "clear"), (0.29, "not_measured"), (None, "not_measured"), (0.0, "not_measured")]
)
def test_what_the_baseline_certainly_recites_is_easy(low, status):
    groups = [made.group(share(280, high=0.3)), made.group(share(300, low=low), model="other")]
    one = the(run_of(*groups, baseline=True), "CM401")
    assert one.status == status
    assert "; the baseline: 300 of 1,000 sequences were recited" in one.evidence
    assert [each.value for each in one.estimates] == [0.28, 0.3]
    assert len(the(run_of(groups[0]), "CM401").estimates) == 1


def test_the_context_with_the_strongest_evidence_is_told():
    strong, weak = made.group(share(60)), made.group(share(20), context=100)
    for groups in ((strong, weak), (weak, strong)):
        assert (
            "50 tokens after 50 tokens of context, equally many for each number of copies: 60 of 1,000"
            in the(run_of(*groups), "CM401").evidence
        )
    # As strong, the one with the longer context.
    for groups in ((made.group(share(0)), made.group(share(0), context=100)),
                   (made.group(share(0), context=100), made.group(share(0))),
                   (made.group(share(0, low=None)), made.group(share(0, low=None), context=100)),
                   (made.group(share(0), context=None), made.group(share(0), context=100))):  # fmt: skip
        assert " after 100 tokens" in the(run_of(*groups), "CM401").evidence


def test_how_the_sequences_were_drawn_is_told():
    assert (
        "drawn uniformly from the corpus: "
        in the(run_of(made.group(share(1)), sample="uniform"), "CM401").evidence
    )
    masked = the(run_of(made.group(share(1), context=None)), "CM401").evidence
    assert masked.startswith(
        "asked, whole sequences with gaps, equally many for each number of copies: 1 of 1,000"
    )
    turns = the(run_of(made.group(share(1), context=None), hidden_share=None, sample="uniform"), "CM401")
    assert turns.evidence.startswith(
        "asked, 50 tokens of the assistant's turn after the conversation before it"
    )


def test_models_and_files_are_told_apart():
    second = made.group(share(0), model="second")
    run = run_of(made.group(share(60)), second, names=("asked", "second"))
    assert [(one.status, one.subject) for one in found(run, "CM401")] == [
        ("found", ("asked",)),
        ("clear", ("second",)),
    ]
    documents = [made.recitations(made.group(share(hits))) for hits in (0, 60)]
    statuses = {one.status for one in found(made.run_of(recitations=documents), "CM401")}
    assert statuses == {"clear", "found"}
    # A baseline is not accused, and is no model that was asked.
    beside = run_of(made.group(share(1)), made.group(share(900), model="other"), baseline=True)
    assert the(beside, "CM401").subject == ("asked",)


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


@pytest.mark.parametrize(
    ("by", "code", "severity", "words"),
    [
        ("repetitions", "CM402", "medium", "by copies in the corpus, slope 0.2; R² 0.93."),
        ("context", "CM403", "low", "by context, slope 0.2; R² 0.93."),
        ("size", "CM403", "low", "by parameters, slope 0.2; R² 0.93."),
    ],
)
def test_what_makes_a_model_recite_more(by, code, severity, words):
    def told(group, *trends):
        return [one for one in found(run_of(group, trends=trends), code) if one.status == "found"]

    (one,) = told(RECITING, trend(by, 0.001))
    assert (one.severity, one.subject, one.evidence) == (severity, ("asked",), f"asked: {words}")
    # Only of a model that is shown to recite is it more than a remark, and only with a limit above 0 is it told.
    assert told(CALM, trend(by, 0.001))[0].severity == "info"
    assert told(RECITING, trend(by, 0.0)) == told(RECITING, trend(by, None)) == []
    assert told(RECITING, trend(by, 0.001, model="other")) == []
    (every,) = told(RECITING, trend(by, 0.001, model=None, r_squared=None))
    assert (every.severity, every.subject, every.evidence) == (severity, (), f"{words.partition(';')[0]}.")
    assert told(CALM, trend(by, 0.001, model=None))[0].severity == "info"
    # The steepest is told, with the numbers of all that grow.
    (steepest,) = told(RECITING, trend(by, 0.001), trend(by, 0.001, value=0.4), trend(by, -0.1, value=0.9))
    assert steepest.evidence.startswith("asked: ")
    assert "slope 0.4" in steepest.evidence
    assert [each.value for each in steepest.estimates] == [0.2, 0.4]
    unvalued = told(RECITING, trend(by, 0.001, value=None), trend(by, 0.001, value=0.1))
    assert "slope 0.1" in unvalued[0].evidence


def test_a_trend_is_told_of_the_model_that_it_is_of():
    names = ("asked", "calm")
    groups = (RECITING, made.group(share(0), model="calm"))
    run = run_of(*groups, names=names, trends=[trend("repetitions", 0.001, model="calm")])
    assert the(run, "CM402").severity == "info"


def test_a_model_that_was_asked_nothing_is_not_shown_to_recite():
    """It has a trend all the same, such as that of a family of models."""
    run = run_of(made.group(share(0, 0)), trends=[trend("size", 0.001, model=None)])
    assert [one.severity for one in found(run, "CM403") if one.status == "found"] == ["info"]


def test_trends_that_were_not_measured():
    run = run_of(CALM)
    assert [
        (one.code, one.status, one.title) for one in findings_of(run) if one.code in {"CM402", "CM403"}
    ] == [
        ("CM402", "not_tested", "Repeated text is recited more"),
        ("CM403", "not_tested", "More context brings out more"),
        ("CM403", "not_tested", "Larger models recite more"),
    ]
    none = run_of(CALM, trends=[trend("repetitions", None, measured=False)])
    assert the(none, "CM402").status == "not_tested"
    some = run_of(CALM, trends=[trend("repetitions", None, measured=False), trend("repetitions", -0.1)])
    assert not found(some, "CM402")
