"""Frequent and rare words: which texts are rarest, and how a model ranks, weighs and forgets the words of suspects and of non-members.

Figures 5 to 7 of Auditing Data Provenance in Text-Generation Models (Song and Shmatikov, 2019, arXiv:1811.00513): models rank rare words
far higher where they saw them in training, and forget them faster while hidden units are set to zero. Intervals are over users.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from coalmine.audits.provenance.options import ProvenanceOptions
from coalmine.audits.provenance.records import AblationPoint, LogHistogram, WordGroup
from coalmine.audits.provenance.users import User, UserText
from coalmine.audits.provenance.views import TextView, counted_tokens, readable, text_units
from coalmine.engines.engine import Engine
from coalmine.engines.ledger import Ledger
from coalmine.engines.units import Arrays, Running, Unit
from coalmine.errors import InputError, NotMeasurableError
from coalmine.models.protocols import AblatedScorer, FloatArray, IntArray, Model
from coalmine.models.works import ModelWork
from coalmine.progress import Progress
from coalmine.randomness import arrays
from coalmine.visible import visible

# Groups of words by their place in the table of frequencies, and the bins of log2 probabilities, for figures.
FREQUENCY_GROUPS, FREQUENT_SHARE = 20, 0.2
LOG_BINS, LOG_LEAST = 50, -25.0
# The shares of hidden units that are set to zero, and the words that count as frequent there: a tenth of the vocabulary, as in the paper.
SHARES, FREQUENT = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5), 0.1
_TEXTS_AT_A_TIME = 64
# Words at white space, or the ids of a tokenizer.
Cut = Callable[[str], Sequence[str] | Sequence[int]]


class FrequencyTable:
    """How often each word, or token, occurs in reference texts, which are read once; `cut` divides a text into words.

    >>> table = FrequencyTable(["the cat", "the dog", "the cat sat"])
    >>> table.frequency_sum("the dog"), table.index_sum("the dog"), table.index_sum("the emu")
    (4, 2, 4)
    """

    def __init__(self, texts: Iterable[str], cut: Cut = str.split) -> None:
        self.cut = cut
        counts: Counter[str | int] = Counter()
        for text in texts:
            counts.update(cut(text))
        if not counts:
            raise InputError(
                "frequencies are counted in texts, but none has a word that the model knows; give texts that it can read"
            )
        self._counts = dict(counts)
        # Equally frequent words are ordered by themselves, so that the order of the reference texts does not matter.
        ordered = sorted(counts, key=lambda word: (-counts[word], word))
        self._indices = {word: index for index, word in enumerate(ordered)}

    def ranks(self, size: int) -> FloatArray:
        """The place of each token id below `size` in the table, as `frequency_ranks` has it."""
        return frequency_ranks([self._counts.get(token, 0) for token in range(size)])

    def frequency_sum(self, text: str) -> int:
        """The sum of how often each word of a text occurs in the reference texts; 0 for a word that does not."""
        return sum(self._counts.get(word, 0) for word in self.cut(text))

    def index_sum(self, text: str) -> int:
        """The sum of the places of a text's words in the table, from 0 for the most frequent word; words that are not in it come last."""
        return sum(self._indices.get(word, len(self._indices)) for word in self.cut(text))


def frequency_ranks(counts: ArrayLike) -> FloatArray:
    """The place of each token id as a share from 0 (the most frequent) to 1, from how often each occurs; equals are ordered by their id.

    >>> frequency_ranks([2, 1, 0, 3])
    array([0.25, 0.5 , 0.75, 0.  ])
    """
    order = np.argsort(-np.asarray(counts), kind="stable")
    shares = np.empty(len(order))
    shares[order] = np.arange(len(order)) / max(1, len(order))
    return shares


def chosen_places(user: User, options: ProvenanceOptions, table: FrequencyTable) -> tuple[int, ...]:
    """The places of the texts of a user that a model is asked about; those without a known word only where there are no others.

    "frequency-sum" takes the smallest sum of word frequencies first, as in the paper, which prefers short texts; "index-sum" the largest
    sum of places in the table of frequencies, as in its code, which prefers long ones; "random" depends on the seed, the user's name and
    the number of texts, and not on other users. Equal sums stay in the order of the corpus.

    >>> table = FrequencyTable(["the cat", "the dog", "the cat sat"])
    >>> ann = User("ann", (UserText("the cat sat"), UserText("the emu"), UserText("dog")))
    >>> chosen_places(ann, ProvenanceOptions(queries=2, selection="frequency-sum"), table)
    (1, 2)
    """
    every = range(len(user.texts))
    known = [place for place in every if table.cut(user.texts[place].text)] or list(every)
    if options.selection == "random":
        drawn = arrays(options.seed, "provenance", "queries", user.name).permutation(len(known))
        known = [known[place] for place in drawn]
    elif options.selection == "frequency-sum":
        known.sort(key=lambda place: table.frequency_sum(user.texts[place].text))
    elif options.selection == "index-sum":
        known.sort(key=lambda place: -table.index_sum(user.texts[place].text))
    return tuple(sorted(known[: options.queries]))


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


def word_groups(suspects: Arrays, non_members: Arrays | None, confidence: float) -> tuple[WordGroup, ...]:
    """The mean ranks of words by how frequent they are; empty where ranks or tokens are not known."""
    found = []
    for group in range(FREQUENCY_GROUPS if "rank_sums" in suspects else 0):
        own, others = (
            None
            if side is None
            else _mean_over_users(side["rank_sums"][:, group], side["rank_counts"][:, group], confidence)
            for side in (suspects, non_members)
        )
        if own or others:
            place = (group + 0.5) / FREQUENCY_GROUPS
            found.append(WordGroup(frequency_rank=place, suspects=own, non_members=others))
    return tuple(found)


def log_histogram(suspects: Arrays, non_members: Arrays | None) -> LogHistogram | None:
    """The log2 probabilities of frequent and of rare words, as shares; None where they are not known, or nobody is compared with."""
    sides = [
        side["log_histogram"].sum(axis=0)
        for side in (suspects, non_members)
        if side and "log_histogram" in side
    ]
    if len(sides) < 2 or not all(counts.any() for counts in sides):
        return None
    own, others = (counts / np.maximum(1, counts.sum(axis=1, keepdims=True)) for counts in sides)
    return LogHistogram(
        least_bits=LOG_LEAST,
        suspects_frequent=tuple(own[0].tolist()),
        suspects_rare=tuple(own[1].tolist()),
        non_members_frequent=tuple(others[0].tolist()),
        non_members_rare=tuple(others[1].tolist()),
    )


def _mean_over_users(
    sums: FloatArray, counts: IntArray, confidence: float
) -> tuple[float, float, float] | None:
    """The mean of the users' own means, with Student's interval; the mean alone where there is a single user."""
    from scipy.stats import t

    there = counts > 0
    if not there.any():
        return None
    means = sums[there] / counts[there]
    center = float(means.mean())
    if len(means) == 1:
        return center, center, center
    half = (
        float(t.ppf((1 + confidence) / 2, len(means) - 1)) * float(means.std(ddof=1)) / math.sqrt(len(means))
    )
    return center, center - half, center + half


@dataclass(frozen=True)
class AblationWork(ModelWork):
    """Texts to be predicted while random shares of the last hidden layer are zero, those of a smaller share among those of a larger."""

    target: Model
    ranks: FloatArray
    seed: int = 0
    shares: tuple[float, ...] = SHARES

    name = "provenance ablation/2"

    @property
    def models(self) -> tuple[Model | None, ...]:
        """The target alone."""
        return (self.target,)

    @property
    def facts(self) -> Any:
        """The target, what is set to zero, and which words are frequent."""
        return [super().facts, self.shares, self.seed, self.ranks]

    def run(self, unit: Unit, running: Running) -> Arrays:
        """How many frequent and how many other words each ablation predicts, and how many there are."""
        target = self.target
        if not isinstance(target, AblatedScorer):
            raise NotMeasurableError(
                f"{visible(target.name)} has no last hidden layer whose units can be set to zero"
            )
        every = [UserText(*text) for text in zip(*unit.inputs, strict=True)]
        sequences = [sequence for _, sequence, _ in readable(target, every)]
        order = arrays(self.seed, "provenance", "ablation").permutation(target.hidden_units)
        silent = [order[: round(share * len(order))].tolist() for share in self.shares]
        hits, words = np.zeros((len(silent), 2), dtype=np.int64), np.zeros(2, dtype=np.int64)
        for sequence, predicted in zip(sequences, target.predicts_without(sequences, silent), strict=True):
            tokens, counts = counted_tokens(target.tokenizer, sequence)
            rare = self.ranks[tokens[counts]] >= FREQUENT
            for side, these in enumerate((~rare, rare)):
                hits[:, side] += predicted[:, counts][:, these].sum(axis=1)
                words[side] += these.sum()
        running.advance(len(every))
        return {"hits": hits, "words": words}


def ablation_curves(
    work: AblationWork,
    suspects: Sequence[User],
    non_members: Sequence[User],
    most: int,
    *,
    engine: Engine,
    ledger: Ledger,
    progress: Progress,
) -> tuple[AblationPoint, ...]:
    """How well frequent and other words are predicted for each share, in at most `most` random texts of each side; none where no units
    can be set to zero.
    """
    if not isinstance(work.target, AblatedScorer) or not work.target.hidden_units:
        return ()
    sides = [_some_texts(users, most, work.seed) for users in (suspects, non_members)]
    progress.start("Setting hidden units to zero", sum(map(len, sides)))
    own, others = (_accuracies(work, texts, engine, ledger, progress) for texts in sides)
    progress.finish()
    return tuple(
        AblationPoint(
            ablated=share,
            frequent=first[0],
            rare=first[1],
            non_members_frequent=second[0],
            non_members_rare=second[1],
        )
        for share, first, second in zip(work.shares, own, others, strict=True)
    )


def _some_texts(users: Sequence[User], most: int, seed: int) -> list[UserText]:
    """Random texts of users, in the order of the corpus."""
    texts = [text for user in users for text in user.texts]
    drawn = arrays(seed, "provenance", "ablation", "texts").permutation(len(texts))[:most]
    return [texts[place] for place in sorted(drawn.tolist())]


def _accuracies(
    work: AblationWork, texts: Sequence[UserText], engine: Engine, ledger: Ledger, progress: Progress
) -> list[list[float | None]]:
    """Of frequent and of other words, for each share; None where there are none."""
    units = text_units(texts, _TEXTS_AT_A_TIME)
    hits, words = np.zeros((len(work.shares), 2), dtype=np.int64), np.zeros(2, dtype=np.int64)
    for outcome in engine.map(work, units, ledger=ledger, progress=progress):
        found = outcome.value()
        hits, words = hits + found["hits"], words + found["words"]
    return [
        [int(hit) / int(count) if count else None for hit, count in zip(row, words, strict=True)]
        for row in hits
    ]
