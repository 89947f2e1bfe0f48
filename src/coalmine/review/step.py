"""`ReviewStep`: one part of an audit, which says whether it applies, what fits into some seconds, and how it is run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

from coalmine.engines.ledger import Ledger
from coalmine.review.subject import StepRun, Subject


class Sized(NamedTuple):
    """A step as it fits into the time that it was given.

    Attributes:
        settings: what was decided, by name; plain values that JSON can hold. `run` gets them back.
        seconds: what it will take, by the measured costs.
        size: what is asked, in words, such as "800 sequences".
        cut: what was left out to fit, in a clause; empty where nothing was.
    """

    settings: dict[str, Any]
    seconds: float
    size: str
    cut: str = ""


class StepAsked(NamedTuple):
    """What a step has asked in the end, in words, and what was left out to fit, in a clause."""

    size: str
    cut: str = ""


class TooLong(NamedTuple):
    """A step of which not even the least that says anything fits; `seconds` is what that would take."""

    seconds: float


class ReviewStep(ABC):
    """One part of an audit. A new one is a module with a subclass of this, and a line in `STEPS` of review/planning.py.

    Attributes:
        name: its name, which is that of its folder.
        title: what it tests, in a few words.
        audits: the audits whose results it gives, by the names in the registry.
        share: how much of the time it gets, compared with the others.
        files: its results: it is done where all of them are in its folder.
        comes_first: whether it is run before the others are planned, because it asks no model and they go by what it finds.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    audits: ClassVar[tuple[str, ...]]
    share: ClassVar[float]
    files: ClassVar[tuple[str, ...]]
    comes_first: ClassVar[bool] = False

    @abstractmethod
    def obstacle(self, subject: Subject) -> str | None:
        """Why it does not apply, in a clause that says what to do about it; None where it does."""

    @abstractmethod
    def plan(self, subject: Subject, seconds: float) -> Sized | TooLong:
        """What fits into so many seconds."""

    @abstractmethod
    def run(self, subject: Subject, settings: dict[str, Any], running: StepRun) -> None:
        """Ask the model, and write the results into the folder; what was stopped resumes there."""

    def asked(self, subject: Subject, settings: dict[str, Any]) -> StepAsked | None:
        """What its results say was asked, where that was not known before; None where the plan says it."""
        del subject, settings
        return None

    def is_done(self, subject: Subject) -> bool:
        """Whether its results are there."""
        return all((subject.folder / self.name / name).is_file() for name in self.files)

    def forget(self, subject: Subject) -> None:
        """Remove what a run left that was killed once its results were there: what would resume it is not needed any more."""
        for folder in {(subject.folder / self.name / name).parent for name in self.files}:
            Ledger(folder).forget()
