"""`coalmine extract`: which secrets can be read out of a model?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from coalmine.audits.extraction.options import ExtractionOptions
from coalmine.cli.model_argument import Loading, ModelRun, Where, model_alone, model_run
from coalmine.cli.options import Printing, Seed, Words, out_option, words_from
from coalmine.cli.output import Output
from coalmine.cli.taking import Arguments, takes
from coalmine.engines.options import EngineOptions
from coalmine.errors import InputError
from coalmine.records.options import Option

if TYPE_CHECKING:
    from coalmine.audits.extraction.results import Extraction
    from coalmine.corpus.planting.manifest import CanarySet
    from coalmine.formats.format import Format


class Extract(Arguments, frozen=True, kw_only=True):
    """What `coalmine extract` takes."""

    model: Where
    format: Annotated[
        str | None, typer.Option("--format", "-f", help='A secret format, such as "my pin is {digits:4}".')
    ] = None
    verify: Annotated[
        Path | None, Option("A canaries.json or secrets.json: report for each whether it can be extracted.")
    ] = None
    replay: Annotated[
        Path | None,
        Option("An extraction.json: check its certificate against the model, and write nothing."),
    ] = None
    options: ExtractionOptions
    prompts: Annotated[
        Path | None,
        Option("A file with one prompt per line, for --method prompt: what users may say to the model."),
    ] = None
    source_format: Annotated[
        str | None,
        Option("For a model of pairs: the source side of --format, filled in the same way."),
    ] = None
    words: Words = None
    out: Annotated[
        Path | None,
        out_option(
            "Directory for the result; default: MODEL-audit/extraction, or secrets-extraction for secrets."
        ),
    ] = None
    loading: Loading
    running: EngineOptions
    reveal: Annotated[bool, Option("Show the secrets; without it they are masked.")] = False
    seed: Seed = 0
    printing: Printing


@takes
def command(given: Extract) -> int:
    """Find the members of a format that the model is least surprised by, and prove that there are no better ones.

    A model with a chat template is asked about a turn of the assistant, or the one that --role, --turn and --beside describe; with
    --context, about plain text. What the command prints says which.

    Writes extraction.json, readable by you only, with the secrets in it. Run the same
    command again to resume a search that was stopped. Nothing here is random: --seed changes nothing.

    With --replay, what an earlier run found is asked about again and everything cheaper than its bound is walked again; exits
    with 0 if the certificate holds, and with 1 if it does not, with the reason.
    """
    if sum(one is not None for one in (given.format, given.verify, given.replay)) != 1:
        raise InputError(
            "extracting needs one of --format F, --verify canaries.json or --replay extraction.json, and only one of them"
        )
    if given.replay is not None:
        with given.printing.output() as output:
            return _replay(given, given.replay, output)
    if given.source_format is not None and (given.verify is not None or given.loading.source is not None):
        raise InputError(
            "--source-format says what each member's own source is, but --verify takes that from the manifest and --source holds one "
            "source fixed; leave --source-format out"
        )
    from coalmine.audits.extraction.results import RESULTS_FILE, VERIFIED_FILE
    from coalmine.corpus.planting.manifest import CanarySet

    options = _options(given)
    file = RESULTS_FILE if given.verify is None else VERIFIED_FILE
    with given.printing.output() as output:
        chosen = None if given.verify is None else CanarySet.load(given.verify)
        folder = "secrets-extraction" if chosen is not None and chosen.natural else "extraction"
        with model_run(given.model, given.out, folder, given.loading, given.running, file) as run:
            if chosen is not None:
                _verify(run, options, chosen, output)
            else:
                _extract(run, given, options, given.format or "", output)
    return 0


def _options(given: Extract) -> ExtractionOptions:
    """The options, with the prompts of a file."""
    if given.prompts is None:
        return given.options
    from coalmine.audits.extraction.prompting import read_prompts
    from coalmine.storage.files import read_text

    return msgspec.structs.replace(
        given.options, prompts=read_prompts(read_text(given.prompts, "the prompts"))
    )


def _extract(
    run: ModelRun, given: Extract, options: ExtractionOptions, template: str, output: Output
) -> None:
    """Search one format, write what comes out, and show it."""
    from coalmine.audits.extraction.measuring import extract
    from coalmine.formats.format import Format
    from coalmine.models.protocols import PairModel

    if given.source_format is not None and not isinstance(run.model, PairModel):
        raise InputError(
            f"--source-format is for models of pairs, and {run.model.name!r} reads one text at a time; leave it out"
        )
    form = Format(template, words=words_from(given.words))
    result = extract(
        run.model,
        form,
        options,
        source_format=given.source_format,
        engine=run.engine,
        resume=run.ledger,
        progress=output.progress(),
    )
    path = result.save(run.directory)
    run.record(model=result.model, expansions=result.certificate.expansions)
    _show(result, form, path, output, reveal=given.reveal)


def _show(result: Extraction, form: Format, path: Path, output: Output, *, reveal: bool) -> None:
    from coalmine.audits.extraction.table import certificate_in_words, extraction_table, masked_extraction
    from coalmine.visible import visible

    shown = result if reveal else masked_extraction(result, form)
    output.say(extraction_table(shown), certificate_in_words(result), f"Result: {visible(str(path))}")
    output.document(shown)


def _verify(run: ModelRun, options: ExtractionOptions, chosen: CanarySet, output: Output) -> None:
    """Search the formats of canaries, write which come out, and show it."""
    from coalmine.audits.extraction.measuring import verify_extraction
    from coalmine.audits.extraction.results import extraction_file, save_verification
    from coalmine.audits.extraction.table import (
        certificates_in_words,
        not_searched_in_words,
        verification_table,
    )
    from coalmine.audits.framing import framed
    from coalmine.storage.files import check_places
    from coalmine.visible import visible

    directory = run.directory
    check_places(directory, *(extraction_file(format_id) for format_id in chosen.formats))
    results, extractions = verify_extraction(
        run.model,
        chosen,
        options,
        engine=run.engine,
        resume=run.ledger,
        progress=output.progress(),
    )
    model = framed(run.model, chosen, writes=True).describe()
    save_verification(directory, results, extractions, manifest_sha256=chosen.sha256, model=model)
    expansions = sum(one.certificate.expansions for one in extractions.values())
    run.record(model=model, expansions=expansions, manifest_sha256=chosen.sha256)
    output.say(
        verification_table(results, extractions),
        *certificates_in_words(extractions),
        *not_searched_in_words(results),
        f"Results: {visible(str(directory))}",
    )
    output.document(
        {"canaries": results, "certificates": {name: one.certificate for name, one in extractions.items()}}
    )


def _replay(given: Extract, path: Path, output: Output) -> int:
    from coalmine.audits.extraction.certificate import verify_certificate
    from coalmine.audits.extraction.results import read_extraction
    from coalmine.audits.extraction.table import replay_in_words

    loaded = model_alone(given.model, given.loading)
    found = verify_certificate(
        loaded,
        read_extraction(path),
        words=words_from(given.words),
        memory=given.options.memory,
        progress=output.progress(),
    )
    output.say(*replay_in_words(found))
    output.document(found)
    return 0 if found.confirmed else 1
