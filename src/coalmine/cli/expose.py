"""`coalmine expose`: how exposed is each canary?"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from coalmine.audits.exposure.options import ExposureOptions
from coalmine.cli.model_argument import Loading, Where, model_run
from coalmine.cli.options import Printing, out_option
from coalmine.cli.output import Output
from coalmine.cli.taking import Arguments, takes
from coalmine.engines.options import EngineOptions
from coalmine.records.options import Option

if TYPE_CHECKING:
    from coalmine.audits.exposure.results import Exposures
    from coalmine.records import Canary


class Expose(Arguments, frozen=True, kw_only=True):
    """What `coalmine expose` takes."""

    model: Where
    canaries: Annotated[
        Path,
        typer.Argument(
            help="The canaries.json that `coalmine plant` wrote, the secrets.json of `coalmine scan`, or its directory."
        ),
    ]
    options: ExposureOptions
    out: Annotated[
        Path | None,
        out_option(
            "Directory for the results; default: MODEL-audit/exposure, or secrets-exposure for secrets."
        ),
    ] = None
    loading: Loading
    running: EngineOptions
    reveal: Annotated[
        bool, Option("Show the canaries or secrets themselves, and whose text they are in.")
    ] = False
    printing: Printing


@takes
def command(given: Expose) -> int:
    """Measure the exposure of every canary, with its interval.

    Exposure is log2 |R| - log2 rank, in bits: 0 for the most surprising member of the space of secrets, log2 |R| for the least. A
    canary that the model never saw has about 1. Where one of several formats cannot be measured, its canaries are "not measured",
    with the reason, and the others are still measured. Writes exposure.json, scores.parquet and run.json, readable by you
    only. Run the same command again to resume a run that was stopped.
    """
    from coalmine.audits.exposure.measuring import expose
    from coalmine.audits.exposure.results import RESULTS_FILE, SCORES_FILE
    from coalmine.corpus.planting.manifest import CanarySet

    files = (RESULTS_FILE, SCORES_FILE)
    with given.printing.output() as output:
        chosen = CanarySet.load(given.canaries)
        folder = "secrets-exposure" if chosen.natural else "exposure"
        with model_run(given.model, given.out, folder, given.loading, given.running, *files) as run:
            results = expose(
                run.model,
                chosen,
                given.options,
                engine=run.engine,
                resume=run.ledger,
                progress=output.progress(),
            )
            results.save(run.directory)
            run.record(
                seed=given.options.seed,
                model=results.model,
                manifest_sha256=chosen.sha256,
                expansions=results.expansions,
                choices=results.choices,
            )
            _show(results, run.directory, chosen if given.reveal else (), output)
    return 0


def _show(results: Exposures, directory: Path, revealed: Iterable[Canary], output: Output) -> None:
    from coalmine.audits.exposure import table as tables
    from coalmine.audits.secrets.judging import of_exposures
    from coalmine.audits.secrets.table import kind_table
    from coalmine.visible import visible

    kinds = of_exposures(results) if results.natural else []
    texts = {canary.canary_id: canary.text for canary in revealed} or None
    if kinds:
        output.say(kind_table(kinds), "")
    output.say(
        tables.exposure_table(results, texts),
        *tables.methods_in_words(results),
        *tables.not_measured_in_words(results),
        *tables.exposure_warnings(results),
        f"Results: {visible(str(directory))}",
    )
    shown = results if texts else results.without_users()
    output.document({"kinds": kinds, **msgspec.to_builtins(shown)} if kinds else shown)
