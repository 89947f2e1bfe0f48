"""Rules about provenance: broken by users who are found, never passed by an audit that could not have found anybody."""

import pytest

from coalmine import check, findings_of, parse_policy
from coalmine.audits.provenance.data_checks import DataChecks
from coalmine.errors import InputError
from reports import provenance_runs as made

NOBODY = (0.1, 0.0, -1.0, -2.0)


def checked(*documents, lines="no_user_found = true"):
    return check(made.run_of(*documents), parse_policy(f"[provenance]\n{lines}"))


def only(*documents, lines="no_user_found = true"):
    (rule,) = checked(*documents, lines=lines).rules
    return rule


def test_a_user_who_is_found_breaks_the_rule():
    found = only(made.provenance())
    assert (found.rule, found.outcome, found.judged) == ("provenance.no_user_found", "broken", 4)
    assert found.asks == "no user found at a false-discovery rate of 5%"
    assert found.evidence == "2 of 4 users found by likelihood-ratio, against 199 non-members: user 1, user 2"
    assert found.details == ("user 1: adjusted p-value 0.01", "user 2: adjusted p-value 0.01")
    assert (found.settle, found.chance) == ("", pytest.approx(0.00117, rel=1e-2))


def test_nobody_found_is_called_that_and_no_more():
    found = only(made.provenance(NOBODY))
    assert (found.outcome, found.words) == ("holds", "no user found")
    assert found.evidence.startswith(
        "none of 4 users found by likelihood-ratio, against 199 non-members; smallest adjusted p-value 1"
    )
    assert (
        "With 199 non-members no p-value is below 0.005, which is enough to find one of 4 users at 5%."
        in found.evidence
    )
    assert found.evidence.endswith("That nobody is found does not prove that no text was used")
    assert checked(made.provenance(NOBODY)).exit_code == 0


def test_the_rate_is_that_of_the_policy_whatever_the_audit_asked_for():
    document = made.provenance((9.0, 8.0, 0.0, 0.0), fdr=0.008)
    assert document.questions[0].found() == ()
    assert "none of 4 users found" in only(document).evidence
    assert "2 of 4 users found" in only(document, lines="no_user_found = true\nfdr = 0.05").evidence
    strict = made.provenance((9.0, -30.0), tuple(range(-24, 0)), fdr=0.3)
    assert only(strict, lines="no_user_found = true\nfdr = 0.001").outcome == "not_shown"


@pytest.mark.parametrize(
    ("suspects", "non_members"),
    [((9.0,) * 10, (0.0,) * 15), (tuple(n / 40 for n in range(20, 77)), made.OTHERS)],
)
def test_scores_that_show_together_that_texts_were_used_break_the_rule_too(suspects, non_members):
    document = made.provenance(suspects, non_members)
    assert document.questions[0].found() == ()
    assert any(one.code == "CM601" and one.status == "found" for one in findings_of(made.run_of(document)))
    broken = only(document)
    assert broken.outcome == "broken"
    assert "so texts of some of these users were used, and it cannot be said whose" in broken.evidence


def test_chance_breaks_no_rule():
    # 0.04 is within the false-discovery rate, and above what a gate may err.
    found = only(made.provenance((9.0,), tuple(range(-24, 0))))
    assert found.outcome == "not_shown"
    assert "chance gives as much in up to 4% of runs" in found.evidence
    assert "--others" in found.settle
    assert "canaries" not in found.settle


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"non_members": ()}, "there are no non-members"),
        ({"non_members": (), "classifier": made.FirstFeature()}, "there are no non-members"),
        ({"reference": False, "moments": False}, "no statistic could be computed"),
        ({"blind_baseline": made.blind(4, 199, 0.95, 0.001)}, "by their words"),
        (
            {"checks": DataChecks(overlaps=(made.overlap(users=1),))},
            "1 of 20 users of suspects are also among non-members",
        ),
        ({"non_members": (0.0,) * 9}, "nobody can be found at 5%"),
        ({"suspects": (0.0,), "non_members": tuple(range(38))}, "which 38 non-members cannot give"),
        ({"suspects": (0.0, None)}, "1 of 2 users could not be measured"),
        ({"suspects": (None, None)}, "none of 2 users could be measured"),
        ({"suspects": (0.0,) * 9, "non_members": (0.0,) * 199}, "all users have the same score"),
    ],
)
def test_an_audit_that_could_not_have_found_anybody_passes_nothing(parts, why):
    found = only(made.provenance(**{"suspects": NOBODY, **parts}))
    assert found.outcome == "not_shown"
    assert why in found.evidence
    assert found.settle


def test_a_user_is_found_even_if_another_could_not_be_measured_or_there_are_few_non_members():
    assert only(made.provenance((9.0, 8.0, None, None))).outcome == "broken"
    assert only(made.provenance(), lines="no_user_found = true\nmin_non_members = 200").outcome == "broken"


def test_as_many_non_members_as_the_gate_needs():
    assert only(made.provenance((0.0,), tuple(range(39)))).outcome == "holds"
    assert only(made.provenance((99.0,), tuple(range(39)))).outcome == "broken"


def test_the_fewest_non_members():
    document = made.provenance(NOBODY)
    assert only(document, lines="no_user_found = true\nmin_non_members = 199").outcome == "holds"
    few = only(document, lines="no_user_found = true\nmin_non_members = 200")
    assert few.outcome == "not_shown"
    assert few.evidence == "199 non-members were compared with, and the policy asks for at least 200"


def test_each_question_has_its_own_outcome():
    outcomes = [(one.rule, one.outcome) for one in checked(made.provenance(others=NOBODY)).rules]
    assert outcomes == [
        ("provenance.no_user_found (texts)", "broken"),
        ("provenance.no_user_found (user)", "holds"),
    ]
    several = checked(made.provenance(), made.provenance(NOBODY)).rules
    assert [one.rule for one in several] == [
        "provenance.no_user_found (run/0/provenance.json)",
        "provenance.no_user_found (run/1/provenance.json)",
    ]


def test_what_was_not_audited_never_passes():
    found = only()
    assert (found.outcome, found.evidence, found.settle) == (
        "not_shown",
        "there is no result of this audit",
        "run `coalmine provenance`",
    )


def test_a_policy_that_requires_it():
    policy = parse_policy('require = ["provenance"]')
    (absent,) = check(made.run_of(), policy).rules
    assert absent.outcome == "not_shown"
    (there,) = check(made.run_of(made.provenance()), policy).rules
    assert there.outcome == "holds"
    (partly,) = check(made.run_of(made.provenance((9.0, None))), policy).rules
    assert (partly.outcome, partly.evidence) == ("not_shown", "1 of 2 users could not be measured")
    assert "leave them out of the suspects" in partly.settle


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("no_user_found = false", "can only be true"),
        ("fdr = 0.05", "has no limit"),
        ("min_non_members = 10", "has no limit"),
        ("no_user_found = true\nfdr = 0", "above 0 and below 1"),
        ("no_user_found = true\nfdr = 1", "above 0 and below 1"),
        ("no_user_found = true\nfdr = 5", "is a share between 0 and 1"),
        ("no_user_found = true\nmin_non_members = 0", "must be at least 1"),
        ("no_users_found = true", "did you mean 'no_user_found'"),
        ("no_user_found = 1", "bool"),
    ],
)
def test_rules_that_cannot_be(lines, message):
    with pytest.raises(InputError, match=message):
        parse_policy(f"[provenance]\n{lines}")
