"""`coalmine extract`: which secrets can be read out of a model?"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coalmine.audits.extraction.options import ExtractionOptions
from coalmine.cli.model_argument import (
    ScoringOptions,
    Where,
    model_alone,
    open_model,
    results_directory,
)
from coalmine.cli.options import Json, Quiet, Seed, takes, words_from
from coalmine.cli.output import Output
from coalmine.errors import InputError
from coalmine.storage.files import no_empty_directory
from coalmine.storage.unfinished import sole_use

if TYPE_CHECKING:
    from coalmine.audits.extraction.results import Extraction
    from coalmine.formats.format import Format


@takes(options=ExtractionOptions, loading=ScoringOptions)
def command(
    model: Where,
    secret_format: Annotated[
        str | None, typer.Option("--format", "-f", help='A secret format, such as "my pin is {digits:4}".')
    ] = None,
    verify: Annotated[
        Path | None,
        typer.Option("--verify", help="A canaries.json: report for each canary whether it can be extracted."),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(
            "--replay", help="An extraction.json: check its certificate against the model, and write nothing."
        ),
    ] = None,
    *,
    options: ExtractionOptions,
    source_format: Annotated[
        str | None,
        typer.Option(
            "--source-format",
            help="For a model of pairs: the source side of --format, filled in the same way.",
        ),
    ] = None,
    words: Annotated[
        Path | None,
        typer.Option(
            "--words", help="For {word:n}: a file with one word per line, or a word model's directory."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Directory for the result; default: MODEL-audit/extraction."),
    ] = None,
    loading: ScoringOptions,
    reveal: Annotated[
        bool, typer.Option("--reveal", help="Show the secrets; without it they are masked.")
    ] = False,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Find the members of a format that the model is least surprised by, and prove that there are no better ones.

    Writes extraction.json, readable by you only, with the secrets in it. Run the same
    command again to resume a search that was stopped. Nothing here is random: --seed changes nothing.

    With --replay, what an earlier run found is asked about again and everything cheaper than its bound is walked again; exits
    with 0 if the certificate holds, and with 1 if it does not, with the reason.
    """
    del seed
    if sum(one is not None for one in (secret_format, verify, replay)) != 1:
        raise InputError(
            "extracting needs one of --format F, --verify canaries.json or --replay extraction.json, and only one of them"
        )
    if replay is not None:
        with Output(json=json, quiet=quiet) as output:
            loaded = model_alone(model, loading)
            return _replay(loaded, replay, words, options.memory, output)
    if source_format is not None and (verify is not None or loading.source is not None):
        raise InputError(
            "--source-format says what each member's own source is, but --verify takes that from the manifest and --source holds one "
            "source fixed; leave --source-format out"
        )
    with (
        Output(json=json, quiet=quiet) as output,
        no_empty_directory(results_directory(model, out, "extraction")),
        ExitStack() as held,
    ):
        from coalmine.audits.extraction.results import RESULTS_FILE, VERIFIED_FILE
        from coalmine.cli.run_record import RUN_FILE, RunClock, identity_of
        from coalmine.search.walks.resuming import ResumeDirectory
        from coalmine.storage.files import check_places

        clock = RunClock()
        results_file = RESULTS_FILE if verify is None else VERIFIED_FILE
        check_places(results_directory(model, out, "extraction"), results_file, RUN_FILE)
        loaded, directory = open_model(model, out, "extraction", loading)
        held.enter_context(sole_use(directory))
        unfinished = ResumeDirectory(directory)
        if verify is not None:
            return _verify(loaded, verify, options, directory, unfinished, output, clock)
        result, form = _extracted(
            loaded, secret_format or "", source_format, words, options, unfinished, output
        )
        path = result.save(directory)
        clock.save(
            directory,
            model=result.model,
            expansions=result.certificate.expansions,
            **identity_of(loaded),
        )
        unfinished.forget()
        _show(result, form, path, output, reveal=reveal)
    return 0


def _extracted(
    loaded: Any,
    secret_format: str,
    source_format: str | None,
    words: Path | None,
    options: ExtractionOptions,
    unfinished: Any,
    output: Output,
) -> tuple[Extraction, Format]:
    """What comes out in one format, and that format."""
    from coalmine.audits.extraction.measuring import extract
    from coalmine.formats.format import Format
    from coalmine.models.protocols import PairModel

    if source_format is not None and not isinstance(loaded, PairModel):
        raise InputError(
            f"--source-format is for models of pairs, and {loaded.name!r} reads one text at a time; leave it out"
        )
    form = Format(secret_format, words=words_from(words))
    found = extract(
        loaded,
        form,
        options,
        source_format=source_format,
        resume=unfinished,
        progress=output.progress(),
    )
    return found, form


def _show(result: Extraction, form: Format, path: Path, output: Output, *, reveal: bool) -> None:
    from coalmine.audits.extraction.table import certificate_in_words, extraction_table, masked_extraction
    from coalmine.visible import visible

    shown = result if reveal else masked_extraction(result, form)
    output.say(extraction_table(shown), certificate_in_words(result), f"Result: {visible(str(path))}")
    output.document(shown)


def _verify(
    loaded: Any,
    canaries: Path,
    options: ExtractionOptions,
    directory: Path,
    unfinished: Any,
    output: Output,
    clock: Any,
) -> int:
    from coalmine.audits.extraction.measuring import verify_extraction
    from coalmine.audits.extraction.results import extraction_file, save_verification
    from coalmine.audits.extraction.table import certificates_in_words, verification_table
    from coalmine.cli.run_record import identity_of
    from coalmine.corpus.planting.manifest import CanarySet
    from coalmine.storage.files import check_places
    from coalmine.visible import visible

    chosen = CanarySet.load(canaries)
    check_places(directory, *(extraction_file(format_id) for format_id in chosen.formats))
    results, extractions = verify_extraction(
        loaded, chosen, options, resume=unfinished, progress=output.progress()
    )
    save_verification(directory, results, extractions, manifest_sha256=chosen.sha256, model=loaded.describe())
    expansions = sum(one.certificate.expansions for one in extractions.values())
    clock.save(
        directory,
        model=loaded.describe(),
        manifest_sha256=chosen.sha256,
        expansions=expansions,
        **identity_of(loaded),
    )
    unfinished.forget()
    output.say(
        verification_table(results, extractions),
        *certificates_in_words(extractions),
        f"Results: {visible(str(directory))}",
    )
    output.document(
        {"canaries": results, "certificates": {name: one.certificate for name, one in extractions.items()}}
    )
    return 0


def _replay(loaded: Any, path: Path, words: Path | None, memory: int, output: Output) -> int:
    from coalmine.audits.extraction.certificate import verify_certificate
    from coalmine.audits.extraction.results import read_extraction
    from coalmine.audits.extraction.table import replay_in_words

    extraction = read_extraction(path)
    found = verify_certificate(
        loaded, extraction, words=words_from(words), memory=memory, progress=output.progress()
    )
    output.say(*replay_in_words(found))
    output.document(found)
    return 0 if found.confirmed else 1
