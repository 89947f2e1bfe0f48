"""What reports and the gate learn about users: whose text was used for training, and whether anything else explains their scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coalmine.audits.provenance.deciding import (
    not_interpretable,
    overlap_words,
    person_words,
    power_of,
    sides_of,
    told_apart,
)
from coalmine.audits.provenance.records import PROVENANCES, Asks, Provenance, Question
from coalmine.audits.provenance.users import counted, listed
from coalmine.evidence.measures import Measure, Rule
from coalmine.evidence.run import Run
from coalmine.records import Estimate
from coalmine.visible import visible

# If the upper limit of the area is below this, the two groups can hardly be told apart without a model.
HARMLESS_AUC = 0.6
# The share of texts within the time of the other group, which is near 0.98 for groups of the same time.
FEW_WITHIN = 0.5
# The share of texts that several users have, from which on it is more than a remark.
REPEATED = 0.01
# How severe a remark about the data is.
_SPOILS, _BLURS, _TELLS = 1.0, 0.5, 0.0
_ABOUT: dict[Asks, str] = {"texts": "these very texts", "user": "other texts by them"}


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
        says = [" ".join(person_words(document, question)).rstrip(".")]
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
        also="provenance.known",
    ),
)
