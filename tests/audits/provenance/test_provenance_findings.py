"""Findings about provenance: users are found within the error budget, nobody is cleared, and bad data silences the audit."""

import io
import re

import msgspec
import numpy as np
import pytest
from rich.console import Console

from coalmine import Estimate, check, findings_of, parse_policy
from coalmine.audits import ProvenanceOptions
from coalmine.audits.provenance.blind_baseline import BlindBaseline
from coalmine.audits.provenance.data_checks import DataChecks
from coalmine.audits.provenance.deciding import decided, decided_again
from coalmine.audits.provenance.figures import scores_figure
from coalmine.audits.provenance.findings import provenance_suspicions
from coalmine.audits.provenance.table import decision_of, in_plain_words, statistics_table, users_table
from coalmine.evidence.budget import LEVEL
from coalmine.randomness import arrays
from coalmine.records.contradictions import differences
from coalmine.reports.conclusion import conclusion_of
from coalmine.reports.page.html import report_page
from reports import provenance_runs as made


def of(*documents):
    return findings_of(made.run_of(*documents))


def by_code(findings, code):
    return [one for one in findings if one.code == code]


def the(findings, code):
    (one,) = by_code(findings, code)
    return one


def test_users_are_found_by_numbers_and_not_by_name():
    findings = of(made.provenance())
    found = the(findings, "CM601")
    assert (found.severity, found.status) == ("high", "found")
    assert found.subject == ("user 1", "user 2")
    assert found.evidence.startswith(
        "2 of 4 users are found at a false-discovery rate of 5% by likelihood-ratio, against 199 non-members: user 1, user 2. If their "
        "texts were not used, scores this high, all taken together, would occur with probability 0.0012."
    )
    assert not by_code(findings, "CM602")
    assert not any("person" in one.evidence + "".join(one.subject) for one in findings)


def test_the_first_screen_answers_whose_data_it_is():
    found = conclusion_of(of(made.provenance()))
    assert [one.topic.question for one in found.answers] == [
        "Whose data was it trained on?",
        "What should I do?",
    ]
    assert found.answers[0].answer == "Found: 2 of 4"
    assert found.tone == found.answers[0].tone == "bad"
    assert found.sentence == "Text of suspects was used to train it."


def test_a_few_unusual_non_members_by_the_classifier_hide_nobody_whom_ratios_show():
    generator = arrays(0, "provenance", "unusual")
    own, calibration = (
        made.numbers(some)
        for some in (
            np.append(generator.normal(6, 1, 48), generator.normal(0, 1, 50)),
            generator.normal(0, 1, 54),
        )
    )
    calibration["rank-histogram"][:2, 0] = 20.0  # by the classifier alone
    there = made.available(classifier=made.FirstFeature())
    names = [f"{place}" for place in range(98)]
    question = decided("texts", names, own, calibration, there, ProvenanceOptions())
    found = {one.name: one.found for one in question.statistics}
    assert (question.deciding.name, found["rank-histogram"]) == ("likelihood-ratio", 0)
    assert found["likelihood-ratio"] >= 48


def test_without_provenance_the_first_screen_has_three_answers():
    findings = of()
    assert the(findings, "CM905").status == "not_tested"
    assert len(conclusion_of(findings).answers) == 3


def test_the_two_questions_are_kept_apart():
    findings = of(made.provenance(others=(0.0, 0.1, 0.2, 0.3)))
    assert the(findings, "CM601").status == "found"
    assert the(findings, "CM602").status == "not_measured"
    findings = of(made.provenance((0.0, 0.1, 0.2, 0.3), others=(9.0, 8.0, 7.0, 0.0)))
    assert (the(findings, "CM601").status, the(findings, "CM602").status) == ("not_measured", "found")
    assert conclusion_of(findings).sentence.endswith("Suspects took part in its training.")


def test_nobody_is_ever_cleared():
    findings = of(made.provenance((0.1, 0.0, -1.0, -2.0), others=(0.1, 0.0, -1.0, -2.0)))
    for code in ("CM601", "CM602"):
        one = the(findings, code)
        assert (one.severity, one.status) == ("info", "not_measured")
        assert "That does not show that" in one.evidence
        assert (
            "With 199 non-members no p-value is below 0.005, which is enough to find one of 4 users at 5%."
            in one.evidence
        )
    found = conclusion_of(findings)
    assert (found.answers[0].answer, found.answers[0].tone) == ("Nobody was found", "open")


def test_users_who_are_found_by_the_audit_and_not_within_the_budget_of_the_report():
    # One of one suspect above 24 non-members: p = 0.04, which the audit accepts and the report does not.
    findings = of(made.provenance((9.0,), tuple(range(-24, 0))))
    found = the(findings, "CM601")
    assert (found.severity, found.status) == ("info", "not_measured")
    assert "may be chance" in found.evidence
    assert "for that at least 39 non-members" in the(findings, "CM616").evidence


def test_somebody_whom_nobody_can_name():
    # The report accepts 0.01, and the audit asked for 0.001.
    findings = of(made.provenance((9.0, 8.0, 0.0, 0.0), fdr=0.001))
    found = the(findings, "CM601")
    assert (found.severity, found.status, found.subject) == ("medium", "found", ())
    assert conclusion_of(findings).answers[0].answer == "Somebody's who was asked about"
    assert "it cannot be said whose." in found.evidence
    document = made.provenance((9.0, 8.0, 0.0, 0.0), fdr=0.001)
    assert "it cannot be said whose." in " ".join(in_plain_words(document, document.questions[0]))


def test_where_the_truth_is_known_it_is_said():
    found = the(of(made.provenance(members=["person1@example.org", "person3@example.org"])), "CM601")
    assert [one.method for one in found.estimates] == [
        "suspects found",
        "recall",
        "precision",
        "area under the ROC curve",
    ]
    assert "Recall is 0.500" in found.evidence


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ({"blind_baseline": made.blind(4, 199, 0.95, 0.001)}, "CM611"),
        (
            {
                "checks": DataChecks(
                    time_ranges=made.times(others=("2019-01-01", "2019-02-01"), within=(0.0, 0.0))
                )
            },
            "CM612",
        ),
        ({"checks": DataChecks(overlaps=(made.overlap(users=1),))}, "CM615"),
        ({"checks": DataChecks(overlaps=(made.overlap(texts=5),))}, "CM615"),
        ({"checks": DataChecks(overlaps=(made.overlap("suspects", "reference", users=3),))}, "CM615"),
        ({"checks": DataChecks(overlaps=(made.overlap("suspects", "reference", texts=5),))}, "CM615"),
        ({"checks": DataChecks(overlaps=(made.overlap("non-members", "reference", texts=400),))}, "CM615"),
    ],
)
def test_data_that_cannot_be_compared_silences_the_audit(parts, code):
    run = made.run_of(made.provenance(**parts))
    assert list(provenance_suspicions(run)) == []
    findings = findings_of(run)
    assert (the(findings, code).severity, the(findings, code).status) == ("medium", "found")
    one = the(findings, "CM601")
    assert (one.severity, one.status, one.subject) == ("info", "not_measured", ())
    assert "cannot be said" in one.title
    found = conclusion_of(findings)
    assert found.answers[0].answer == "Cannot be said"
    assert found.answers[1].answer == "Mend the measurement"


def test_who_shares_texts_is_named_and_what_was_left_out_is_said():
    shared = (
        made.overlap(texts=5, sharing=(2, 4)),
        made.overlap("non-members", "reference", texts=1, sharing=(7,)),
    )
    document = made.provenance(checks=DataChecks(overlaps=shared))
    said = the(of(document), "CM615").evidence
    assert "5 of 400 texts of suspects are also among non-members (user 2, user 4)" in said
    assert "(non-member 7)" in said
    assert "(user 2, user 4)" in the(of(document), "CM601").evidence
    left = msgspec.structs.replace(made.provenance(), left_out="3 texts were left out.")
    assert the(of(left), "CM615").evidence == "3 texts were left out."
    assert "3 texts were left out." in in_plain_words(left, left.questions[0])


@pytest.mark.parametrize(
    ("suspects", "blind"),
    [
        ((9.0,), "unmeasured"),
        ((9.0, 8.0, 7.0), "unmeasured"),
        ((9.0, 8.0, 7.0, 6.0), "powerless"),
        ((9.0, 8.0, 7.0, 6.0), "would not see"),
        ((0.0,), "unmeasured"),
        ((0.0, 0.1, 0.0, 0.1), "powerless"),
    ],
)
def test_without_a_baseline_that_could_notice_a_difference_nothing_can_be_said(suspects, blind):
    many = len(suspects)
    baseline = {
        "unmeasured": BlindBaseline(
            auc=Estimate.not_measured("blind baseline", "too few"),
            p_value=None,
            groups=(),
            suspects=many,
            non_members=199,
            orders=0,
        ),
        "powerless": msgspec.structs.replace(made.blind(many, 199), smallest_p_value=0.05),
        "would not see": made.blind(many, 199, scores_p_value=0.05),
    }[blind]
    document = made.provenance(suspects, blind_baseline=baseline)
    run = made.run_of(document)
    found = findings_of(run)
    assert (the(found, "CM601").status, the(found, "CM601").severity) == ("not_measured", "info")
    conclusion = conclusion_of(found)
    assert conclusion.answers[0].answer == "Cannot be said"
    assert conclusion.sentence == "Whether text of suspects was used cannot be said."
    (rule,) = check(run, parse_policy("[provenance]\nno_user_found = true")).rules
    assert rule.outcome == "not_shown"
    assert "CANNOT BE INTERPRETED" in in_plain_words(document, document.questions[0])[0]
    assert {row.decision for row in document.questions[0].rows} == {"cannot be said"}
    said = io.StringIO()
    Console(file=said, width=200).print(
        users_table(document, document.questions[0]), statistics_table(document, document.questions[0])
    )
    assert not re.search(rf"(?<!not )found(?! +p of)|of {many}", said.getvalue())


def test_scores_that_say_nothing_recognize_nobody_in_any_table_or_file():
    members = [f"person{place}@example.org" for place in range(1, 5)]
    document = made.provenance((9.0,) * 4, members=members, blind_baseline=made.blind(4, 199, 0.95, 0.001))
    (question,) = document.questions
    assert list(differences(document, decided_again(document))) == []
    assert {one.found for one in question.statistics} == {None}
    assert question.deciding.detection.recall.status == "not_measured"
    page = report_page([made.run_of(document)])
    for accusing in ("Found: ", "Yes: ", "4 of 4 users", "recall is", "suspects, found"):
        assert accusing not in page


def test_a_figure_finds_nobody_whom_chance_or_the_classifier_alone_puts_there():
    for document in (
        made.provenance((9.0,), tuple(range(-24, 0))),
        made.provenance(non_members=(), classifier=made.FirstFeature()),
    ):
        rows = scores_figure(document).rows
        assert "suspects, found" not in {row["kind"] for row in rows}


def test_an_answer_is_not_plain_where_another_result_discredits_it():
    members = [f"person{place}@example.org" for place in range(1, 5)]
    scores = (9.0, 8.0, 9.0, 9.0)
    bad = {"others_blind_baseline": made.blind(4, 199, 0.95, 0.001)}
    found = conclusion_of(of(made.provenance(scores, others=scores, members=members, **bad)))
    assert found.answers[0].answer == "Yes: 4 of 4, by one result; another cannot be interpreted"
    assert "without any model" in found.answers[0].detail
    assert found.sentence.endswith("by one result; another cannot be interpreted.")


def test_what_was_found_by_these_texts_stands_if_other_texts_say_nothing():
    bad = {"others_blind_baseline": made.blind(4, 199, 0.95, 0.001)}
    found = conclusion_of(of(made.provenance((9.0, 8.0, 9.0, 9.0), others=(9.0, 9.0, 9.0, 9.0), **bad)))
    assert (found.answers[0].answer, found.sentence) == (
        "Found: 4 of 4",
        "Text of suspects was used to train it. Whether suspects took part cannot be said.",
    )


def test_terminal_and_report_say_the_same_of_what_may_be_chance():
    # p = 0.04, which the audit accepts and the report does not.
    document = made.provenance((9.0,), tuple(range(-24, 0)))
    assert [row.decision for row in document.questions[0].rows] == ["found"]
    assert "That MAY BE CHANCE" in in_plain_words(document, document.questions[0])[1]
    decide = decision_of(document, document.questions[0])
    assert [decide(row) for row in document.questions[0].rows] == ["may be chance"]
    said = conclusion_of(of(document))
    assert said.answers[0].answer == "Not beyond chance"
    assert said.sentence == "It is not shown that text of suspects was used beyond chance."


OTHER_TIMES = made.times(others=("2019-01-01", "2019-02-01"), within=(0.0, 0.0))


@pytest.mark.parametrize(
    ("parts", "silent"),
    [
        ({"blind_baseline": made.blind(4, 199, 0.95, 0.001)}, "CM601"),
        ({"others_blind_baseline": made.blind(4, 199, 0.95, 0.001)}, "CM602"),
        ({"checks": DataChecks(time_ranges=OTHER_TIMES)}, "CM601"),
        ({"checks": DataChecks(others_time_ranges=OTHER_TIMES)}, "CM602"),
        ({"checks": DataChecks(overlaps=(made.overlap("suspects", "non-members", texts=5),))}, "CM601"),
        ({"checks": DataChecks(overlaps=(made.overlap("suspects", "others", texts=5),))}, "CM602"),
        ({"checks": DataChecks(overlaps=(made.overlap("others", "non-members", texts=5),))}, "CM602"),
        ({"checks": DataChecks(overlaps=(made.overlap("non-members", "reference", texts=5),))}, ""),
    ],
)
def test_each_question_is_silenced_by_what_is_wrong_with_its_own_texts(parts, silent):
    findings = of(made.provenance(others=(9.0, 9.0, 9.0, 9.0), **parts))
    for code in ("CM601", "CM602"):
        expected = "not_measured" if silent in {code, ""} else "found"
        assert by_code(findings, code)[0].status == expected


@pytest.mark.parametrize(
    ("parts", "code", "severity", "status"),
    [
        ({"blind_baseline": made.blind(200, 200, 0.5, 0.7)}, "CM611", "pass", "clear"),
        ({"blind_baseline": made.blind(4, 199, 0.5, 0.7)}, "CM611", "info", "not_measured"),
        ({"checks": DataChecks(time_ranges=made.times(within=(0.4, 0.9)))}, "CM612", "low", "found"),
        ({"checks": DataChecks()}, "CM612", "info", "not_tested"),
        ({"checks": DataChecks(repeated_texts=made.repeated())}, "CM613", "info", "found"),
        ({"checks": DataChecks(repeated_texts=made.repeated(shared=3))}, "CM613", "low", "found"),
        ({"checks": DataChecks(unknown_words=made.differing_words())}, "CM614", "low", "found"),
        ({"checks": DataChecks(overlaps=(made.overlap(texts=4),))}, "CM615", "info", "found"),
    ],
)
def test_what_is_said_about_data_and_silences_nothing(parts, code, severity, status):
    findings = of(made.provenance(**parts))
    assert (the(findings, code).severity, the(findings, code).status) == (severity, status)
    assert the(findings, "CM601").status == "found"


@pytest.mark.parametrize("code", ["CM612", "CM613", "CM614", "CM615", "CM616"])
def test_data_without_a_problem_has_no_finding(code):
    checks = DataChecks(
        time_ranges=made.times(), repeated_texts=made.repeated(shared=0), unknown_words=made.same_words()
    )
    assert not by_code(of(made.provenance(checks=checks)), code)


def test_too_few_non_members_say_what_they_can_show():
    few = the(of(made.provenance((9.0,) * 20, tuple(range(-60, 0)))), "CM616")
    assert few.evidence == (
        "With 60 non-members no p-value is below 0.016, so at least 7 of 20 users must score above all of them for any to be found at 5%. "
        "It takes 399 non-members to find one user alone."
    )
    none = the(of(made.provenance((9.0,), (0.0,) * 9)), "CM616")
    assert "nobody can be found at 5%, whatever the scores are; that takes 19 non-members" in none.evidence


def test_calibrated_on_shadows_is_never_found():
    findings = of(
        made.provenance(non_members=(), classifier=made.FirstFeature(), others=(1.0, -1.0, 1.0, 1.0))
    )
    found = the(findings, "CM617")
    assert (found.severity, found.status) == ("info", "not_measured")
    assert found.evidence.startswith(
        "3 of 4 users are on the member side of the audit classifier (question 'texts')."
    )
    assert "(question 'user')" in found.evidence
    assert not {"CM601", "CM602", "CM611", "CM616"} & {one.code for one in findings}
    said = conclusion_of(findings)
    assert said.answers[0].answer == "Cannot be said"
    assert said.sentence == "Whether text of suspects was used cannot be said."


def test_what_could_not_be_measured_says_why():
    none = the(of(made.provenance(reference=False, moments=False)), "CM618")
    assert made.NO_CLASSIFIER in none.evidence
    assert "there is no model to compare with" in none.evidence
    asked = the(of(made.provenance(statistic="rmia")), "CM618")
    assert "shadow models" in asked.evidence
    assert "min-k++" not in asked.evidence
    alone = the(of(made.provenance(non_members=())), "CM618")
    assert "there are no non-members to compare scores of likelihood-ratio with" in alone.evidence
    some = the(of(made.provenance((9.0, None, 8.0, 0.0))), "CM618")
    assert (
        some.evidence
        == "1 of 4 users could not be measured. User 2: the texts have no token that the model knows."
    )


def test_documents_are_called_by_their_lines():
    found = the(of(made.provenance(by="document", names=["line 3", "line 5", "line 8", "line 9"])), "CM601")
    assert found.subject == ("line 3", "line 5")
    assert found.evidence.startswith("2 of 4 documents are found")


def test_models_that_saw_nobody_are_accused_within_the_level_of_the_report():
    generator = arrays(0, "provenance", "level")
    audits, accused, any_found = 400, 0, 0
    for _ in range(audits):
        scores = generator.normal(size=130)
        document = made.provenance(tuple(scores[:30]), tuple(scores[30:]), blind_baseline=made.blind(30, 100))
        any_found += bool(document.questions[0].found())
        accused += any(one.status == "found" and one.code == "CM601" for one in of(document))
    # Three standard deviations above the levels: that of the report, and that of the audit, 5%.
    for count, level in ((accused, LEVEL), (any_found, 0.05)):
        assert count <= audits * level + 3 * np.sqrt(audits * level * (1 - level))


def test_each_question_of_each_result_is_a_test_of_its_own():
    document = made.provenance(others=(0.0, 0.0, 0.0, 0.0))
    tests = list(provenance_suspicions(made.run_of(document, document)))
    assert [(one.kind, one.key) for one in tests] == [
        ("provenance", ("0", "texts")),
        ("provenance", ("0", "user")),
        ("provenance", ("1", "texts")),
        ("provenance", ("1", "user")),
    ]
    assert tests[0].p_value == document.questions[0].deciding.p_value == pytest.approx(0.00117, rel=1e-2)


def test_a_result_without_a_deciding_statistic_keeps_its_place_among_others():
    silent = msgspec.structs.replace(made.provenance(statistic="rmia"))
    findings = of(silent, made.provenance())
    assert the(findings, "CM601").status == "found"
    assert the(findings, "CM618").status == "not_measured"
