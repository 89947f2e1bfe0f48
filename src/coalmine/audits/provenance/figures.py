"""The figures of provenance: scores of users, ranks and probabilities of words by their frequency, statistics beside each other, ablation.

After Figures 5 to 7 of Auditing Data Provenance in Text-Generation Models, Song and Shmatikov, 2019, arXiv:1811.00513.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from coalmine.audits.provenance.records import PROVENANCES, LogHistogram, Provenance, Question
from coalmine.audits.provenance.table import ASKS, decision_of, question_title, strongest_first
from coalmine.evidence.charts import PALETTE, Axis, Chart, Marks, Rows, intervals, rounded, thinned
from coalmine.evidence.run import Run

SCORES_ID = "provenance-scores"
# The most users of each kind that are drawn.
MOST_DRAWN = 1_000
SUSPECTS, NON_MEMBERS = "suspects", "non-members"
_COLORS = {SUSPECTS: PALETTE[1], NON_MEMBERS: PALETTE[0]}
_FOUND, _NOT_FOUND, _NOT_DECIDED = "suspects, found", "suspects, not found", "suspects, not decided"
# The one person's, of whom no text is decided about by itself.
_TEXTS = "texts that may have been used"
_KINDS = {
    _FOUND: PALETTE[1],
    _NOT_FOUND: PALETTE[2],
    _NOT_DECIDED: PALETTE[6],
    _TEXTS: PALETTE[1],
    NON_MEMBERS: PALETTE[0],
}
# What legends call the questions.
_SHORT = {ASKS["texts"]: "these very texts", ASKS["user"]: "other texts by them"}
_DECIDED = {"found": _FOUND, "not found": _NOT_FOUND}


def provenance_figures(run: Run) -> Iterator[Chart | None]:
    """The figures of each provenance.json of a run, as far as it has numbers for them."""
    results = run.all(PROVENANCES)
    for place, (_, document) in enumerate(results):
        for chart in (
            scores_figure(document),
            statistics_figure(document),
            words_figure(document),
            log_probabilities_figure(document),
            ablation_figure(document),
        ):
            if chart is not None and len(results) > 1:
                title = f"{chart.title} (by {document.settings.by})"
                chart_id = f"{chart.id}-{place + 1}" if place else chart.id
                chart = msgspec.structs.replace(chart, id=chart_id, title=title)  # noqa: PLW2901
            yield chart


def scores_figure(document: Provenance) -> Chart | None:
    """The scores of suspects and of non-members by the deciding statistic, one panel per question; None without any."""
    by = "text" if document.settings.by == "person" else document.settings.by
    rows, drawn, notes = Rows(), Rows(), dict[str, str]()
    for question in document.questions:
        title = question_title(question)
        every = [{"question": title, **row} for row in _users(document, question)]
        own = _thinned(every)
        if every:
            statistic = "" if question.deciding is None else f"Scores are those of {question.deciding.name}."
            few = "" if len(own) == len(every) else f" {len(own):,} of {len(every):,} {by}s are drawn."
            notes[title] = f"{statistic}{few}".strip()
        rows += every
        drawn += own
    if not rows:
        return None
    columns = ("question", "user", "kind", "score", "p-value", "adjusted p-value")
    return Chart(
        id=SCORES_ID,
        title=f"Audit scores of {by}s",
        caption=f"Each line is a {by}; further to the right means more like the training data. Suspects are found by how "
        f"few non-members score as high, at a false-discovery rate of {100 * document.settings.fdr:g}%"
        ", or, without non-members, by the side of the audit classifier.",
        rows=drawn,
        columns=("question", by, "group", *columns[3:]),
        data=tuple(tuple(row[name] for name in columns) for row in rows),
        x=Axis(column="score", grid=False),
        y=Axis(column="kind", title="", scales=("names",)),
        marks=(Marks(kind="ticks", shows=columns[1:]),),
        color="kind",
        colors=_KINDS,
        legend="",
        panel="question",
        notes=notes,
        height=60 * len({row["kind"] for row in drawn}),
        leads=True,
    )


def _users(document: Provenance, question: Question) -> Rows:
    """Suspects, the strongest first, and non-members, who have no names here."""
    names, deciding, decide = document.names(), question.deciding, decision_of(document, question)
    nobody = {"user": "", "kind": NON_MEMBERS, "p-value": None, "adjusted p-value": None}
    if deciding is not None and question.own_texts is not None:
        sides = ((_TEXTS, deciding.own_scores), (NON_MEMBERS, deciding.non_member_scores))
        return [
            {**nobody, "kind": kind, "score": rounded(score, 6)}
            for kind, scores in sides
            for score in reversed(scores)
        ]
    rows: Rows = [
        {
            "user": names[row.user],
            "kind": _DECIDED.get(decide(row), _NOT_DECIDED),
            "score": rounded(row.score, 6),
            "p-value": rounded(row.p_value, 6),
            "adjusted p-value": rounded(row.adjusted_p_value, 6),
        }
        for row in strongest_first(question)
        if row.score is not None
    ]
    others = () if deciding is None or not rows else deciding.non_member_scores
    return rows + [{**nobody, "score": rounded(score, 6)} for score in reversed(others)]


def _thinned(rows: Rows) -> Rows:
    """At most so many users of each kind, from the highest score to the lowest."""
    kept: Rows = []
    for kind in _KINDS:
        own = [row for row in rows if row["kind"] == kind]
        kept += [own[place] for place in thinned(len(own), MOST_DRAWN)]
    return kept


def statistics_figure(document: Provenance) -> Chart | None:
    """The AUC of each statistic with its interval, where the truth is known."""
    rows: Rows = []
    for question in document.questions:
        title = question_title(question)
        for one in question.statistics:
            auc = None if one.detection is None else one.detection.auc
            if auc is not None and auc.value is not None:
                limits = {"AUC": rounded(auc.value), "low": rounded(auc.low), "high": rounded(auc.high)}
                asked = {"question": title, "asked": _SHORT[title], "statistic": one.name}
                rows.append({**asked, **limits, "users": auc.n})
    if not rows:
        return None
    columns = ("question", "statistic", "AUC", "low", "high", "users")
    questions, statistics = (len({row[name] for row in rows}) for name in ("asked", "statistic"))
    return Chart(
        id="provenance-statistics",
        title="Statistics beside each other",
        caption=f"The area under the ROC curve of each statistic, with {100 * document.settings.confidence:g}% intervals over "
        f"{document.settings.by}s; the "
        "dashed line is guessing. Only one of them decides, which was chosen before any score was seen.",
        rows=rows,
        columns=columns,
        x=Axis(column="AUC", domain=(min(0.4, *(row["low"] for row in rows)), 1)),
        y=Axis(column="statistic", title="", scales=("names",), beside="asked"),
        marks=(
            Marks(kind="rule", rows=[{"AUC": 0.5}], y="", dashed=True),
            intervals("low", "high", x=True),
            Marks(kind="points", shows=columns),
        ),
        color="asked",
        height=26 * statistics * (1 + questions),
    )


def words_figure(document: Provenance) -> Chart | None:
    """The ranks that the target gives to words, by how frequent they are; None where ranks are not known."""
    place = "place in the table of word frequencies"
    rows: Rows = []
    for group in document.words:
        for name, ranks in ((SUSPECTS, group.suspects), (NON_MEMBERS, group.non_members)):
            if ranks is not None:
                mean, low, high = (rounded(one, 2) for one in ranks)
                rows.append(
                    {"group": name, place: group.frequency_rank, "mean rank": mean, "low": low, "high": high}
                )
    if not rows:
        return None
    columns = ("group", place, "mean rank", "low", "high")
    return Chart(
        id="provenance-words",
        title="Ranks of frequent and of rare words",
        caption="The mean rank that the model gives to words (lower means likelier), from the most frequent words on the left to the "
        f"rarest, with {100 * document.settings.confidence:g}% intervals over "
        f"{document.settings.by}s. Models rank rare words higher where they saw them in "
        "training.",
        rows=rows,
        columns=columns,
        x=Axis(column=place, format="~%", grid=False),
        y=Axis(column="mean rank"),
        marks=(Marks(kind="area", y="low", y_to="high"), Marks(kind="line", shows=columns)),
        color="group",
        colors=_COLORS,
    )


def log_probabilities_figure(document: Provenance) -> Chart | None:
    """Histograms of the log-probabilities of frequent words and of others; None where they are not known."""
    found = document.log_probabilities
    if found is None:
        return None
    frequent, rare = "The most frequent fifth of words", "All other words"
    rows = [
        *_bars(found, found.suspects_frequent, SUSPECTS, frequent),
        *_bars(found, found.non_members_frequent, NON_MEMBERS, frequent),
        *_bars(found, found.suspects_rare, SUSPECTS, rare),
        *_bars(found, found.non_members_rare, NON_MEMBERS, rare),
    ]
    columns = ("words", "group", "from (bits)", "to (bits)", "share")
    return Chart(
        id="provenance-log-probabilities",
        title="Probabilities of frequent and of rare words",
        caption="How often words have each log-probability, as a share of all words of the group; the leftmost bin also has what is less "
        "likely. Where the two groups differ in rare words and not in frequent ones, rare words were memorized.",
        rows=rows,
        columns=columns,
        x=Axis(column="from (bits)", title="log2 probability (bits)", grid=False),
        y=Axis(column="share", title="share of words", format="~%"),
        marks=(Marks(kind="bars", x_to="to (bits)", shows=columns[1:]),),
        color="group",
        colors=_COLORS,
        panel="words",
        height=200,
    )


def _bars(found: LogHistogram, shares: tuple[float, ...], group: str, words: str) -> Rows:
    """The bins of one group; the first bin of a histogram ends at 0 bits, a probability of 1."""
    width = found.least_bits / max(1, len(shares))
    return [
        {
            "words": words,
            "group": group,
            "from (bits)": rounded((place + 1) * width, 3),
            "to (bits)": rounded(place * width + 0.0, 3),
            "share": rounded(share, 6),
        }
        for place, share in enumerate(shares)
    ]


def ablation_figure(document: Provenance) -> Chart | None:
    """How well words are predicted while hidden units are set to zero; None where that was not tried."""
    rows: Rows = []
    for title, own, others in (
        ("The most frequent tenth of words", "frequent", "non_members_frequent"),
        ("All other words", "rare", "non_members_rare"),
    ):
        rows += [
            {
                "words": title,
                "group": name,
                "share of units": rounded(point.ablated),
                "accuracy": rounded(getattr(point, field)),
            }
            for name, field in ((SUSPECTS, own), (NON_MEMBERS, others))
            for point in document.ablation
            if getattr(point, field) is not None
        ]
    if not rows:
        return None
    columns = ("words", "group", "share of units", "accuracy")
    return Chart(
        id="provenance-ablation",
        title="Ablation",
        caption="How often the model predicts the next word of some texts while a random share of its last hidden layer is set to zero. "
        "What was memorized depends on single units: where suspects were trained on, their rare words are predicted more often than those "
        "of non-members, and are forgotten first.",
        rows=rows,
        columns=columns,
        x=Axis(column="share of units", title="share of hidden units set to zero", format="~%", grid=False),
        y=Axis(column="accuracy", format="~%"),
        marks=(Marks(kind="line", shows=columns[1:]),),
        color="group",
        colors=_COLORS,
        panel="words",
        height=200,
    )
