"""`coalmine expose`: how exposed is each canary?"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from coalmine.audits.exposure.options import ExposureOptions
from coalmine.cli.model_argument import ScoringOptions, Where, open_model, results_directory
from coalmine.cli.options import Json, Quiet, takes
from coalmine.cli.output import Output
from coalmine.storage.files import no_empty_directory
from coalmine.storage.unfinished import sole_use


@takes(options=ExposureOptions, loading=ScoringOptions)
def command(
    model: Where,
    canaries: Annotated[
        Path, typer.Argument(help="The canaries.json that `coalmine plant` wrote, or its directory.")
    ],
    *,
    options: ExposureOptions,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Directory for the results; default: MODEL-audit/exposure."),
    ] = None,
    loading: ScoringOptions,
    reveal: Annotated[
        bool, typer.Option("--reveal", help="Show the canaries themselves in the table.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Measure the exposure of every canary, with its interval.

    Exposure is log2 |R| - log2 rank, in bits: 0 for the most surprising member of the space of secrets, log2 |R| for the least. A
    canary that the model never saw has about 1. Where one of several formats cannot be measured, its canaries are "not measured",
    with the reason, and the others are still measured. Writes exposure.json, scores.parquet and run.json, readable by you
    only. Run the same command again to resume a search that was stopped.
    """
    with (
        Output(json=json, quiet=quiet) as output,
        no_empty_directory(results_directory(model, out, "exposure")),
        ExitStack() as held,
    ):
        from coalmine.audits.exposure.measuring import expose
        from coalmine.audits.exposure.results import RESULTS_FILE, SCORES_FILE
        from coalmine.audits.exposure.table import (
            exposure_table,
            exposure_warnings,
            methods_in_words,
            not_measured_in_words,
        )
        from coalmine.cli.run_record import RUN_FILE, RunClock, identity_of
        from coalmine.corpus.planting.manifest import CanarySet
        from coalmine.search.walks.resuming import ResumeDirectory
        from coalmine.storage.files import check_places
        from coalmine.visible import visible

        clock = RunClock()
        check_places(results_directory(model, out, "exposure"), RESULTS_FILE, SCORES_FILE, RUN_FILE)
        loaded, directory = open_model(model, out, "exposure", loading)
        chosen = CanarySet.load(canaries)
        held.enter_context(sole_use(directory))
        unfinished = ResumeDirectory(directory)
        results = expose(
            loaded,
            chosen,
            options,
            resume=unfinished,
            progress=output.progress(),
        )
        results.save(directory)
        clock.save(
            directory,
            seed=options.seed,
            model=results.model,
            manifest_sha256=chosen.sha256,
            expansions=results.expansions,
            choices=results.choices,
            **identity_of(loaded),
        )
        unfinished.forget()
        shown = {canary.canary_id: canary.text for canary in chosen} if reveal else None
        output.say(
            exposure_table(results, shown),
            *methods_in_words(results),
            *not_measured_in_words(results),
            *exposure_warnings(results),
            f"Results: {visible(str(directory))}",
        )
        output.document(results)
    return 0
