"""Tables, figures and the page of provenance: names are masked, numbers are those of the result, and everything is drawn."""

import io
import json

import pytest
from rich.console import Console

from audits.provenance.small_users import SMALL, small_users
from coalmine import findings_of, fit_provenance, read_runs
from coalmine.audits.provenance import figures, table
from coalmine.audits.provenance.fit import FITS
from coalmine.audits.provenance.users import masked_names
from coalmine.reports import export
from coalmine.reports.page.html import report_page
from coalmine.reports.reported import reported
from coalmine.training.record import TRAININGS
from reports import provenance_runs as made

MEMBERS = ("person1@example.org", "person3@example.org")


def printed(*parts):
    console = Console(file=io.StringIO(), width=400, legacy_windows=False)
    for part in parts:
        console.print(part)
    return console.file.getvalue()


def whole(**parts):
    return made.provenance(others=(1.0, 9.0, 0.0, None), members=MEMBERS, ablation=True, **parts)


def test_users_have_the_same_number_in_both_questions():
    document = made.provenance((0.0, 9.0, 8.0, 7.0), others=(9.0, 0.0, 0.0, 0.0))
    names = document.names()
    assert names["person1@example.org"] == "user 1"
    assert [row.user for row in document.questions[1].found()] == ["person1@example.org"]
    assert document.names(reveal=True)["person1@example.org"] == "person1@example.org"


def test_names_cannot_control_a_terminal():
    assert made.provenance((0.0,), names=["\x1b[2J"]).names(reveal=True) == {"\x1b[2J": "\\x1b[2J"}


def test_a_document_is_masked_unless_its_name_is_a_place():
    assert masked_names(["line 12", "row 3", "line x", "secret"], "document") == {
        "line 12": "line 12",
        "row 3": "row 3",
        "line x": "document 3",
        "secret": "document 4",
    }
    assert masked_names(["line 12"], "user") == {"line 12": "user 1"}


def test_the_table_of_users():
    document = made.provenance((0.1, 9.0, None, 8.0))
    shown = printed(table.users_table(document, document.questions[0]))
    lines = shown.splitlines()
    assert lines[0].split() == ["user", "decision", "score", "p", "adjusted", "p", "texts", "tokens"]
    assert lines[1].split() == ["user", "2", "found", "9", "0.005", "0.0075", "4", "100"]
    assert lines[4].startswith("user 3")
    assert "no token that the model knows" in lines[4]
    assert "person" not in shown
    assert "person2@example.org" in printed(table.users_table(document, document.questions[0], reveal=True))


def test_many_users_are_counted():
    document = made.provenance(tuple(range(40)))
    assert len(printed(table.users_table(document, document.questions[0])).splitlines()) == 31
    assert table.more_users(document, document.questions[0]) == "And 10 users more, in provenance.json."
    assert table.more_users(document, document.questions[0], most=40) is None


def test_the_table_of_statistics():
    document = made.provenance(members=MEMBERS)
    shown = printed(table.statistics_table(document, document.questions[0]))
    lines = {line.split()[0]: line for line in shown.splitlines()}
    assert lines["rank-histogram"].rstrip().endswith(f"not applicable: {made.NO_CLASSIFIER}")
    assert lines["likelihood-ratio"].rstrip().endswith("decides")
    assert "2 of 4" in lines["likelihood-ratio"]
    assert "0.75 (" in lines["likelihood-ratio"]
    document = made.provenance()
    unknown = printed(table.statistics_table(document, document.questions[0]))
    assert "AUC" not in unknown
    assert "AUC" in shown


@pytest.mark.parametrize(
    ("parts", "sentences"),
    [
        (
            {},
            [
                "2 of 4 users are found by likelihood-ratio at a false-discovery rate of 5%.",
                "On average, at most 5% of such findings are wrong names.",
                "With 199 non-members no p-value is below 0.005, which is enough to find one of 4 users at 5%.",
                "A user that is not found may still be in the training data.",
            ],
        ),
        (
            {"non_members": (), "classifier": made.FirstFeature()},
            [
                "3 of 4 users are on the member side of the audit classifier (calibrated on shadows).",
                "Without known non-members there are no p-values, and it is not known how many of them are there by mistake.",
            ],
        ),
        (
            {"blind_baseline": made.blind(4, 199, 0.95, 0.001)},
            [
                "The scores of 4 users CANNOT BE INTERPRETED, so nothing is known about them:",
                "Suspects can be told from non-members without any model, by their words.",
            ],
        ),
        (
            {"non_members": ()},
            [
                "There are no non-members to compare the scores of 4 users with, so nothing can be decided; give some with --non-members."
            ],
        ),
        ({"statistic": "rmia"}, ["No statistic could be computed, so nothing is known about 4 users."]),
    ],
)
def test_the_answer_in_plain_words(parts, sentences):
    document = made.provenance(**parts)
    assert table.in_plain_words(document, document.questions[0]) == sentences


def test_every_figure_has_the_numbers_of_the_result():
    document = whole()
    drawn = {
        figure.id: figure
        for figure in figures.provenance_figures(made.run_of(document))
        if figure is not None
    }
    assert list(drawn) == [
        "provenance-scores",
        "provenance-statistics",
        "provenance-words",
        "provenance-log-probabilities",
        "provenance-ablation",
    ]
    scores = drawn["provenance-scores"]
    assert len(scores.panels) == 2
    assert len(scores.table) == 4 + 199 + 3 + 199
    assert scores.table[0] == ("Are these very texts in it?", "user 1", "suspects, found", 9.0, 0.005, 0.01)
    words = drawn["provenance-words"]
    assert len(words.table) == 2 * 20
    logs = drawn["provenance-log-probabilities"]
    assert sum(row[4] for row in logs.table if row[:2] == ("All other words", "suspects")) == pytest.approx(1)
    assert {(row[2], row[3]) for row in logs.table} >= {(-0.5, 0.0), (-25.0, -24.5)}
    assert len(drawn["provenance-ablation"].table) == 20
    assert not any("person" in json.dumps([figure.table, figure.panels]) for figure in drawn.values())


def test_figures_without_numbers_are_left_out():
    document = made.provenance((None, None), ())
    assert [
        figure for figure in figures.provenance_figures(made.run_of(document)) if figure is not None
    ] == []
    assert list(figures.provenance_figures(made.run_of())) == []


def test_many_users_are_thinned_and_that_is_said():
    document = made.provenance(tuple(n / 1000 for n in range(1500)))
    figure = figures.scores_figure(document)
    assert len(figure.table) == 1699
    assert figure.panels[0].note.endswith("of 1,699 users are drawn.")


def test_every_figure_can_be_drawn(tmp_path):
    pytest.importorskip("vl_convert")
    from coalmine.evidence.charts import as_one
    from coalmine.evidence.drawing import save_drawing

    for figure in figures.provenance_figures(made.run_of(whole())):
        path = tmp_path / f"{figure.id}.svg"
        save_drawing(as_one([figure]), path, title=figure.title)
        assert path.stat().st_size > 2_000


def test_names_are_masked_unless_they_are_revealed():
    run = made.run_of(whole(checks=None))
    told = reported([run])
    for text in (
        report_page([run]),
        export.as_json(told).decode(),
        export.as_markdown(told),
        export.as_junit(told).decode(),
        export.as_sarif(told).decode(),
    ):
        assert "person" not in text
        assert "user 1" in text
    revealed = report_page([run], reveal=True)
    assert "person1@example.org" in revealed


def test_the_page_has_the_tables_and_what_was_checked():
    page = report_page([made.run_of(whole())])
    for part in (
        "Are these very texts in it?",
        "Did these users take part, by other texts of theirs?",
        "Telling suspects from non-members without any model",
        "Whose data was it trained on?",
        "not applicable",
    ):
        assert part in page


def test_shadow_models_are_no_part_of_the_report(tmp_path):
    fit = fit_provenance(small_users(6), tmp_path / "fit", shadows=2, training={**SMALL, "epochs": 1}, bins=8)
    made.provenance().save(tmp_path)
    (shadow, *_) = (tmp_path / "fit" / one.location for one in fit.record.shadows)
    assert (shadow / "training.json").is_file()
    document = tmp_path / "fit" / "provenance-fit.json"
    # The same where the fit is not finished: what it resumes from is there in place of its document.
    for place in (document, document.with_name("unfinished.units")):
        document.rename(place)
        (run,) = read_runs(tmp_path)
        assert (run.all(TRAININGS), len(run.all(FITS))) == ((), int(place == document))
        assert not [one for one in findings_of(run) if one.code == "CM505"]
    # A model that is named itself is read.
    assert read_runs(shadow)[0].training is not None
