"""The bench of defenses, as reports see it."""

from __future__ import annotations

from coalmine.audits.defenses.records import BENCHES
from coalmine.audits.defenses.report import bench_details, bench_figures, measures
from coalmine.evidence.audit import Audit
from coalmine.evidence.run import Run


def _stands_alone(run: Run) -> bool:
    """A bench is about ways of training; the audits of its models are beside them."""
    return bool(run.all(BENCHES)) and run.model is None


DEFENSES = Audit(
    name="defenses",
    command="coalmine lab defend",
    # It is about ways of training and not about one model: no report of a model misses it.
    is_missed=False,
    documents=(BENCHES,),
    measures=measures,
    stands_alone=_stands_alone,
    figures=bench_figures,
    details=bench_details,
)
