"""What models say about users, as units of work: a few numbers per user, however much they wrote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.provenance.users import User, UserText
from coalmine.audits.provenance.views import NOT_LISTED, TextView, View, look_at_each, view_of
from coalmine.engines.courses import SURVIVED
from coalmine.engines.engine import Engine
from coalmine.engines.ledger import Ledger
from coalmine.engines.units import Arrays, Run, Running, Unit
from coalmine.errors import CoalmineError, WorkerLostError
from coalmine.models.protocols import FloatArray, IntArray, Model, RemoteModel
from coalmine.models.works import ModelWork
from coalmine.progress import Progress
from coalmine.statistics.provenance.rank_histograms import RankHistogram, Scaling
from coalmine.statistics.provenance.text_scores import (
    WINDOW_SIZES,
    log_ratio,
    min_k_plus_plus,
    rmia_ratio,
    windowed_ratio,
)

# The most texts of a unit; a user is never divided, so that one with more is a unit alone.
TEXTS_AT_A_TIME = 2048
# Groups of words by their place in the table of frequencies, and the bins of log2 probabilities, for figures.
FREQUENCY_GROUPS, FREQUENT_SHARE = 20, 0.2
LOG_BINS, LOG_LEAST = 50, -25.0


class FrequencyRanks(NamedTuple):
    """The place of each token in the table of frequencies, as a share between 0 (the most frequent) and 1; one per token id."""

    shares: FloatArray

    @classmethod
    def of(cls, counts: IntArray) -> FrequencyRanks:
        """From how often each token occurs; equals are ordered by their id."""
        order = np.argsort(-counts, kind="stable")
        shares = np.empty(len(counts))
        shares[order] = np.arange(len(counts)) / max(1, len(counts))
        return cls(shares)


class Numbers(NamedTuple):
    """What was found about users; one row each. Where a model lacks what a column needs, it is NaN.

    Attributes:
        features: the histogram of ranks; the last column is for tokens that are not among those listed, if only some are.
        texts: texts that were read, and `unread` texts that could not be.
        failed: texts that the target gave no number for, and `reason` why, for the first of them; empty where there is none.
        tokens: tokens that count, `unknown` those that were read as unknown, and `cut` those at the ends of texts that are too long.
        target_bits: the sum of log2 probabilities under the target.
        ratio_bits: that minus the same under the reference, per token of the target, over what both predict.
        beside_bits: the mean log2 probability of a token under what the target is compared with, over what both predict.
        uncompared: texts that were read, and of which there is no part that both predict.
        listed: how many of the tokens that count are among those that the target lists.
        windowed, min_k: these statistics.
        rmia_bits: log2 of the target's likelihood over the mean one of the shadows, per token; a column for each set of shadows.
        rank_sums, rank_counts: the sum of ranks and the number of tokens for words of each group of frequency.
        log_histogram: how often log2 probabilities are in each bin, for frequent words and for others.
    """

    features: FloatArray
    texts: IntArray
    unread: IntArray
    failed: IntArray
    reason: NDArray[np.str_]
    tokens: IntArray
    unknown: IntArray
    cut: IntArray
    listed: IntArray
    target_bits: FloatArray
    ratio_bits: FloatArray
    beside_bits: FloatArray
    uncompared: IntArray
    windowed: FloatArray
    min_k: FloatArray
    rmia_bits: FloatArray
    rank_sums: FloatArray
    rank_counts: IntArray
    log_histogram: IntArray

    @classmethod
    def joined(cls, parts: Sequence[Arrays]) -> Numbers:
        """The rows of several units, one after the other."""
        return cls(*(np.concatenate([part[name] for part in parts]) for name in cls._fields))

    def summed(self) -> Numbers:
        """One row in which all texts are counted together; other numbers are those of the first row."""
        counts = {name: getattr(self, name).sum(keepdims=True) for name in ("texts", "tokens", "unknown")}
        first = Numbers.joined([{name: getattr(self, name)[:1] for name in self._fields}])
        return first._replace(**counts)


@dataclass(frozen=True)
class UserWork(ModelWork):
    """Users to be asked about: the target, and what it is compared with.

    Attributes:
        target: the model that is audited.
        reference: a model whose probabilities those of the target are compared with; None where there is none.
        shadows: models that were trained on some of the reference users.
        shadow_sets: sets of shadows, by their places: those that a reference user is compared with, and others beside that user.
        top: how many of the likeliest tokens are looked at; None for what the target shows.
        bins, scaling: of the histogram of ranks.
        min_share: the share of tokens that `min-k++` looks at.
        frequencies: the places of the target's tokens in the table of frequencies; None where they are not known.
    """

    target: Model
    reference: Model | None = None
    shadows: tuple[Model, ...] = ()
    shadow_sets: tuple[tuple[int, ...], ...] = ()
    top: int | None = None
    bins: int = 100
    scaling: Scaling = "shares"
    min_share: float = 0.2
    frequencies: FrequencyRanks | None = None

    name = "provenance/4"

    @property
    def models(self) -> tuple[Model | None, ...]:
        """All that are asked, the target first."""
        return (self.target, self.reference, *self.shadows)

    @property
    def facts(self) -> Any:
        """The models, and what decides their answers."""
        table = None if self.frequencies is None else self.frequencies.shares
        return [super().facts, self.shadow_sets, self.top, self.bins, self.scaling, self.min_share, table]

    @property
    def view(self) -> View:
        """What the target shows."""
        return view_of(self.target, self.top)

    @property
    def histogram(self) -> RankHistogram:
        """How ranks are counted."""
        view = self.view
        ranked = view.ranked or view.top or 1
        return RankHistogram(vocabulary=ranked, bins=self.bins, scaling=self.scaling, top=view.top)

    def prepare(self) -> Run:
        """The models are loaded; what they show is found out once."""
        return _Asking(self).ask

    def units(self, users: Sequence[User]) -> Iterator[Unit]:
        """Users, cut in the same way for every engine."""
        for rows in _chunks(users):
            texts = [text for row in rows for text in users[row].texts]
            sizes = [len(users[row].texts) for row in rows]
            said = ([text.text for text in texts], [text.source for text in texts])
            yield Unit((*said, sizes), size=len(texts))


def ask_users(
    work: UserWork,
    users: Sequence[User],
    *,
    engine: Engine,
    ledger: Ledger,
    progress: Progress,
    task: str = "Asking",
) -> Numbers:
    """The numbers of each user, in their order; the users' texts are those that were chosen to be asked about.

    Users whose unit fails have none, and the reason; if all fail, the first problem is raised.
    """
    progress.start(task, sum(len(user.texts) for user in users))
    units = list(work.units(users))
    parts: list[Arrays] = [{}] * len(units)
    problems: dict[int, CoalmineError] = {}
    for outcome in engine.map(work, units, ledger=ledger, progress=progress):
        if isinstance(outcome.problem, SURVIVED) and not isinstance(work.target, RemoteModel):
            problems[outcome.number] = outcome.problem
            if isinstance(outcome.problem, WorkerLostError):
                ledger.hold()
        else:
            parts[outcome.number] = outcome.value()
    progress.finish()
    if problems and len(problems) == len(units):
        raise problems[min(problems)]
    for number, problem in problems.items():
        known = next(one for one in parts if one)
        parts[number] = _without_numbers(known, units[number].inputs[2], problem)
    return Numbers.joined(parts)


def _without_numbers(known: Arrays, sizes: Sequence[int], problem: CoalmineError) -> Arrays:
    """What `Numbers` has of users who could not be asked about, of the shapes that others have."""
    found = {}
    for name, column in known.items():
        nothing = np.nan if np.issubdtype(column.dtype, np.floating) else 0
        found[name] = np.full((len(sizes), *column.shape[1:]), nothing, dtype=column.dtype)
    return {**found, "failed": np.array(sizes), "reason": np.array([str(problem)] * len(sizes))}


def _chunks(users: Sequence[User]) -> Iterator[range]:
    start, texts = 0, 0
    for place, user in enumerate(users):
        if texts and texts + len(user.texts) > TEXTS_AT_A_TIME:
            yield range(start, place)
            start, texts = place, 0
        texts += len(user.texts)
    if start < len(users):
        yield range(start, len(users))


class _Asking:
    """A work in one process, with what its models show."""

    def __init__(self, work: UserWork) -> None:
        self._work, self._view, self._histogram = work, work.view, work.histogram
        others = (work.reference, *work.shadows)
        self._views = [None if model is None else view_of(model) for model in others]

    def ask(self, unit: Unit, running: Running) -> Arrays:
        texts, sources, sizes = unit.inputs
        every = [UserText(text, source) for text, source in zip(texts, sources, strict=True)]
        work = self._work
        target, problems = look_at_each(work.target, self._view, every)
        if problems and len(problems) == len(every):
            raise problems[0]
        others = [
            None if model is None or view is None else look_at_each(model, view, every).views
            for model, view in zip((work.reference, *work.shadows), self._views, strict=True)
        ]
        running.advance(len(every))
        rows, start = [], 0
        for size in sizes:
            part = slice(start, start + size)
            failed = [str(problems[place]) for place in range(start, start + size) if place in problems]
            start += size
            reference, *shadows = [None if one is None else one[part] for one in others]
            kept = [one for one in shadows if one is not None]
            rows.append(self._row(target[part], failed, reference, kept))
        return {name: np.stack([row[name] for row in rows]) for name in Numbers._fields}

    def _row(
        self,
        target: Sequence[TextView | None],
        failed: Sequence[str],
        reference: Sequence[TextView | None] | None,
        shadows: Sequence[Sequence[TextView | None]],
    ) -> dict[str, Any]:
        """What `Numbers` has of one user."""
        read = [view for view in target if view is not None and len(view.ranks)]
        ranks = np.concatenate([view.ranks for view in read]) if read else np.empty(0, dtype=np.int64)
        return {
            "features": self._histogram.features(ranks)
            if len(ranks)
            else np.full(self._histogram.width, np.nan),
            "texts": len(read),
            "unread": len(target) - len(read) - len(failed),
            "failed": len(failed),
            "reason": failed[0] if failed else "",
            "tokens": len(ranks),
            "unknown": sum(view.unknown for view in target if view is not None),
            "cut": sum(view.cut for view in read),
            "listed": int((ranks != NOT_LISTED).sum()),
            "target_bits": _sum_of(read),
            "min_k": self._min_k(read),
            **self._compared(target, reference, shadows),
            **self._by_frequency(read),
        }

    def _compared(
        self,
        target: Sequence[TextView | None],
        reference: Sequence[TextView | None] | None,
        shadows: Sequence[Sequence[TextView | None]],
    ) -> dict[str, Any]:
        """What comes of comparing the target with the reference, or with the shadows in its place."""
        found: dict[str, Any] = dict.fromkeys(("ratio_bits", "beside_bits", "windowed"), float("nan"))
        found["rmia_bits"] = np.full(len(self._work.shadow_sets), np.nan)
        if not self._view.probabilities:
            return {**found, "uncompared": 0}
        beside = self._beside(reference, shadows)
        both = [] if beside is None else [self._shared(*pair) for pair in zip(target, beside, strict=True)]
        pairs = [pair for pair in both if pair is not None]
        if pairs:
            tokens = sum(len(own) for own, _ in pairs)
            sums = (log_ratio(own, other, same_tokens=False) * len(own) for own, other in pairs)
            found["ratio_bits"] = sum(sums) / tokens
            found["beside_bits"] = float(np.concatenate([other for _, other in pairs]).mean())
            if all(len(own) == len(other) for own, other in pairs):
                shares = [windowed_ratio(own, other, WINDOW_SIZES) for own, other in pairs]
                found["windowed"] = float(np.mean(shares))
        if shadows and self._alike(self._views[1:]):
            read = [said for said in map(_in_all, zip(target, *shadows, strict=True)) if said is not None]
            if read:
                own, *others = (np.concatenate(bits) for bits in zip(*read, strict=True))
                found["rmia_bits"][:] = [
                    rmia_ratio(own, [others[place] for place in some]) for some in self._work.shadow_sets
                ]
        left_out = sum(
            pair is None and view is not None and len(view.ranks) > 0
            for pair, view in zip(both, target, strict=beside is not None)
        )
        return {**found, "uncompared": left_out}

    def _beside(
        self, reference: Sequence[TextView | None] | None, shadows: Sequence[Sequence[TextView | None]]
    ) -> list[TextView | None] | None:
        """Each text under what the target is compared with; None where nothing is."""
        if reference is not None:
            view = self._views[0]
            if view is None or not view.probabilities or not self._comparable(view):
                return None
            return list(reference)
        if not shadows or not self._alike(self._views[1:]):
            return None
        return [_mean_view(said) for said in zip(*shadows, strict=True)]

    def _shared(self, own: TextView | None, other: TextView | None) -> tuple[FloatArray, FloatArray] | None:
        """The log2 probabilities of the part of a text that both predict; None where there is none, or it is not known."""
        if own is None or other is None:
            return None
        view = self._views[0] if self._work.reference is not None else self._view
        if (
            view is not None
            and view.tokens_sha256 is not None
            and view.tokens_sha256 == self._view.tokens_sha256
        ):
            rows = _in_all((own, other))
            return None if rows is None else (rows[0], rows[1])
        if own.cut or other.cut:
            return None  # where the one stops is not known in the tokens of the other
        # Where one of them is given the first token, neither predicts it.
        first = max(
            (int(one.places[0]) for one in (own, other) if one.places is not None and len(one.places)),
            default=0,
        )
        mine, theirs = _from(own, first), _from(other, first)
        return (mine, theirs) if len(mine) and len(theirs) else None

    def _comparable(self, view: View) -> bool:
        """Whether sums over a text can be compared: both cut texts alike, or both count every part of a text."""
        alike = view.tokens_sha256 is not None and view.tokens_sha256 == self._view.tokens_sha256
        return alike or not (view.reads_unknown or self._view.reads_unknown)

    def _alike(self, views: Sequence[View | None]) -> bool:
        """Whether all of them cut texts into the target's tokens."""
        mine = self._view.tokens_sha256
        return mine is not None and all(view is not None and view.tokens_sha256 == mine for view in views)

    def _min_k(self, read: Sequence[TextView]) -> float:
        if not self._view.moments or not read:
            return float("nan")
        scores = [
            min_k_plus_plus(view.log2_probabilities, view.means, view.deviations, share=self._work.min_share)
            for view in read
            if view.log2_probabilities is not None and view.means is not None and view.deviations is not None
        ]
        return float(np.mean(scores))

    def _by_frequency(self, read: Sequence[TextView]) -> dict[str, Any]:
        sums, counts = np.zeros(FREQUENCY_GROUPS), np.zeros(FREQUENCY_GROUPS, dtype=np.int64)
        logs = np.zeros((2, LOG_BINS), dtype=np.int64)
        table = self._work.frequencies
        if table is not None and self._view.top is None:
            for view in read:
                if view.tokens is None:
                    continue
                shares = table.shares[view.tokens]
                groups = np.minimum((shares * FREQUENCY_GROUPS).astype(np.int64), FREQUENCY_GROUPS - 1)
                np.add.at(sums, groups, view.ranks)
                np.add.at(counts, groups, 1)
                if view.log2_probabilities is not None:
                    bins = np.clip(view.log2_probabilities / LOG_LEAST * LOG_BINS, 0, LOG_BINS - 1).astype(
                        np.int64
                    )
                    np.add.at(logs, ((shares >= FREQUENT_SHARE).astype(np.int64), bins), 1)
        return {"rank_sums": sums, "rank_counts": counts, "log_histogram": logs}


def _common(said: Sequence[TextView]) -> IntArray:
    """The places of the tokens of a text that all of these models predict."""
    places = [view.places for view in said if view.places is not None]
    if all(np.array_equal(places[0], one) for one in places[1:]):
        return places[0]
    return reduce(np.intersect1d, places)


def _in_all(said: Sequence[TextView | None]) -> list[FloatArray] | None:
    """The log2 probabilities of the tokens of a text that all of these models predict, one row each; None where there are none."""
    views = [view for view in said if view is not None and view.log2_probabilities is not None]
    if len(views) < len(said):
        return None
    places = _common(views)
    if not len(places):
        return None
    return [_kept(view, places) for view in views]


def _kept(view: TextView, places: IntArray) -> FloatArray:
    """The log2 probabilities at some of its places, all of which are predicted."""
    bits, own = view.log2_probabilities, view.places
    if bits is None or own is None or len(own) == len(places):
        return np.empty(0) if bits is None else bits
    return bits[np.isin(own, places)]


def _from(view: TextView, first: int) -> FloatArray:
    """The log2 probabilities from a place on."""
    if view.log2_probabilities is None or view.places is None:
        return np.empty(0)
    return view.log2_probabilities[view.places >= first]


def _mean_view(said: Sequence[TextView | None]) -> TextView | None:
    """A text under several models: the mean log2 probability of each token that all of them predict."""
    rows = _in_all(said)
    if rows is None:
        return None
    places = _common([view for view in said if view is not None])
    return TextView(np.empty(0, dtype=np.int64), log2_probabilities=np.mean(rows, axis=0), places=places)


def _bits(views: Sequence[TextView | None]) -> FloatArray:
    """The log2 probabilities of all tokens of a user."""
    said = [
        view.log2_probabilities for view in views if view is not None and view.log2_probabilities is not None
    ]
    return np.concatenate(said) if said else np.empty(0)


def _sum_of(views: Sequence[TextView]) -> float:
    said = _bits(views)
    return float(said.sum()) if len(said) else float("nan")
