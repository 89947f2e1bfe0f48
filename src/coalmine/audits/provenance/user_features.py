"""What can be known about users without any model: their words, the lengths and dates of their texts, and how many they wrote."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from coalmine.audits.provenance.dates import seconds_since_1970
from coalmine.audits.provenance.users import User
from coalmine.statistics.scores import FloatArray

GroupName = Literal["words", "length", "dates", "posts"]
# Words are counted in this many buckets, so that memory does not grow with the vocabulary.
BUCKETS = 1 << 13


class Features(NamedTuple):
    """The features of one group: one row per user, or why there are none."""

    name: GroupName
    values: FloatArray | None  # (users, features)
    missing: str = ""


def user_features(users: Sequence[User], is_suspect: Sequence[bool]) -> tuple[Features, ...]:
    """All groups of features; which users are suspects decides only whether both sides have dates."""
    numbers = np.array([_lengths(user) for user in users], dtype=np.float64)
    return (
        _words(users),
        _scalars("length", numbers[:, :4], "all texts have the same length"),
        _dates(users, np.asarray(is_suspect, dtype=bool)),
        _scalars("posts", numbers[:, 4:], "every user has as many texts, of the same length"),
    )


def _words(users: Sequence[User]) -> Features:
    """The square roots of the shares of each user's words: unit vectors, in which a frequent word counts for less than it occurs."""
    rows = np.zeros((len(users), BUCKETS), dtype=np.float64)
    for row, user in zip(rows, users, strict=True):
        words: Counter[str] = Counter()
        for text in user.texts:
            words.update(text.text.lower().split())
            if text.source is not None:
                words.update(f"{word}\0" for word in text.source.lower().split())
        for word, count in words.items():
            row[zlib.crc32(word.encode("utf-8", "surrogatepass")) % BUCKETS] += count
        row[:] = np.sqrt(row / max(1.0, row.sum()))
    if not np.ptp(rows, axis=0).any():
        return Features("words", None, "all users use the same words, equally often")
    return Features("words", rows)


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


def _dates(users: Sequence[User], is_suspect: np.ndarray) -> Features:
    """The first, the middle and the last date of each user; a user without any is put in the middle of the others."""
    rows = np.full((len(users), 3), np.nan)
    for row, user in zip(rows, users, strict=True):
        found = [seconds_since_1970(text.date) for text in user.texts if text.date is not None]
        known = [seconds for seconds in found if seconds is not None]
        if known:
            row[:] = min(known), float(np.median(known)), max(known)
    dated = ~np.isnan(rows[:, 0])
    if not (dated & is_suspect).any() or not (dated & ~is_suspect).any():
        return Features("dates", None, "no dates are known on both sides")
    rows[~dated] = np.median(rows[dated], axis=0)
    return _scalars("dates", rows, "all texts have the same date")


def _scalars(name: GroupName, columns: FloatArray, missing: str) -> Features:
    """Ranks among all users and their squares: whatever the unit, and also where one side lies between two parts of the other."""
    from scipy.stats import rankdata

    varied = columns[:, np.ptp(columns, axis=0) > 0]
    if not varied.shape[1]:
        return Features(name, None, missing)
    ranks = np.asarray(rankdata(varied, axis=0), dtype=np.float64)
    ranks = (ranks - ranks.mean(axis=0)) / ranks.std(axis=0)
    return Features(name, np.concatenate([ranks, ranks**2], axis=1))
