"""What models say about users, and the statistics that score them: one record each, which says what it needs and what it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.provenance.options import StatisticName
from coalmine.audits.provenance.users import User, UserText
from coalmine.audits.provenance.views import NOT_LISTED, TextView, View, look_at_each, view_of
from coalmine.audits.provenance.words import by_frequency
from coalmine.engines.engine import Engine
from coalmine.engines.ledger import Ledger
from coalmine.engines.units import Arrays, Running, Unit, in_order
from coalmine.errors import NoNumberError
from coalmine.models.protocols import FloatArray, IntArray, Model
from coalmine.models.works import ModelWork
from coalmine.progress import Progress
from coalmine.statistics.provenance.rank_histograms import RankHistogram, Scaling
from coalmine.statistics.provenance.text_scores import (
    WINDOW_SIZES,
    log_ratio,
    min_k_plus_plus,
    rmia,
    rmia_ratio,
    windowed_ratio,
)

if TYPE_CHECKING:
    from coalmine.audits.provenance.fit import AuditClassifier

# The most texts of a unit; a user is never divided, so that one with more is a unit alone.
TEXTS_AT_A_TIME = 2048
Views = Sequence[TextView | None]
# Log-probabilities, their moments over the vocabulary, a list of the likeliest tokens; a classifier, what to compare with, whether that has
# the same tokens, and shadow models.
Need = Literal["probabilities", "moments", "list", "classifier", "comparison", "alignment", "shadows"]


@dataclass(frozen=True)
class Seen:
    """What models say about the texts of one user.

    Attributes:
        target: each text under the model that is audited; None for one that it cannot read.
        beside: each text under every model that the target's probabilities are compared with; none where there is nothing.
        shadows: the same under each shadow model, for rmia.
        work: how they were asked.
    """

    target: Views
    beside: Sequence[Views]
    shadows: Sequence[Views]
    work: UserWork

    @cached_property
    def read(self) -> list[TextView]:
        """The texts that count."""
        return [view for view in self.target if view is not None and len(view.ranks)]

    @cached_property
    def ranks(self) -> IntArray:
        """Of all tokens that count."""
        return _ranks(self.target)

    @cached_property
    def pairs(self) -> list[tuple[FloatArray, FloatArray]]:
        """Per text, the log2 probabilities of the part that both predict, under the target and what it is compared with (a mean of all)."""
        found = []
        for own, *others in zip(self.target, *self.beside, strict=True) if self.beside else ():
            if self.work.alike:
                rows = _in_all((own, *others))
                found += [] if rows is None else [(rows[0], np.mean(rows[1:], axis=0))]
            elif own is not None and others[0] is not None and not own.cut and not others[0].cut:
                # Where the one stops is not known in the tokens of the other. Where one is given the first token, neither predicts it.
                first = max(0, *(int(one.places[0]) for one in (own, others[0]) if one.places is not None))
                sides = _from(own, first), _from(others[0], first)
                found += [sides] if all(map(len, sides)) else []
        return found


def shadow_sets(trained_on: NDArray[np.bool_]) -> tuple[tuple[tuple[int, ...], ...], IntArray]:
    """From (users, shadows), whether each shadow was trained on each user: the different sets of shadows that were not, and which of them
    is that of each user; -1 for one whom all shadows were trained on, and who cannot be compared.

    >>> shadow_sets(np.array([[True, False], [False, True], [True, True], [True, False]]))
    (((0,), (1,)), array([ 1,  0, -1,  1]))
    """
    left = [tuple(np.flatnonzero(~row).tolist()) for row in trained_on]
    sets = tuple(sorted({one for one in left if one}))
    places = {one: place for place, one in enumerate(sets)}
    return sets, np.array([places.get(one, -1) for one in left], dtype=np.int64)


class Available(NamedTuple):
    """What an audit has to score users with, and why other things are absent.

    Attributes:
        absent: why, for what is not there.
        classifier: the audit classifier.
        sets: the set of shadows that each reference user is compared with, who is not in the training data of the target; -1 for none.
        ratios: of these users, (users, sets): log2 likelihood ratios per token, as `_rmia_bits` has them.
    """

    absent: Mapping[Need, str]
    classifier: AuditClassifier | None = None
    sets: IntArray = np.empty(0, dtype=np.int64)
    ratios: FloatArray = np.empty((0, 0))


class Statistic(NamedTuple):
    """One way to score users; higher means "was trained on".

    Attributes:
        name: what users call it.
        needs: what it cannot be computed without.
        column: what it takes from the texts of a user; NaN where none was read.
        score: the score of each user from that, where it is not the score itself; NaN for one of whom nothing could be read.
        decides_alone: whether a score above 0 means "was trained on", without non-members to compare with.
    """

    name: StatisticName
    needs: tuple[Need, ...]
    column: Callable[[Seen], Any]
    score: Callable[[FloatArray, Available], FloatArray] = lambda column, _: column
    decides_alone: bool = False

    def missing(self, there: Available) -> str | None:
        """Why it cannot be computed with what is available; None where it can."""
        return next((there.absent[need] for need in self.needs if need in there.absent), None)


def _classified(features: FloatArray, there: Available) -> FloatArray:
    read = ~np.isnan(features).any(axis=1)
    scores = np.full(len(features), np.nan)
    if there.classifier is not None and read.any():
        scores[read] = there.classifier.score(features[read])
    return scores


def _ratio(seen: Seen) -> float:
    tokens = sum(len(own) for own, _ in seen.pairs)
    sums = (log_ratio(own, other, same_tokens=False) * len(own) for own, other in seen.pairs)
    return sum(sums) / tokens if tokens else float("nan")


def _windowed(seen: Seen) -> float:
    shares = [windowed_ratio(own, other, WINDOW_SIZES) for own, other in seen.pairs]
    return float(np.mean(shares)) if shares else float("nan")


def _min_k(seen: Seen) -> float:
    scores = [
        min_k_plus_plus(view.log2_probabilities, view.means, view.deviations)
        for view in seen.read
        if view.log2_probabilities is not None and view.means is not None and view.deviations is not None
    ]
    return float(np.mean(scores)) if scores else float("nan")


def _listed(seen: Seen) -> float:
    return float((seen.ranks != NOT_LISTED).mean()) if len(seen.ranks) else float("nan")


def _rmia_bits(seen: Seen) -> FloatArray:
    """log2 of the target's likelihood over the mean one of the shadows, per token, for each set of shadows."""
    read = [rows for rows in map(_in_all, zip(seen.target, *seen.shadows, strict=True)) if rows is not None]
    if not read:
        return np.full(len(seen.work.shadow_sets), np.nan)
    own, *others = (np.concatenate(bits) for bits in zip(*read, strict=True))
    return np.array([rmia_ratio(own, [others[place] for place in some]) for some in seen.work.shadow_sets])


def _by_rmia(ratios: FloatArray, there: Available) -> FloatArray:
    """The share of reference users that each user is above, each compared by the ratios of both to the same shadows."""
    users = np.flatnonzero(there.sets >= 0)
    own, sets = there.ratios[users, there.sets[users]], there.sets[users]
    known = ~np.isnan(own)
    beside = ratios[:, sets[known]]
    return np.array(
        [np.nan if np.isnan(row).any() or not known.any() else rmia(row, own[known]) for row in beside]
    )


STATISTICS: tuple[Statistic, ...] = (
    Statistic(
        "rank-histogram",
        ("classifier",),
        lambda seen: seen.work.histogram(seen.work.target, seen.target),
        _classified,
        decides_alone=True,
    ),
    Statistic("likelihood-ratio", ("probabilities", "comparison"), _ratio),
    Statistic("rmia", ("probabilities", "shadows"), _rmia_bits, _by_rmia),
    Statistic("windowed-ratio", ("probabilities", "comparison", "alignment"), _windowed),
    Statistic("min-k++", ("moments",), _min_k),
    Statistic("listed-share", ("list",), _listed),
)


def _ranks(said: Views) -> IntArray:
    return np.concatenate([np.empty(0, dtype=np.int64), *(view.ranks for view in said if view is not None)])


def _in_all(said: Views) -> list[FloatArray] | None:
    """The log2 probabilities of the tokens of a text that all of these models predict, one row each; None where there are none."""
    rows = [(view.log2_probabilities, view.places) for view in said if view is not None]
    known = [(bits, places) for bits, places in rows if bits is not None and places is not None]
    if len(known) < len(said):
        return None
    common = reduce(np.intersect1d, [places for _, places in known])
    return [bits[np.isin(places, common)] for bits, places in known] if len(common) else None


def _from(view: TextView, first: int) -> FloatArray:
    """The log2 probabilities from a place on."""
    if view.log2_probabilities is None or view.places is None:
        return np.empty(0)
    return view.log2_probabilities[view.places >= first]


@dataclass(frozen=True)
class UserWork(ModelWork):
    """Users to be asked about: the target, and what it is compared with.

    A unit has a row per user and a column per statistic, and these: `texts` that were read, `unread` ones that could not be, and `failed`
    ones that the target gave no number for, with the `reason` of the first; `tokens` that count, `unknown` ones, and those `cut` off at
    the ends of texts; `uncompared` texts; `beside_bits`, and what `by_frequency` counts.

    Attributes:
        target: the model that is audited.
        reference: what its probabilities are compared with; without it, all shadow models are.
        shadows: the shadow models.
        alike: whether those that are compared cut texts into the target's tokens.
        shadow_sets: sets of shadows, by their places: those that a reference user is compared with, and others beside that user.
        statistics: those that can be computed.
        top: how many of the likeliest tokens are looked at; None for what the target shows.
        bins, scaling: of the histogram of ranks.
        frequencies: the places of the target's tokens in the table of frequencies; None where they are not known.
        of_shadows: whether there is a column `histograms` too: (users, shadows, bins), of the ranks that the shadows give.
    """

    target: Model
    reference: Model | None = None
    shadows: tuple[Model, ...] = ()
    alike: bool = True
    shadow_sets: tuple[tuple[int, ...], ...] = ()
    statistics: tuple[StatisticName, ...] = ()
    top: int | None = None
    bins: int = 100
    scaling: Scaling = "shares"
    frequencies: FloatArray | None = None
    of_shadows: bool = False

    name = "provenance/7"

    @property
    def models(self) -> tuple[Model, ...]:
        """All that are asked, the target first."""
        return (self.target, *([] if self.reference is None else [self.reference]), *self.shadows)

    @cached_property
    def view(self) -> View:
        """What the target shows."""
        return view_of(self.target, self.top)

    @property
    def facts(self) -> Any:
        """The models, and what decides their answers."""
        models = [super().facts, self.reference is None, self.alike, self.shadow_sets]
        asked = [self.statistics, self.top, self.bins, self.scaling, self.frequencies, self.of_shadows]
        return [*models, *asked]

    def ranking(self, model: Model) -> RankHistogram:
        """How the ranks of a model are counted, as if it showed no more of them than the target does."""
        view = view_of(model, self.view.top)
        ranked = view.ranked or view.top or 1
        return RankHistogram(vocabulary=ranked, bins=self.bins, scaling=self.scaling, top=view.top)

    def histogram(self, model: Model, said: Views) -> FloatArray:
        """How often a model gives which ranks to the texts of a user; NaN where it read none."""
        ranking, ranks = self.ranking(model), _ranks(said)
        return ranking.features(ranks) if len(ranks) else np.full(ranking.width, np.nan)

    def units(self, users: Sequence[User]) -> Iterator[Unit]:
        """Users, cut in the same way for every engine."""
        chunk: list[User] = []
        for user in [*users, None]:
            texts = [text for one in chunk for text in one.texts]
            if chunk and (user is None or len(texts) + len(user.texts) > TEXTS_AT_A_TIME):
                sizes = [len(one.texts) for one in chunk]
                yield Unit(
                    ([text.text for text in texts], [text.source for text in texts], sizes), size=len(texts)
                )
                chunk = []
            chunk += [] if user is None else [user]

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Ask all models about the users of a unit."""
        *sides, sizes = unit.inputs
        texts = [UserText(*text) for text in zip(*sides, strict=True)]
        target, problems = look_at_each(self.target, self.view, texts)
        others = [look_at_each(one, view_of(one), texts).answers for one in self.models[1:]]
        shadows = others if self.reference is None else others[1:]
        beside = others[:1] if self.reference is not None else others
        running.advance(len(texts))
        rows, ends = [], np.cumsum(sizes).tolist()
        for size, end in zip(sizes, ends, strict=True):
            part = slice(end - size, end)
            seen = Seen(
                target[part],
                [one[part] for one in beside] if "likelihood-ratio" in self.statistics else [],
                [one[part] for one in shadows],
                self,
            )
            failed = [str(problems[place]) for place in range(end - size, end) if place in problems]
            rows.append(self._row(seen, failed))
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]}

    def _row(self, seen: Seen, failed: Sequence[str]) -> dict[str, Any]:
        counts: dict[str, Any] = {
            "texts": len(seen.read),
            "unread": len(seen.target) - len(seen.read) - len(failed),
            "failed": len(failed),
            "reason": failed[0] if failed else "",
            "tokens": len(seen.ranks),
            "unknown": sum(view.unknown for view in seen.target if view is not None),
            "cut": sum(view.cut for view in seen.read),
            "uncompared": len(seen.read) - len(seen.pairs) if seen.beside else 0,
            "beside_bits": np.concatenate([other for _, other in seen.pairs]).mean()
            if seen.pairs
            else np.nan,
        }
        for one in STATISTICS:
            if one.name in self.statistics:
                counts[one.name] = one.column(seen)
        if self.of_shadows:
            sides = zip(self.shadows, seen.shadows, strict=True)
            counts["histograms"] = np.stack([self.histogram(model, said) for model, said in sides])
        if self.frequencies is not None and self.view.top is None:
            counts |= by_frequency(seen.read, self.frequencies)
        return counts


def ask_users(
    work: UserWork,
    users: Sequence[User],
    *,
    engine: Engine,
    ledger: Ledger,
    progress: Progress,
    task: str = "Asking",
) -> Arrays:
    """The columns of all users, in their order, asked about the texts that were chosen; refused if the target has no number for any."""
    units = list(work.units(users))
    progress.start(task, sum(unit.size for unit in units))
    outcomes = in_order(engine.map(work, units, ledger=ledger, progress=progress))
    parts = [outcome.value() for outcome in outcomes]
    progress.finish()
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if columns["failed"].sum() == sum(unit.size for unit in units):
        raise NoNumberError(columns["reason"][0])
    return columns
