"""What reports and the gate say of users: found within the error budget, nobody cleared, names masked, and bad data silences the audit."""

import numpy as np
import pytest

from coalmine import check, findings_of, parse_policy
from coalmine.audits.provenance import report
from coalmine.audits.provenance.data_checks import DataCheck
from coalmine.audits.provenance.deciding import decided_again
from coalmine.audits.provenance.users import masked_names
from coalmine.evidence.measures import LEVEL
from coalmine.randomness import arrays
from coalmine.records.documents import differences
from coalmine.reports.conclusion import conclusion_of
from coalmine.reports.page.html import report_page
from reports import provenance_runs as made

MEMBERS = ("person1@example.org", "person3@example.org")
NOBODY = (0.1, 0.0, -1.0, -2.0)
SPOILED = {"baseline": made.blind(4, 199, 0.95, 0.001)}
BY_SHADOWS = made.provenance(non_members=(), classifier=made.FirstFeature())
# p = 0.04, which the audit accepts and the report does not.
MAY_BE_CHANCE = made.provenance((9.0,), tuple(range(-24, 0)))


def of(*documents):
    return [one for one in findings_of(made.run_of(*documents)) if one.key.startswith("provenance.")]


def the(findings, key="provenance.users"):
    (one,) = [one for one in findings if one.key == key]
    return one


def answer(*documents):
    return conclusion_of(findings_of(made.run_of(*documents))).answers[0].answer


def ruled(*documents):
    (rule,) = check(made.run_of(*documents), parse_policy("[provenance]\nno_user_found = true")).rules
    return rule


CASES = {
    "found": (made.provenance(), "CM601 high found", "broken"),
    "nobody": (made.provenance(NOBODY), "CM618 info not_measured", "holds"),
    "may be chance": (MAY_BE_CHANCE, "CM618 info not_measured", "not_shown"),
    # The report accepts 0.01, and the audit asked for 0.001: somebody whom nobody can name.
    "somebody": (made.provenance((9.0, 8.0, 0.0, 0.0), fdr=0.001), "CM601 medium found", "broken"),
    "together": (made.provenance((9.0,) * 10, (0.0,) * 15), "CM601 medium found", "broken"),
    "spoiled": (made.provenance(**SPOILED), "CM618 info not_measured", "not_shown"),
    "alone": (made.provenance(non_members=()), "CM618 info not_measured", "not_shown"),
    "shadows": (BY_SHADOWS, "CM618 info not_measured", "not_shown"),
    "unread": (made.provenance((None, None)), "CM618 info not_measured", "not_shown"),
    # Nobody could have been found.
    "few": (made.provenance(NOBODY, (0.0,) * 9), "CM618 info not_measured", "not_shown"),
    "too few": (made.provenance((0.0,), tuple(range(38))), "CM618 info not_measured", "not_shown"),
    "enough": (made.provenance((0.0,), tuple(range(39))), "CM618 info not_measured", "holds"),
    "same": (made.provenance((0.0,) * 9, (0.0,) * 199), "CM618 info not_measured", "not_shown"),
}


@pytest.mark.parametrize("name", CASES)
def test_findings_screen_and_gate_agree_on_what_is_shown(name):
    document, expected, gate = CASES[name]
    found = the(of(document))
    assert f"{found.code} {found.severity} {found.status}" == expected
    count = len(document.questions[0].found())
    answers = {"high": f"Found: {count} of 4", "medium": "Somebody's who was asked about"}
    assert answer(document) == answers.get(found.severity, "Nobody's is shown")
    rule = ruled(document)
    assert (rule.outcome, bool(rule.settle)) == (gate, gate == "not_shown")
    assert not any("person" in one.evidence + "".join(one.subject) for one in of(document))


def test_users_who_could_not_be_measured_clear_nobody_and_hide_nobody():
    assert ruled(made.provenance((0.0, None))).outcome == "not_shown"
    assert ruled(made.provenance((9.0, 8.0, None, None))).outcome == "broken"
    missing = [one for one in of(made.provenance((9.0, 8.0, None, 0.0))) if one.code == "CM618"]
    assert "1 of 4 users could not be measured (user 3: the texts have no token that the model knows)" in (
        missing[0].evidence
    )
    unmeasured = made.run_of(made.provenance((9.0, None)))
    assert check(unmeasured, parse_policy('require = ["provenance"]')).rules[0].outcome == "not_shown"


def test_known_members_are_recognized_and_not_accused():
    members = [f"person{place}@example.org" for place in range(1, 5)]
    document = made.provenance((9.0, 8.0, 9.0, 9.0), members=members)
    found = the(of(document), "provenance.known")
    assert (found.code, found.severity, found.status) == ("CM603", "high", "found")
    assert (answer(document), ruled(document).outcome) == ("Yes: 4 of 4", "broken")
    assert "recall is 1.000" in found.evidence
    truth = the(of(made.provenance(members=MEMBERS)))
    assert "recall is 0.500" in truth.evidence


@pytest.mark.parametrize("asks", ["texts", "user"])
def test_each_question_is_silenced_by_what_is_wrong_with_its_own_texts(asks):
    checks = {asks: (DataCheck(about="shared", effect="spoils", says="texts of user 2 are on both sides"),)}
    run = made.run_of(made.provenance(others=(9.0,) * 4, checks=checks))
    assert {one.test[2] for one in report.measures(run) if one.p_value is not None} == {"texts", "user"} - {
        asks
    }
    remarks = [one for one in findings_of(run) if one.key in {"provenance.apart", "provenance.shared"}]
    assert ("medium", "found") in {(one.severity, one.status) for one in remarks}


def test_scores_that_say_nothing_recognize_nobody_in_any_table_or_file():
    members = [f"person{place}@example.org" for place in range(1, 5)]
    document = made.provenance((9.0,) * 4, members=members, **SPOILED)
    (question,) = document.questions
    assert list(differences(document, decided_again(document))) == []
    assert {one.found for one in question.statistics} == {None}
    assert question.deciding.detection.recall.status == "not_measured"
    page = report_page([made.run_of(document)])
    for accusing in ("Found: ", "Yes: ", "4 of 4 users", "recall is"):
        assert accusing not in page


def test_models_that_saw_nobody_are_accused_within_the_level_of_the_report():
    generator = arrays(0, "provenance", "level")
    audits, accused, any_found = 400, 0, 0
    for _ in range(audits):
        scores = generator.normal(size=130)
        document = made.provenance(tuple(scores[:30]), tuple(scores[30:]), baseline=made.blind(30, 100))
        any_found += bool(document.questions[0].found())
        accused += any(one.status == "found" and one.code == "CM601" for one in of(document))
    # Three standard deviations above the levels: that of the report, and that of the audit, 5%.
    for count, level in ((accused, LEVEL), (any_found, 0.05)):
        assert count <= audits * level + 3 * np.sqrt(audits * level * (1 - level))


def test_names_are_masked_the_same_in_both_questions():
    document = made.provenance((0.0, 9.0, 8.0, 7.0), others=(9.0, 0.0, 0.0, 0.0))
    assert document.names()["person1@example.org"] == "user 1"
    assert document.names(reveal=True)["person1@example.org"] == "person1@example.org"
    assert made.provenance((0.0,), names=["\x1b[2J"]).names(reveal=True) == {"\x1b[2J": "\\x1b[2J"}
    assert masked_names(["row 3", "line x"], "document") == {"row 3": "row 3", "line x": "document 2"}
    run = made.run_of(made.provenance(others=(1.0, 9.0, 0.0, None), members=MEMBERS))
    assert "user 1" in report_page([run])
    assert "person" not in report_page([run])
    assert "person1@example.org" in report_page([run], reveal=True)
    by_line = the(of(made.provenance(by="document", names=["line 3", "line 5", "line 8", "line 9"])))
    assert by_line.subject == ("line 3", "line 5")
