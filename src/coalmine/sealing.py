"""Results that say whether they are what was written: JSON documents that end with a checksum of all that comes before it.

The checksum guards against accidents (an edit, a half-restored backup, a broken disk), not against somebody who computes it again.
It is the last line but one of the file, so that any tool can make it: `head -n -2 exposure.json | sha256sum`.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import Any

from coalmine.errors import AlteredError
from coalmine.files import PUBLIC, read_bytes, to_json, write_bytes

_SEAL = re.compile(rb'(?<=\n)  "checksum": "(?P<digest>[0-9a-f]{64})"\n\}\n\Z')
_END = b"\n}"


def write_sealed(path: str | os.PathLike[str], document: Any, *, mode: int = PUBLIC) -> None:
    """Write a record as `write_json` does, with the checksum of its content as the last field."""
    write_bytes(path, sealed(document), mode=mode)


def sealed(document: Any) -> bytes:
    """The bytes of a record with its checksum.

    >>> print(sealed({"value": 3}).decode(), end="")
    {
      "value": 3,
      "checksum": "625d3ad5a74e844dbec1fb381db156e540c356754fa7e3bead3400cb18c9d69f"
    }
    """
    content = to_json(document).removesuffix(_END) + b",\n"
    return content + f'  "checksum": "{hashlib.sha256(content).hexdigest()}"\n}}\n'.encode()


def read_sealed(path: str | os.PathLike[str], what: str) -> bytes:
    """The bytes of a file that `write_sealed` wrote; an AlteredError where they are no longer those."""
    content = read_bytes(path, what)
    check_seal(path, content, what)
    return content


def check_seal(path: str | os.PathLike[str], content: bytes, what: str) -> None:
    """Refuse bytes that are not the ones that were written."""
    seal = _SEAL.search(content)
    if seal is None:
        raise AlteredError(
            f"{path} does not end with a checksum, so it was changed, cut short or written by an earlier version; restore it, or make "
            f"{what} again"
        )
    if hashlib.sha256(content[: seal.start()]).hexdigest() != seal["digest"].decode():
        raise AlteredError(
            f"{path} is not what was written: its checksum does not match its content; restore it, or make {what} again"
        )
