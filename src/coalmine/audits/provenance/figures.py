"""The figures of provenance: scores of users, ranks and probabilities of words by their frequency, statistics beside each other, ablation.

After Figures 5 to 7 of Auditing Data Provenance in Text-Generation Models, Song and Shmatikov, 2019, arXiv:1811.00513.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from coalmine.audits.provenance.naming import names_of_users
from coalmine.audits.provenance.results import PROVENANCES, LogHistogram, Provenance, Question
from coalmine.audits.provenance.table import ASKS, decision_of, question_title, strongest_first
from coalmine.evidence import figures as draw
from coalmine.evidence.figures import Figure, Panel, Points, Spec
from coalmine.evidence.run import Run

SCORES_ID = "provenance-scores"
# The most users of each kind that are drawn.
MOST_DRAWN = 1_000
SUSPECTS, NON_MEMBERS = "suspects", "non-members"
_COLORS = {SUSPECTS: draw.PALETTE[1], NON_MEMBERS: draw.PALETTE[0]}
_FOUND, _NOT_FOUND, _NOT_DECIDED = "suspects, found", "suspects, not found", "suspects, not decided"
_KINDS = {
    _FOUND: draw.PALETTE[1],
    _NOT_FOUND: draw.PALETTE[2],
    _NOT_DECIDED: draw.PALETTE[6],
    NON_MEMBERS: draw.PALETTE[0],
}
# What legends call the questions.
_SHORT = {ASKS["texts"]: "these very texts", ASKS["user"]: "other texts by them"}
_DECIDED = {"found": _FOUND, "not found": _NOT_FOUND}


def provenance_figures(run: Run) -> Iterator[Figure | None]:
    """The figures of each provenance.json of a run, as far as it has numbers for them."""
    results = run.all(PROVENANCES)
    for place, (_, document) in enumerate(results):
        for figure in (
            scores_figure(document),
            statistics_figure(document),
            words_figure(document),
            log_probabilities_figure(document),
            ablation_figure(document),
        ):
            if figure is not None and len(results) > 1:
                title = f"{figure.title} (by {document.settings.by})"
                figure_id = f"{figure.figure_id}-{place + 1}" if place else figure.figure_id
                figure = msgspec.structs.replace(figure, figure_id=figure_id, title=title)  # noqa: PLW2901
            yield figure


def scores_figure(document: Provenance) -> Figure | None:
    """The scores of suspects and of non-members by the deciding statistic, one panel per question; None without any."""
    panels: list[Panel] = []
    rows: Points = []
    for question in document.questions:
        points = _users(document, question)
        if not points:
            continue
        title = question_title(question)
        statistic = question.deciding.name if question.deciding is not None else ""
        panels.append(
            Panel(
                title=title,
                note=_drawn_words(points, document.settings.by),
                specs={"": _strips(points, statistic)},
            )
        )
        rows += [{**point, "question": title} for point in points]
    if not panels:
        return None
    return Figure(
        figure_id=SCORES_ID,
        title=f"Audit scores of {document.settings.by}s",
        caption=f"Each line is a {document.settings.by}; further to the right means more like the training data. Suspects are found by how "
        f"few non-members score as high, at a false-discovery rate of {100 * document.settings.fdr:g}%"
        ", or, without non-members, by the side of the audit classifier.",
        panels=tuple(panels),
        columns=("question", document.settings.by, "group", "score", "p-value", "adjusted p-value"),
        rows=draw.rows_of(rows, "question", "user", "kind", "score", "p-value", "adjusted"),
    )


def _users(document: Provenance, question: Question) -> Points:
    """Suspects, the strongest first, and non-members, who have no names here."""
    names, deciding, decide = names_of_users(document), question.deciding, decision_of(document, question)
    points: Points = [
        {
            "user": names[row.user],
            "kind": _DECIDED.get(decide(row), _NOT_DECIDED),
            "score": draw.rounded(row.score, 6),
            "p-value": draw.rounded(row.p_value, 6),
            "adjusted": draw.rounded(row.adjusted_p_value, 6),
        }
        for row in strongest_first(question)
        if row.score is not None
    ]
    others = () if deciding is None or not points else deciding.non_member_scores
    return points + [
        {"user": "", "kind": NON_MEMBERS, "score": draw.rounded(score, 6), "p-value": None, "adjusted": None}
        for score in reversed(others)
    ]


def _thinned(points: Points) -> Points:
    """At most so many users of each kind, from the highest score to the lowest."""
    kept: Points = []
    for kind in _KINDS:
        own = [point for point in points if point["kind"] == kind]
        kept += [own[place] for place in draw.thinned(len(own), MOST_DRAWN)]
    return kept


def _drawn_words(points: Points, by: str) -> str:
    drawn = len(_thinned(points))
    return "" if drawn == len(points) else f"{drawn:,} of {len(points):,} {by}s are drawn."


def _strips(points: Points, statistic: str) -> Spec:
    drawn = _thinned(points)
    kinds = [kind for kind in _KINDS if any(point["kind"] == kind for point in drawn)]
    x = draw.axis(
        "score", f"score ({statistic})", scale={"zero": False}, axis={"grid": False, "tickCount": 6}
    )
    y = draw.axis("kind", "", "nominal", sort=kinds, axis={"labelLimit": 0, "labels": False, "ticks": False})
    color = draw.color_channel({kind: _KINDS[kind] for kind in kinds}, None, "kind")
    shown = draw.tooltips("user", "kind", "score", "p-value", ("adjusted", "adjusted p-value"))
    mark = {"type": "tick", "thickness": 2, "opacity": 0.6, "bandSize": 34}
    return draw.spec(
        [draw.layer(drawn, mark, x=x, y=y, color=color, tooltip=shown)],
        description="Scores of users, suspects and non-members below each other.",
        height=60 * len(kinds),
    )


def statistics_figure(document: Provenance) -> Figure | None:
    """The AUC of each statistic with its interval, where the truth is known."""
    points: Points = []
    for question in document.questions:
        for one in question.statistics:
            auc = None if one.detection is None else one.detection.auc
            if auc is not None and auc.value is not None:
                points.append(
                    {
                        "question": question_title(question),
                        "statistic": one.name,
                        "AUC": draw.rounded(auc.value),
                        "low": draw.rounded(auc.low),
                        "high": draw.rounded(auc.high),
                        "users": auc.n,
                    }
                )
    if not points:
        return None
    return Figure(
        figure_id="provenance-statistics",
        title="Statistics beside each other",
        caption=f"The area under the ROC curve of each statistic, with {100 * document.settings.confidence:g}% intervals over "
        f"{document.settings.by}s; the "
        "dashed line is guessing. Only one of them decides, which was chosen before any score was seen.",
        panels=(Panel(specs={"": _areas(points)}),),
        columns=("question", "statistic", "AUC", "low", "high", "users"),
        rows=draw.rows_of(points, "question", "statistic", "AUC", "low", "high", "users"),
    )


def _areas(points: Points) -> Spec:
    points = [{**point, "of": _SHORT[point["question"]]} for point in points]
    questions = list(dict.fromkeys(point["of"] for point in points))
    statistics = list(dict.fromkeys(point["statistic"] for point in points))
    scale = {"domain": [min(0.4, *(point["low"] for point in points)), 1], "nice": False}
    x, low = (draw.axis(field, "AUC", scale=scale, axis={"tickCount": 6}) for field in ("AUC", "low"))
    y = draw.axis("statistic", "", "nominal", sort=statistics, axis={"labelLimit": 0})
    beside = {
        "y": y,
        "yOffset": {"field": "of", "sort": questions},
        "color": draw.colors_of(questions, None, "of"),
    }
    dashed = {"type": "rule", "strokeDash": [4, 4], "color": draw.RULE, "aria": False}
    shown = draw.tooltips("question", "statistic", "AUC", "low", "high", "users")
    guessing = draw.axis("at", "AUC", scale=scale)
    layers = [
        draw.layer([{"at": 0.5}], dashed, x=guessing),
        draw.layer(points, draw.INTERVAL, x=low, x2="high", **beside),
        draw.layer(points, draw.dots(70, opacity=1), x=x, **beside, tooltip=shown),
    ]
    height = 26 * len(statistics) * (1 + len(questions))
    return draw.spec(layers, description="AUC of each statistic, with intervals.", height=height)


def words_figure(document: Provenance) -> Figure | None:
    """The ranks that the target gives to words, by how frequent they are; None where ranks are not known."""
    points: Points = []
    for group in document.words:
        for name, ranks in ((SUSPECTS, group.suspects), (NON_MEMBERS, group.non_members)):
            if ranks is not None:
                mean, low, high = (draw.rounded(one, 2) for one in ranks)
                points.append(
                    {"of": name, "place": group.frequency_rank, "rank": mean, "low": low, "high": high}
                )
    if not points:
        return None
    x = draw.axis("place", "place in the table of word frequencies", axis={"format": "~%", "grid": False})
    shown = draw.tooltips("of", ("place", "place in the table"), ("rank", "mean rank"), "low", "high")
    return Figure(
        figure_id="provenance-words",
        title="Ranks of frequent and of rare words",
        caption="The mean rank that the model gives to words (lower means likelier), from the most frequent words on the left to the "
        f"rarest, with {100 * document.settings.confidence:g}% intervals over "
        f"{document.settings.by}s. Models rank rare words higher where they saw them in "
        "training.",
        panels=(Panel(specs={"": _curves(points, x, shown)}),),
        columns=("group", "place in the table of frequencies", "mean rank", "low", "high"),
        rows=draw.rows_of(points, "of", "place", "rank", "low", "high"),
    )


def _curves(points: Points, x: Spec, shown: list[Spec]) -> Spec:
    """A line with points for each side, over the band of its intervals."""
    sides = [name for name in _COLORS if any(point["of"] == name for point in points)]
    color = draw.color_channel({name: _COLORS[name] for name in sides}, None, "of")
    low, rank = (draw.axis(field, "mean rank") for field in ("low", "rank"))
    band = {"type": "area", "opacity": 0.15, "aria": False}
    line = {"type": "line", "strokeWidth": 2, "point": {"size": 40}}
    layers = [
        draw.layer(points, band, x=x, y=low, y2="high", color=color),
        draw.layer(points, line, x=x, y=rank, color=color, tooltip=shown),
    ]
    return draw.spec(layers, description="Mean rank of words by how frequent they are.")


def log_probabilities_figure(document: Provenance) -> Figure | None:
    """Histograms of the log-probabilities of frequent words and of others; None where they are not known."""
    found = document.log_probabilities
    if found is None:
        return None
    panels: list[Panel] = []
    rows: Points = []
    for title, suspects, others in (
        ("The most frequent fifth of words", found.suspects_frequent, found.non_members_frequent),
        ("All other words", found.suspects_rare, found.non_members_rare),
    ):
        points = [*_bars(found, suspects, SUSPECTS), *_bars(found, others, NON_MEMBERS)]
        panels.append(Panel(title=title, specs={"": _histogram(points)}))
        rows += [{**point, "words": title} for point in points]
    return Figure(
        figure_id="provenance-log-probabilities",
        title="Probabilities of frequent and of rare words",
        caption="How often words have each log-probability, as a share of all words of the group; the leftmost bin also has what is less "
        "likely. Where the two groups differ in rare words and not in frequent ones, rare words were memorized.",
        panels=tuple(panels),
        columns=("words", "group", "from (bits)", "to (bits)", "share"),
        rows=draw.rows_of(rows, "words", "of", "from", "to", "share"),
    )


def _bars(found: LogHistogram, shares: tuple[float, ...], name: str) -> Points:
    """The bins of one group; the first bin of a histogram ends at 0 bits, a probability of 1."""
    width = found.least_bits / max(1, len(shares))
    return [
        {
            "of": name,
            "from": draw.rounded((place + 1) * width, 3),
            "to": draw.rounded(place * width + 0.0, 3),
            "share": draw.rounded(share, 6),
        }
        for place, share in enumerate(shares)
    ]


def _histogram(points: Points) -> Spec:
    x = draw.axis(
        "from", "log2 probability (bits)", axis={"grid": False, "tickCount": 6}, bin={"binned": True}
    )
    y = draw.axis("share", "share of words", axis={"format": "~%"}, stack=None)
    shown = draw.tooltips("of", ("from", "from (bits)"), ("to", "to (bits)"), "share")
    color = draw.color_channel(_COLORS, None, "of")
    bars = {"type": "bar", "opacity": 0.5}
    return draw.spec(
        [draw.layer(points, bars, x=x, x2="to", y=y, color=color, tooltip=shown)],
        description="Histogram of log-probabilities of words, for suspects and for non-members.",
        height=200,
    )


def ablation_figure(document: Provenance) -> Figure | None:
    """How well words are predicted while hidden units are set to zero; None where that was not tried."""
    panels: list[Panel] = []
    rows: Points = []
    for title, own, others in (
        ("The most frequent tenth of words", "frequent", "non_members_frequent"),
        ("All other words", "rare", "non_members_rare"),
    ):
        points: Points = [
            {
                "of": name,
                "share": draw.rounded(point.ablated),
                "accuracy": draw.rounded(getattr(point, field)),
            }
            for name, field in ((SUSPECTS, own), (NON_MEMBERS, others))
            for point in document.ablation
            if getattr(point, field) is not None
        ]
        if points:
            panels.append(Panel(title=title, specs={"": _forgetting(points)}))
            rows += [{**point, "words": title} for point in points]
    if not panels:
        return None
    return Figure(
        figure_id="provenance-ablation",
        title="Ablation",
        caption="How often the model predicts the next word of some texts while a random share of its last hidden layer is set to zero. "
        "What was memorized depends on single units: where suspects were trained on, their rare words are predicted more often than those "
        "of non-members, and are forgotten first.",
        panels=tuple(panels),
        columns=("words", "group", "share of units", "accuracy"),
        rows=draw.rows_of(rows, "words", "of", "share", "accuracy"),
    )


def _forgetting(points: Points) -> Spec:
    sides = [name for name in _COLORS if any(point["of"] == name for point in points)]
    x = draw.axis("share", "share of hidden units set to zero", axis={"format": "~%", "grid": False})
    y = draw.axis("accuracy", "accuracy", axis={"format": "~%"})
    line = {"type": "line", "strokeWidth": 2, "point": {"size": 50}}
    shown = draw.tooltips("of", "share", "accuracy")
    color = draw.color_channel({name: _COLORS[name] for name in sides}, None, "of")
    layers = [draw.layer(points, line, x=x, y=y, color=color, tooltip=shown)]
    return draw.spec(layers, description="Accuracy by the share of units set to zero.", height=200)
