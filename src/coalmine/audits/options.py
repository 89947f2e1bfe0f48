"""The options of an audit as one record, which Python takes, the command line fills and the fingerprint of a resumable run hashes."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, Self, get_type_hints

import msgspec

# States of a model that a search may hold, in bytes: 1,024 megabytes.
MEMORY = 1_024_000_000
MEGABYTE = 1_000_000


class Option(NamedTuple):
    """What a field of a record of options means to a user; in its annotation, so that it is written once.

    Fields without one are for Python only, and the command line does not offer them.
    """

    help: str
    # Whether what a stopped run has kept depends on it, so that only a run with the same value may resume.
    decides: bool = False
    # The least value that the command line takes.
    least: int | None = None
    # What one unit of the command line is in that of Python, such as a megabyte in bytes.
    unit: int = 1


CONFIDENCE = Option("Confidence level of the intervals.")
SEED = Option("The root of all randomness: the same seed gives the same files.", decides=True, least=0)
SEARCH_MEMORY = Option("Megabytes of model states that a search may hold.", unit=MEGABYTE)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The base of the options of each audit. All have defaults, so that a caller names only what differs."""

    @classmethod
    def of(cls, given: Self | None, changes: dict[str, Any]) -> Self:
        """`given`, or the defaults, with `changes` by name; a TypeError for a name that is not an option."""
        return msgspec.structs.replace(cls() if given is None else given, **changes)

    def deciding(self) -> dict[str, Any]:
        """The options that decide what a stopped run has kept, by name."""
        return {name: getattr(self, name) for name, option in described(type(self)).items() if option.decides}


@cache
def described(kind: type[Options]) -> dict[str, Option]:
    """The options that users can choose, by the name of their field."""
    found = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        for one in getattr(hint, "__metadata__", ()):
            if isinstance(one, Option):
                found[name] = one
    return found
