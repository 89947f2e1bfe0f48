"""The key of surrogates, which is never written: read from a file or a variable, or random; and a fingerprint that tells keys apart."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from coalmine.errors import InputError
from coalmine.storage.files import read_bytes

KEY_VARIABLE = "COALMINE_REDACTION_KEY"
LEAST_BYTES = 16
_FINGERPRINT_CHARACTERS = 8
# Costs of scrypt: a tenth of a second and 16 MB for each guess of a key.
_COST, _BLOCK, _PARALLEL = 1 << 14, 8, 1


class SurrogateKey:
    """A key that decides surrogates; what it does to a secret cannot be computed without it.

    >>> key = SurrogateKey(b"0123456789abcdef")
    >>> len(key.fingerprint), key.number("ssn", "219099998", 1000) == key.number("ssn", "219099998", 1000)
    (8, True)
    """

    def __init__(self, content: bytes | None = None) -> None:
        if content is not None and len(content) < LEAST_BYTES:
            raise InputError(
                f"a key for surrogates needs at least {LEAST_BYTES} bytes, because whoever guesses it can guess the secrets, got "
                f"{len(content)}; make one with `openssl rand -hex 32`"
            )
        self.is_random = content is None
        if content is None:
            self._key, self._fingerprint = secrets.token_bytes(32), b""
            return
        # Both are slow to compute, so that a key that is a password is slow to guess.
        self._key, self._fingerprint = (
            hashlib.scrypt(content, salt=salt, n=_COST, r=_BLOCK, p=_PARALLEL, dklen=32)
            for salt in (b"coalmine redact", b"coalmine redact fingerprint")
        )

    @classmethod
    def read(cls, path: Path | None) -> SurrogateKey:
        """The key in a file; without one, in the environment variable; without that, a random one that is forgotten."""
        if path is not None:
            return cls(read_bytes(path, "the key").strip())
        given = os.environ.get(KEY_VARIABLE)
        return cls(None if given is None else given.strip().encode())

    @property
    def fingerprint(self) -> str | None:
        """A few characters that tell keys apart, and too few to check a guess by; None for a random key, which nobody has."""
        return None if self.is_random else self._fingerprint.hex()[:_FINGERPRINT_CHARACTERS]

    def number(self, kind: str, value: str, below: int, use: int = 0) -> int:
        """A number from 0 to `below` - 1 that depends on the key, the secret and the use, and on nothing else."""
        content = "\0".join([kind, value, str(use)]).encode("utf-8", "surrogatepass")
        digest = b"".join(
            hmac.digest(self._key, bytes([part]) + content, "sha256")
            # Twice as many bits as the number has, so that no number is more likely than another by more than 2**-128.
            for part in range(1 + (below.bit_length() + 128) // 256)
        )
        return int.from_bytes(digest, "big") % below
