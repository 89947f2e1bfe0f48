"""Queries: which texts of a user a model is asked about, where it cannot be asked about all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

from coalmine.audits.provenance.users import User
from coalmine.errors import InputError
from coalmine.randomness import arrays
from coalmine.statistics.scores import IntArray

Selection = Literal["all", "random", "frequency-sum", "index-sum"]
# Words at white space, or the ids of a tokenizer.
Cut = Callable[[str], Sequence[str] | Sequence[int]]


class FrequencyTable:
    """How often each word, or token, occurs in reference texts.

    Args:
        texts: those of the reference users; they are read once, and not kept.
        cut: what divides a text into words; a tokenizer's `encode` counts tokens. Without it, words are divided at white space.

    >>> table = FrequencyTable(["the cat", "the dog", "the cat sat"])
    >>> table.frequency_sum("the dog"), table.index_sum("the dog"), table.index_sum("the emu")
    (4, 2, 4)
    """

    def __init__(self, texts: Iterable[str], cut: Cut = str.split) -> None:
        self._cut = cut
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

    def __len__(self) -> int:
        return len(self._counts)

    def token_counts(self, size: int) -> IntArray:
        """How often each token id from 0 to `size` - 1 occurs; for tables that were counted with a tokenizer.

        >>> FrequencyTable(["aab"], cut=lambda text: [ord(letter) - ord("a") for letter in text]).token_counts(4)
        array([2, 1, 0, 0])
        """
        found = np.zeros(size, dtype=np.int64)
        for token, count in self._counts.items():
            if isinstance(token, int) and token < size:
                found[token] = count
        return found

    def length(self, text: str) -> int:
        """How many words, or tokens, a text has."""
        return len(self._cut(text))

    def frequency_sum(self, text: str) -> int:
        """The sum of how often each word of a text occurs in the reference texts; 0 for a word that does not."""
        return sum(self._counts.get(word, 0) for word in self._cut(text))

    def index_sum(self, text: str) -> int:
        """The sum of the places of a text's words in the table, from 0 for the most frequent word; words that are not in it come last."""
        unknown = len(self._indices)
        return sum(self._indices.get(word, unknown) for word in self._cut(text))


class Queries(NamedTuple):
    """The texts of one user that a model is asked about.

    `places` are those among all texts of the user, in ascending order. `mean_tokens` is the mean length of the texts that were chosen, in
    words, or in the tokens that the table of frequencies counts: the two rules for rare texts choose short and long ones.
    """

    user: User
    places: tuple[int, ...]
    mean_tokens: float


def ordered_places(
    user: User, selection: Selection, *, frequencies: FrequencyTable | None = None, seed: int = 0
) -> list[int]:
    """The places of a user's texts in the order in which they are chosen, so that m texts are always among the first m + 1.

    Args:
        user: whose texts are chosen.
        selection: "all" and the order of the corpus; "random"; "frequency-sum" for the smallest sum of word frequencies first, as in
            Auditing Data Provenance in Text-Generation Models (Song and Shmatikov, 2019, arXiv:1811.00513), which prefers short
            texts; or "index-sum" for the largest sum of places in the table of frequencies, as in the code of that paper, which
            prefers long ones.
        frequencies: the table that the last two rules need.
        seed: of "random". The choice depends on the seed, the user's name and the number of texts, and not on other users.

    >>> from coalmine.audits.provenance.users import UserText
    >>> table = FrequencyTable(["the cat", "the dog", "the cat sat"])
    >>> ann = User("ann", (UserText("the cat sat"), UserText("the emu"), UserText("dog")))
    >>> ordered_places(ann, "frequency-sum", frequencies=table), ordered_places(ann, "index-sum", frequencies=table)
    ([2, 1, 0], [0, 1, 2])
    """
    count = len(user.texts)
    if selection == "all":
        return list(range(count))
    if selection == "random":
        return [int(place) for place in arrays(seed, "provenance", "queries", user.name).permutation(count)]
    if selection not in get_args(Selection):
        raise InputError(f"texts are chosen by one of {', '.join(get_args(Selection))}, got {selection!r}")
    if frequencies is None:
        raise InputError(
            f"{selection} needs to know how frequent words are; give the reference texts that they are counted in, or choose random"
        )
    by_frequency = selection == "frequency-sum"
    # Equal sums stay in the order of the corpus.
    keys = [
        frequencies.frequency_sum(text.text) if by_frequency else -frequencies.index_sum(text.text)
        for text in user.texts
    ]
    return sorted(range(count), key=keys.__getitem__)


def choose_queries(
    user: User,
    selection: Selection = "all",
    number: int | None = None,
    *,
    frequencies: FrequencyTable | None = None,
    seed: int = 0,
) -> Queries:
    """The texts of a user that a model is asked about; the user in the result has only these, in the order of the corpus.

    Args:
        user: whose texts are chosen.
        selection: as in `ordered_places`.
        number: how many texts, from 1; all of them if the user has fewer, or without it.
        frequencies: the table that the rules for rare texts need; with it, lengths are counted in its tokens.
        seed: of "random".

    >>> from coalmine.audits.provenance.users import UserText
    >>> table = FrequencyTable(["the cat", "the dog", "the cat sat"])
    >>> ann = User("ann", (UserText("the cat sat"), UserText("the emu"), UserText("dog")))
    >>> chosen = choose_queries(ann, "frequency-sum", 2, frequencies=table)
    >>> chosen.places, [text.text for text in chosen.user.texts], chosen.mean_tokens
    ((1, 2), ['the emu', 'dog'], 1.5)
    """
    if number is not None and number < 1:
        raise InputError(
            f"a model is asked about at least 1 text of each user, got {number}; give a number from 1"
        )
    if number is not None and selection == "all":
        raise InputError(
            f"{number} texts of each user were asked for, and also all of them; choose random, frequency-sum or index-sum"
        )
    places = sorted(ordered_places(user, selection, frequencies=frequencies, seed=seed)[:number])
    texts = tuple(user.texts[place] for place in places)
    lengths = [
        len(text.text.split()) if frequencies is None else frequencies.length(text.text) for text in texts
    ]
    return Queries(User(user.name, texts), tuple(places), sum(lengths) / len(lengths) if lengths else 0.0)


def choose_texts(
    users: Sequence[User],
    selection: Selection = "all",
    number: int | None = None,
    frequencies: FrequencyTable | None = None,
    *,
    seed: int = 0,
) -> list[User]:
    """Users with only those of their texts that a model is asked about, as `choose_queries` chooses them for each.

    >>> from coalmine.audits.provenance.users import UserText
    >>> [len(user.texts) for user in choose_texts([User("ann", (UserText("one"), UserText("two")))], "random", 1)]
    [1]
    """
    return [
        choose_queries(user, selection, number, frequencies=frequencies, seed=seed).user for user in users
    ]


def mean_query_tokens(queries: Sequence[Queries]) -> float | None:
    """The mean length of the texts that were chosen, over users (each counts once); None without users.

    >>> from coalmine.audits.provenance.users import UserText
    >>> mean_query_tokens([choose_queries(User("ann", (UserText("one two"), UserText("three"))))])
    1.5
    """
    return sum(one.mean_tokens for one in queries) / len(queries) if queries else None
