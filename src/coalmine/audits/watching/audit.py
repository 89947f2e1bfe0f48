"""The audit of exposure during training, as reports see it."""

from __future__ import annotations

from coalmine.audits.watching.findings import CATALOG, training_findings
from coalmine.audits.watching.report import training_figures, watched_training
from coalmine.audits.watching.results import WATCHES
from coalmine.evidence.audit import Audit, NotTested

WATCHING = Audit(
    name="watching",
    command="coalmine train --watch",
    catalog=CATALOG,
    not_tested=NotTested("CM906", "There is no record of exposure while the model was trained."),
    documents=(WATCHES,),
    is_tested=lambda run: watched_training(run) is not None,
    remarks=training_findings,
    figures=training_figures,
)
