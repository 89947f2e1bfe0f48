"""`coalmine expose`: how exposed is each canary?"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coalmine.audits.exposure.options import ExposureOptions
from coalmine.cli.model_argument import Loading, Where, open_model, results_directory
from coalmine.cli.options import Printing, out_option
from coalmine.cli.output import Output
from coalmine.cli.taking import Arguments, takes
from coalmine.engines.options import EngineOptions
from coalmine.records.options import Option
from coalmine.storage.files import no_empty_directory
from coalmine.storage.unfinished import sole_use

if TYPE_CHECKING:
    from coalmine.audits.exposure.results import Exposures
    from coalmine.records import Canary


class Expose(Arguments, frozen=True, kw_only=True):
    """What `coalmine expose` takes."""

    model: Where
    canaries: Annotated[
        Path, typer.Argument(help="The canaries.json that `coalmine plant` wrote, or its directory.")
    ]
    options: ExposureOptions
    out: Annotated[Path | None, out_option("Directory for the results; default: MODEL-audit/exposure.")] = (
        None
    )
    loading: Loading
    running: EngineOptions
    reveal: Annotated[bool, Option("Show the canaries themselves in the table.")] = False
    printing: Printing


@takes
def command(given: Expose) -> int:
    """Measure the exposure of every canary, with its interval.

    Exposure is log2 |R| - log2 rank, in bits: 0 for the most surprising member of the space of secrets, log2 |R| for the least. A
    canary that the model never saw has about 1. Where one of several formats cannot be measured, its canaries are "not measured",
    with the reason, and the others are still measured. Writes exposure.json, scores.parquet and run.json, readable by you
    only. Run the same command again to resume a run that was stopped.
    """
    place = results_directory(given.model, given.out, "exposure")
    with given.printing.output() as output, no_empty_directory(place), ExitStack() as held:
        from coalmine.audits.exposure.measuring import expose
        from coalmine.audits.exposure.results import RESULTS_FILE, SCORES_FILE
        from coalmine.cli.run_record import RUN_FILE, RunClock, identity_of
        from coalmine.corpus.planting.manifest import CanarySet
        from coalmine.engines.ledger import Ledger
        from coalmine.storage.files import check_places

        clock = RunClock()
        check_places(place, RESULTS_FILE, SCORES_FILE, RUN_FILE)
        loaded, directory = open_model(given.model, given.out, "exposure", given.loading)
        chosen = CanarySet.load(given.canaries)
        held.enter_context(sole_use(directory))
        ledger, engine = Ledger(directory), held.enter_context(given.running.opened())
        results = expose(
            loaded, chosen, given.options, engine=engine, resume=ledger, progress=output.progress()
        )
        results.save(directory)
        clock.save(
            directory,
            seed=given.options.seed,
            model=results.model,
            manifest_sha256=chosen.sha256,
            expansions=results.expansions,
            choices=results.choices,
            engine=given.running.engine,
            threads=given.running.threads,
            **identity_of(loaded),
        )
        ledger.forget()
        _show(results, directory, chosen if given.reveal else (), output)
    return 0


def _show(results: Exposures, directory: Path, revealed: Iterable[Canary], output: Output) -> None:
    from coalmine.audits.exposure import table as tables
    from coalmine.visible import visible

    output.say(
        tables.exposure_table(results, {canary.canary_id: canary.text for canary in revealed} or None),
        *tables.methods_in_words(results),
        *tables.not_measured_in_words(results),
        *tables.exposure_warnings(results),
        f"Results: {visible(str(directory))}",
    )
    output.document(results)
