"""The same text under several users: by hashes of whole texts, and inside longer texts by an index of a corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from coalmine.audits.provenance.overlaps import Group
from coalmine.audits.provenance.text_hashes import SHORTEST_TEXT, OwnedTexts, long_enough
from coalmine.audits.provenance.users import User
from coalmine.errors import InputError
from coalmine.records.estimate import Count

if TYPE_CHECKING:
    from coalmine.corpus.index.queries import CorpusIndex

# Copies of one text that are looked at.
MOST_COPIES = 1_000


class RepeatedTexts(msgspec.Struct, frozen=True, kw_only=True):
    """How many texts occur under several users, such as quotations, forwarded mail or templates; texts of fewer bytes are left out."""

    shortest: int
    # Different texts, those of them that several users have, and users with such a text.
    texts: Count
    repeated: Count
    users: Count
    affected_users: Count
    # How many users have the text that most of them have.
    most_users: Count
    # Texts inside a text of another user of a corpus that there is an index of; None without one.
    quoted: int | None = None

    @property
    def share(self) -> float | None:
        """The share of texts that several users have; None where no text is long enough."""
        return self.repeated / self.texts if self.texts else None


@dataclass(frozen=True)
class IndexedCorpus:
    """An index of the corpus that one group of users was read from."""

    index: CorpusIndex
    group: Group

    @classmethod
    def of(cls, index: CorpusIndex, data_sha256: Mapping[str, str]) -> IndexedCorpus:
        """By the hashes of the corpora of each role; an InputError if the index is of none of them."""
        for role, sha256 in data_sha256.items():
            if sha256 == index.manifest.corpus.sha256:
                return cls(index, _GROUPS[role])
        raise InputError(
            f"the index {index.path} is of another corpus than those of the audit; make one of the suspects with `coalmine index`"
        )


_GROUPS: dict[str, Group] = {
    "suspects": "suspects",
    "others": "others",
    "non_members": "non-members",
    "reference": "reference",
}


def repeated_texts(
    groups: Mapping[Group, Sequence[User]],
    *,
    shortest: int = SHORTEST_TEXT,
    indexed: IndexedCorpus | None = None,
) -> RepeatedTexts:
    """Which texts occur under several users, after normalization of white space; users of the same name are one.

    Args:
        groups: the users of each group.
        shortest: texts below this many bytes of UTF-8 are left out.
        indexed: an index of the corpus that one of the groups was read from; texts of all users are looked for in it, also inside others.

    >>> from coalmine.audits.provenance.users import UserText
    >>> both = UserText("Please find attached the minutes of the meeting.")
    >>> ann, bob = User("ann", (both, UserText("My own words, and nobody else's."))), User("bob", (both,))
    >>> found = repeated_texts({"suspects": [ann], "non-members": [bob]})
    >>> found.repeated, found.texts, found.affected_users
    (1, 2, 2)
    """
    users = [user for some in groups.values() for user in some]
    found = OwnedTexts.of(users, shortest=shortest)
    shared = found.shared()
    copies = np.unique(found.texts[shared], return_counts=True)[1]
    return RepeatedTexts(
        shortest=shortest,
        texts=len(np.unique(found.texts)),
        repeated=len(copies),
        users=len({user.name for user in users}),
        affected_users=len(np.unique(found.owners[shared])),
        most_users=int(copies.max()) if len(copies) else 1,
        quoted=None if indexed is None else _quoted(users, indexed.index, groups[indexed.group], shortest),
    )


def _quoted(users: Sequence[User], index: CorpusIndex, there: Sequence[User], shortest: int) -> int:
    """How many texts of users occur in the text of another user in the corpus of an index, which the users `there` were read from."""
    owners = {text.number: user.name for user in there for text in user.texts}
    found = 0
    for user in users:
        texts = list(dict.fromkeys(text.text for text, _ in long_enough(user.texts, shortest)))
        if not texts:
            continue
        for text, count in zip(texts, index.counts(texts).tolist(), strict=True):
            places = index.locate(text, limit=MOST_COPIES) if count else []
            found += any(owners.get(place.document, user.name) != user.name for place in places)
    return found
