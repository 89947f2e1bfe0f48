"""The audit of exposure during training, as reports see it."""

from __future__ import annotations

from coalmine.audits.watching.report import training_figures, watched_training
from coalmine.audits.watching.records import WATCHES
from coalmine.evidence.audit import Audit

WATCHING = Audit(
    name="watching",
    command="coalmine train --watch",
    documents=(WATCHES,),
    is_tested=lambda run: watched_training(run) is not None,
    figures=training_figures,
)
