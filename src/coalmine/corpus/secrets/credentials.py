"""Keys and tokens with known shapes: cloud keys, private key blocks, signed tokens, and tokens of repositories and services."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from typing import Any

from coalmine.corpus.secrets.kind import SecretKind

_FEW_CHARACTERS = 5
_DOTS = 2  # of a signed token
_EXAMPLE = re.compile(
    r"example|sample|dummy|placeholder|redacted|changeme|your[_-]|x{6}|1234567890|abcdefgh|0{8}|\*{4}",
    re.IGNORECASE,
)
# The token of jwt.io, by its signature, and the key that a payment processor prints in its documentation.
_PUBLISHED = frozenset({"SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c", "sk_test_4eC39HqLyjWDarjtT1zdp7dc"})
_KEY_BEGINS = "-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----"
_KEY_HEADER = re.compile(_KEY_BEGINS)
_KEY_LINE = re.compile("[A-Za-z0-9+/=]{40}")
_GOOGLE_KEY = re.compile(r"AIza[0-9A-Za-z_-]{35}|GOCSPX-[0-9A-Za-z_-]{28}")
# What ends each document where texts are searched together.
_END = "\udcff"


def _is_specimen(value: str) -> bool:
    return bool(
        _EXAMPLE.search(value)
        or len(set(value[-16:])) <= _FEW_CHARACTERS
        or value in _PUBLISHED
        or value.rpartition(".")[2] in _PUBLISHED
    )


def _same(text: str) -> str | None:
    return text


def _token(
    name: str,
    title: str,
    pattern: str,
    *,
    begins: str,
    part: Callable[[str], str | None] = _same,
    check: Callable[[str], str | None] = _same,
    after: str | None = None,
    is_whole_run: bool = False,
    kept: str = "",
    alphabet: str = "A-Za-z0-9",
    sensitivity: int = 4,
) -> SecretKind:
    """A kind of token; `kept` is what all tokens of this kind begin with."""
    beginning = re.compile(kept)

    def length_kept(text: str) -> int:
        found = beginning.match(text)
        return 0 if found is None else found.end()

    return SecretKind(
        name=name,
        title=title,
        pattern=pattern,
        begins=begins,
        part=part,
        check=check,
        is_specimen=_is_specimen,
        sensitivity=sensitivity,
        after=after,
        is_whole_run=is_whole_run,
        kept=length_kept,
        alphabet=alphabet,
    )


def _json_object(part: str) -> dict[str, Any] | None:
    try:
        decoded = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return None
    return decoded if isinstance(decoded, dict) else None


def _signed_token(text: str) -> str | None:
    """The token, if header and payload are JSON objects and the header names an algorithm."""
    header, payload, _ = text.split(".")
    decoded = _json_object(header)
    return text if decoded is not None and "alg" in decoded and _json_object(payload) is not None else None


def _private_key(text: str) -> str | None:
    """The block, if a line of a key follows its header, or nothing does: where lines are documents, the key is in the next ones."""
    header = _KEY_HEADER.match(text)
    whole = text.removesuffix(_END).rstrip()
    if header is None:
        return None
    return (
        whole
        if _KEY_LINE.search(text, header.end()) or (len(whole) == header.end() and text.endswith(_END))
        else None
    )


def _google_part(text: str) -> str:
    """Only what begins with ya29 may be of any length."""
    found = _GOOGLE_KEY.match(text)
    return text if found is None else found[0]


def _bearer(text: str) -> str | None:
    """The token, unless it is a word."""
    return text if any(map(str.isdigit, text)) and any(map(str.isalpha, text)) else None


CREDENTIALS: tuple[SecretKind, ...] = (
    _token(
        "private-key",
        "private keys",
        _KEY_BEGINS,
        begins="--",
        part=_private_key,
        # Base64 with its line breaks, which may be quoted or escaped, and the lines that some programs put before it.
        after=r"(?:[A-Za-z0-9+/=:,.() \t\r\n>]|\\[nr]|-[A-Za-z0-9])*(?:-----END [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----|\xff)?",
        kept=_KEY_BEGINS + r"\s*",
        alphabet="A-Za-z0-9+/",
        sensitivity=5,
    ),
    _token(
        "aws-key",
        "AWS access keys",
        r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b",
        begins="A[KSBC]",
        kept="A[A-Z]{3}",
        alphabet="A-Z2-7",
    ),
    _token(
        "aws-secret",
        "AWS secret keys",
        r"(?i:aws[_. -]?secret[_. -]?(?:access[_. -]?)?key|secret[_. -]?access[_. -]?key)[\"' \t]{0,16}[:=]{1,2}>?[\"' \t]{0,8}"
        r"([A-Za-z0-9/+]{40})(?:[^A-Za-z0-9/+=]|$)",
        begins="[Aa][Ww]|[Ss][Ee]",
        alphabet="A-Za-z0-9/+",
        sensitivity=5,
    ),
    _token(
        "google-key",
        "Google keys",
        r"\bAIza[0-9A-Za-z_-]{35}|\bGOCSPX-[0-9A-Za-z_-]{28}|\bya29\.[0-9A-Za-z_-]{30}",
        begins="AI|GO|ya",
        after="[0-9A-Za-z_-]*",
        part=_google_part,
        kept=r"AIza|GOCSPX-|ya29\.",
        alphabet="A-Za-z0-9_-",
    ),
    _token(
        "azure-key",
        "Azure keys",
        r"\b(?:AccountKey|SharedAccessKey)=([A-Za-z0-9+/]{43,86}={1,2})",
        begins="Ac|Sh",
        alphabet="A-Za-z0-9+/",
        sensitivity=5,
    ),
    _token(
        "github-token",
        "GitHub tokens",
        r"\bgh[pousr]_[A-Za-z0-9]{36,255}\b|\bgithub_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}\b",
        begins="g[hi]",
        kept="gh[pousr]_|github_pat_",
        sensitivity=5,
    ),
    _token(
        "gitlab-token",
        "GitLab tokens",
        r"\bgl(?:pat|ptt|dt|rt|cbt|ft|soat)-[A-Za-z0-9_-]{20,64}",
        begins="gl",
        kept="gl[a-z]+-",
        alphabet="A-Za-z0-9_-",
    ),
    _token(
        "slack-token", "Slack tokens", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,250}", begins="xo", kept="xox[a-z]-"
    ),
    _token(
        "slack-webhook",
        "Slack webhooks",
        r"\bhooks\.slack\.com/services/T[A-Z0-9]{8,12}/B[A-Z0-9]{8,12}/[A-Za-z0-9]{24}\b",
        begins="ho",
        kept="hooks.slack.com/services/T",
    ),
    _token(
        "stripe-key",
        "Stripe keys",
        r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,247}\b",
        begins="[rs]k",
        kept="[rs]k_(?:live|test)_",
        sensitivity=5,
    ),
    _token(
        "sendgrid-key",
        "SendGrid keys",
        r"\bSG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}",
        begins="SG",
        kept=r"SG\.",
        alphabet="A-Za-z0-9_-",
    ),
    _token("npm-token", "npm tokens", r"\bnpm_[A-Za-z0-9]{36}\b", begins="np", kept="npm_"),
    _token(
        "pypi-token",
        "PyPI tokens",
        r"\bpypi-AgE[A-Za-z0-9_-]{50}",
        begins="py",
        after="[A-Za-z0-9_-]*",
        kept="pypi-AgE",
        alphabet="A-Za-z0-9_-",
    ),
    _token(
        "model-key",
        "keys of model providers",
        r"\bsk-(?:ant-|proj-|svcacct-|or-)?[A-Za-z0-9_-]{32,250}|\bhf_[A-Za-z0-9]{34}\b",
        begins="sk|hf",
        kept="sk-(?:[a-z]+-)?|hf_",
        alphabet="A-Za-z0-9_-",
    ),
    _token(
        "jwt",
        "JSON web tokens",
        r"\beyJ[A-Za-z0-9_-]{8}",
        begins="ey",
        after=r"[A-Za-z0-9_-]*\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*",
        is_whole_run=True,
        part=lambda text: text if text.count(".") == _DOTS else None,
        check=_signed_token,
        kept=r"[^.]*\.",
        alphabet="A-Za-z0-9_-",
    ),
    _token(
        "bearer",
        "bearer tokens",
        r"\b[Bb]earer[ :]{1,2}([A-Za-z0-9._~+/-]{20})",
        begins="[Bb]e",
        after="[A-Za-z0-9._~+/-]*={0,2}",
        part=lambda text: text.rstrip("."),  # the end of a sentence
        check=_bearer,
        alphabet="A-Za-z0-9_-",
    ),
)
