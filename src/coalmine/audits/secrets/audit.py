"""The audit of secrets that are already in the training data, as reports see it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from coalmine.audits.exposure.figures import exposure_figure_of
from coalmine.audits.exposure.results import EXPOSURES, Exposures, FormatFacts
from coalmine.audits.secrets import policy, report
from coalmine.audits.secrets.findings import CATALOG, SECRET, secret_findings, secret_suspicions
from coalmine.audits.secrets.judging import secrets_of
from coalmine.audits.secrets.table import secret_details
from coalmine.audits.secrets.verdict import secret_replies, secret_sentences
from coalmine.evidence.audit import Audit, NotTested
from coalmine.evidence.charts import Chart
from coalmine.evidence.run import Run


def _figures(run: Run) -> Iterator[Chart | None]:
    document = None if run.secrets is None else run.secrets.first(EXPOSURES)
    if document is not None and document.results:
        yield exposure_figure_of(
            _one_format_per_kind(document), figure_id="secrets-by-copies", what=("secret", "secrets")
        )


def _one_format_per_kind(document: Exposures) -> Exposures:
    """The same exposures, as if all secrets of a kind had one format."""
    kinds = {one.format_id: str(one.kind) for one in document.results}
    formats: dict[str, FormatFacts] = {}
    for facts in document.formats:
        kind = kinds.get(facts.format_id, facts.format_id)
        formats.setdefault(kind, msgspec.structs.replace(facts, format_id=kind, template=kind))
    return msgspec.structs.replace(
        document,
        formats=tuple(formats.values()),
        results=tuple(
            msgspec.structs.replace(one, format_id=kinds[one.format_id]) for one in document.results
        ),
    )


SECRETS = Audit(
    name="secrets",
    command="coalmine expose MODEL secrets.json",
    catalog=CATALOG,
    not_tested=NotTested(
        "CM913",
        "No secrets.json was measured, so it is not known whether secrets that are already in the training data were memorized.",
    ),
    is_tested=lambda run: bool(secrets_of(run.secrets)),
    suspicions=secret_suspicions,
    # As for canaries: there are many, and one that is memorized must not be missed.
    weights={SECRET: 4.0},
    findings=secret_findings,
    replies=secret_replies,
    sentences=secret_sentences,
    figures=_figures,
    details=secret_details,
    policy=policy.SECTION,
    measures=report.measures,
    rules=report.RULES,
)
