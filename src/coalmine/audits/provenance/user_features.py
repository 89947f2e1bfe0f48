"""What can be known of users without the model: words and their order, characters, lengths and dates of texts, how many they wrote."""

from __future__ import annotations

import unicodedata
import zlib
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from coalmine.audits.provenance.users import User, seconds_since_1970
from coalmine.models.protocols import IntArray
from coalmine.statistics.scores import FloatArray

GroupName = Literal["words", "order", "characters", "single", "length", "dates", "posts", "model"]
# What is counted is counted in this many buckets, so that memory does not grow with the vocabulary.
BUCKETS = 1 << 13
# The most single features that are looked at: half of them those that most users have, and half those that are spread least evenly over
# users, so that the habits of few people are among them. At least so many have to have one: it could not tell fewer apart.
MOST_SINGLE, FEWEST_WITH_ONE = 1_000, 4
# Of which characters are counted together; others of ASCII are counted by themselves.
_KINDS = {"Lu": 1, "Lt": 1, "Ll": 2, "Lo": 3, "Lm": 3, "Nd": 4, "So": 5, "Sk": 5, "Zs": 6}
_OTHER_KIND = 7
_BETWEEN = "\0"


class Features(NamedTuple):
    """The features of one group: one row per user, or why there are none."""

    name: GroupName
    values: FloatArray | None  # (users, features)
    missing: str = ""


def user_features(
    users: Sequence[User], is_suspect: Sequence[bool], model_bits: FloatArray | None = None
) -> tuple[Features, ...]:
    """All groups of features; which users are suspects decides only whether both sides have dates.

    `model_bits` is the mean log2 probability of each user's tokens under a model that saw neither side; NaN where it is not known.
    """
    suspect = np.asarray(is_suspect, dtype=bool)
    numbers = np.array([_lengths(user) for user in users], dtype=np.float64)
    words, order = (_shares(users, counts) for counts in (_word_counts, _pair_counts))
    raw, shapes = (_shares(users, counts) for counts in (_character_counts, _shape_counts))
    scalars = [numbers] if model_bits is None else [numbers, filled(model_bits)[:, None]]
    single = [_telling(shares) for shares in (shapes, raw, words, order)]
    return (
        _counted("words", words, "all users use the same words, equally often"),
        _counted("order", order, "all users have the same pairs of words, equally often"),
        _counted("characters", np.hstack([raw, shapes]), "all users use the same characters, equally often"),
        _single(np.hstack([*scalars, *single])),
        _scalars("length", numbers[:, :4], "all texts have the same length"),
        _dates(users, suspect),
        _scalars("posts", numbers[:, 4:], "every user has as many texts, of the same length"),
        _model(model_bits),
    )


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


def _counted(name: GroupName, rows: FloatArray, missing: str) -> Features:
    return Features(name, rows) if np.ptp(rows, axis=0).any() else Features(name, None, missing)


def _telling(shares: FloatArray) -> FloatArray:
    """Those in which users differ; of very many, those that most users have and those that few have a lot of, whoever these are."""
    users = (shares > 0).sum(axis=0)
    some = np.flatnonzero((np.ptp(shares, axis=0) > 0) & (users >= FEWEST_WITH_ONE))
    uneven = shares[:, some].var(axis=0) / shares[:, some].mean(axis=0)
    half = MOST_SINGLE // 8
    first = [np.argsort(-by, kind="stable")[:half] for by in (users[some], uneven)]
    return shares[:, some[np.unique(np.concatenate(first))]]


def _single(columns: FloatArray) -> Features:
    """The place of each user among all by each feature alone, from 0 to 1."""
    from scipy.stats import rankdata

    varied = columns[:, np.ptp(columns, axis=0) > 0]
    if not varied.shape[1]:
        return Features("single", None, "the users differ in no single feature")
    return Features("single", (np.asarray(rankdata(varied, axis=0)) - 0.5) / len(varied))


def filled(values: FloatArray) -> FloatArray:
    """Values with the middle one where there is none, so that a user without one is like all others."""
    known = values[~np.isnan(values)]
    return np.where(np.isnan(values), np.median(known) if len(known) else 0.0, values)


def _model(bits: FloatArray | None) -> Features:
    if bits is None:
        return Features("model", None, "there is no model that saw neither side")
    return _scalars(
        "model", filled(bits)[:, None], "all texts are as probable to the model that saw neither side"
    )


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
