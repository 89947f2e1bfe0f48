"""The blind baseline: whether suspects can be told from non-members without the model: by words, characters, lengths, dates and more.

If they can, a difference between the scores of the two groups may be one of topic or of time and not of membership, and nothing follows
from it (Blind Baselines Beat Membership Inference Attacks for Foundation Models; Das, Zhang and Tramèr, 2024, arXiv:2406.16201).

The classifier is least squares with a quadratic penalty on labels of 1 and -1. Each user is scored by one that was fitted to the other
folds, and only users of the same fold are compared, so that a constant that differs between folds does not matter. Such scores are a fixed
matrix times the labels, so the whole cross-validation is repeated for thousands of orders of the labels by one matrix product. Folds are
drawn at random with the same shares of suspects; given the folds, all orders of the labels inside each are equally likely if the two
groups were drawn alike. So the p-value is exact for any features and any number of users, which that of a Mann-Whitney test on scores
from cross-validation is not: they depend on each other through the classifiers.

A classifier learns little from few users, so each feature is also looked at alone, and the one that separates best is compared with the
one that separates best in each other order. A silent baseline counts only if it could have noticed a difference: `scores_p_value` is what
it makes of the audit's own scores, as if they were one more such feature.
"""

from __future__ import annotations

import unicodedata
import zlib
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from coalmine.audits.provenance.users import User, seconds_since_1970
from coalmine.models.protocols import IntArray
from coalmine.randomness import arrays
from coalmine.records import Estimate
from coalmine.records.estimate import Count, Share
from coalmine.statistics.intervals import effective_interval
from coalmine.statistics.scores import FloatArray

METHOD = "blind baseline"
# Numbers of suspects, and of non-members.
Sides = tuple[ArrayLike, ArrayLike]
# On each side; a baseline that needs more users to see a difference would see one that hardly matters.
MOST_USERS = 500
FEWEST_USERS = 4
FOLDS = 5
# With fewer users on a side, two folds leave more orders of the labels in each.
FEWEST_FOR_FOLDS = 10
# At this level, users can be told apart.
LEVEL = 0.01
# Of the mean squared norm of the features, which are scaled to 1.
PENALTY = 1.0
# What is counted is counted in this many buckets, so that memory does not grow with the vocabulary.
BUCKETS = 1 << 13
# The most single features that are looked at: half of them those that most users have, and half those that are spread least evenly over
# users, so that the habits of few people are among them. At least so many have to have one: it could not tell fewer apart.
MOST_SINGLE, FEWEST_WITH_ONE = 1_000, 4
# Of which characters are counted together; others of ASCII are counted by themselves.
_KINDS = {"Lu": 1, "Lt": 1, "Ll": 2, "Lo": 3, "Lm": 3, "Nd": 4, "So": 5, "Sk": 5, "Zs": 6}
_OTHER_KIND = 7
_BETWEEN = "\0"


class BlindBaseline(msgspec.Struct, frozen=True, kw_only=True):
    """Whether suspects can be told from non-members without a model, by the area under the ROC curve of all features together.

    `p_value` is the smallest of all groups of features, and all are corrected for their number: at a level of 1%, one in a hundred random
    splits fires, whatever the number of groups.
    """

    auc: Estimate
    p_value: Share | None = None
    # Of an area as high by chance, for each group of features in which users differ.
    groups: dict[str, Share] = {}
    suspects: Count
    non_members: Count
    # How many orders of the labels were tried, the true one included: 1 / orders is the smallest p-value.
    orders: Count = 0
    # What the baseline would have said of a feature that all suspects have and no non-member, and of one that separates them as well as
    # the audit's own scores do; above the level, a difference as large could have gone unnoticed. None where it is not known.
    smallest_p_value: Share | None = None
    scores_p_value: Share | None = None

    def separating(self, level: float = LEVEL) -> tuple[str, ...]:
        """The groups of features that tell suspects from non-members at a level, the clearest first."""
        found = [name for name, p_value in self.groups.items() if p_value <= level]
        if found:
            return tuple(sorted(found, key=lambda name: self.groups[name]))
        return ("features all together",) if self.p_value is not None and self.p_value <= level else ()


def blind_baseline(
    suspects: Sequence[User],
    non_members: Sequence[User],
    *,
    scores: Sides | None = None,
    model_bits: Sides | None = None,
    orders: int = 2_000,
    confidence: float = 0.95,
    seed: int = 0,
) -> BlindBaseline:
    """Try to tell suspects from non-members by what can be known without a model.

    Of more than 500 users on a side, 500 are drawn. The result is the same for the same users in the same order and the same seed.

    Args:
        suspects: users who are asked about.
        non_members: users who are known not to be in the training data.
        scores: those of the audit, of suspects and of non-members; NaN for users who have none.
        model_bits: the mean log2 probability of their tokens under a model that saw neither side, in the same way.
        orders: of the labels that are compared, the true one included; the smallest p-value is 1 / orders.
        confidence: of the interval of the area, over users.
        seed: of folds, orders, and the draw of users.

    >>> from coalmine.audits.provenance.users import UserText
    >>> old = [User(f"a{n}", (UserText("hello", date=f"{1990 + n}"),)) for n in range(10)]
    >>> new = [User(f"b{n}", (UserText("hello", date=f"{2010 + n}"),)) for n in range(10)]
    >>> blind_baseline(old, new).separating()
    ('dates',)
    """
    sides = {"suspects": suspects, "non-members": non_members}
    counted: dict[str, Any] = {name.replace("-", "_"): len(side) for name, side in sides.items()}
    why = "the users differ in nothing that can be seen without a model"
    if min(counted.values()) < FEWEST_USERS:
        found = " and ".join(f"{count:,}" for count in counted.values())
        why = (
            f"telling suspects from non-members takes at least {FEWEST_USERS} of each, and there are {found}"
        )
        return BlindBaseline(auc=Estimate.not_measured(METHOD, why), **counted)
    drawn = [_drawn(len(side), name, seed) for name, side in sides.items()]
    users = [side[place] for side, places in zip(sides.values(), drawn, strict=True) for place in places]
    labels = np.repeat([1.0, -1.0], [len(places) for places in drawn])
    features = user_features(users, labels > 0, None if model_bits is None else _beside(model_bits, drawn))
    names = tuple(features)
    single = features.pop("single features", None)
    if not features:
        return BlindBaseline(auc=Estimate.not_measured(METHOD, why), **counted)
    folds = _folds(labels, seed)
    tried = _orders(labels, folds, orders, seed)
    # Where users differ in no single feature of their texts, they are ordered by what they do differ in, such as dates.
    ordered = next(iter(features.values())) if single is None else single
    kernels = [_kernel(rows) for rows in features.values()]
    kernels.append(np.mean(kernels, axis=0))
    # The clearest single feature first, because the audit's own scores are compared with it.
    areas = np.stack([_clearest(ordered, tried, seed), *(_areas(kernel, folds, tried) for kernel in kernels)])
    own = None if scores is None else _filled(_beside(scores, drawn))
    imagined = [_clearest(one[:, None], labels[:, None], seed)[0] for one in (labels, own) if one is not None]
    p_values, noticed = _corrected(areas, imagined)
    by_group = {"single features": p_values[0]} | dict(zip(features, p_values[1:-1], strict=True))
    return BlindBaseline(
        auc=_estimate(float(areas[-1, 0]), min(map(len, drawn)), len(labels), confidence),
        p_value=min(p_values),
        groups={name: by_group[name] for name in names},
        orders=orders,
        smallest_p_value=noticed[0],
        scores_p_value=None if own is None else noticed[1],
        **counted,
    )


def _drawn(users: int, side: str, seed: int) -> list[int]:
    """The places of the users of a side that are looked at."""
    if users <= MOST_USERS:
        return list(range(users))
    chosen = arrays(seed, "blind baseline", side).choice(users, MOST_USERS, replace=False)
    return sorted(chosen.tolist())


def _beside(sides: Sides, drawn: Sequence[Sequence[int]]) -> FloatArray:
    """The numbers of the users that are looked at, in their order."""
    return np.concatenate([np.asarray(side)[places] for side, places in zip(sides, drawn, strict=True)])


def _folds(labels: FloatArray, seed: int) -> list[np.ndarray]:
    """The users of each fold, at random, with the same shares of suspects and of non-members as nearly as can be."""
    chance = arrays(seed, "blind baseline", "folds", len(labels))
    fewest = int(min((labels > 0).sum(), (labels < 0).sum()))
    number = FOLDS if fewest >= FEWEST_FOR_FOLDS else 2
    sides = [chance.permutation(np.flatnonzero(side)) for side in (labels > 0, labels < 0)]
    return [np.sort(np.concatenate([side[fold::number] for side in sides])) for fold in range(number)]


def _orders(labels: FloatArray, folds: Sequence[np.ndarray], number: int, seed: int) -> FloatArray:
    """The labels in each order, one per column: first the true one, then random ones inside each fold."""
    chance = arrays(seed, "blind baseline", "orders", len(labels), number)
    found = np.repeat(labels[:, None], number, axis=1)  # (users, orders)
    for members in folds:
        found[members, 1:] = chance.permuted(found[members, 1:], axis=0)
    return found


def _kernel(values: FloatArray) -> FloatArray:
    """The inner products of users' features around their mean, scaled so that a user's own is 1 on average."""
    products = values @ values.T
    means = products.mean(axis=0)
    # Around the mean of the features, without another array of them.
    products += means.mean() - means - means[:, None]
    return np.asarray(products / (np.trace(products) / len(products)))


def _areas(kernel: FloatArray, folds: Sequence[np.ndarray], labels: FloatArray) -> FloatArray:
    """The area under the ROC curve from cross-validation for each order of the labels: the mean over folds, by their pairs."""
    total, pairs = np.zeros(labels.shape[1]), 0
    for members in folds:
        scoring = _scoring(kernel, members)
        suspects = int((labels[members, 0] > 0).sum())
        weight = suspects * (len(members) - suspects)
        scores = scoring @ np.delete(labels, members, axis=0)
        total += weight * _fold_areas(scores, labels[members] > 0)
        pairs += weight
    return total / pairs


def _clearest(values: FloatArray, labels: FloatArray, seed: int) -> FloatArray:
    """How clearly suspects stand out in the clearest of these features, for each order of the labels.

    From the probability of as many suspects among the 2, 4, 8, ... users with the most, or the least, of a feature (hypergeometric), which
    sees a difference of all suspects and one of some of them; the root of its negative logarithm, which is nearly normal.
    """
    from scipy.stats import hypergeom

    users, is_suspect = len(labels), (labels > 0).astype(np.float32)
    suspects = int(is_suspect[:, 0].sum())
    # Equals in a random order, since suspects come first.
    mixed = arrays(seed, "blind baseline", "equals", users).permutation(users)
    places = np.empty(values.shape, dtype=np.int64)
    np.put_along_axis(
        places, mixed[np.argsort(values[mixed], axis=0, kind="stable")], np.arange(users)[:, None], axis=0
    )
    clearest = np.zeros(labels.shape[1])
    for size in (2**power for power in range(1, users.bit_length() - 1)):
        surprise = np.sqrt(np.maximum(0.0, -hypergeom.logsf(np.arange(size + 1) - 1, users, suspects, size)))
        for among in (places < size, places >= users - size):
            counts = (among.T.astype(np.float32) @ is_suspect).max(axis=0)
            clearest = np.maximum(clearest, surprise[np.rint(counts).astype(np.int64)])
    return clearest


def _scoring(kernel: FloatArray, members: np.ndarray) -> FloatArray:
    """The matrix that makes the scores of a fold's users from the labels of all others: least squares with an intercept."""
    others = np.delete(np.arange(len(kernel)), members)
    inner = kernel[np.ix_(others, others)]
    across = kernel[np.ix_(members, others)]
    # Features around the mean of the users that are fitted to; a constant in all scores of a fold would not matter.
    means = inner.mean(axis=0)
    inner = inner - means - means[:, None] + means.mean()
    across = across - across.mean(axis=1, keepdims=True) - means + means.mean()
    weights = np.linalg.solve(inner + PENALTY * np.eye(len(others)), across.T).T
    # Centering the labels too, on the side of the matrix.
    return np.asarray(weights - weights.mean(axis=1, keepdims=True))


def _fold_areas(scores: FloatArray, is_suspect: np.ndarray) -> FloatArray:
    """The area under the ROC curve of each column; ties count half."""
    from scipy.stats import rankdata

    # Sums of the same numbers in another order differ by rounding, and are ties.
    ranks = rankdata(np.round(scores, 9), axis=0)
    suspects = is_suspect.sum(axis=0)
    beaten = (ranks * is_suspect).sum(axis=0) - suspects * (suspects + 1) / 2
    return np.asarray(beaten / (suspects * (len(scores) - suspects)))


def _corrected(areas: FloatArray, imagined: Sequence[float] = ()) -> tuple[list[float], list[float]]:
    """The p-value of each group for the first order, corrected for the number of groups by the highest area of each order.

    The second list has those that other areas of the first group would have had, as if they had been measured beside it.

    As in Resampling-Based Multiple Testing (Westfall and Young, 1993): areas are standardized over all orders, and the same orders give the
    distribution of the highest one, with all dependence between groups.
    """
    spread, means = areas.std(axis=1, keepdims=True), areas.mean(axis=1, keepdims=True)
    # Areas that never change say nothing, whatever rounding does to them.
    standard = np.where(spread > 1e-9, (areas - means) / np.maximum(spread, 1e-9), 0.0)
    highest = standard.max(axis=0)
    own = [float(np.mean(highest >= area - 1e-9)) for area in standard[:, 0]]
    others = [(area - means[0, 0]) / max(spread[0, 0], 1e-9) for area in imagined]
    return own, [float((1 + (highest[1:] >= area - 1e-9).sum()) / len(highest)) for area in others]


def _estimate(area: float, trials: int, n: int, level: float) -> Estimate:
    low, high = effective_interval(area, trials, level)
    return Estimate(
        method=METHOD,
        status="measured",
        value=area,
        low=low,
        high=high,
        confidence=level,
        n=n,
        statement=(
            f"without any model, AUC is {area:.3f} ({100 * level:g}% interval {low:.3f} to {high:.3f}), where 0.5 is chance: {n:,} users"
        ),
    )


def user_features(
    users: Sequence[User], is_suspect: np.ndarray, model_bits: FloatArray | None = None
) -> dict[str, FloatArray]:
    """What can be known of users without the model, a row per user for each group of features in which they differ.

    Which users are suspects decides only whether both sides have dates. `model_bits` is the mean log2 probability of each user's tokens
    under a model that saw neither side; NaN where it is not known.
    """
    numbers = np.array([_lengths(user) for user in users], dtype=np.float64)
    words, order, raw, shapes = (
        _shares(users, counts) for counts in (_word_counts, _pair_counts, _character_counts, _shape_counts)
    )
    bits = None if model_bits is None else _filled(model_bits)[:, None]
    scalars = [numbers] if bits is None else [numbers, bits]
    ranks = _ranked(np.hstack([*scalars, *(_telling(shares) for shares in (shapes, raw, words, order))]))
    groups: dict[str, FloatArray | None] = {
        "words": words,
        "word order": order,
        "characters": np.hstack([raw, shapes]),
        # The place of each user among all by each feature alone, from 0 to 1.
        "single features": None if ranks is None else (ranks - 0.5) / len(ranks),
        "lengths": _scalars(numbers[:, :4]),
        "dates": _scalars(_dates(users, is_suspect)),
        "numbers of texts": _scalars(numbers[:, 4:]),
        "probabilities under another model": _scalars(bits),
    }
    return {name: rows for name, rows in groups.items() if rows is not None and np.ptp(rows, axis=0).any()}


def _shares(users: Sequence[User], counts: Callable[[Sequence[str]], IntArray]) -> FloatArray:
    """The square roots of the shares of what each user's texts have: unit vectors, in which what is frequent counts for less."""
    rows = []
    for user in users:
        counted = counts([text.text for text in user.texts])
        sources = [text.source for text in user.texts if text.source is not None]
        if sources:
            counted = counted + np.roll(counts(sources), 1)
        rows.append(np.sqrt(counted / max(1, counted.sum())))
    return np.stack(rows)


def _word_counts(texts: Sequence[str]) -> IntArray:
    return _hashed(word for text in texts for word in text.lower().split())


def _pair_counts(texts: Sequence[str]) -> IntArray:
    """Pairs of words that follow each other; the first and the last word of a text have nothing beside them."""
    return _hashed(" ".join(pair) for text in texts for pair in pairwise(["", *text.lower().split(), ""]))


def _hashed(pieces: Iterable[str]) -> IntArray:
    found = [zlib.crc32(piece.encode("utf-8", "surrogatepass")) % BUCKETS for piece in pieces]
    return np.bincount(np.array(found, dtype=np.int64), minlength=BUCKETS)


def _character_counts(texts: Sequence[str]) -> IntArray:
    """One to three characters in a row of the raw text; texts have a mark between them."""
    return _n_grams(_codes(texts))


def _shape_counts(texts: Sequence[str]) -> IntArray:
    """The same of what kinds of characters they are: capitals, small letters, digits, emoji; punctuation and line breaks as they are."""
    different, places = np.unique(_codes(texts), return_inverse=True)
    return _n_grams(np.array([_kind(chr(code)) for code in different.tolist()], dtype=np.int64)[places])


def _codes(texts: Sequence[str]) -> IntArray:
    whole = _BETWEEN.join(["", *texts, ""]).encode("utf-32-le", "surrogatepass")
    return np.frombuffer(whole, dtype=np.uint32).astype(np.int64)


def _kind(character: str) -> int:
    category = unicodedata.category(character)
    return (
        ord(character)
        if character.isascii() and category[0] not in "LN"
        else _KINDS.get(category, _OTHER_KIND)
    )


def _n_grams(codes: IntArray) -> IntArray:
    total = np.bincount(codes * 2_654_435_761 % 4_294_967_291 % BUCKETS, minlength=BUCKETS)
    hashed = codes
    for size in (2, 3):
        hashed = (hashed[:-1] * 1_000_003 + codes[size - 1 :] + size) % 4_294_967_291
        total += np.bincount(hashed * 40_503 % 4_294_967_291 % BUCKETS, minlength=BUCKETS)
    return total


def _telling(shares: FloatArray) -> FloatArray:
    """Those in which users differ; of very many, those that most users have and those that few have a lot of, whoever these are."""
    users = (shares > 0).sum(axis=0)
    some = np.flatnonzero((np.ptp(shares, axis=0) > 0) & (users >= FEWEST_WITH_ONE))
    uneven = shares[:, some].var(axis=0) / shares[:, some].mean(axis=0)
    half = MOST_SINGLE // 8
    first = [np.argsort(-by, kind="stable")[:half] for by in (users[some], uneven)]
    return shares[:, some[np.unique(np.concatenate(first))]]


def _lengths(user: User) -> tuple[float, ...]:
    """Mean and spread of words per text, characters per text and per word; then the number of texts and of words."""
    words = np.array([len(text.text.split()) for text in user.texts], dtype=np.float64)
    characters = np.array([len(text.text) for text in user.texts], dtype=np.float64)
    total = float(words.sum())
    return (
        float(words.mean()),
        float(words.std()),
        float(characters.mean()),
        float(characters.sum()) / max(1.0, total),
        float(len(words)),
        total,
    )


def _dates(users: Sequence[User], is_suspect: np.ndarray) -> FloatArray | None:
    """The first, the middle and the last date of each user; a user without any is put in the middle of the others."""
    rows = np.full((len(users), 3), np.nan)
    for row, user in zip(rows, users, strict=True):
        found = [seconds_since_1970(text.date) for text in user.texts if text.date is not None]
        known = [seconds for seconds in found if seconds is not None]
        if known:
            row[:] = min(known), float(np.median(known)), max(known)
    dated = ~np.isnan(rows[:, 0])
    if not (dated & is_suspect).any() or not (dated & ~is_suspect).any():
        return None
    rows[~dated] = np.median(rows[dated], axis=0)
    return rows


def _ranked(columns: FloatArray) -> FloatArray | None:
    """The rank of each user among all by each feature in which they differ; None where they differ in none."""
    from scipy.stats import rankdata

    varied = columns[:, np.ptp(columns, axis=0) > 0]
    return np.asarray(rankdata(varied, axis=0), dtype=np.float64) if varied.shape[1] else None


def _scalars(columns: FloatArray | None) -> FloatArray | None:
    """Ranks among all users and their squares: whatever the unit, and also where one side lies between two parts of the other."""
    ranks = None if columns is None else _ranked(columns)
    if ranks is None:
        return None
    ranks = (ranks - ranks.mean(axis=0)) / ranks.std(axis=0)
    return np.concatenate([ranks, ranks**2], axis=1)


def _filled(values: FloatArray) -> FloatArray:
    """Values with the middle one where there is none, so that a user without one is like all others."""
    known = values[~np.isnan(values)]
    return np.where(np.isnan(values), np.median(known) if len(known) else 0.0, values)
