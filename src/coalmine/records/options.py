"""Options records: what can be chosen about an operation, which Python takes, the command line fills and a fingerprint hashes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple, Self, get_type_hints

import msgspec

from coalmine.errors import InputError

MEGABYTE, GIGABYTE = 1_000_000, 1_000_000_000


class Option(NamedTuple):
    """What a field of an options record means to a user; in its annotation, so that it is written once.

    Fields without one are for Python only, and the command line does not offer them.
    """

    help: str
    # Whether what a stopped run has kept depends on it, so that only a run with the same value may resume.
    decides: bool = False
    # The least value that the command line takes.
    least: int | None = None
    # Whether it is a number of bytes, which the command line takes with a unit, such as 500MB.
    in_bytes: bool = False
    # For a field that may be None: the help of the option that makes it so, such as `--no-near`.
    off: str | None = None


def named_values(texts: Iterable[str]) -> dict[str, Any]:
    """Options as a command line names them, NAME=VALUE each: numbers, true or false, and texts.

    >>> named_values(["hidden=64", "learning-rate=1e-3", "shuffle=false", "tokens=words"])
    {'hidden': 64, 'learning_rate': 0.001, 'shuffle': False, 'tokens': 'words'}
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not name or not value:
            raise InputError(
                f"an option is a name and a value, such as epochs=5, got {text!r}; write NAME=VALUE"
            )
        try:
            found[name.strip().replace("-", "_")] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            found[name.strip().replace("-", "_")] = value
    return found


SEED = Option("The root of all randomness: the same seed gives the same files.", decides=True, least=0)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The base of all options records. All fields have defaults, so that a caller names only what differs.

    >>> from typing import Annotated
    >>> class Sampling(Options, frozen=True, kw_only=True):
    ...     size: Annotated[int, Option("How many to draw.")] = 100
    >>> Sampling.of(None, {"size": 7}).size
    7
    """

    @classmethod
    def of(cls, given: Self | None, changes: dict[str, Any]) -> Self:
        """`given`, or the defaults, with `changes` by name; a TypeError for a name that is not an option."""
        return msgspec.structs.replace(cls() if given is None else given, **changes)

    def _require(
        self, holds: bool, name: str, condition: str, such_as: object = None, *, prefix: str = ""
    ) -> None:
        """Refuse a value that an option cannot have; `such_as` is one that it can, and its default where none is given."""
        if not holds:
            usual = getattr(type(self)(), name) if such_as is None else such_as
            raise InputError(
                f"{prefix}{name} must be {condition}, got {getattr(self, name)}; give another, such as {usual}"
            )

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
