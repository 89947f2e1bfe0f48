"""Where copies of canaries go: documents of their own at positions drawn uniformly, or turns of conversations drawn uniformly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from coalmine.corpus.chat.framing import AFTER_ADDITION
from coalmine.corpus.files.corpora import Addition, Edits, Insertion
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.corpus.planting.surveying import Survey, values_of
from coalmine.errors import CorpusError
from coalmine.randomness import integers
from coalmine.records.chat import Role


class CopyPlaces(NamedTuple):
    """Where the copies of canaries go."""

    # Documents of their own.
    insertions: Sequence[Insertion]
    # By document, what goes into which of its turns.
    additions: dict[int, Addition]

    def edits(self, drawn: CanarySet) -> Edits:
        """What to change in the corpus."""
        return Edits(self.insertions, [values_of(canary) for canary in drawn], additions=self.additions)


def draw_places(path: Path, survey: Survey, drawn: CanarySet, seed: int) -> CopyPlaces:
    """Draw where each copy of the planted canaries goes."""
    copies = [number for number, canary in enumerate(drawn) for _ in range(canary.times_trained_on)]
    if drawn.frame is None or drawn.frame.place == "own":
        return CopyPlaces(_positions(survey.documents, copies, seed), {})
    texts = [drawn[copy].text + AFTER_ADDITION for copy in _shuffled(copies, seed)]
    return CopyPlaces((), _turns(path, survey.turns, texts, drawn.frame.role, seed))


def _positions(documents: int, copies: Sequence[int], seed: int) -> list[Insertion]:
    """Draw which positions of the new corpus hold copies, and which copy each holds."""
    total = documents + len(copies)
    positions = sorted(integers(seed, "plant", "positions").sample(range(total), len(copies)))
    # The k-th copy at position p has k copies, so p - k documents, before it.
    return [
        Insertion(position - k, copy)
        for k, (position, copy) in enumerate(zip(positions, _shuffled(copies, seed), strict=True))
    ]


def _turns(path: Path, turns: bytes, texts: Sequence[str], role: Role, seed: int) -> dict[int, Addition]:
    """Draw which documents get a copy, at most one each, and which of their turns of the role."""
    having = len(turns) - turns.count(0)
    if not having:
        raise CorpusError(
            f"no row of {path} has a turn of the {role} with text, so nothing can be planted inside one; give another role, or plant "
            "turns of their own"
        )
    if having < len(texts):
        raise CorpusError(
            f"{having:,} rows of {path} have a turn of the {role} with text, too few for {len(texts):,} copies with one in a row at most; "
            "plant fewer canaries or copies, or turns of their own"
        )
    places = [place for place, count in enumerate(turns) if count]
    chosen = sorted(integers(seed, "plant", "rows").sample(range(having), len(texts)))
    chance = integers(seed, "plant", "turns")
    return {
        places[one]: Addition(role, chance.randrange(turns[places[one]]), text)
        for one, text in zip(chosen, texts, strict=True)
    }


def _shuffled(copies: Sequence[int], seed: int) -> list[int]:
    shuffled = list(copies)
    integers(seed, "plant", "order").shuffle(shuffled)
    return shuffled
