"""What reports and the gate learn about users: whose text was used for training, and whether anything else explains their scores.

The figures are after Figures 5 to 7 of Auditing Data Provenance in Text-Generation Models, Song and Shmatikov, 2019, arXiv:1811.00513.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from coalmine.audits.provenance.data_checks import Asks
from coalmine.audits.provenance.deciding import sides_of, told_apart
from coalmine.audits.provenance.fit import FITS
from coalmine.audits.provenance.records import PROVENANCES, Provenance, Question, StatisticFacts, UserRow
from coalmine.audits.provenance.users import counted, listed
from coalmine.evidence.charts import PALETTE, Axis, Chart, Marks, Rows, rounded, thinned
from coalmine.evidence.measures import Audit, Measure, Rule, Status, decide
from coalmine.evidence.run import Run
from coalmine.evidence.tables import Column, Detail, Search, Table
from coalmine.records import Estimate
from coalmine.statistics.provenance.conformal import (
    fewest_shown,
    non_members_needed,
    p_value_together,
    smallest_p_value,
)

SECTION = "Users"
# The most users that a terminal shows for each question, and that a figure draws of each kind.
MOST_ROWS, MOST_DRAWN = 30, 1_000
# If the upper limit of the area is below this, the two groups can hardly be told apart without a model.
HARMLESS_AUC = 0.6
_ABOUT: dict[Asks, str] = {"texts": "these very texts", "user": "other texts by them"}
_ASKS: dict[Asks, str] = {
    "texts": "Are these very texts in it?",
    "user": "Did these users take part, by other texts of theirs?",
}
# How severe a remark about the data is.
_SIZES = {"spoils": 1.0, "blurs": 0.5, "none": 0.0, "untested": 0.0}
SUSPECTS, NON_MEMBERS = "suspects", "non-members"
_COLORS = {SUSPECTS: PALETTE[1], NON_MEMBERS: PALETTE[0]}
# The one person's, of whom no text is decided about by itself.
_TEXTS = "texts that may have been used"
# What is drawn of users, by what is decided about them.
_KINDS = {
    **dict.fromkeys(("found", "member side", _TEXTS), PALETTE[1]),
    **dict.fromkeys(("not found", "other side"), PALETTE[2]),
    **dict.fromkeys(("may be chance", "cannot be said", "not measured"), PALETTE[6]),
    NON_MEMBERS: PALETTE[0],
}
_WORDS = {"frequent": "The most frequent words", "rare": "All other words"}


def measures(run: Run) -> Iterator[Measure]:
    """Who is found by each question, or why that cannot be said; and what was noticed about the data. Nobody is ever cleared."""
    for number, (_, document) in enumerate(run.all(PROVENANCES)):
        for question in document.questions:
            yield _answer(document, question, number)
            yield from _unmeasured(document, question)
            yield from _blind(question)
        for check in dict.fromkeys(check for question in document.questions for check in question.checks):
            status: Status = "not_tested" if check.effect == "untested" else "found"
            yield Measure(
                key=f"provenance.{check.about}", status=status, says=check.says, size=_SIZES[check.effect]
            )


def _answer(document: Provenance, question: Question, number: int = 0) -> Measure:
    """Whose text was used: a test, where scores can be compared with those of non-members, and nothing else explains them."""
    deciding, by, fdr = question.deciding, document.settings.by, document.settings.fdr
    truth = None if deciding is None else deciding.detection
    # Whether all suspects are known to be in the training data: what is found is that the model gives them away.
    known = truth is not None and truth.members > 0 and truth.non_members == 0
    key = "provenance.known" if known else "provenance.users"
    name = _ABOUT[question.asks] if len(document.questions) > 1 else ""
    if question.why or deciding is None:
        return Measure(key=key, name=name, estimate=Estimate.not_measured("none", question.why))
    found, names, p_value = question.found(), document.names(), deciding.p_value
    tested = sum(row.p_value is not None for row in question.rows)
    share = len(found) / tested
    is_one = "is" if len(found) == 1 else "are"
    says = (
        f"{len(found):,} of {counted(tested, by)} {is_one} found at a false-discovery rate of {100 * fdr:g}%"
    )
    limits: dict[str, Any] = {"value": share, "low": share, "high": share, "confidence": None, "n": tested}
    estimate = Estimate(method="suspects found", status="measured", statement=says, **limits)
    says += f" by {deciding.name}, against {counted(len(deciding.non_member_scores), 'non-member')}"
    if by == "person":
        says = _person_words(question, deciding)
    elif found:
        says += f": {listed([names[row.user] for row in found])}"
    else:
        says += f"; {_power_words(tested, len(deciding.non_member_scores), fdr)}"
    if truth is not None:
        rates = (truth.recall, truth.precision, truth.auc)
        says = "; ".join([says, *(rate.statement for rate in rates if rate.status == "measured")])
    size = 1.0 if truth is None or not known else truth.recall.low or 0.0
    return Measure(
        key=key,
        name=name,
        estimate=estimate,
        p_value=p_value,
        test=("provenance", str(number), question.asks),
        about=tuple(names[row.user] for row in found),
        says=says,
        but=f"{len(found):,} of {tested:,}" if found else "",
        size=size if found else 0.0,
        # Scores that show together that texts of some were used break a rule as a user does who is found.
        lower=lambda confidence: share or float(p_value is not None and p_value <= (1 - confidence) / 2),
        source=(document, question),
    )


def _power_words(suspects: int, others: int, fdr: float) -> str:
    """What so many non-members can show.

    >>> _power_words(20, 149, 0.05)
    'with 149 non-members no p-value is below 0.0067, so that at least 3 of 20 must score above all of them for any to be found'
    """
    fewest = fewest_shown(others, suspects, fdr)
    least = (
        f"with {counted(others, 'non-member')} no p-value is below {smallest_p_value(others):.2g}, so that"
    )
    if fewest is None:
        return f"{least} nobody can be found, whatever the scores are; that takes {non_members_needed(suspects, fdr, shown=suspects):,}"
    return f"{least} at least {fewest:,} of {suspects:,} must score above all of them for any to be found"


def _person_words(question: Question, deciding: StatisticFacts) -> str:
    """What was compared of one person, what it depends on, and how the scores compare."""
    row, own = question.rows[0], question.own_texts or 0
    says = (
        f"{counted(own, 'text' if row.texts <= own else 'thread')} that may have been used {'was' if own == 1 else 'were'} compared with "
        f"{question.non_members:,} of the same person that cannot have been. This holds if the two sides are alike in everything but the "
        f"training, and without the model they could not be told apart. By {deciding.name}, which was chosen before any score was seen, "
        f"the first score higher in {100 * (row.score or 0.0):.0f}% of pairs (one-sided test of ranks)"
    )
    if row.decision == "found":
        return says
    return f"That does not show that texts of this person were used, nor that none was. {says}"


def _unmeasured(document: Provenance, question: Question) -> Iterator[Measure]:
    """Users of whom the model says nothing, where it does of others."""
    missing = [row for row in question.rows if row.score is None]
    if missing and len(missing) < len(question.rows):
        about = tuple(document.names()[row.user] for row in missing)
        says = f"{len(missing):,} of {counted(len(question.rows), document.settings.by)} could not be measured ({listed(about)}: "
        gone = Estimate.not_measured("none", f"{says}{missing[0].why})")
        yield Measure(key="provenance.users", estimate=gone, about=about)


def _blind(question: Question) -> Iterator[Measure]:
    """Whether the two groups can be told apart without any model."""
    blind, told, (whom, others) = question.blind, told_apart(question), sides_of(question)
    if blind is None:
        return
    says = f"telling {whom} from {others}: {blind.auc.statement}"
    is_clear = blind.auc.high is not None and blind.auc.high <= HARMLESS_AUC
    if told:
        says += f"; they differ in {told}, which chance gives with probability {blind.p_value or 0.0:.2g}"
    elif blind.auc.high is not None and not is_clear:
        says += "; with so few users, a difference may go unnoticed"
    status: Status = "found" if told else "clear" if is_clear else "not_measured"
    yield Measure(key="provenance.apart", estimate=blind.auc, says=says, status=status, size=1.0)


def _nobody_could_be_found(own: Sequence[Measure], level: float) -> str:
    """Why it means nothing that nobody is found; empty where somebody could have been."""
    for measure in own:
        if measure.source is None:
            continue
        document, question = measure.source
        deciding, settings = question.deciding, document.settings
        others = len(deciding.non_member_scores)
        suspects = sum(row.p_value is not None for row in question.rows)
        if settings.by != "person":
            if fewest_shown(others, suspects, settings.fdr) is None:
                return "nobody can be found with so few non-members"
            if p_value_together([smallest_p_value(others)] * suspects, others) > level * (1 + 1e-9):
                return f"the gate breaks a rule at p-values of up to {level:.2g}, which {counted(others, 'non-member')} cannot give"
        if len({*question.scores, *deciding.non_member_scores}) == 1:
            return "all users have the same score, so that nobody could be found"
    return ""


RULES = (
    Rule(
        key="provenance.no_user_found",
        of="provenance.users",
        says="no user is found, nor do the scores show together that texts of some were used",
        example=True,
        settle="give more suspects and non-members from one source (--non-members), and other texts of the same users (--others)",
        doubt=_nobody_could_be_found,
        also=("provenance.known",),
    ),
)


def question_title(question: Question) -> str:
    """What was asked, in words."""
    person = question.own_texts is not None
    return "Were texts of this person used to train it?" if person else _ASKS[question.asks]


def in_plain_words(document: Provenance, question: Question) -> list[str]:
    """The answer to a question in sentences: who is found, what so many non-members can show, and what it does not mean."""
    answer, by = _answer(document, question), document.settings.by
    remarks = [
        f"{check.says[:1].upper()}{check.says[1:]}." for check in question.checks if check.effect != "spoils"
    ]
    if not answer.is_measured:
        return [f"Nothing can be said: {question.why}.", *remarks]
    shown, found = decide([answer]).shows(answer), question.found()
    said = [f"{answer.words[:1].upper()}{answer.words[1:]}."]
    if found and not shown:
        said.append("That MAY BE CHANCE.")
    elif found and by == "person":
        said.append(
            "So texts of this person were used to train the model; which ones, and how many, is not said."
        )
    elif found:
        said.append(f"On average, at most {100 * document.settings.fdr:g}% of such findings are wrong names.")
    elif shown:
        said.append(
            f"But taken together, texts of some of these {by}s were used, and it cannot be said whose."
        )
    missing = sum(row.score is None for row in question.rows)
    if missing:
        said.append(f"{counted(missing, by)} could not be measured, and nothing is known about them.")
    if len(found) < len(question.rows) and by != "person":
        said.append(f"A {by} that is not found may still be in the training data.")
    return [*said, *remarks]


def terminal(document: Provenance, question: Question, *, reveal: bool = False) -> list[Any]:
    """A question, the users with the strongest evidence, and the answer in words."""
    more = len(question.rows) - MOST_ROWS
    return [
        question_title(question),
        "",
        users_table(document, question, reveal=reveal).terminal(strongest_first(question)[:MOST_ROWS]),
        f"And {counted(more, document.settings.by)} more, in provenance.json." if more > 0 else "",
        "",
        *in_plain_words(document, question),
        "",
    ]


def strongest_first(question: Question) -> list[UserRow]:
    """Users by their p-value, then by their score; those who could not be measured last."""
    return sorted(question.rows, key=lambda row: (row.score is None, row.p_value or 0.0, -(row.score or 0.0)))


def users_table(document: Provenance, question: Question, *, reveal: bool = False) -> Table[UserRow]:
    """A row per user, with names masked unless they are revealed, and what is decided given everything that is known."""
    names, instead = document.names(reveal=reveal), dict[str, str]()
    answer = _answer(document, question)
    if question.deciding is not None and question.deciding.calibrated == "shadows":
        instead = {"found": "member side", "not found": "other side"}
    elif not decide([answer]).shows(answer):
        instead = {"found": "may be chance"}
    return Table(
        (
            Column(document.settings.by, lambda row: names[row.user]),
            Column("decision", lambda row: instead.get(row.decision, row.decision)),
            Column("score", lambda row: row.score),
            Column("p-value", lambda row: row.p_value, "p", "p"),
            Column("adjusted p-value", lambda row: row.adjusted_p_value, "p", "adjusted p"),
            Column("texts", lambda row: row.texts),
            Column("tokens", lambda row: row.tokens),
            Column("because", lambda row: row.why),
        )
    )


def details(run: Run, reveal: bool) -> Iterator[Detail]:
    """The users of each question."""
    for _, document in run.all(PROVENANCES):
        for question in document.questions:
            by, title = document.settings.by, question_title(question)
            table, rows = users_table(document, question, reveal=reveal), strongest_first(question)
            decisions = dict.fromkeys(row[1] for row in table.data(rows)[1])
            yield table.detail(
                rows,
                section=SECTION,
                title=title,
                note=" ".join(in_plain_words(document, question)),
                caption=f"{by.capitalize()}s, the strongest evidence first",
                search=Search(
                    name=f"{by}s-{question.asks}",
                    column="decision",
                    label="Decision",
                    choices={one: one for one in decisions},
                ),
            )


def figures(run: Run) -> Iterator[Chart | None]:
    """The figures of each provenance.json of a run, as far as it has numbers for them."""
    results = run.all(PROVENANCES)
    for place, (_, document) in enumerate(results):
        for chart in (_scores(document), *_of_words(document)):
            if chart is not None and len(results) > 1:
                title = f"{chart.title} (by {document.settings.by})"
                chart_id = f"{chart.id}-{place + 1}" if place else chart.id
                yield msgspec.structs.replace(chart, id=chart_id, title=title)
            else:
                yield chart


def _scores(document: Provenance) -> Chart | None:
    """The scores of suspects and of non-members by the deciding statistic, one panel per question; None without any."""
    by = "text" if document.settings.by == "person" else document.settings.by
    columns = ("question", by, "decision", "score", "p-value", "adjusted p-value")
    rows = Rows()
    for question in document.questions:
        title, deciding = question_title(question), question.deciding
        names, cells = users_table(document, question).data(strongest_first(question)[:MOST_DRAWN])
        own = [dict(zip(names, row, strict=True)) for row in cells if question.own_texts is None]
        own = [row for row in own if row["score"] is not None]
        if deciding is not None and (own or deciding.own_scores):
            for kind, scores in ((_TEXTS, deciding.own_scores), (NON_MEMBERS, deciding.non_member_scores)):
                own += [{"decision": kind, "score": scores[at]} for at in thinned(len(scores), MOST_DRAWN)]
            rows += [{"question": title, by: "", **row} for row in own]
    if not rows:
        return None
    return Chart(
        id="provenance-scores",
        title=f"Audit scores of {by}s",
        caption=f"Each line is a {by}; further to the right means more like the training data. Suspects are found by how "
        f"few non-members score as high, at a false-discovery rate of {100 * document.settings.fdr:g}%"
        f", or, without non-members, by the side of the audit classifier. At most {MOST_DRAWN:,} of each side are drawn.",
        rows=rows,
        columns=columns,
        x=Axis(column="score", grid=False),
        y=Axis(column="decision", title="", scale="names"),
        marks=(Marks(kind="ticks", shows=columns[1:]),),
        color="decision",
        colors=_KINDS,
        legend="",
        panel="question",
        height=60 * len({row["decision"] for row in rows}),
        leads=True,
    )


def _of_words(document: Provenance) -> Iterator[Chart]:
    """Figures about the words of suspects and of non-members: their ranks, their probabilities, and what is forgotten under ablation."""
    place, confidence = "place in the table of word frequencies", f"{100 * document.settings.confidence:g}%"
    for figure, title, caption, x, y, marks in (
        (
            "ranks",
            "Ranks of frequent and of rare words",
            f"Mean ranks of words (lower means likelier), with {confidence} intervals. Rare words rank higher where they were trained on.",
            Axis(column=place, format="~%", grid=False),
            Axis(column="mean rank"),
            (Marks(kind="area", y="low", y_to="high"), Marks(kind="line")),
        ),
        (
            "log-probabilities",
            "Probabilities of frequent and of rare words",
            "Shares of words; the leftmost bin has all that is less likely. Where groups differ in rare words only, these were memorized.",
            Axis(column="log2 probability from (bits)", grid=False),
            Axis(column="share of words", format="~%"),
            (Marks(kind="bars", x_to="to (bits)"),),
        ),
        (
            "ablation",
            "Ablation",
            "Words that are predicted while units of the last hidden layer are zero. Rare words that were trained on are forgotten first.",
            Axis(column="share of hidden units set to zero", format="~%", grid=False),
            Axis(column="accuracy", format="~%"),
            (Marks(kind="line"),),
        ),
    ):
        names = {"x": x.column, "to": "to (bits)", "y": y.column}
        rows: Rows = [
            {
                names.get(field, field): rounded(cell, 6)
                if isinstance(cell, float)
                else _WORDS.get(cell, cell)
                for field, cell in point.items()
                if cell is not None and field != "figure"
            }
            for point in msgspec.to_builtins(document.words)
            if point["figure"] == figure
        ]
        if rows:
            panel, columns = "words" if "words" in rows[0] else "", tuple(rows[0])
            yield Chart(
                id=f"provenance-{figure}",
                title=title,
                caption=caption,
                rows=rows,
                columns=columns,
                x=x,
                y=y,
                marks=(*marks[:-1], msgspec.structs.replace(marks[-1], shows=columns)),
                color="group",
                colors=_COLORS,
                panel=panel,
                height=200 if panel else 280,
            )


PROVENANCE = Audit(
    name="provenance",
    command="coalmine provenance",
    documents=(PROVENANCES, FITS),
    # Shadow models alone say nothing about the target.
    is_tested=lambda run: bool(run.all(PROVENANCES)),
    measures=measures,
    rules=RULES,
    figures=figures,
    details=details,
)
