"""Whether the numbers of a recitation.json can be true together: counts add up, and shares are shares of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from coalmine.records.contradictions import (
    another_interval,
    at_most,
    count_problems,
    estimate_problems,
    hits_of,
    in_range,
    level_problems,
    same,
    share_problems,
    twice,
)
from coalmine.statistics.intervals import effective_interval

if TYPE_CHECKING:
    from coalmine.audits.recitation.results import Group, Recitation, RecitationTrend
    from coalmine.records import Estimate


def recitation_problems(document: Recitation) -> Iterator[str]:
    """What cannot be true in the results of `recite`."""
    yield from level_problems("the confidence", document.settings.confidence)
    yield from count_problems("the number of sequences", document.sequences)
    yield from count_problems("the number of questions", document.questions)
    names = {one.name for one in document.models}
    yield from twice("model", [one.name for one in document.models])
    for group in document.groups:
        yield from _group_problems(group, document.settings.confidence)
        if group.model not in names:
            yield f"there are shares of model {group.model!r}, which is not described"
    yield from _sums(document)
    yield from _exclusive_problems(document)
    for trend in document.trends:
        yield from _trend_problems(trend)
    for example in document.examples:
        if not set(example.recited_by) <= names:
            yield "an example was recited by a model that is not described"


def _name(group: Group) -> str:
    parts = [f"model {group.model!r}"]
    for what, value in (("context", group.context), ("length", group.length), ("bucket", group.bucket)):
        parts += [] if value is None else [f"{what} {value}"]
    return ", ".join(parts)


def _group_problems(group: Group, confidence: float) -> Iterator[str]:
    name, fewest, most = _name(group), *group.copies
    shares = [("recited", group.recited), ("beam", group.beam), ("among beams", group.among_beams)]
    shares += [("anywhere", group.anywhere), ("near", group.near)]
    shares += [(f"in {one.tries:,} tries", one.share) for one in group.sampled]
    for what, share in shares:
        if share is not None:
            yield from _share_problems(f"{name}: the share {what}", share, group.recited.n, confidence)
            yield from _interval_problems(f"{name}: the share {what}", share, group.clusters, confidence)
    yield from in_range(f"{name}: the fewest copies", fewest, 1)
    yield from in_range(f"{name}: the mean of copies", group.mean_copies, fewest, most)
    yield from count_problems(f"{name}: the number of sequences", group.recited.n)
    yield from count_problems(f"{name}: the most copies", most, fewest)
    yield from in_range(f"{name}: the number of documents", group.clusters, 1, group.recited.n)
    if group.recited_in_corpus is not None and group.recited.value is not None:
        low, high = group.recited_in_corpus
        if not (
            at_most(0, low)
            and at_most(low, group.recited.value)
            and at_most(group.recited.value, high)
            and at_most(high, 1)
        ):
            yield f"{name} has a share that is not between the limits of it in the corpus"


def _share_problems(name: str, share: Estimate, n: int, confidence: float) -> Iterator[str]:
    yield from estimate_problems(name, share, 0, 1)
    if share.n != n:
        yield f"{name} is of {share.n:,} sequences, and there are {n:,}"
    if share.confidence is not None and not same(share.confidence, confidence):
        yield f"{name} has a confidence of {share.confidence:g}, and the results have {confidence:g}"
    if share.value is not None and hits_of(share.value, n) is None:
        yield f"{name} is {share.value:g}, which is not a share of {n:,} sequences"


def _interval_problems(name: str, share: Estimate, clusters: int | None, confidence: float) -> Iterator[str]:
    """The interval follows from the share and from how many independent sequences its own are worth: one per document at most."""
    most, worth = share.n if clusters is None else min(clusters, share.n), share.effective_n
    if share.value is None or worth is None:
        return
    if not (at_most(1, worth) and at_most(worth, most)):
        yield f"{name} is worth {worth:g} independent sequences, and 1 to {most:,} are possible"
    elif (
        0 <= share.value <= 1
        and 0 < confidence < 1
        and another_interval(share, *effective_interval(share.value, max(1.0, worth), confidence))
    ):
        yield f"{name} has an interval that {worth:g} independent sequences do not give"


def _counts(groups: Sequence[Group]) -> tuple[int, int]:
    """How many sequences they are of, and how many of these were recited."""
    recited = [hits_of(one.recited.value or 0.0, one.recited.n) or 0 for one in groups]
    return sum(one.recited.n for one in groups), sum(recited)


def _sums(document: Recitation) -> Iterator[str]:
    """The sequences of one context are those of all its numbers of copies, and of all its lengths where there are several."""
    for model in dict.fromkeys(group.model for group in document.groups):
        own = [group for group in document.groups if group.model == model]
        whole = [group for group in own if group.length is None and group.bucket is None]
        if sum(group.recited.n for group in whole) != document.questions:
            yield f"model {model!r} was asked {sum(group.recited.n for group in whole):,} questions, and there were {document.questions:,}"
        for group in whole:
            if group.recited.n > document.sequences:
                yield f"{_name(group)}: {group.recited.n:,} sequences were asked about, and there are {document.sequences:,}"
            here = [one for one in own if one.context == group.context]
            by_copies = [one for one in here if one.bucket is not None]
            by_length = [one for one in here if one.length is not None]
            for what, parts in (("numbers of copies", by_copies), ("lengths", by_length)):
                if parts and _counts(parts) != _counts([group]):
                    yield f"{_name(group)}: the sequences of all {what} do not add up to those of the context"


def _exclusive_problems(document: Recitation) -> Iterator[str]:
    for one in document.exclusive:
        name = f"model {one.model!r}, context {one.context}"
        group = document.overall(one.model, one.context)
        if group is None or _counts([group]) != (one.of, one.recited):
            yield f"{name} recites {one.recited:,} of {one.of:,} sequences, and its share is another"
        if any(not 0 <= count <= one.recited for count in one.not_recited_by.values()):
            yield f"{name} recites {one.recited:,} sequences, and another number of them alone"


def _trend_problems(trend: RecitationTrend) -> Iterator[str]:
    name, fit = f"the trend by {trend.by}", trend.trend
    yield from estimate_problems(name, fit.slope)
    for what, value in (
        ("share of explained variance", fit.r_squared),
        ("p-value", fit.p_value),
        ("p-value with spread", fit.p_value_with_spread),
        ("lack of fit", fit.lack_of_fit),
    ):
        yield from share_problems(f"{name}: the {what}", value)
