"""The scan: which secrets are in the training data, before any model is asked."""

from __future__ import annotations

from typing import Any

from coalmine.corpus.secrets.results import SCANS
from coalmine.corpus.secrets.scanning import scan
from coalmine.review.step import ReviewStep, Sized, StepAsked, TooLong
from coalmine.review.subject import StepRun, Subject
from coalmine.storage.unfinished import UNFINISHED_FILE

# Characters per second, where that could not be measured.
SPEED = 2e7


class ScanStep(ReviewStep):
    """All kinds of secrets, in all of the training data."""

    name = "scan"
    title = "Scan for secrets"
    audits = ()
    share = 0.5
    files = (SCANS.file,)
    # What follows is planned by what it finds.
    comes_first = True

    def obstacle(self, subject: Subject) -> str | None:
        """None: any text can be scanned."""
        del subject
        return None

    def plan(self, subject: Subject, seconds: float) -> Sized | TooLong:
        """All of it, or nothing."""
        # It reads the corpus twice: the second time to count what is repeated, and for the text before each secret.
        took = (
            1.0
            + 2 * subject.reading_seconds
            + subject.gathered.training.characters / (subject.costs.scanning or SPEED)
        )
        if took > seconds:
            return TooLong(took)
        return Sized({}, took, f"{subject.gathered.training.documents:,} documents")

    def is_done(self, subject: Subject) -> bool:
        """Whether its results are there, and nothing of a run that was killed."""
        return super().is_done(subject) and not (subject.folder / self.name / UNFINISHED_FILE).exists()

    def run(self, subject: Subject, settings: dict[str, Any], running: StepRun) -> None:
        """Scan."""
        del settings
        scan(subject.data, running.folder, fields=subject.fields, progress=running.progress)

    def asked(self, subject: Subject, settings: dict[str, Any]) -> StepAsked:
        """What was found."""
        del settings
        found = SCANS.load(subject.folder / self.name)
        kinds = ", ".join(f"{one.kind} {one.secrets:,}" for one in found.kinds if one.secrets)
        there = f"{found.secrets:,} {'secret' if found.secrets == 1 else 'secrets'}"
        return StepAsked(f"{there} in {found.documents:,} documents" + (f": {kinds}" if kinds else ""))
