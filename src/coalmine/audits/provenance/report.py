"""What reports and the gate learn about users: whose text was used for training, and whether anything else explains their scores.

The figures are after Figures 5 to 7 of Auditing Data Provenance in Text-Generation Models, Song and Shmatikov, 2019, arXiv:1811.00513.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from coalmine.audits.provenance.blind_baseline import GroupResult
from coalmine.audits.provenance.deciding import (
    cannot_be_decided,
    not_interpretable,
    overlap_words,
    person_words,
    power_of,
    sides_of,
    told_apart,
)
from coalmine.audits.provenance.fit import FITS
from coalmine.audits.provenance.records import (
    PROVENANCES,
    Asks,
    Provenance,
    Question,
    StatisticFacts,
    UserRow,
)
from coalmine.audits.provenance.users import counted, listed
from coalmine.evidence.charts import PALETTE, Axis, Chart, Marks, Rows, rounded, thinned
from coalmine.evidence.measures import Audit, Measure, Rule, decide
from coalmine.evidence.run import Run
from coalmine.evidence.tables import Column, Detail, Search, Table
from coalmine.grouped import grouped
from coalmine.records import Estimate
from coalmine.visible import visible

SECTION = "Users"
# The most users that a terminal shows for each question, and that a figure draws of each kind.
MOST_ROWS, MOST_DRAWN = 30, 1_000
# If the upper limit of the area is below this, the two groups can hardly be told apart without a model.
HARMLESS_AUC = 0.6
# The share of texts within the time of the other group, which is near 0.98 for groups of the same time.
FEW_WITHIN = 0.5
# The share of texts that several users have, from which on it is more than a remark.
REPEATED = 0.01
_NOT_CLEARED = "That does not show that texts of this person were used, nor that none was."
# How severe a remark about the data is.
_SPOILS, _BLURS, _TELLS = 1.0, 0.5, 0.0
_ABOUT: dict[Asks, str] = {"texts": "these very texts", "user": "other texts by them"}
_ASKS: dict[Asks, str] = {
    "texts": "Are these very texts in it?",
    "user": "Did these users take part, by other texts of theirs?",
}
SUSPECTS, NON_MEMBERS = "suspects", "non-members"
_SIDES = ((SUSPECTS, ""), (NON_MEMBERS, "non_members_"))
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
_WORDS = (("frequent", "The most frequent {} of words"), ("rare", "All other words"))


def measures(run: Run) -> Iterator[Measure]:
    """Who is found by each question, or why that cannot be said; and what was checked about the data. Nobody is ever cleared."""
    for number, (_, document) in enumerate(run.all(PROVENANCES)):
        for question in document.questions:
            yield _answer(document, question, number)
            yield from _unmeasured(document, question)
            yield from _blind(document, question.asks)
            yield from _times(document, question.asks)
        yield from _unknown(document)
        yield from _shared(document)


def _answer(document: Provenance, question: Question, number: int) -> Measure:
    """Whose text was used: a test, where scores can be compared with those of non-members, and nothing else explains them."""
    deciding, by = question.deciding, document.settings.by
    truth = None if deciding is None else deciding.detection
    # Whether all suspects are known to be in the training data: what is found is that the model gives them away.
    known = truth is not None and truth.members > 0 and truth.non_members == 0
    key = "provenance.known" if known else "provenance.users"
    name = _ABOUT[question.asks] if len(document.questions) > 1 else ""
    why = _without_p_values(document, question)
    reasons = not_interpretable(document, question.asks)
    if not why and reasons:
        why = f"{'; '.join(reasons)}, so the scores of {counted(len(question.rows), by)} say nothing"
    if why or deciding is None:
        return Measure(key=key, name=name, estimate=Estimate.not_measured("none", why))
    found, names, p_value = question.found(), document.names(), deciding.p_value
    tested = sum(row.p_value is not None for row in question.rows)
    share = _share(
        len(found), tested, f"found at a false-discovery rate of {100 * document.settings.fdr:g}%", by
    )
    whom = f": {listed([names[row.user] for row in found])}" if found else ""
    says = [
        f"{share.statement} by {deciding.name}, against {counted(len(deciding.non_member_scores), 'non-member')}{whom}"
    ]
    power = power_of(question, document.settings.fdr)
    if by == "person":
        says = [("" if found else f"{_NOT_CLEARED} ") + person_words(document, question, deciding)]
    elif power is not None and not found:
        says.append(power.words(by).rstrip(".").replace("With", "with", 1))
    if truth is not None:
        rates = (truth.recall, truth.precision, truth.auc)
        says += [rate.statement for rate in rates if rate.status == "measured"]
    size = 1.0 if truth is None or not known else truth.recall.low or 0.0
    return Measure(
        key=key,
        name=name,
        estimate=share,
        p_value=p_value,
        test=("provenance", str(number), question.asks),
        about=tuple(names[row.user] for row in found),
        says="; ".join(says),
        but=f"{len(found):,} of {tested:,}" if found else "",
        size=size if found else 0.0,
        # Scores that show together that texts of some were used break a rule as a user does who is found.
        lower=lambda confidence: (
            share.value or float(p_value is not None and p_value <= (1 - confidence) / 2)
        ),
        source=(document, question),
    )


def _share(count: int, tested: int, what: str, by: str) -> Estimate:
    """How many of these users are found, which was counted and not estimated."""
    value = count / max(1, tested)
    return Estimate(
        method="suspects found",
        status="measured",
        value=value,
        low=value,
        high=value,
        confidence=None,
        n=tested,
        statement=f"{count:,} of {counted(tested, by)} {'is' if count == 1 else 'are'} {what}",
    )


def _without_p_values(document: Provenance, question: Question) -> str:
    """Why nobody has a p-value; empty where somebody has."""
    deciding, whom = question.deciding, counted(len(question.rows), document.settings.by)
    if deciding is None:
        wanted = document.settings.statistic
        why = [
            f"{one.name}: {one.not_applicable}"
            for one in question.statistics
            if one.not_applicable is not None and wanted in {None, one.name}
        ]
        return f"no statistic could be computed of {whom} ({'; '.join(why)})"
    if all(row.score is None for row in question.rows):
        return f"none of {whom} could be measured"
    if deciding.calibrated == "non-members":
        return ""
    gone = "there are no known non-members"
    if question.non_members:
        gone = f"none of {counted(question.non_members, 'non-member')} could be measured"
    if deciding.calibrated == "nothing":
        return f"{gone} to compare the scores of {whom} with"
    return (
        f"{deciding.found or 0:,} of {whom} are on the member side of the audit classifier, but {gone} to compare them with, so there is "
        "no p-value, and it is not known how many of them are there by mistake"
    )


def _unmeasured(document: Provenance, question: Question) -> Iterator[Measure]:
    """Users of whom the model says nothing, where it does of others."""
    names, by_reason = document.names(), dict[str, list[str]]()
    for row in question.rows:
        if row.score is None:
            by_reason.setdefault(row.why or "no reason is given", []).append(names[row.user])
    missing = sum(map(len, by_reason.values()))
    if question.deciding is not None and 0 < missing < len(question.rows):
        told = "; ".join(f"{listed(some)}: {why}" for why, some in by_reason.items())
        whom = counted(len(question.rows), document.settings.by)
        gone = Estimate.not_measured("none", f"{missing:,} of {whom} could not be measured ({told})")
        about = tuple(name for some in by_reason.values() for name in some)
        yield Measure(key="provenance.users", estimate=gone, about=about)


def _blind(document: Provenance, asks: Asks) -> Iterator[Measure]:
    """Whether the two groups can be told apart without any model."""
    blind = document.blind(asks)
    if blind is None:
        return
    told, (whom, others) = told_apart(blind), sides_of(document, asks)
    says = f"telling {whom} from {others}: {blind.auc.statement}"
    if told:
        says += f"; they differ in {told}, which chance gives with probability {blind.p_value or 0.0:.2g}"
    is_clear = blind.auc.high is not None and blind.auc.high <= HARMLESS_AUC
    if not told and blind.auc.high is not None and not is_clear:
        says += "; with so few users, a difference may go unnoticed"
    yield Measure(
        key="provenance.apart",
        estimate=blind.auc,
        says=says,
        status="found" if told else "clear" if is_clear else "not_measured",
        size=_SPOILS,
    )


def _times(document: Provenance, asks: Asks) -> Iterator[Measure]:
    """Whether the two groups wrote at the same time."""
    times = document.times(asks)
    if times is None:
        if asks == "texts" and any(question.non_members for question in document.questions):
            says = "texts have no dates, so it is not known whether suspects and non-members wrote at the same time"
            if document.settings.by == "person":
                says = "dates were not compared, because texts of one person may have been divided by them"
            yield Measure(key="provenance.apart", status="not_tested", says=says)
        return
    if times.disjoint or times.share < FEW_WITHIN:
        says = (
            f"{'texts' if asks == 'texts' else 'other texts'} of suspects are from {times.suspects.first} to {times.suspects.last}, and "
            f"those of non-members from {times.non_members.first} to {times.non_members.last}; {100 * times.suspects_within:.0f}% and "
            f"{100 * times.non_members_within:.0f}% of them are within the time of the others"
        )
        size = _SPOILS if times.disjoint else _BLURS
        yield Measure(key="provenance.apart", status="found", says=says, size=size)


def _unknown(document: Provenance) -> Iterator[Measure]:
    """Whether suspects and non-members use words differently often that the model does not know."""
    words = document.checks.unknown_words
    if words is None or words.difference is None or not words.differ():
        return
    shares = " and ".join(f"{100 * one.mean_share:.1f}% of those of {one.group}" for one in words.groups)
    says = f"the model does not know {shares}, on average over users (p = {words.difference.p_value:.2g})"
    yield Measure(key="provenance.apart", status="found", says=says, size=_BLURS)


def _shared(document: Provenance) -> Iterator[Measure]:
    """What groups, or users, share and must not."""

    def remark(says: str, size: float) -> Measure:
        return Measure(key="provenance.shared", status="found", says=says.rstrip("."), size=size)

    repeated = document.checks.repeated_texts
    if document.left_out is not None:
        yield remark(visible(document.left_out), _TELLS)
    for one in document.checks.overlaps:
        yield remark(overlap_words(one, document), _SPOILS if one.spoils else _TELLS)
    if repeated is not None and (repeated.repeated or repeated.quoted):
        says = (
            f"{repeated.repeated:,} of {repeated.texts:,} texts of at least {repeated.shortest} bytes belong to several users, "
            f"{repeated.affected_users:,} of {repeated.users:,} in all; one of them to {repeated.most_users:,}"
        )
        if repeated.quoted:
            says += f"; {repeated.quoted:,} texts occur inside texts of other users"
        yield remark(says, _BLURS if (repeated.share or 0.0) >= REPEATED else _TELLS)


def _nobody_could_be_found(own: Sequence[Measure], level: float) -> str:
    """Why it means nothing that nobody is found; empty where somebody could have been."""
    sources = (one.source for one in own if one.source is not None)
    return next((why for document, question in sources if (why := _unable(document, question, level))), "")


def _unable(document: Provenance, question: Question, level: float) -> str:
    power, by, deciding = power_of(question, document.settings.fdr), document.settings.by, question.deciding
    if deciding is None or (power is None and by != "person"):
        return "nobody has a p-value"
    others = len(deciding.non_member_scores)
    if power is not None and power.fewest is None:
        return "nobody can be found with so few non-members"
    needed = 0 if power is None else power.needed_for_all_together(level)
    if others < needed:
        return (
            f"the gate breaks a rule at p-values of up to {level:.2g}, which {counted(others, 'non-member')} cannot give: that takes "
            f"{needed:,}"
        )
    own = deciding.own_scores or tuple(row.score for row in question.rows if row.score is not None)
    if len({*own, *deciding.non_member_scores}) == 1:
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


def shown_by_itself(document: Provenance, question: Question) -> bool:
    """Whether a report of this result alone would say that chance does not explain the scores."""
    answer = _answer(document, question, 0)
    return decide([answer]).shows(answer)


def in_plain_words(document: Provenance, question: Question) -> list[str]:
    """The answer to a question in sentences: who is found, what so many non-members can show, and what it does not mean."""
    answer, by = _answer(document, question, 0), document.settings.by
    left_out = [] if document.left_out is None else [visible(document.left_out)]
    if not answer.is_measured:
        return [f"Nothing can be said: {answer.estimate.statement if answer.estimate else ''}.", *left_out]
    shown, found = decide([answer]).shows(answer), question.found()
    said = [f"{answer.words[:1].upper()}{answer.words[1:]}."]
    if found and not shown:
        said.append("That MAY BE CHANCE.")
    elif by == "person":
        used = "So texts of this person were used to train the model; which ones, and how many, is not said."
        said += [used] if found else []
    elif found:
        rate = f"{100 * document.settings.fdr:g}%"
        said.append(f"On average, at most {rate} of such findings are wrong names.")
    elif shown:
        said.append(
            f"But taken together, texts of some of these {by}s were used, and it cannot be said whose."
        )
    missing = sum(row.score is None for row in question.rows)
    if missing:
        said.append(f"{counted(missing, by)} could not be measured, and nothing is known about them.")
    if len(found) < len(question.rows) and by != "person":
        said.append(f"A {by} that is not found may still be in the training data.")
    return [*said, *left_out]


def terminal(document: Provenance, question: Question, *, reveal: bool = False) -> list[Any]:
    """A question, the users with the strongest evidence, what each statistic found, and the answer in words."""
    more = len(question.rows) - MOST_ROWS
    by = document.settings.by
    return [
        question_title(question),
        "",
        users_table(document, question, reveal=reveal).terminal(strongest_first(question)[:MOST_ROWS]),
        f"And {counted(more, by)} more, in provenance.json." if more > 0 else "",
        "",
        statistics_table(document, question).terminal(question.statistics),
        "",
        *in_plain_words(document, question),
        "",
    ]


def strongest_first(question: Question) -> list[UserRow]:
    """Users by their p-value, then by their score; those who could not be measured last."""

    def place(row: UserRow) -> tuple[float, float]:
        no_score = math.inf if row.score is None else -row.score
        return (math.inf if row.p_value is None else row.p_value, no_score)

    return sorted(question.rows, key=place)


def users_table(document: Provenance, question: Question, *, reveal: bool = False) -> Table[UserRow]:
    """A row per user, with names masked unless they are revealed, and what is decided given everything that is known."""
    names, instead = document.names(reveal=reveal), dict[str, str]()
    if question.deciding is not None and question.deciding.calibrated == "shadows":
        instead = {"found": "member side", "not found": "other side"}
    elif not shown_by_itself(document, question):
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
            Column("unknown words", lambda row: row.unknown_tokens, short=""),
            Column("because", lambda row: row.why),
        )
    )


def statistics_table(document: Provenance, question: Question) -> Table[StatisticFacts]:
    """What each statistic found, and how well, where the truth is known; nothing is found by scores that cannot be interpreted."""
    said = not cannot_be_decided(document, question)
    calibrated = {"non-members": "", "shadows": "calibrated on shadows", "nothing": "nobody to compare with"}

    def remark(one: StatisticFacts) -> str:
        if one.not_applicable is not None:
            return f"not applicable: {one.not_applicable}"
        return ", ".join(filter(None, [calibrated[one.calibrated], "decides" if one.decides else ""]))

    def rate(name: str) -> Column[StatisticFacts]:
        return Column(
            name, lambda one: None if one.detection is None else getattr(one.detection, name.lower())
        )

    return Table(
        (
            Column("statistic", lambda one: one.name),
            Column("found", lambda one: one.found),
            Column("p-value of all", lambda one: one.p_value if said else None, "p", "p of all"),
            *map(rate, ("AUC", "accuracy", "precision", "recall")),
            Column("remark", remark),
        )
    )


_BLIND: Table[tuple[str, GroupResult]] = Table(
    (
        Column("by", lambda row: row[0]),
        Column("AUC", lambda row: row[1].auc),
        Column("p-value", lambda row: row[1].p_value, "p"),
        Column("statement", lambda row: row[1].auc.statement),
    )
)


def details(run: Run, reveal: bool) -> Iterator[Detail]:
    """Users and statistics of each question, and what was checked about the data."""
    for _, document in run.all(PROVENANCES):
        for question in document.questions:
            by, asks, title = document.settings.by, question.asks, question_title(question)
            table, rows = users_table(document, question, reveal=reveal), strongest_first(question)
            decisions = dict.fromkeys(row[1] for row in table.data(rows)[1])
            yield table.detail(
                rows,
                section=SECTION,
                title=title,
                note=" ".join(in_plain_words(document, question)),
                caption=f"{by.capitalize()}s, the strongest evidence first",
                search=Search(
                    name=f"{by}s-{asks}",
                    column="decision",
                    label="Decision",
                    choices={one: one for one in decisions},
                ),
            )
            yield statistics_table(document, question).detail(
                question.statistics,
                section=SECTION,
                title=f"Statistics: {title}",
                caption="Statistics and what each found",
            )
            blind = document.blind(asks)
            if blind is not None:
                every = GroupResult(name="all", auc=blind.auc, p_value=blind.p_value)
                yield _BLIND.detail(
                    [
                        (f"{one.name} together" if one.name == "all" else one.name, one)
                        for one in (every, *blind.groups)
                    ],
                    section=SECTION,
                    title="Telling {} from {} without any model".format(*sides_of(document, asks)),
                    note="If words, lengths, dates or numbers of texts tell the two groups apart, a model is not needed to do so, and its "
                    "scores say nothing about training.",
                    caption="The blind baseline" if asks == "texts" else "The blind baseline of other texts",
                )


def figures(run: Run) -> Iterator[Chart | None]:
    """The figures of each provenance.json of a run, as far as it has numbers for them."""
    results = run.all(PROVENANCES)
    for place, (_, document) in enumerate(results):
        for draw in (_scores, _ranks, _log_probabilities, _ablation):
            chart = draw(document)
            if chart is not None and len(results) > 1:
                title = f"{chart.title} (by {document.settings.by})"
                chart_id = f"{chart.id}-{place + 1}" if place else chart.id
                chart = msgspec.structs.replace(chart, id=chart_id, title=title)
            yield chart


def _scores(document: Provenance) -> Chart | None:
    """The scores of suspects and of non-members by the deciding statistic, one panel per question; None without any."""
    by = "text" if document.settings.by == "person" else document.settings.by
    columns = ("question", by, "decision", "score", "p-value", "adjusted p-value")
    rows, drawn, notes = Rows(), Rows(), dict[str, str]()
    for question in document.questions:
        title, deciding = question_title(question), question.deciding
        names, cells = users_table(document, question).data(strongest_first(question))
        every = [dict(zip(names, row, strict=True)) for row in cells if question.own_texts is None]
        every = [row for row in every if row["score"] is not None]
        if deciding is not None and (every or deciding.own_scores):
            sides = ((_TEXTS, deciding.own_scores), (NON_MEMBERS, deciding.non_member_scores))
            every += [{"decision": kind, "score": one} for kind, scores in sides for one in reversed(scores)]
            kinds = grouped((row["decision"], {"question": title, by: "", **row}) for row in every)
            own = [some[at] for some in kinds.values() for at in thinned(len(some), MOST_DRAWN)]
            few = f" {len(own):,} of {len(every):,} {by}s are drawn." if len(own) < len(every) else ""
            notes[title] = f"Scores are those of {deciding.name}.{few}"
            rows += [row for some in kinds.values() for row in some]
            drawn += own
    if not rows:
        return None
    return Chart(
        id="provenance-scores",
        title=f"Audit scores of {by}s",
        caption=f"Each line is a {by}; further to the right means more like the training data. Suspects are found by how "
        f"few non-members score as high, at a false-discovery rate of {100 * document.settings.fdr:g}%"
        ", or, without non-members, by the side of the audit classifier.",
        rows=drawn,
        columns=columns,
        data=tuple(tuple(row.get(name) for name in columns) for row in rows),
        x=Axis(column="score", grid=False),
        y=Axis(column="decision", title="", scale="names"),
        marks=(Marks(kind="ticks", shows=columns[1:]),),
        color="decision",
        colors=_KINDS,
        legend="",
        panel="question",
        notes=notes,
        height=60 * len({row["decision"] for row in drawn}),
        leads=True,
    )


def _ranks(document: Provenance) -> Chart | None:
    """The ranks that the target gives to words, by how frequent they are; None where ranks are not known."""
    place = "place in the table of word frequencies"
    rows: Rows = [
        {
            "group": name,
            place: group.frequency_rank,
            **dict(zip(("mean rank", "low", "high"), (rounded(one, 2) for one in ranks), strict=True)),
        }
        for group in document.words
        for name, ranks in ((SUSPECTS, group.suspects), (NON_MEMBERS, group.non_members))
        if ranks is not None
    ]
    caption = (
        "The mean rank that the model gives to words (lower means likelier), from the most frequent words on the left to the rarest, "
        f"with {100 * document.settings.confidence:g}% intervals over {document.settings.by}s. Models rank rare words higher where they "
        "saw them in training."
    )
    return _of_words(
        "provenance-words",
        "Ranks of frequent and of rare words",
        caption,
        rows,
        Axis(column=place, format="~%", grid=False),
        Axis(column="mean rank"),
        (Marks(kind="area", y="low", y_to="high"), Marks(kind="line")),
    )


def _log_probabilities(document: Provenance) -> Chart | None:
    """Histograms of the log-probabilities of frequent words and of others; None where they are not known."""
    found = document.log_probabilities
    rows: Rows = []
    for kind, words in () if found is None else _WORDS:
        for name in (SUSPECTS, NON_MEMBERS):
            shares = getattr(found, f"{name.replace('-', '_')}_{kind}")
            width = (found.least_bits if found else 0.0) / max(1, len(shares))
            rows += [
                {
                    "words": words.format("fifth"),
                    "group": name,
                    "from (bits)": rounded((place + 1) * width, 3),
                    "to (bits)": rounded(place * width + 0.0, 3),
                    "share": rounded(share, 6),
                }
                for place, share in enumerate(shares)
            ]
    return _of_words(
        "provenance-log-probabilities",
        "Probabilities of frequent and of rare words",
        "How often words have each log-probability, as a share of all words of the group; the leftmost bin also has what is less "
        "likely. Where the two groups differ in rare words and not in frequent ones, rare words were memorized.",
        rows,
        Axis(column="from (bits)", title="log2 probability (bits)", grid=False),
        Axis(column="share", title="share of words", format="~%"),
        (Marks(kind="bars", x_to="to (bits)"),),
    )


def _ablation(document: Provenance) -> Chart | None:
    """How well words are predicted while hidden units are set to zero; None where that was not tried."""
    rows: Rows = [
        {
            "words": words.format("tenth"),
            "group": name,
            "share of units": rounded(point.ablated),
            "accuracy": rounded(getattr(point, side + kind)),
        }
        for kind, words in _WORDS
        for name, side in _SIDES
        for point in document.ablation
        if getattr(point, side + kind) is not None
    ]
    return _of_words(
        "provenance-ablation",
        "Ablation",
        "How often the model predicts the next word of some texts while a random share of its last hidden layer is set to zero. What was "
        "memorized depends on single units: where suspects were trained on, their rare words are predicted more often than those of "
        "non-members, and are forgotten first.",
        rows,
        Axis(column="share of units", title="share of hidden units set to zero", format="~%", grid=False),
        Axis(column="accuracy", format="~%"),
        (Marks(kind="line"),),
    )


def _of_words(
    chart_id: str, title: str, caption: str, rows: Rows, x: Axis, y: Axis, marks: tuple[Marks, ...]
) -> Chart | None:
    """A figure about the words of suspects and of non-members, with a panel for frequent and for other words where rows have one."""
    if not rows:
        return None
    panel = "words" if "words" in rows[0] else ""
    columns = tuple(rows[0])
    shown = msgspec.structs.replace(marks[-1], shows=columns[1:] if panel else columns)
    return Chart(
        id=chart_id,
        title=title,
        caption=caption,
        rows=rows,
        columns=columns,
        x=x,
        y=y,
        marks=(*marks[:-1], shown),
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
