"""`Step`: one row of the table of what an audit does, and `Subject`: what it is about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from coalmine.audits.whole.inputs import Inputs
from coalmine.audits.whole.samples import Gathered
from coalmine.audits.whole.speeds import LINE, Speeds
from coalmine.engines.engine import Engine
from coalmine.engines.ledger import Ledger
from coalmine.models.protocols import Model
from coalmine.progress import Progress
from coalmine.storage.directories import UNFINISHED_FILE


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """What an audit is about, and what was measured of it before anything is planned.

    Attributes:
        model: the model.
        reference: a model without this training data, such as the base of a fine-tuned one; None where there is none.
        inputs: the training data, and what it is compared with.
        gathered: samples of the training data and of the held-out text.
        speeds: how fast the model is, and `reference_speeds` the reference.
        reading_seconds: what reading the training data once takes.
        folder: where the results go, each step in a folder of its own.
        seed: the root of all randomness.
    """

    model: Model
    reference: Model | None = None
    inputs: Inputs
    gathered: Gathered
    speeds: Speeds
    reference_speeds: Speeds
    reading_seconds: float = 0.0
    folder: Path
    seed: int = 0

    def scoring(self, characters: float, *, compared: bool = False) -> float:
        """The seconds that scoring so much text takes, with the reference model too if it is `compared` with."""
        own, other = self.speeds.lines, self.reference_speeds.lines if compared else None
        return characters / LINE * ((1 / own if own else 0.0) + (1 / other if other else 0.0))


class Sized(NamedTuple):
    """A step as it fits into the time that it was given.

    Attributes:
        settings: what was decided, by name; plain values that JSON can hold. `run` gets them back.
        seconds: what it will take, by the measured speeds.
        size: what is asked, in words, such as "800 sequences".
        cut: what was left out to fit, in a clause; empty where nothing was.
    """

    settings: dict[str, Any]
    seconds: float
    size: str
    cut: str = ""


class TooLong(NamedTuple):
    """A step of which not even the least that says anything fits; `seconds` is what that would take."""

    seconds: float


class StepRun(NamedTuple):
    """Where the work of a step runs, and where its results go."""

    folder: Path
    engine: Engine
    progress: Progress


@dataclass(frozen=True, kw_only=True)
class AuditStep:
    """One step of an audit.

    Attributes:
        name: its name, which is that of its folder.
        title: what it tests, in a few words.
        audits: the audits whose results it gives, by the names in the registry; none for one that asks no model.
        share: how much of the time it gets, compared with the others.
        files: its results: it is done where all of them are in its folder.
        obstacles: each says why it does not apply, in a clause that says what to do about it, or None.
        plan: what fits into so many seconds.
        run: asks the model with the settings of the plan, and writes the results; what was stopped resumes.
        asked: what its results say was asked, and what was left out to fit, where the plan did not know.
    """

    name: str
    title: str
    audits: tuple[str, ...]
    share: float
    files: tuple[str, ...]
    obstacles: tuple[Callable[[Subject], str | None], ...] = ()
    plan: Callable[[Subject, float], Sized | TooLong]
    run: Callable[[Subject, dict[str, Any], StepRun], None]
    asked: Callable[[Path, dict[str, Any]], tuple[str, str]] | None = None

    def obstacle(self, subject: Subject) -> str | None:
        """Why it does not apply; None where it does."""
        return next((why for one in self.obstacles if (why := one(subject)) is not None), None)

    def is_done(self, folder: Path) -> bool:
        """Whether its results are in its folder, and nothing of a run that was killed while it wrote them."""
        return (
            all((folder / name).is_file() for name in self.files) and not (folder / UNFINISHED_FILE).exists()
        )

    def forget(self, folder: Path) -> None:
        """Remove what a run left that was killed once its results were there: what would resume it is not needed any more."""
        for one in {(folder / name).parent for name in self.files}:
            Ledger(one).forget()
