"""The data of `provenance_paper.py`: users of posts, dialogs and translations, divided into members, non-members and reference users."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from coalmine.audits.provenance.users import User, UserText, read_users
from coalmine.corpus import Fields
from coalmine.randomness import arrays

# Nobody learns a language from addresses of pages.
_ADDRESS = re.compile(r"https?://\S+")
# Words with what may come before them in posts, what is left of a contraction, and single marks: "it 's so sad", as in the paper.
_WORD = re.compile(r"[@#]?\w+|['\u2019]\w+|[^\w\s]")
# Shorter texts say nothing about anyone.
FEWEST_WORDS = 3


class Split(NamedTuple):
    """Users by what is done with their texts.

    Attributes:
        members: the target is trained on all their texts.
        others: further texts by the same users, in the same order; empty where there are none.
        non_members: nothing is trained on them.
        reference: shadow models are trained on halves of them.
    """

    members: list[User]
    others: list[User]
    non_members: list[User]
    reference: list[User]


def cut(text: str, most: int) -> str:
    """The first words of a text, in lower case and with spaces between them.

    >>> cut("It's SO sad! https://example.org/x", 20)
    "it 's so sad !"
    """
    return " ".join(_WORD.findall(_ADDRESS.sub(" ", text.lower()))[:most])


def posts(path: Path, *, texts: int, words: int, users: tuple[int, int, int], seed: int) -> Split:
    """Posts by accounts: `texts` of each, drawn at random, of up to `words` words; members have as many others.

    Args:
        path: a corpus with a user and a text field.
        texts: how many of each user.
        words: what is left of each text.
        users: how many members, non-members and reference users there are, at most.
        seed: of all draws.
    """
    accounts = []
    for account in read_users(path, Fields(user="user")):
        different = dict.fromkeys(cut(text.text, words) for text in account.texts)
        long_enough = [text for text in different if len(text.split()) >= FEWEST_WORDS]
        order = arrays(seed, "experiment", "texts", account.name).permutation(len(long_enough))
        chosen = [UserText(long_enough[place]) for place in order[: 2 * texts]]
        if len(chosen) == 2 * texts:
            accounts.append(User(account.name, tuple(chosen)))
    return _divided(accounts, texts, users, seed)


def dialogs(path: Path, *, texts: int, words: int, users: tuple[int, int, int], seed: int) -> Split:
    """Replies of characters of movies to what was said before; up to `texts` of each, and no others, because there are few."""
    characters = []
    for character in read_users(path, Fields(user="user", source="source", target="target")):
        pairs = [UserText(cut(text.text, words), cut(text.source or "", words)) for text in character.texts]
        pairs = [pair for pair in dict.fromkeys(pairs) if pair.text and pair.source]
        order = arrays(seed, "experiment", "texts", character.name).permutation(len(pairs))
        if len(pairs) >= 10:
            characters.append(User(character.name, tuple(pairs[place] for place in order[:texts])))
    return _divided(characters, None, users, seed)


def translations(path: Path, *, texts: int, words: int, users: tuple[int, int, int], seed: int) -> Split:
    """Pairs of sentences, divided at random among artificial users; no sentence of the first language is there twice."""
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        by_source: dict[str, str] = {}
        for line in stream:
            source, target = line.rstrip("\n").split("\t")[:2]
            by_source.setdefault(cut(source, words), cut(target, words))
    pairs = [
        UserText(target, source)
        for source, target in by_source.items()
        if len(target.split()) >= FEWEST_WORDS
    ]
    wanted = 2 * texts * sum(users)
    order = arrays(seed, "experiment", "pairs").permutation(len(pairs))[:wanted]
    return _divided(artificial_users([pairs[place] for place in order], sum(users), seed), texts, users, seed)


def treebank(path: Path, *, texts: int, words: int, users: int, seed: int) -> list[User]:
    """Sentences of newspapers, divided at random among artificial users: reference users of another domain."""
    lines = path.read_text(encoding="utf-8").splitlines()
    sentences = [" ".join(line.replace("<unk>", "").split()[:words]) for line in lines]
    long_enough = [one for one in dict.fromkeys(sentences) if len(one.split()) >= FEWEST_WORDS]
    order = arrays(seed, "experiment", "sentences").permutation(len(long_enough))[: texts * users]
    return artificial_users([long_enough[place] for place in order], users, seed)


def artificial_users(texts: Sequence[str | UserText], number: int, seed: int) -> list[User]:
    """Random subsets of texts as users, as in section 4.1 of the paper; each text is in one, and sizes differ by one text at most."""
    chance = arrays(seed, "provenance", "artificial users", number)
    order = chance.permutation(len(texts))
    written = [UserText(text) if isinstance(text, str) else text for text in texts]
    # Which users have a text more is random too, so that the first of them are not told from the last by that.
    parts = [sorted(order[first::number].tolist()) for first in chance.permutation(number)]
    return [
        User(f"artificial {place}", tuple(written[text] for text in part))
        for place, part in enumerate(parts, 1)
    ]


def _divided(users: Sequence[User], texts: int | None, sizes: tuple[int, int, int], seed: int) -> Split:
    """Users in a random order, as many of each kind as asked for; with `texts`, what is beyond as many are the others."""
    order = arrays(seed, "experiment", "users").permutation(len(users))
    shuffled = [users[place] for place in order]
    members, non_members, reference = (
        [
            User(user.name, user.texts[:texts])
            for user in shuffled[sum(sizes[:place]) : sum(sizes[: place + 1])]
        ]
        for place in range(3)
    )
    if len(reference) < 0.9 * sizes[2]:
        raise SystemExit(f"there are {len(users)} users with enough texts, and {sum(sizes)} are asked for")
    others = [] if texts is None else [User(user.name, user.texts[texts:]) for user in shuffled[: sizes[0]]]
    return Split(members, others, non_members, reference)


def noisy(members: Sequence[User], others: Sequence[User], share: float) -> list[User]:
    """Members, a share of whose texts was replaced by other texts that they wrote."""
    mixed = []
    for member, other in zip(members, others, strict=True):
        new = round(share * len(member.texts))
        mixed.append(User(member.name, (*member.texts[new:], *other.texts[:new])))
    return mixed


def with_words_dropped(users: Sequence[User], share: float, seed: int) -> list[User]:
    """Users, of whose texts each word was left out with this probability, but never all of them."""

    def dropped(words: list[str], drawn: np.random.Generator) -> Iterator[str]:
        kept = drawn.random(len(words)) >= share
        if not kept.any():
            kept[drawn.integers(len(words))] = True
        return (word for word, stays in zip(words, kept, strict=True) if stays)

    return [_changed(user, lambda words, drawn: " ".join(dropped(words, drawn)), seed) for user in users]


def with_words_swapped(users: Sequence[User], share: float, counts: Counter[str], seed: int) -> list[User]:
    """Users, of whose texts each known word was swapped with this probability for one of the twenty words of nearest frequency."""
    by_frequency = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    places = {word: place for place, word in enumerate(by_frequency)}

    def swapped(words: list[str], drawn: np.random.Generator) -> str:
        found = []
        for word in words:
            if word in places and drawn.random() < share:
                first = min(max(0, places[word] - 10), max(0, len(by_frequency) - 21))
                near = [one for one in by_frequency[first : first + 21] if one != word]
                found.append(near[drawn.integers(len(near))])
            else:
                found.append(word)
        return " ".join(found)

    return [_changed(user, swapped, seed) for user in users]


def word_counts(users: Sequence[User], most: int) -> Counter[str]:
    """How often the most frequent words of some users' texts occur."""
    counts = Counter(word for user in users for text in user.texts for word in text.text.split())
    return Counter(dict(counts.most_common(most)))


def _changed(user: User, change: Callable[[list[str], np.random.Generator], str], seed: int) -> User:
    drawn = arrays(seed, "experiment", "obfuscation", user.name)
    return User(user.name, tuple(text._replace(text=change(text.text.split(), drawn)) for text in user.texts))
