"""Redaction of one text: secrets are masked, replaced or cut out, until a scan finds none."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from coalmine.corpus.files.documents import BOUNDARY
from coalmine.corpus.redaction.keys import SurrogateKey
from coalmine.corpus.redaction.options import Action, RedactOptions, name_of
from coalmine.corpus.redaction.surrogates import Surrogates
from coalmine.corpus.secrets.finding import Candidate, SecretFinder

PRIVATE_KEY = "private-key"
# Masking brings together what was around a secret, which may look like another one; after this many times the document is dropped.
_ROUNDS = 16
_KEY_ENDS = re.compile(r"-----END [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----")
# Lines of a key but the last, which is shorter; what some programs write before them, and a checksum after them.
_KEY_BODY = re.compile(r"\s*(?:>\s*)*[A-Za-z0-9+/=]{40,}\s*")
_KEY_TAIL = re.compile(r"\s*(?:>\s*)*[A-Za-z0-9+/=]{1,39}\s*")
_KEY_NOTE = re.compile(
    r"\s*(?:>\s*)*(?:(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset|MessageID): [ -~]{0,100}|=[A-Za-z0-9+/]{4})\s*"
)
# Lines that a private key has at most, where each is a document.
_MOST_KEY_LINES = 256


class RedactedText(NamedTuple):
    """What is left of a text; None where its document is left out.

    Attributes:
        text: the new text.
        done: how many secrets of each kind were found ("found"), and what became of them ("masked", "replaced", "dropped"), by the name of
            the kind and one of these words.
        lines: how many lines were left out.
        opens_key: whether a private key begins that goes on in the next documents.
    """

    text: str | None
    done: Counter[tuple[str, str]]
    lines: int
    opens_key: bool


class Redactor:
    """Redacts texts; the same text becomes the same, whatever came before it."""

    def __init__(self, options: RedactOptions, key: SurrogateKey) -> None:
        kinds = options.kinds
        # What is kept is not looked for, so that it hides nothing: a token that is masked may be all of a bearer token that is kept.
        self.finder = SecretFinder([kind for kind in kinds if options.action_of(kind) != "keep"])
        self._actions: dict[str, Action] = {kind.name: options.action_of(kind) for kind in kinds}
        self._names = {kind.name: name_of(kind) for kind in kinds}
        self._surrogates = Surrogates(key)
        self._specimens = options.specimens

    def counts(self, one: Candidate) -> bool:
        """Whether something becomes of what was found."""
        return one.value is not None and (self._specimens or not one.specimen)

    def found(self, content: bytes) -> list[Candidate]:
        """The secrets in a text, or in several, each followed by the byte 0xFF."""
        return [one for one in self.finder.find(content) if self.counts(one)]

    def redacted(self, text: str) -> RedactedText:
        """A text without its secrets."""
        content, done, lines = text.encode("utf-8"), Counter[tuple[str, str]](), 0
        opens_key = masks_only = False
        for _ in range(_ROUNDS):
            hits = self.found(content + BOUNDARY)
            if not hits:
                return RedactedText(content.decode("utf-8"), done, lines, opens_key)
            done.update((self._names[one.kind.name], "found") for one in hits)
            opens_key = opens_key or any(_opens_key(one) for one in hits)
            actions = [self._actions[one.kind.name] for one in hits]
            if "drop" in actions:
                break
            content, cut = self._without_lines(content, hits, actions, done)
            lines += cut
            if cut and not content.strip():
                return RedactedText(None, done, lines, opens_key)
            if not cut:
                content = self._spliced(content, hits, actions, done, masks_only=masks_only)
                masks_only = True  # what a surrogate brings about is not replaced with another one
        left = Counter({name: number for (name, what), number in done.items() if what == "found"})
        for (name, what), number in list(done.items()):
            if what != "found":
                left[name] -= number
        done.update({(name, "dropped"): number for name, number in left.items() if number})
        return RedactedText(None, done, lines, opens_key)

    def key_body(self) -> str | None:
        """What becomes of a document that is a line of a private key that began before; None where it is left out."""
        action = self._actions[PRIVATE_KEY]
        return None if action in {"drop", "drop-line"} else mask_of(PRIVATE_KEY)

    def _spliced(
        self,
        content: bytes,
        hits: Sequence[Candidate],
        actions: Sequence[Action],
        done: Counter[tuple[str, str]],
        *,
        masks_only: bool,
    ) -> bytes:
        parts, end = [], 0
        for one, action in zip(hits, actions, strict=True):
            made = self._surrogate(one) if action == "replace" and not masks_only else None
            name = self._names[one.kind.name]
            done[name, "masked" if made is None else "replaced"] += 1
            parts += [content[end : one.start], (mask_of(name) if made is None else made).encode("utf-8")]
            end = one.end
        return b"".join([*parts, content[end:]])

    def _surrogate(self, one: Candidate) -> str | None:
        return None if one.value is None else self._surrogates.of(one.kind, one.text, one.value)

    def _without_lines(
        self,
        content: bytes,
        hits: Sequence[Candidate],
        actions: Sequence[Action],
        done: Counter[tuple[str, str]],
    ) -> tuple[bytes, int]:
        """The text without the lines that hold secrets of such kinds, and how many these are; the rest waits for the next look."""
        spans: list[tuple[int, int]] = []
        for one, action in zip(hits, actions, strict=True):
            # In order, so that no line is looked for twice.
            if action != "drop-line" or (spans and one.end <= spans[-1][1]):
                continue
            begin, end = (
                content.rfind(b"\n", spans[-1][1] if spans else 0, one.start) + 1,
                content.find(b"\n", one.end - 1) + 1,
            )
            if spans and one.start < spans[-1][1]:
                begin = spans.pop()[0]
            elif not begin:
                begin = spans[-1][1] if spans else 0
            spans.append((begin, end or len(content)))
        if not spans:
            return content, 0
        waiting = iter([*spans, (len(content) + 1, len(content) + 1)])
        begin, end = next(waiting)
        for one in hits:
            while one.start >= end:
                begin, end = next(waiting)
            name = self._names[one.kind.name]
            if one.start >= begin:
                done[name, "dropped"] += 1
            else:
                done[name, "found"] -= 1  # it is found again
        lines = sum(
            content.count(b"\n", begin, end) + (content[end - 1 : end] != b"\n") for begin, end in spans
        )
        pieces, last = [], 0
        for begin, end in spans:
            pieces.append(content[last:begin])
            last = end
        left = b"".join([*pieces, content[last:]])
        # A text that did not end with a line break does not begin to.
        if not content.endswith(b"\n") and last == len(content):
            left = left.removesuffix(b"\n").removesuffix(b"\r")
        return left, lines


def mask_of(name: str) -> str:
    """What is written in the place of a secret.

    >>> mask_of("email")
    '[email]'
    """
    return f"[{name}]"


class KeyLines:
    """Which documents are lines of a private key that began in an earlier one, where each line is a document.

    >>> lines = KeyLines()
    >>> lines.open()
    >>> [lines.continues(text) for text in ("q" * 64, "Zz==", "-----END PRIVATE KEY-----", "Thanks")]
    [True, True, True, False]
    """

    def __init__(self) -> None:
        # How many more there can be, and whether the last one was a whole line of the key itself.
        self._left, self._within = 0, False

    @property
    def is_open(self) -> bool:
        """Whether the next document may be such a line."""
        return self._left > 0

    def open(self) -> None:
        """A key begins, and does not end in its document."""
        self._left, self._within = _MOST_KEY_LINES, False

    def continues(self, text: str) -> bool:
        """Whether the next document is such a line."""
        if not self._left or not text.strip():
            return False
        ends, body = _KEY_ENDS.search(text), _KEY_BODY.fullmatch(text)
        goes_on = ends or body or _KEY_NOTE.fullmatch(text) or (self._within and _KEY_TAIL.fullmatch(text))
        self._left = self._left - 1 if goes_on and not ends else 0
        self._within = body is not None
        return bool(goes_on)


def _opens_key(one: Candidate) -> bool:
    return one.kind.name == PRIVATE_KEY and _KEY_ENDS.search(one.text) is None
