"""Options records: what can be chosen about an operation, listed once for Python, the command line and fingerprints.

An options record is a frozen struct. A field that the command line fills too has a description, which is its help:
`canaries: Annotated[int, msgspec.Meta(description="Canaries per format.")] = 32` is `--canaries` and `canaries=`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from coalmine.errors import InputError

Options = TypeVar("Options", bound=msgspec.Struct)


def options_from(kind: type[Options], given: Options | None, changes: Mapping[str, Any]) -> Options:
    """An options record with some of its fields changed; an InputError for a name that is not one of its fields.

    >>> class Sampling(msgspec.Struct, frozen=True):
    ...     size: int = 100
    >>> options_from(Sampling, None, {"size": 7})
    Sampling(size=7)
    >>> options_from(Sampling, None, {"sise": 7})
    Traceback (most recent call last):
    coalmine.errors.InputError: unknown option 'sise': known are size
    """
    known = kind.__struct_fields__
    for name in changes:
        if name not in known:
            raise InputError(f"unknown option {name!r}: known are {', '.join(sorted(known))}")
    base = {} if given is None else {name: getattr(given, name) for name in known}
    return kind(**{**base, **changes})
