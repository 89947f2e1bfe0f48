"""Findings about membership and epsilon: at each threshold, with their severity, their evidence and their share of the error."""

import msgspec
import pytest

from coalmine import Estimate, findings_of
from coalmine.audits.membership.findings import membership_suspicions, population_name
from reports import verdict_parts as made

SHOWN, CHANCE = 1e-9, 0.9


def run_of(*populations, exposures=(), **parts):
    return made.run_of(*exposures, memberships=[made.memberships(*populations, **parts)])


def found(run, code):
    return [one for one in findings_of(run) if one.code == code]


def the(run, code):
    (one,) = found(run, code)
    return one


def test_every_test_of_a_population_takes_its_share():
    rates = (
        made.rate(0.3, 0.2, 0.4, at="10%"),
        made.rate(0.2, 0.1, 0.3),
        made.rate(None, None, None, at="0.1%", measured=False),
    )
    first = made.population(p_value=0.1, rates=rates, rate_p_values=(0.2, 0.3, None), epsilon_p_value=0.4)
    pooled = made.population("all", pooled=True, p_value=0.0, epsilon_p_value=0.0)
    second = made.population("four", copies=4, format_id=None, p_value=0.5)
    documents = [
        made.memberships(first, pooled, verdict=made.verdict("violated", p_value=0.6)),
        made.memberships(second),
    ]
    assert list(membership_suspicions(made.run_of(memberships=documents))) == [
        ("membership", ("0", "f0", "1", "planted once", "area"), 0.1),
        ("membership", ("0", "f0", "1", "planted once", "rate"), 0.3),
        ("membership", ("0", "f0", "1", "planted once", "epsilon"), 0.4),
        ("claim", ("0",), 0.6),
        ("membership", ("1", "", "4", "four", "area"), 0.5),
    ]
    assert not [one for one in findings_of(made.run_of(memberships=documents)) if "all" in one.subject]


@pytest.mark.parametrize(
    ("auc", "p_value", "status", "severity"),
    [
        (made.area(0.85, 0.8, 0.9), SHOWN, "found", "high"),
        (made.area(0.85, 0.8, 0.899), SHOWN, "found", "medium"),
        (made.area(0.65, 0.6, 0.7), SHOWN, "found", "medium"),
        (made.area(0.65, 0.6, 0.699), SHOWN, "found", "low"),
        (made.area(0.65, 0.6, 0.7), 0.025, "found", "medium"),
        (made.area(0.65, 0.6, 0.7), 0.0251, "not_measured", "info"),
        (made.area(0.55, 0.5, 0.6), CHANCE, "clear", "pass"),
        (made.area(0.55, 0.5, 0.601), CHANCE, "not_measured", "info"),
        (made.area(0.85, 0.8, 0.9), CHANCE, "not_measured", "info"),
        (made.unknown("AUC"), SHOWN, "not_measured", "info"),
        (made.area(0.85, None, 0.9), SHOWN, "not_measured", "info"),
        (made.area(0.85, 0.8, None), SHOWN, "not_measured", "info"),
    ],
)
def test_the_area(auc, p_value, status, severity):
    one = the(run_of(made.population(auc=auc, p_value=p_value)), "CM301")
    assert (one.status, one.severity, one.subject) == (status, severity, ("planted once",))
    assert one.evidence == (
        f"Planted planted once, 40 against 100: {auc.statement}; exposures this high occur by chance with probability {p_value:.2g}."
    )
    assert one.estimates == (auc, made.population().guessing.median)
    too_few = "Too few scores to say whether members can be told from non-members"
    assert (one.title == too_few) == (
        status == "not_measured" and auc.status == "measured" and None not in (auc.low, auc.high)
    )


@pytest.mark.parametrize(
    ("times", "planned", "planted", "format_id", "counts"),
    [
        (4, None, True, "f0", True),
        (2, 4, True, "f0", True),
        (4, 2, True, "f0", False),
        (1, None, True, "f0", False),
        (4, None, True, "f1", False),
        (0, 4, False, "f0", False),
    ],
)
def test_an_area_does_not_clear_a_population_with_a_memorized_canary(
    times, planned, planted, format_id, counts
):
    exactly = made.interval(20.0, 20.0, 20.0, confidence=None, method="exact")
    results = [
        made.result("a", exactly, times=times, planned=planned, planted=planted, format_id=format_id),
        made.result("b", made.interval(0.5, 0.5, 0.5, confidence=None, method="exact")),
    ]
    one = the(
        run_of(made.population(copies=4), exposures=[made.document(results, formats=("f0", "f1"))]), "CM301"
    )
    assert one.status == ("not_measured" if counts else "clear")
    assert ("; 1 of them is memorized" in one.evidence) == counts


def test_several_memorized_canaries_are_counted():
    exactly = made.interval(20.0, 20.0, 20.0, confidence=None, method="exact")
    document = made.document([made.result(name, exactly) for name in "ab"])
    one = the(run_of(made.population(copies=4), exposures=[document]), "CM301")
    assert (one.status, one.severity) == ("not_measured", "info")
    assert "; 2 of them are memorized" in one.evidence


def plain(rate):
    """The rate as a finding has it: an Estimate, without the field that only rates have."""
    return msgspec.convert(msgspec.to_builtins(rate), Estimate)


@pytest.mark.parametrize(
    ("high", "p_value", "status", "severity"),
    [
        (0.5, SHOWN, "found", "high"),
        (0.499, SHOWN, "found", "medium"),
        (None, SHOWN, "found", "medium"),
        (0.9, CHANCE, "not_measured", "info"),
        (0.9, None, "not_measured", "info"),
    ],
)
def test_the_rate_at_the_fewest_false_alarms_that_could_be_measured(high, p_value, status, severity):
    measured = (made.rate(0.9, 0.8, 0.95, at="10%"), made.rate(0.4, 0.3, high))
    missing = made.rate(None, None, None, at="0.1%", measured=False)
    one = made.population(
        rates=(*measured, missing), rate_p_values=() if p_value is None else (CHANCE, p_value, None)
    )
    run = run_of(one)
    rate = the(run, "CM302")
    assert (rate.status, rate.severity, rate.estimates) == (status, severity, (plain(measured[1]),))
    chance = {
        SHOWN: "; chance gives as much with probability 1e-09",
        CHANCE: "; chance gives as much with probability 0.9",
        None: "",
    }
    assert rate.evidence == f"Planted planted once: TPR at FPR 1%: 0.4{chance[p_value]}."
    absent = the(run, "CM912")
    assert (absent.status, absent.estimates) == ("not_measured", (plain(missing),))
    assert absent.evidence == "Planted planted once: TPR at FPR 0.1%: too few references."
    assert not found(run_of(made.population(rates=(missing,))), "CM302")
    assert not found(run_of(made.population(rates=measured)), "CM912")


@pytest.mark.parametrize(
    ("low", "p_value", "status", "severity"),
    [
        (8.0, SHOWN, "found", "high"),
        (7.99, SHOWN, "found", "medium"),
        (1.0, SHOWN, "found", "medium"),
        (0.99, SHOWN, "found", "low"),
        (0.005, SHOWN, "found", "low"),
        (0.00499, SHOWN, "not_measured", "info"),
        (0.0, SHOWN, "not_measured", "info"),
        (8.0, CHANCE, "not_measured", "info"),
        (8.0, None, "not_measured", "info"),
    ],
)
def test_a_bound_on_epsilon(low, p_value, status, severity):
    population = made.population(epsilon=(low, low), epsilon_p_value=p_value, ceiling=9.876)
    one = the(run_of(population), "CM304")
    assert (one.status, one.severity) == (status, severity)
    if low < 0.005:
        assert one.evidence == (
            "Planted planted once: nothing about epsilon can be shown (95% confidence, delta 1e-05); the most this many scores could "
            "prove is 9.87."
        )
        assert one.estimates == (population.best.canary,)
    else:
        assert (
            f"epsilon is at least {int(low * 100) / 100:.2f} (95% confidence, delta 1e-05; coins); "
            in one.evidence
        )
        assert one.estimates == (population.best.canary, population.best.one_copy)
        assert ("may be chance" in one.evidence) == (status == "not_measured")


def test_the_bound_for_one_copy_is_told_where_there_were_several():
    def evidence(copies, one_copy):
        run = run_of(made.population(copies=copies, epsilon=(4.0, one_copy), epsilon_p_value=SHOWN))
        return the(run, "CM304").evidence

    assert "at least 4.00, and at least 1.99 for one copy (" in evidence(2, 1.999)
    assert "for one copy" not in evidence(1, 1.999)
    assert "for one copy" not in evidence(2, None)
    alone = the(run_of(made.population(epsilon=(4.0, None), epsilon_p_value=SHOWN)), "CM304")
    assert len(alone.estimates) == 1
    nothing = the(run_of(made.population(epsilon=(made.unknown(), None), epsilon_p_value=SHOWN)), "CM304")
    assert nothing.status == "not_measured"
    assert "nothing about epsilon can be shown" in nothing.evidence


@pytest.mark.parametrize(
    ("verdict", "severity", "status"),
    [
        (made.verdict("violated", p_value=0.0125, power=None), "critical", "found"),
        (made.verdict("violated", p_value=0.0126, power=None), "info", "not_measured"),
        (made.verdict("consistent"), "pass", "clear"),
        (made.verdict("too little power"), "info", "not_measured"),
    ],
)
def test_a_claim(verdict, severity, status):
    """The area and the claim share 2.5% in equal parts."""
    one = the(run_of(made.population(p_value=CHANCE), verdict=verdict), "CM303")
    assert (one.severity, one.status) == (severity, status)
    power = "." if verdict.power is None else "; power 0.90 against epsilon 2)."
    assert one.evidence.startswith(f"The claimed epsilon 1 is {verdict.outcome} (p = {verdict.p_value:.2g}")
    assert power in one.evidence
    assert ("it may be chance" in one.evidence) == (severity == "info" and verdict.outcome == "violated")
    assert not found(run_of(made.population()), "CM303")
    assert bool(found(run_of(made.population()), "CM907"))
    assert not found(run_of(made.population(), verdict=verdict), "CM907")


@pytest.mark.parametrize(
    ("name", "template", "shown"),
    [
        ("once", None, "once"),
        ("once", "my pin is {digits:4}", "once (my pin is {digits:4})"),
        ("my pin is ..., once", "my pin is {digits:4}", "my pin is ..., once"),
    ],
)
def test_a_population_is_named_with_its_format(name, template, shown):
    assert population_name(made.population(name, template=template)) == shown


def test_populations_that_say_the_same_are_one_finding():
    run = run_of(made.population(), made.population("planted twice", copies=2))
    one = the(run, "CM301")
    assert one.subject == ("planted once", "planted twice")
    assert one.evidence.count("Planted planted") == 2
    assert len(one.estimates) == 4


BELOW = made.area(0.1, 0.0, 0.49)


def test_members_that_score_lower_are_never_clear():
    """Half of the error of the interval is on each side: below one half nothing is shown, and both reasons are named."""
    one = the(run_of(made.population(auc=BELOW, p_value=1.0)), "CM301")
    assert (one.status, one.severity, one.title) == (
        "not_measured",
        "info",
        "Members score lower than non-members",
    )
    assert "the wrong sign" in one.evidence
    assert "unlearning" in one.evidence
    assert the(run_of(made.population(auc=made.area(0.45, 0.3, 0.5), p_value=1.0)), "CM301").status == "clear"


@pytest.mark.parametrize("auc", [BELOW, made.unknown("AUC")])
def test_scores_without_an_answer_do_not_make_a_claim_consistent(auc):
    run = run_of(made.population(auc=auc, p_value=1.0), verdict=made.verdict("consistent"))
    one = the(run, "CM303")
    assert (one.status, one.severity) == ("not_measured", "info")
    assert auc.statement in one.evidence
