"""Frequent and rare words: which texts are rarest, and how a model ranks, weighs and forgets the words of suspects and of non-members.

Figures 5 to 7 of Auditing Data Provenance in Text-Generation Models (Song and Shmatikov, 2019, arXiv:1811.00513): models rank rare words
far higher where they saw them in training, and forget them faster while hidden units are set to zero. Intervals are over users.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from coalmine.audits.provenance.options import ProvenanceOptions, Selection
from coalmine.audits.provenance.records import WordPoint
from coalmine.audits.provenance.users import User
from coalmine.audits.provenance.views import TextView, counted_tokens, readable
from coalmine.engines.units import Arrays
from coalmine.models.protocols import AblatedScorer, FloatArray, IntArray, Model
from coalmine.randomness import arrays

# Groups of words by their place in the table of frequencies, and the bins of log2 probabilities, for figures.
FREQUENCY_GROUPS, FREQUENT_SHARE = 20, 0.2
LOG_BINS, LOG_LEAST = 50, -25.0
# The shares of hidden units that are set to zero, and the words that count as frequent there: a tenth of the vocabulary, as in the paper.
SHARES, FREQUENT = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5), 0.1
_WORDS: tuple[Literal["frequent", "rare"], ...] = ("frequent", "rare")
Side = Literal["suspects", "non-members"]
# Words at white space, or the ids of a tokenizer.
Word = str | int
Cut = Callable[[str], Sequence[Word]]


def frequency_ranks(counts: ArrayLike) -> FloatArray:
    """The place of each token id as a share from 0 (the most frequent) to 1, from how often each occurs; equals are ordered by their id.

    >>> frequency_ranks([2, 1, 0, 3])
    array([0.25, 0.5 , 0.75, 0.  ])
    """
    order = np.argsort(-np.asarray(counts), kind="stable")
    shares = np.empty(len(order))
    shares[order] = np.arange(len(order)) / max(1, len(order))
    return shares


def weights_of(counts: Mapping[Word, int], selection: Selection) -> Callable[[Word], int]:
    """What a word adds to the sum by which the texts of a user are chosen, the smallest sum first, from how often each word occurs.

    "frequency-sum" adds up frequencies, as in the paper, and prefers short texts. "index-sum" subtracts the places of words in the table of
    frequencies, as in its code, and prefers long ones; words that are not in it come last.

    >>> counts = {"the": 3, "cat": 2, "dog": 1, "sat": 1}
    >>> [weights_of(counts, "frequency-sum")(word) for word in ("the", "emu")], weights_of(counts, "index-sum")("emu")
    ([3, 0], -4)
    """
    if selection != "index-sum":
        return lambda word: counts.get(word, 0)
    # Equally frequent words are ordered by themselves, so that the order of the texts does not matter.
    ordered = sorted(counts, key=lambda word: (-counts[word], word))
    places = {word: place for place, word in enumerate(ordered)}
    return lambda word: -places.get(word, len(places))


def with_chosen_texts(
    user: User, options: ProvenanceOptions, cut: Cut, weight: Callable[[Word], int]
) -> User:
    """A user with the texts alone that a model is asked about; those without a known word only where there are no others.

    Equal sums stay in the order of the corpus. What is random depends on the seed, the user's name and the number of texts, and not on
    other users.
    """
    words = [cut(text.text) for text in user.texts]
    known = [place for place, own in enumerate(words) if own] or list(range(len(words)))
    if options.selection == "random":
        drawn = arrays(options.seed, "provenance", "queries", user.name).permutation(len(known))
        known = [known[place] for place in drawn]
    elif options.queries is not None:
        known.sort(key=lambda place: sum(map(weight, words[place])))
    return User(user.name, tuple(user.texts[place] for place in sorted(known[: options.queries])))


def by_frequency(views: Sequence[TextView], ranks: FloatArray) -> dict[str, Any]:
    """The sums and numbers of a user's ranks in each group of words, and how often log2 probabilities are in each bin."""
    sums, counts = np.zeros(FREQUENCY_GROUPS), np.zeros(FREQUENCY_GROUPS, dtype=np.int64)
    logs = np.zeros((2, LOG_BINS), dtype=np.int64)  # of frequent words, and of others
    for view in views:
        if view.tokens is None:
            continue
        shares = ranks[view.tokens]
        groups = np.minimum((shares * FREQUENCY_GROUPS).astype(np.int64), FREQUENCY_GROUPS - 1)
        np.add.at(sums, groups, view.ranks)
        np.add.at(counts, groups, 1)
        if view.log2_probabilities is not None:
            bins = np.clip(view.log2_probabilities / LOG_LEAST * LOG_BINS, 0, LOG_BINS - 1).astype(np.int64)
            np.add.at(logs, ((shares >= FREQUENT_SHARE).astype(np.int64), bins), 1)
    return {"rank_sums": sums, "rank_counts": counts, "log_histogram": logs}


def word_points(asked: Mapping[Side, Arrays | None], confidence: float) -> Iterator[WordPoint]:
    """The mean ranks of words by how frequent they are, and the log2 probabilities of frequent and of rare words, as shares.

    There are none where ranks or tokens are not known, and no probabilities where nobody is compared with.
    """
    for group in range(FREQUENCY_GROUPS):
        for side, columns in asked.items():
            if columns and "rank_sums" in columns:
                sums, counts = columns["rank_sums"][:, group], columns["rank_counts"][:, group]
                if counts.any():
                    mean, low, high = _mean_over_users(sums, counts, confidence)
                    place = (group + 0.5) / FREQUENCY_GROUPS
                    yield WordPoint(figure="ranks", group=side, x=place, y=mean, low=low, high=high)
    sides = {
        side: some["log_histogram"].sum(axis=0)
        for side, some in asked.items()
        if some and "log_histogram" in some
    }
    if len(sides) < 2 or not all(counts.any() for counts in sides.values()):
        return
    edges = np.linspace(0.0, LOG_LEAST, LOG_BINS + 1).round(6).tolist()
    for number, words in enumerate(_WORDS):
        for side, counts in sides.items():
            shares = counts[number] / max(1, counts[number].sum())
            for to, least, share in zip(edges, edges[1:], shares.tolist(), strict=False):
                yield WordPoint(figure="log-probabilities", group=side, words=words, x=least, to=to, y=share)


def _mean_over_users(sums: FloatArray, counts: IntArray, confidence: float) -> tuple[float, float, float]:
    """The mean of the users' own means, with Student's interval; the mean alone where there is a single user."""
    from scipy.stats import t

    there = counts > 0
    means = sums[there] / counts[there]
    center = float(means.mean())
    if len(means) == 1:
        return center, center, center
    half = (
        float(t.ppf((1 + confidence) / 2, len(means) - 1)) * float(means.std(ddof=1)) / math.sqrt(len(means))
    )
    return center, center - half, center + half


def ablation_curves(
    target: Model,
    ranks: FloatArray,
    suspects: Sequence[User],
    non_members: Sequence[User],
    *,
    most: int,
    seed: int,
    shares: Sequence[float] = SHARES,
) -> Iterator[WordPoint]:
    """How well frequent and other words are predicted in at most `most` random texts of each side while hidden units are set to zero.

    Units of a smaller share are among those of a larger; no curve for a model without such units.
    """
    if not isinstance(target, AblatedScorer) or not target.hidden_units:
        return
    order = arrays(seed, "provenance", "ablation").permutation(target.hidden_units)
    silent = [order[: round(share * len(order))].tolist() for share in shares]
    sides: dict[Side, Sequence[User]] = {"suspects": suspects, "non-members": non_members}
    for group, users in sides.items():
        texts = [text for user in users for text in user.texts]
        drawn = arrays(seed, "provenance", "ablation", "texts").permutation(len(texts))[:most]
        sequences = [one for _, one, _ in readable(target, [texts[place] for place in sorted(drawn)])]
        hits, words = np.zeros((len(silent), 2)), np.zeros(2)  # of frequent words, and of others
        for sequence, predicted in zip(sequences, target.predicts_without(sequences, silent), strict=True):
            tokens, counts = counted_tokens(target.tokenizer, sequence)
            rare = ranks[tokens[counts]] >= FREQUENT
            for side, these in enumerate((~rare, rare)):
                hits[:, side] += predicted[:, counts][:, these].sum(axis=1)
                words[side] += these.sum()
        for share, row in zip(shares, hits, strict=True):
            for kind, hit, count in zip(_WORDS, row, words, strict=True):
                if count:
                    yield WordPoint(figure="ablation", group=group, words=kind, x=share, y=float(hit / count))
