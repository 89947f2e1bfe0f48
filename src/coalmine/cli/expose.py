"""`coalmine expose`: how exposed is each canary?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from coalmine.audits.exposure.options import ExposureOptions
from coalmine.cli.options import LoadedModel, Reveal, Running, Source, Where
from coalmine.cli.output import placed
from coalmine.cli.runner import Session
from coalmine.cli.taking import Arguments, Part


class Expose(Arguments, frozen=True, kw_only=True):
    """What `coalmine expose` takes.

    Attributes:
        out: Directory for the results; default: MODEL-audit/exposure, or secrets-exposure for secrets.
        canaries: The canaries.json of `coalmine plant`, the secrets.json of `coalmine data scan`, or its directory.
    """

    model: Where
    canaries: Annotated[Path, typer.Argument()]
    out: Path | None = None
    reveal: Reveal = False
    options: Annotated[
        ExposureOptions, Part(("method", "samples", "budget", "minutes", "seed"), title="How it is measured")
    ]
    source: Source = None
    loading: LoadedModel
    running: Running


def expose(given: Expose, session: Session) -> None:
    """Measure the exposure of every canary, with its interval.

    Exposure is log2 |R| - log2 rank, in bits: 0 for the most surprising member of the space of secrets, log2 |R| for the least. A
    canary that the model never saw has about 1. Where one of several formats cannot be measured, its canaries are "not measured",
    with the reason, and the others are still measured. Writes exposure.json, scores.parquet and run.json, readable by you
    only. Run the same command again to resume a run that was stopped.
    """
    from coalmine.audits.exposure.display import exposure_table, remarks_in_words
    from coalmine.audits.exposure.measuring import expose
    from coalmine.audits.exposure.results import RESULTS_FILE, SCORES_FILE
    from coalmine.audits.secrets.report import KINDS, by_kind, secrets_of_exposures
    from coalmine.corpus.planting.manifest import CanarySet

    chosen, progress = CanarySet.load(given.canaries), session.progress()
    folder = "secrets-exposure" if chosen.natural else "exposure"
    session.beside(given.model, folder, RESULTS_FILE, SCORES_FILE)
    model = session.model(given.model)
    results = expose(
        model, chosen, given.options, engine=session.engine, resume=session.ledger, progress=progress
    )
    results.save(session.directory)
    session.record(
        seed=given.options.seed,
        model=results.model,
        manifest_sha256=chosen.sha256,
        expansions=results.expansions,
    )
    kinds = by_kind(secrets_of_exposures(results)) if results.natural else []
    if kinds:
        session.say(KINDS.terminal(kinds), "")
    session.say(
        exposure_table(results, {one.canary_id: one.text for one in chosen} if given.reveal else None),
        *remarks_in_words(results),
        placed("Results", session.directory),
    )
    shown = results if given.reveal else results.without_users()
    session.document({"kinds": kinds, **msgspec.to_builtins(shown)} if kinds else shown)
