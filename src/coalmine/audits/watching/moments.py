"""`watched_training`: what was measured during a training, by `coalmine train` or by a callback in another trainer."""

from __future__ import annotations

from coalmine.audits.watching.results import WATCHES, WatchedTraining
from coalmine.evidence.run import Run


def watched_training(run: Run) -> WatchedTraining | None:
    """Exposure during training: from a callback in another trainer, or from `coalmine train --watch`."""
    callback = run.first(WATCHES)
    if callback is not None:
        return callback
    record = run.training
    if record is None or record.watch is None or not record.watched:
        return None
    return WatchedTraining(watch=record.watch, watched=record.watched)
