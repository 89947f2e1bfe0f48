"""`coalmine extract`: which secrets can be read out of a model?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from coalmine.audits.extraction.options import ExtractionOptions
from coalmine.cli.options import LoadedModel, Reveal, Running, Source, Where, Words, words_from
from coalmine.cli.output import placed
from coalmine.cli.runner import Session
from coalmine.cli.taking import Arguments, Part
from coalmine.errors import InputError


class Extract(Arguments, frozen=True, kw_only=True):
    """What `coalmine extract` takes.

    Attributes:
        format: A secret format, such as "my pin is {digits:4}".
        source_format: For a model of pairs: the source side of --format, filled in the same way.
        prompts: A file with one prompt per line, for --method prompt: what users may say to the model.
        out: Directory for the result; default: MODEL-audit/extraction, or secrets-extraction for secrets.
        canaries: A canaries.json or secrets.json, of which each is reported; or else give --format.
    """

    model: Where
    canaries: Annotated[Path | None, typer.Argument()] = None
    format: str | None = None
    words: Words = None
    source_format: str | None = None
    prompts: Path | None = None
    out: Path | None = None
    reveal: Reveal = False
    options: Annotated[
        ExtractionOptions, Part(("top", "method", "budget", "given"), title="How it is searched")
    ]
    source: Source = None
    loading: LoadedModel
    running: Running


def extract(given: Extract, session: Session) -> None:
    """Find the members of a format that the model is least surprised by, and prove that there are no better ones.

    A model with a chat template is asked about a turn of the assistant; with --context, about plain text. What the command prints says
    which.

    Writes extraction.json, or for canaries verified.json and a file per format, readable by you only, with the secrets in it. Run the
    same command again to resume a search that was stopped. `coalmine verify --model MODEL` walks a proof again.
    """
    if (given.format is None) == (given.canaries is None):
        raise InputError("extracting needs either a manifest, such as canaries.json, or --format F")
    if given.source_format is not None and (given.canaries is not None or given.source is not None):
        raise InputError(
            "--source-format says what each member's own source is, but a manifest has those of its canaries and --source holds one "
            "source fixed; leave --source-format out"
        )
    options = given.options
    if given.prompts is not None:
        from coalmine.audits.extraction.prompting import read_prompts
        from coalmine.storage.files import read_text

        options = msgspec.structs.replace(
            options, prompts=read_prompts(read_text(given.prompts, "the prompts"))
        )
    if given.format is not None:
        _format(given, options, given.format, session)
    elif given.canaries is not None:
        _canaries(given, options, given.canaries, session)


def _format(given: Extract, options: ExtractionOptions, template: str, session: Session) -> None:
    """Search one format, write what comes out, and show it."""
    from coalmine.audits.exposure.display import under_names
    from coalmine.audits.extraction.measuring import extract
    from coalmine.audits.extraction.report import MEMBERS, certificate_in_words, masked
    from coalmine.audits.extraction.results import RESULTS_FILE
    from coalmine.formats.format import Format
    from coalmine.models.protocols import PairModel

    session.beside(given.model, "extraction", RESULTS_FILE)
    model = session.model(given.model)
    if given.source_format is not None and not isinstance(model, PairModel):
        raise InputError(
            f"--source-format is for models of pairs, and {model.name!r} reads one text at a time; leave it out"
        )
    result = extract(
        model,
        Format(template, words=words_from(given.words)),
        options,
        source_format=given.source_format,
        engine=session.engine,
        resume=session.ledger,
        progress=session.progress(),
    )
    path = result.save(session.directory)
    session.record(model=result.model, expansions=result.certificate.expansions)
    shown = result if given.reveal else masked(result)
    session.say(
        under_names("Format", {template: MEMBERS.terminal(shown.found)}),
        certificate_in_words(result),
        placed("Result", path),
    )
    session.document(shown)


def _canaries(given: Extract, options: ExtractionOptions, manifest: Path, session: Session) -> None:
    """Search the formats of canaries, write which come out, and show it."""
    from coalmine.audits.extraction.measuring import verify_extraction
    from coalmine.audits.extraction.report import searched
    from coalmine.audits.extraction.results import VERIFIED_FILE, extraction_file, save_verification
    from coalmine.audits.framing import framed
    from coalmine.corpus.planting.manifest import CanarySet

    chosen = CanarySet.load(manifest)
    files = (VERIFIED_FILE, *(extraction_file(format_id) for format_id in chosen.formats))
    session.beside(given.model, "secrets-extraction" if chosen.natural else "extraction", *files)
    asked, progress = session.model(given.model), session.progress()
    results, extractions = verify_extraction(
        asked, chosen, options, engine=session.engine, resume=session.ledger, progress=progress
    )
    model = framed(asked, chosen, writes=True).describe()
    save_verification(session.directory, results, extractions, manifest_sha256=chosen.sha256, model=model)
    certificates = {name: one.certificate for name, one in extractions.items()}
    expansions = sum(one.expansions for one in certificates.values())
    session.record(model=model, expansions=expansions, manifest_sha256=chosen.sha256)
    session.say(*searched(results, extractions), placed("Results", session.directory))
    session.document({"canaries": results, "certificates": certificates})
