"""Near duplicates: MinHash proposes pairs of documents, and their exact similarity decides."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.errors import InputError, MissingExtraError
from coalmine.randomness import child_seed

# Documents are compared by the runs of this many words that they hold.
WORDS = 5
PERMUTATIONS = 128
# A pair that is just similar enough is proposed with at least this probability.
_RECALL = 0.999
_AT_ONCE = 1000


class NearDuplicate(NamedTuple):
    """A document that is nearly the same as an earlier one that is kept."""

    document: int
    of: int
    # The share of the runs of five words of either that both have.
    similarity: float


def near_duplicates(
    documents: Iterable[tuple[int, str]], threshold: float, *, seed: int = 0
) -> Iterator[NearDuplicate]:
    """The documents whose similarity to an earlier one, which is kept itself, is at least `threshold`.

    Similarity is Jaccard's, over sets of runs of five words; a shorter document is one run. Pairs are proposed by
    MinHash and found similar by comparing their sets (of 64-bit hashes), so nothing is removed because of an estimate, and what
    is kept would not be removed by a second pass. A document without words is not similar to any.

    Args:
        documents: the name of each, and its text.
        threshold: between 0 and 1.
        seed: the seed of the permutations.

    >>> texts = ["one two three four five six seven", "something else", "one two three four five six seven"]
    >>> list(near_duplicates(enumerate(texts), 0.8))
    [NearDuplicate(document=2, of=0, similarity=1.0)]
    """
    rows = rows_in_band(threshold)
    rensa = _rensa()
    minhash_seed = child_seed(seed, "near duplicates") & (2**32 - 1)
    proposals = rensa.RMinHashLSH(threshold, PERMUTATIONS, PERMUTATIONS // rows)
    kept: list[tuple[int, NDArray[np.uint64]]] = []
    seen: dict[bytes, int] = {}
    remaining = iter(documents)
    while some := list(islice(remaining, _AT_ONCE)):
        runs = [runs_of_words(text) for _, text in some]
        sketches = rensa.RMinHash.from_token_sets(runs, PERMUTATIONS, minhash_seed)
        hashes = rensa.RMinHash.hash_token_sets(runs)
        for (name, text), sketch, hashed, present in zip(some, sketches, hashes, runs, strict=True):
            if not present:
                continue
            # Otherwise many copies of one text would be compared with each other.
            digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
            if digest in seen:
                yield NearDuplicate(name, seen[digest], 1.0)
                continue
            mine = np.unique(np.array(hashed, dtype=np.uint64))
            found = _most_similar(mine, sorted(proposals.query(sketch)), kept, threshold)
            if found is not None:
                yield NearDuplicate(name, *found)
                continue
            seen[digest] = name
            proposals.insert(len(kept), sketch)
            kept.append((name, mine))


def runs_of_words(text: str) -> list[str]:
    """The runs of five words of a text; a shorter text is one run, and one without words has none.

    >>> runs_of_words("a b c d e f"), runs_of_words("a  b"), runs_of_words(" ")
    (['a b c d e', 'b c d e f'], ['a b'], [])
    """
    words = text.split()
    if not words:
        return []
    return [" ".join(words[at : at + WORDS]) for at in range(max(1, len(words) - WORDS + 1))]


def rows_in_band(threshold: float) -> int:
    """How many hashes must agree at once for a pair to be proposed: the most that still finds nearly all similar pairs.

    >>> rows_in_band(0.8), rows_in_band(0.5)
    (4, 2)
    """
    if not 0.0 < threshold <= 1.0:
        raise InputError(
            f"a similarity should be above 0 and at most 1, got {threshold}; give one such as 0.8"
        )
    fitting = [rows for rows in (16, 8, 4, 2, 1) if chance_of_proposal(threshold, rows) >= _RECALL]
    return fitting[0] if fitting else 1


def chance_of_proposal(similarity: float, rows: int) -> float:
    """The probability that a pair of this similarity is proposed."""
    bands = PERMUTATIONS // rows
    return float(1.0 - (1.0 - similarity**rows) ** bands)


def _most_similar(
    mine: NDArray[np.uint64],
    candidates: list[int],
    kept: list[tuple[int, NDArray[np.uint64]]],
    threshold: float,
) -> tuple[int, float] | None:
    best: tuple[int, float] | None = None
    for candidate in candidates:
        name, other = kept[candidate]
        # Sets of such different sizes cannot be similar, whatever they share.
        if min(len(mine), len(other)) < threshold * max(len(mine), len(other)):
            continue
        both = len(np.intersect1d(mine, other, assume_unique=True))
        similarity = both / (len(mine) + len(other) - both)
        if similarity >= threshold and (best is None or similarity > best[1]):
            best = (name, similarity)
    return best


def _rensa() -> Any:
    try:
        import rensa
    except ImportError:
        raise MissingExtraError("looking for near duplicates", "rensa", "index") from None
    return rensa
