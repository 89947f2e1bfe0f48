"""Whether the numbers of a provenance.json can be true together: those of each question, of the data, and of the figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from coalmine.audits.provenance.data_contradictions import data_problems
from coalmine.audits.provenance.interpretation import cannot_be_decided
from coalmine.audits.provenance.question_checks import question_problems
from coalmine.records.contradictions import (
    at_most,
    count_problems,
    in_range,
    level_problems,
    same,
    share_problems,
    twice,
)

if TYPE_CHECKING:
    from coalmine.audits.provenance.results import AblationPoint, LogHistogram, Provenance, WordGroup


def provenance_problems(document: Provenance) -> Iterator[str]:
    """What cannot be true in the results of `provenance`."""
    settings = document.settings
    yield from level_problems("the false-discovery rate", settings.fdr)
    yield from level_problems("the confidence", settings.confidence)
    yield from count_problems("the number of shadow models", document.shadows)
    yield from count_problems("the number of tokens that are ranked", document.ranked, 1)
    yield from count_problems("the number of tokens that are listed", document.top, 1)
    if document.top is not None and settings.top is not None and document.top > settings.top:
        yield f"{document.top:,} tokens are listed, and {settings.top:,} were to be looked at"
    if not document.questions:
        yield "no question was asked"
    yield from twice("question", [one.asks for one in document.questions])
    yield from _stranger_problems(document)
    for question in document.questions:
        yield from question_problems(question, settings, said=not cannot_be_decided(document, question))
    yield from data_problems(document)
    yield from _word_problems(document.words)
    if document.log_probabilities is not None:
        yield from _log_problems(document.log_probabilities)
    yield from _ablation_problems(document.ablation)


def _stranger_problems(document: Provenance) -> Iterator[str]:
    """Both questions are about the same users; there may be other texts of some of them only."""
    texts, user = document.question("texts"), document.question("user")
    if texts is None or user is None:
        return
    known = {row.user for row in texts.rows}
    places = [place for place, row in enumerate(user.rows, 1) if row.user not in known]
    if places:
        yield f"the question 'user' has someone in row {places[0]} who is not in the question 'texts'"


def _word_problems(words: Sequence[WordGroup]) -> Iterator[str]:
    places = [group.frequency_rank for group in words]
    if any(first >= second for first, second in pairwise(places)):
        yield "the groups of words are not in the order of their frequencies"
    for group in words:
        name = f"the words at {group.frequency_rank:g} of the table of frequencies"
        yield from share_problems(f"{name}: their place", group.frequency_rank)
        for ranks in (group.suspects, group.non_members):
            if ranks is None:
                continue
            mean, low, high = ranks
            yield from in_range(f"{name}: the mean rank", mean, 0)
            for limit in (low, high):
                yield from in_range(f"{name}: a limit of the mean rank", limit)
            if not (at_most(low, mean) and at_most(mean, high)):
                yield f"{name} have a mean rank that is not between its limits"


def _log_problems(found: LogHistogram) -> Iterator[str]:
    name = "the histogram of log-probabilities"
    bins = (found.suspects_frequent, found.suspects_rare, found.non_members_frequent, found.non_members_rare)
    if len({len(one) for one in bins}) > 1 or not bins[0]:
        yield f"{name} has other bins for some words than for others"
    if not found.least_bits < 0:
        yield f"{name} begins at {found.least_bits:g} bits, which is not below 0"
    for shares in bins:
        strange = [problem for share in shares for problem in share_problems(f"{name}: a share", share)]
        yield from strange
        # Nothing is counted where there are no such words.
        if not strange and not (same(sum(shares), 1.0) or not any(shares)):
            yield f"{name} has shares that do not add up to 1"


def _ablation_problems(points: Sequence[AblationPoint]) -> Iterator[str]:
    if any(first.ablated >= second.ablated for first, second in pairwise(points)):
        yield "the ablation is not in ascending order of the share of units"
    for point in points:
        for what, share in (
            ("share of units", point.ablated),
            ("accuracy on frequent words", point.frequent),
            ("accuracy on other words", point.rare),
            ("accuracy on frequent words of non-members", point.non_members_frequent),
            ("accuracy on other words of non-members", point.non_members_rare),
        ):
            yield from share_problems(f"the ablation: the {what}", share)
