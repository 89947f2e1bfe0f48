"""Near duplicates: MinHash proposes pairs of documents, and their exact similarity decides."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalmine.engines.engine import Engine, open_engine
from coalmine.engines.units import Arrays, Run, Running, Unit, in_order
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
    documents: Iterable[tuple[int, str]],
    threshold: float,
    *,
    seed: int = 0,
    engine: Engine | None = None,
) -> Iterator[NearDuplicate]:
    """The documents whose similarity to an earlier one, which is kept itself, is at least `threshold`.

    Similarity is Jaccard's, over sets of runs of five words; a shorter document is one run. Pairs are proposed by
    MinHash and found similar by comparing their sets (of 64-bit hashes), so nothing is removed because of an estimate, and what
    is kept would not be removed by a second pass. A document without words is not similar to any.

    Args:
        documents: the name of each, and its text.
        threshold: between 0 and 1.
        seed: the seed of the permutations.
        engine: where the texts are hashed; what is similar is decided here.

    >>> texts = ["one two three four five six seven", "something else", "one two three four five six seven"]
    >>> list(near_duplicates(enumerate(texts), 0.8))
    [NearDuplicate(document=2, of=0, similarity=1.0)]
    """
    rows = rows_in_band(threshold)
    rensa = _rensa()
    work = _SketchWork(child_seed(seed, "near duplicates") & (2**32 - 1))
    proposals = rensa.RMinHashLSH(threshold, PERMUTATIONS, PERMUTATIONS // rows)
    kept: list[tuple[int, NDArray[np.uint64]]] = []
    seen: dict[bytes, int] = {}
    with open_engine(engine) as opened:
        for outcome in in_order(opened.map(work, _units(documents))):
            sketches = _Sketches(**outcome.value())
            for place, name in enumerate(sketches.names.tolist()):
                mine = sketches.hashes_of(place)
                if not len(mine):
                    continue
                # Otherwise many copies of one text would be compared with each other.
                digest = sketches.digests[place].tobytes()
                if digest in seen:
                    yield NearDuplicate(name, seen[digest], 1.0)
                    continue
                sketch = rensa.RMinHash(PERMUTATIONS, work.seed)
                sketch.__setstate__(sketches.state_of(place))
                found = _most_similar(mine, sorted(proposals.query(sketch)), kept, threshold)
                if found is not None:
                    yield NearDuplicate(name, *found)
                    continue
                seen[digest] = name
                proposals.insert(len(kept), sketch)
                kept.append((name, mine.copy()))


def _units(documents: Iterable[tuple[int, str]]) -> Iterator[Unit]:
    remaining = iter(documents)
    while some := list(islice(remaining, _AT_ONCE)):
        yield Unit(([name for name, _ in some], [text for _, text in some]))


class _Sketches(NamedTuple):
    """What is needed of some documents to compare them: plain arrays."""

    names: NDArray[np.int64]
    digests: NDArray[np.uint8]  # (documents, 32), SHA-256 of the texts
    # Of all documents, one after the other, and where each ends: different hashes of runs of words, and sketches.
    hashes: NDArray[np.uint64]
    hashes_end: NDArray[np.int64]
    states: NDArray[np.uint8]
    states_end: NDArray[np.int64]

    def hashes_of(self, place: int) -> NDArray[np.uint64]:
        """The different hashes of the runs of words of a document."""
        return self.hashes[self.hashes_end[place - 1] if place else 0 : self.hashes_end[place]]

    def state_of(self, place: int) -> bytes:
        """The sketch of a document, as the library writes it."""
        return self.states[self.states_end[place - 1] if place else 0 : self.states_end[place]].tobytes()


class _SketchWork(NamedTuple):
    """Hashes the runs of words of documents, and makes sketches of them."""

    seed: int
    name: str = "sketch/1"
    memory_bytes: int = 0

    @property
    def facts(self) -> Any:
        """What decides the hashes."""
        return [WORDS, PERMUTATIONS, self.seed]

    def prepare(self) -> Run:
        """Import the library."""
        _rensa()
        return self._sketch

    def _sketch(self, unit: Unit, _running: Running) -> Arrays:
        names, texts = unit.inputs
        rensa, runs = _rensa(), [runs_of_words(text) for text in texts]
        sketches = rensa.RMinHash.from_token_sets(runs, PERMUTATIONS, self.seed)
        hashes = [
            np.unique(np.array(hashed, dtype=np.uint64)) for hashed in rensa.RMinHash.hash_token_sets(runs)
        ]
        states = [np.frombuffer(sketch.__getstate__(), dtype=np.uint8) for sketch in sketches]
        digests = b"".join(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts)
        return _Sketches(
            np.array(names, dtype=np.int64),
            np.frombuffer(digests, dtype=np.uint8).reshape(len(texts), -1),
            np.concatenate(hashes),
            np.cumsum([len(one) for one in hashes]),
            np.concatenate(states),
            np.cumsum([len(one) for one in states]),
        )._asdict()


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
