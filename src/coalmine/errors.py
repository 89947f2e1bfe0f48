"""The errors that coalmine raises on purpose: one tree, in which each message says what was wrong, what was given and what to do.

    CoalmineError
    ├── InputError               something the user gave cannot be used
    │   ├── FormatError          a secret format does not compile; points at the place in it
    │   ├── CorpusError          training data cannot be read, written or planted; names file and line
    │   ├── ManifestError        canaries.json is missing, damaged or does not match its corpus
    │   ├── ModelError           a model cannot be loaded, or was given tokens it does not have
    │   │   └── NoTokenError     a text has a part that the model has no token for; other texts can still be scored
    │   ├── AlteredError         a file is not what was written: its checksum does not match
    │   ├── ReadError            the operating system refused to read an existing file
    │   ├── ContradictionError   the numbers of a result cannot all be true
    │   ├── WriteError           the operating system refused to write a file; says what is there now
    │   │   └── UnflushedError   everything was written, but a power failure could still undo it
    │   └── MissingExtraError    an optional dependency is needed and not installed
    ├── NotMeasurableError       the question is valid, but there is no honest number for it
    │   └── TooLongError         a text has more tokens than the model can read
    ├── SomeFailedError          some of several trainings failed; the others are complete
    ├── WorkerLostError          a unit of work could not be finished: its worker died each time, or memory ran out
    ├── ModelOutputError         the model answered with something that is not a log-probability
    │   └── NoNumberError        it did so for some inputs; those are left out, and what does not depend on them is measured
    └── ModelChangedError        an endpoint answers as a different model than before; the answers are not combined

The command line prints the message of any of these as one line and exits with 2. Any other exception is a bug.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coalmine.visible import visible

if TYPE_CHECKING:
    from pathlib import Path

# Characters of a message; a longer one quotes a name that nobody would read to its end.
_LONGEST = 2_000


class CoalmineError(Exception):
    """The root of the tree; catch it to catch everything that coalmine raises on purpose.

    The message may quote names with any characters in them. Print `shown()`, in which nothing acts on a terminal.
    """

    def shown(self) -> str:
        """The message on one line, with unprintable characters escaped, and without its middle if it is very long."""
        text = visible(str(self))
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"


class InputError(CoalmineError):
    """Something that the user gave cannot be used."""


class FormatError(InputError):
    """A secret format does not compile.

    Attributes:
        template: the format as the user wrote it.
        position: the offset in `template` of the first character at fault.
    """

    def __init__(self, problem: str, template: str, position: int, advice: str) -> None:
        self.problem = problem
        self.template = template
        self.position = position
        self.advice = advice
        super().__init__(f"{self.sentence}\n{self._pointer()}")

    @property
    def sentence(self) -> str:
        """The message without the lines that point at the position."""
        return f"{self.problem} at character {self.position + 1} of the format; {self.advice}"

    def shown(self) -> str:
        """The message on three lines: the last two show the position."""
        return f"{visible(self.sentence)}\n{self._pointer()}"

    def __reduce__(self) -> tuple[type[FormatError], tuple[str, str, int, str]]:
        # An exception is rebuilt from its arguments when it is sent to another process; those of this one are not its message.
        return type(self), (self.problem, self.template, self.position, self.advice)

    def _pointer(self) -> str:
        """The template around the position on one line, and a caret below it."""
        from unicodedata import combining, east_asian_width

        begin, end = max(0, self.position - 60), self.position + 60
        before = ("…" if begin else "") + visible(self.template[begin : self.position])
        after = visible(self.template[self.position : end]) + ("…" if end < len(self.template) else "")
        columns = sum(0 if combining(c) else 1 + (east_asian_width(c) in {"W", "F"}) for c in before)
        return f"  {before}{after}\n  {' ' * columns}^"


class CorpusError(InputError):
    """Training data cannot be read, written or planted."""


class ManifestError(InputError):
    """A canaries.json is missing, damaged or does not match its corpus."""


class ModelError(InputError):
    """A model cannot be loaded, or was given tokens it does not have."""


class NoTokenError(ModelError):
    """A text has a part that the model has no token for; other texts can still be scored."""


class AlteredError(InputError):
    """A file is not what was written: its checksum is missing, or does not match its content."""


class ReadError(InputError):
    """The operating system refused to read a file; `__cause__` is its error. The message says nothing about the content."""


class WriteError(InputError):
    """The operating system refused to write a file; what was there before is unchanged, and `__cause__` is its error."""


class ContradictionError(InputError):
    """The numbers of a result cannot all be true, whatever its checksum says."""


class UnflushedError(WriteError):
    """A file is complete and has its name, but the operating system does not guarantee that it survives a power failure."""


class MissingExtraError(InputError):
    """An optional dependency is needed and not installed."""

    def __init__(self, purpose: str, package: str, extra: str) -> None:
        self._given = (purpose, package, extra)
        super().__init__(
            f"{purpose} needs {package}, which is not installed: pip install 'coalmine[{extra}]'"
        )

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str, str]]:
        return type(self), self._given


class NotMeasurableError(CoalmineError):
    """The question is valid, but what was given does not allow an honest number."""


class TooLongError(NotMeasurableError):
    """A text has more tokens than the model can read."""


class UnreadWarning(UserWarning):
    """Strings of a corpus were passed over that a model may have been trained on."""


class SomeFailedError(CoalmineError):
    """Some of several trainings failed, and the others are complete.

    Attributes:
        failed: why each of them failed, by its directory.
        complete: what the others ended with.
    """

    def __init__(self, failed: dict[Path, CoalmineError], complete: list[Any]) -> None:
        self.failed, self.complete = failed, complete
        reasons = "; ".join(f"{directory}: {problem}" for directory, problem in failed.items())
        number = len(failed) + len(complete)
        super().__init__(
            f"{len(failed)} of {number} trainings failed, and the others are complete: {reasons}"
        )

    def __reduce__(self) -> tuple[type[SomeFailedError], tuple[dict[Path, CoalmineError], list[Any]]]:
        return type(self), (self.failed, self.complete)


class WorkerLostError(CoalmineError):
    """A unit of work was tried several times and the process or machine that ran it died each time, or it ran out of memory."""


class ModelOutputError(CoalmineError):
    """The model answered with something that is not a log-probability; nothing can be concluded from it."""


class NoNumberError(ModelOutputError):
    """The model gave no finite number for an input.

    Audits leave that input out, and say so; it is raised only where nothing is left to measure. Any other ModelOutputError ends the
    audit: a model that answers the same question in two ways cannot be relied on anywhere.
    """


class ModelChangedError(CoalmineError):
    """An endpoint answers as a different model than the one that the run started with.

    It is neither a ModelError nor a NotMeasurableError, which audits turn into a remark on a part of their result: no part of a run
    with two models can be relied on.
    """
