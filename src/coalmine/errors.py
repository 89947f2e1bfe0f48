"""Everything coalmine raises on purpose: one tree, each message saying what was wrong, what was given, what to do.

    CoalmineError
    ├── InputError               something the user gave cannot be used
    │   ├── FormatError          a secret format does not compile; points at the place in it
    │   ├── CorpusError          training data cannot be read, written or planted; names file and line
    │   ├── ManifestError        canaries.json is missing, damaged or does not match its corpus
    │   ├── ModelError           a model cannot be loaded, or was given tokens it does not have
    │   ├── AlteredError         a file is not what was written: its checksum does not match
    │   ├── ReadError            the operating system refused to read a file that is there
    │   ├── ContradictionError   a result whose numbers cannot be true together
    │   ├── WriteError           the operating system refused to write a file; says what is there now
    │   │   └── UnflushedError   all was written, but a power cut could still undo it
    │   └── MissingExtraError    an optional dependency is needed and not installed
    ├── NotMeasurableError       the question is well put, but there is no honest number for it
    │   └── TooLongError         a text has more tokens than the model can read
    ├── ModelOutputError         the model answered with something that is not a log-probability
    └── ModelChangedError        an endpoint answers as another model than before; what it said is not put together

The command line prints the message of any of them as one line and exits with 2. Any other exception is a bug.
"""

from __future__ import annotations

from coalmine.visible import visible

# Of a message; what is longer quotes a name that nobody would read to its end.
_LONGEST = 2_000


class CoalmineError(Exception):
    """The root of the tree; catch this to catch all that coalmine raises on purpose.

    The message may quote names as they are, whatever characters they have. Print `shown()`, in which nothing acts on a terminal.
    """

    def shown(self) -> str:
        """The message on one line, with each character that cannot be printed as its escape, and without the middle if it is very long."""
        text = visible(str(self))
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"


class InputError(CoalmineError):
    """Something the user gave cannot be used."""


class FormatError(InputError):
    """A secret format does not compile.

    Attributes:
        template: the format as it was written.
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
        """The message without the lines that point at the place."""
        return f"{self.problem} at character {self.position + 1} of the format; {self.advice}"

    def shown(self) -> str:
        """The message, on three lines: the last two show the place."""
        return f"{visible(self.sentence)}\n{self._pointer()}"

    def __reduce__(self) -> tuple[type[FormatError], tuple[str, str, int, str]]:
        # An exception is rebuilt from its arguments when it crosses to another process, and this one's are not its message.
        return type(self), (self.problem, self.template, self.position, self.advice)

    def _pointer(self) -> str:
        """The template around the place, on one line, and below it a caret under the place."""
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


class AlteredError(InputError):
    """A file is not what was written: its checksum is missing, or does not match its content."""


class ReadError(InputError):
    """The operating system refused to read a file; `__cause__` is its error. Nothing is said of what the file holds."""


class WriteError(InputError):
    """The operating system refused to write a file; what was there before is there still, and `__cause__` is its error."""


class ContradictionError(InputError):
    """A result whose numbers cannot be true together, whatever its checksum says."""


class UnflushedError(WriteError):
    """A file is complete and has its name, but the operating system does not say that a power cut would leave it so."""


class MissingExtraError(InputError):
    """An optional dependency is needed and not installed."""

    def __init__(self, purpose: str, package: str, extra: str) -> None:
        super().__init__(
            f"{purpose} needs {package}, which is not installed: pip install 'coalmine[{extra}]'"
        )


class NotMeasurableError(CoalmineError):
    """The question is well put, but there is no honest number for it with what was given."""


class TooLongError(NotMeasurableError):
    """A text has more tokens than the model can read."""


class ModelOutputError(CoalmineError):
    """The model answered with something that is not a log-probability; nothing can be concluded from it."""


class ModelChangedError(CoalmineError):
    """An endpoint began to answer as another model than the one that a run began with.

    It is neither a ModelError nor a NotMeasurableError, which audits turn into a remark on a part of their result: of a run with
    two models no part can be relied on.
    """
