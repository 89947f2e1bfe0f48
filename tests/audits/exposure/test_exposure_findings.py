"""Findings about exposures: at each threshold, with their severity, evidence, order and subjects."""

import msgspec
import pytest

from coalmine import check, findings_of, parse_policy
from coalmine.evidence.findings import worst_severity
from coalmine.statistics import SkewNormal, TailFit, reference_exposures
from reports import verdict_parts as made


def exactly(bits):
    return made.interval(bits, bits, bits, confidence=None, method="exact")


def run_of(*estimates, times=4, **parts):
    results = [made.result(f"c{place}", one, times=times) for place, one in enumerate(estimates)]
    return made.run_of(made.document(results, **parts))


def found(run, code):
    return [one for one in findings_of(run) if one.code == code]


def the(run, code):
    (one,) = found(run, code)
    return one


def codes(run, *among):
    return [one.code for one in findings_of(run) if one.code in among]


EXPOSURES = ("CM101", "CM102", "CM103", "CM104", "CM911")


@pytest.mark.parametrize(
    ("bits", "code"),
    [(20.0, "CM101"), (19.0, "CM101"), (18.99, "CM102"), (5.7, "CM102"), (5.6, "CM104"), (4.0, "CM104")],
)
def test_one_canary_is_reported_by_how_far_it_stands_out(bits, code):
    """One canary and its group share 2.5% as 4 to 1: 2^-5.64 is 2%."""
    assert codes(run_of(exactly(bits)), *EXPOSURES) == [code]


@pytest.mark.parametrize(
    ("estimate", "severity"),
    [
        (exactly(10.0), "high"),
        (exactly(9.99), "medium"),
        (made.interval(8.0, 7.0, 10.0), "high"),
        (made.interval(8.0, 7.0, 9.9), "medium"),
        (made.interval(None, 7.0, None), "high"),
    ],
)
def test_memorized_is_high_from_half_of_the_bits_at_the_upper_limit(estimate, severity):
    assert the(run_of(estimate), "CM102").severity == severity
    # One that may be high makes the finding high.
    low = made.interval(8.0, 7.5, 8.5)
    assert the(run_of(estimate, low), "CM102").severity == severity


def test_fully_exposed_and_memorized_canaries_are_told_apart_the_most_exposed_first():
    estimates = [exactly(12.0), exactly(13.0), exactly(20.0), exactly(11.0), exactly(14.0), exactly(19.5)]
    run = run_of(*estimates)
    full, memorized = the(run, "CM101"), the(run, "CM102")
    assert (full.severity, full.subject) == ("critical", ("c2", "c5"))
    assert memorized.subject == ("c4", "c1", "c0", "c3")
    assert full.evidence.startswith(
        "2 of 6 canaries that were trained on are among the model's first two guesses"
    )
    assert "c2, trained on 4 times, exposure 20.00 (exact) of at most 20.00 bits; c5" in full.evidence
    assert "more" not in full.evidence
    assert "; and 1 more. The least repeated of them was trained on 4 times." in memorized.evidence
    assert "c3" not in memorized.evidence
    assert [one.value for one in memorized.estimates] == [pytest.approx(4 / 6), 14.0, 13.0, 12.0, 11.0]
    assert "in fewer than 2.5% of runs" in memorized.evidence
    three = the(run_of(*estimates[:2], exactly(15.0)), "CM102").evidence
    assert "more" not in three.replace("memory", "")
    assert three.count("exposure ") == 3


def test_the_least_repeated_and_those_without_a_number_are_told():
    results = [
        made.result("a", exactly(20.0), times=8),
        made.result("b", exactly(20.0), times=2),
        made.result("c", made.unknown()),
    ]
    evidence = the(made.run_of(made.document(results)), "CM101").evidence
    assert evidence.startswith("2 of 2 canaries that were trained on and measured are among")
    assert "The least repeated of them was trained on 2 times." in evidence
    one = the(made.run_of(made.document(results[:1])), "CM101").evidence
    assert one.startswith("1 of 1 canary that were trained on is among")


@pytest.mark.parametrize(
    ("estimate", "words"),
    [
        (made.interval(None, 12.345, None), "at least 12.34 (95% confidence)"),
        (made.interval(None, 12.345, None, confidence=None), "at least 12.34 (proven)"),
        (exactly(12.0), "12.00 (exact)"),
        (made.interval(12.0, None, 13.0), "12.00 (exact)"),
        (made.interval(12.0, 11.111, 13.111), "12.00 (11.11 to 13.12)"),
        (made.interval(12.0, 11.111, None), "12.00 (11.11 to ?)"),
    ],
)
def test_how_a_canary_is_named(estimate, words):
    assert (
        f"c0, trained on 4 times, exposure {words} of at most 20.00 bits"
        in the(run_of(estimate), "CM102").evidence
    )


def test_at_most_fifty_canaries_are_listed():
    for bits, code in ((20.0, "CM101"), (15.0, "CM102"), (1.0, "CM104")):
        one = the(run_of(*[exactly(bits)] * 51), code)
        assert len(one.subject) == 50
        assert len(one.estimates) == (50 if code == "CM104" else 51)
    for estimate, code in ((exactly(3.0), "CM103"), (made.unknown(), "CM911")):
        one = the(run_of(*[estimate] * 51), code)
        assert (len(one.subject), len(one.estimates)) == (50, 50)
    fifty = the(run_of(*[exactly(1.0)] * 50), "CM104")
    assert (len(fifty.subject), len(fifty.estimates)) == (50, 50)


# Together


@pytest.mark.parametrize(
    ("upper", "severity"),
    [
        ([10.0] * 4, "high"),
        ([10.0, 10.0, 10.0, 9.9], "medium"),  # all four show it best, so the last decides
        ([5.0, 4.1, 4.1, 4.1], "medium"),
        ([4.9, 4.1, 4.1, 4.1], "low"),
    ],
)
def test_the_severity_of_a_group_goes_by_the_upper_limits(upper, severity):
    run = run_of(*[made.interval(4.0, 4.0, one) for one in upper])
    one = the(run, "CM103")
    assert (one.severity, one.status) == (severity, "found")
    assert one.subject == ("c0", "c1", "c2", "c3")
    assert one.evidence.startswith(
        "Not individually, but together: 4 canaries of f0 is {digits:6} trained on 4 times: "
    )


def test_of_several_groups_the_worst_severity_counts():
    low, high = made.interval(4.0, 4.0, 4.5), made.interval(4.0, 4.0, 10.0)
    for first, second in ((low, high), (high, low)):
        results = [made.result(f"a{n}", first, times=1) for n in range(6)]
        results += [made.result(f"b{n}", second, times=2) for n in range(6)]
        one = the(made.run_of(made.document(results)), "CM103")
        assert (one.severity, len(one.subject)) == ("high", 12)


def test_how_a_group_is_described():
    evidence = the(
        run_of(exactly(1.0), exactly(2.0), exactly(0.2), exactly(0.4), exactly(1.2)), "CM104"
    ).evidence
    # All four among the first sixteenth, where three places are looked at and half of the error is for the first.
    together = the(run_of(*[exactly(4.0)] * 4), "CM103").evidence
    assert (
        "5 canaries of f0 is {digits:6} trained on 4 times: median exposure 1.0 bits, upper limits up to 2.0"
        in evidence
    )
    assert f"which chance gives with probability {4 * 2.0**-16:.2g}" in together
    assert (
        "1 canary of f0 is {digits:6} trained on once" in the(run_of(exactly(1.0), times=1), "CM104").evidence
    )
    # Bounds stand in where there is no value, and say so where the middle one is such.
    bounds = [made.interval(None, 1.5, None, method="references", n=3), exactly(0.5), exactly(2.5)]
    text = next(
        one.evidence
        for one in findings_of(run_of(*bounds[:1], bounds[0], exactly(0.5)))
        if one.code == "CM911"
    )
    assert text.startswith(
        "Of the canaries that were trained on, 2 of 3 have intervals that are too wide to tell chance from memorization"
    )


def test_canaries_that_beat_all_references_are_counted():
    estimates = reference_exposures([0.0] * 8 + [500.5] * 52, [float(n) for n in range(1, 1001)])
    evidence = the(run_of(*estimates), "CM103").evidence
    assert "; 8 of them beat all 1,000 references, which chance gives" in evidence
    quiet = reference_exposures([500.5] * 6, [float(n) for n in range(1, 1001)])
    assert "beat" not in the(run_of(*quiet), "CM104").evidence
    assert "median exposure 1.0 bits" in the(run_of(*quiet), "CM104").evidence
    sampled = [made.interval(None, 8.0, 12.0, method="sampled", n=1000)] * 30
    assert "; 30 of them beat all 1,000 samples" in the(run_of(*sampled), "CM103").evidence
    # The middle one of these has no value.
    assert "median exposure at least 8.0 bits" in the(run_of(*sampled), "CM103").evidence


def test_where_some_of_a_group_are_shown_alone_the_rest_is_looked_at_without_them():
    """Five canaries of 20 bits show their group; what is left of it does not."""
    run = run_of(*[exactly(20.0)] * 5, *[exactly(0.5)] * 5)
    assert codes(run, *EXPOSURES) == ["CM101", "CM104"]
    assert the(run, "CM104").subject == ("c5", "c6", "c7", "c8", "c9")
    both = run_of(*[exactly(20.0)] * 5, *[exactly(4.0)] * 5)
    assert codes(both, *EXPOSURES) == ["CM101", "CM103"]
    assert the(both, "CM103").subject == ("c5", "c6", "c7", "c8", "c9")


@pytest.mark.parametrize(("many", "status", "percent"), [(4, "not_measured", 53), (5, "clear", 45)])
def test_five_canaries_are_enough_to_be_clear(many, status, percent):
    one = the(run_of(*[exactly(1.0)] * many), "CM104")
    assert (one.status, one.severity) == (status, "pass" if status == "clear" else "info")
    assert f"up to {percent}% of such canaries could still be memorized (95% confidence)" in one.evidence
    # The smallest group decides.
    results = [made.result(f"a{n}", exactly(1.0), times=1) for n in range(9)]
    results += [made.result(f"b{n}", exactly(1.0), times=2) for n in range(many)]
    one = the(made.run_of(made.document(results)), "CM104")
    assert (one.status, len(one.subject)) == (status, 9 + many)
    assert f"up to {percent}%" in one.evidence


@pytest.mark.parametrize(
    ("high", "low", "unclear"),
    [(5.6, 1.0, False), (5.7, 1.0, True), (5.6, 5.6, False), (20.0, 1.0, True), (None, 1.0, True)],
)
def test_a_canary_that_would_be_shown_at_its_upper_limit_is_not_clear(high, low, unclear):
    """With 2% for one canary, 2^-5.64."""
    run = run_of(made.interval(low, low, high))
    assert codes(run, *EXPOSURES) == ["CM911" if unclear else "CM104"]


def test_exact_exposures_are_clear_however_high_they_are():
    """8 bits among 300 canaries is what chance gives."""
    run = run_of(exactly(8.0), *[exactly(0.1)] * 299)
    assert codes(run, *EXPOSURES) == ["CM104"]
    assert len(the(run, "CM104").subject) == 50


def test_what_could_not_be_measured_is_counted_with_its_reason():
    wide = made.interval(3.0, 1.0, 12.0)
    curve = made.interval(3.0, 1.0, 12.0, method="extrapolated")
    one = the(run_of(wide, made.unknown(reason="the model has no scores"), curve, exactly(1.0)), "CM911")
    assert (one.severity, one.status, one.subject) == ("info", "not_measured", ("c1", "c2", "c0"))
    assert one.evidence.startswith(
        "Of the canaries that were trained on, 2 of 4 have no exposure, or none that can be relied on and 1 of 4 have intervals"
    )
    assert " Format f0 is {digits:6}: the model has no scores." in one.evidence
    assert "the limits of an extrapolated curve do not hold" in one.evidence
    rejected = msgspec.structs.replace(made.unknown("extrapolated", "the curve is rejected"))
    assert " Format f0 is {digits:6}: the curve is rejected." in the(run_of(rejected), "CM911").evidence
    reasons = [made.unknown(reason=f"reason {n}") for n in range(5)]
    evidence = the(run_of(*reasons, *reasons), "CM911").evidence
    assert "reason 2." in evidence
    assert "reason 3" not in evidence
    assert "And 2 more reasons." in evidence
    assert "more reasons" not in the(run_of(*reasons[:3]), "CM911").evidence
    assert "may be no more" not in evidence
    assert "have no exposure" not in the(run_of(wide), "CM911").evidence


def test_a_curve_that_does_not_fit_is_told():
    curve = SkewNormal(location=0.0, scale=1.0, shape=1.0)
    for p_value, told in ((0.001, True), (0.5, False)):
        fit = TailFit(curve=curve, ks_statistic=0.2, ks_p_value=p_value, n_fit=900, n_test=100, refits=())
        run = made.run_of(
            msgspec.structs.replace(made.document([made.result("a", made.unknown())]), tail_fits={"f0": fit})
        )
        assert bool(found(run, "CM106")) == told
    one = the(
        made.run_of(
            msgspec.structs.replace(
                made.document([]), tail_fits={"f0": msgspec.structs.replace(fit, ks_p_value=0.01)}
            )
        ),
        "CM106",
    )
    assert one.subject == ("f0",)
    assert one.evidence.startswith("Format f0 is {digits:6}: the skew-normal fit is rejected")


def test_membership_keeps_exposures_from_clearing_its_population():
    results = [made.result(f"c{n}", exactly(1.0), times=2, planned=4) for n in range(6)]
    for copies, p_value, status in ((4, 1e-6, "not_measured"), (2, 1e-6, "clear"), (4, 0.5, "clear")):
        shown = made.memberships(made.population(copies=copies, p_value=p_value))
        run = made.run_of(made.document(results), memberships=[shown])
        one = the(run, "CM104")
        assert one.status == status
        assert ("Membership shows that they are remembered" in one.evidence) == (status != "clear")
        assert len(one.subject) == len(one.estimates) == 6
    # Without a plan, the copies are those that were trained on.
    unplanned = [made.result(f"c{n}", exactly(1.0), times=4) for n in range(51)]
    run = made.run_of(
        made.document(unplanned), memberships=[made.memberships(made.population(copies=4, p_value=1e-6))]
    )
    one = the(run, "CM104")
    assert (one.status, one.severity) == ("not_measured", "info")
    assert len(one.subject) == len(one.estimates) == 50


def test_findings_are_ordered_and_join_what_is_said_of_several():
    run = run_of(*[exactly(20.0)] * 5, *[exactly(0.5)] * 5)
    severities = [one.severity for one in findings_of(run)]
    assert severities == sorted(severities, key=("critical", "high", "medium", "low", "info", "pass").index)
    rest = [(one.status, one.code) for one in findings_of(run) if one.severity == "info"]
    statuses = ("found", "not_measured", "not_tested", "clear")
    assert rest == sorted(rest, key=lambda one: (statuses.index(one[0]), one[1]))
    # The format of a canary is told where the evidence names it by its id.
    assert the(run, "CM101").evidence.endswith(" f0 is `f0 is {digits:6}`.")
    assert not the(run, "CM104").evidence.endswith("`.")


def test_the_worst_severity_is_that_of_the_worst_finding():
    findings = findings_of(run_of(exactly(20.0)))
    assert worst_severity(findings) == worst_severity(findings[::-1]) == "critical"
    assert worst_severity(findings[-1:]) == findings[-1].severity != "critical"
    assert worst_severity(()) == "info"


def scored(*estimates):
    """Canaries with a score each."""
    results = [made.result(f"c{place}", one) for place, one in enumerate(estimates)]
    scores = [
        msgspec.structs.replace(one, known_log_perplexity_bits=float(i)) for i, one in enumerate(results)
    ]
    return made.run_of(made.document(scores))


@pytest.mark.parametrize("estimates", [[exactly(0.001)] * 6, reference_exposures([90.0] * 6, range(40))])
def test_canaries_at_the_last_ranks_are_never_clear(estimates):
    """As after unlearning that went too far, or with a model whose scores have the wrong sign."""
    one = the(scored(*estimates), "CM104")
    assert (one.status, one.severity) == ("not_measured", "info")
    assert one.title == "Canaries are more surprising than guessing explains"
    assert "the wrong sign" in one.evidence
    assert "unlearning" in one.evidence
    rule = check(scored(*estimates), parse_policy("[exposure]\nat_most = 10.0")).rules[0]
    assert (rule.outcome, "the wrong sign" in rule.evidence) == ("not_shown", True)
    plain = scored(*map(exactly, (0.2, 0.5, 0.9, 1.3, 2.1, 3.0)))
    assert the(plain, "CM104").status == "clear"
    assert check(plain, parse_policy("[exposure]\nat_most = 10.0")).outcome == "holds"
    # The rank of one that shares its score counts all others that share it, which says nothing.
    assert the(run_of(*estimates), "CM104").status == "clear"
