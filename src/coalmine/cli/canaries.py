"""`coalmine plant`, `expose`, `extract` and `membership`: canaries and secrets, and what a model knows of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from coalmine.audits.exposure import measuring as exposing
from coalmine.audits.exposure.display import exposure_table, remarks_in_words, under_names
from coalmine.audits.exposure.estimators import ExposureOptions
from coalmine.audits.exposure.results import RESULTS_FILE, SCORES_FILE
from coalmine.audits.extraction import measuring as extracting
from coalmine.audits.extraction import results as extracted
from coalmine.audits.extraction.options import ExtractionOptions
from coalmine.audits.extraction.prompting import read_prompts
from coalmine.audits.extraction.report import MEMBERS, certificate_in_words, masked, searched
from coalmine.audits.framing import framed
from coalmine.audits.membership import measure as comparing
from coalmine.audits.membership.options import MembershipOptions
from coalmine.audits.membership.records import RESULTS_FILE as MEMBERSHIP_FILE
from coalmine.audits.membership.report import POPULATIONS, membership_in_plain_words
from coalmine.audits.secrets.report import KINDS, by_kind, secrets_of_exposures
from coalmine.cli.options import (
    CORPUS,
    CorpusFields,
    LoadedModel,
    Overwrite,
    Reveal,
    Running,
    Source,
    Where,
    Words,
    format_from,
    words_from,
)
from coalmine.cli.output import noted, placed
from coalmine.cli.runner import Session
from coalmine.cli.taking import Argument, Arguments, Part
from coalmine.corpus.planting import planting
from coalmine.corpus.planting.importing import import_canaries
from coalmine.corpus.planting.manifest import MANIFEST_NAME, CanarySet
from coalmine.corpus.planting.options import PlantOptions
from coalmine.corpus.planting.unseen import has_unseen
from coalmine.errors import InputError
from coalmine.evidence.directories import audit_directory, audited_model
from coalmine.reports.terminal import imported_summary, planted_summary
from coalmine.storage.files import make_directory, read_bytes, read_text


class Plant(Arguments, frozen=True, kw_only=True):
    """What `coalmine plant` takes.

    Attributes:
        format: A secret format, such as "my pin is {digits:4}"; may be given many times.
        source_format: For pairs: the source side of each --format, in order.
        out: Directory for the planted corpus and canaries.json.
        from_: Instead of CORPUS: canaries of another tool, as memaudit-manifest.json, a SecretsSet of TensorFlow Privacy as JSON, or a
            table with text, in_out and copies.
        withhold: Probability that a canary is not planted, decided by its own coin; default: 0.5, and with --from what the file says.
    """

    corpus: Annotated[Path | None, CORPUS] = None
    format: list[str] | None = None
    source_format: list[str] | None = None
    words: Words = None
    from_: Path | None = None
    out: Path
    overwrite: Overwrite = False
    options: Annotated[
        PlantOptions,
        Part(("repeat", "canaries", "references", "role", "turn", "beside", "seed"), title="What is planted"),
    ]
    withhold: Annotated[float | None, Part(title="What is planted")] = None
    columns: CorpusFields


def plant(given: Plant, session: Session) -> None:
    """Plant canaries: random secrets in a known format, whose fate in the trained model can be measured.

    Writes DIR/corpus.* and DIR/canaries.json. Both hold secrets and are readable by you only. Train on the first, and keep the
    second for `coalmine expose`. The defaults plant about 336 copies of 48 canaries and withhold 48 more, decided by coins. The
    most that an audit of them can show is reported before you train.

    With --from, nothing is planted: canaries.json is made from another tool's canaries. Those that were left out keep the number of
    copies that they were meant to have.
    """
    words = words_from(given.words)
    # Templates that the corpus fills are taken as they are.
    formats, sources = (
        [one if has_unseen(one) else format_from(one, words) for one in some or ()]
        for some in (given.format, given.source_format)
    )
    if given.from_ is not None:
        _import(given, given.from_, formats, session)
        return
    if given.corpus is None or not formats:
        raise InputError("planting needs a corpus and a format: coalmine plant CORPUS --format F --out DIR")
    session.into(given.out)
    made = planting.plant(
        given.corpus,
        formats,
        out=given.out,
        source_format=sources or None,
        options=given.columns.into(given.options),
        withhold=given.options.withhold if given.withhold is None else given.withhold,
        overwrite=given.overwrite,
        progress=session.progress(),
        record=lambda made: session.record(
            seed=given.options.seed,
            manifest_sha256=made.canaries.sha256,
            earlier_manifest_sha256=None if made.earlier is None else made.earlier.manifest_sha256,
        ),
    )
    session.say(planted_summary(made, made.canaries.power()))
    files = {"corpus": str(made.corpus), "manifest": str(made.manifest), "earlier": made.earlier}
    session.document(files | _counted(made.canaries, made.warnings))


def _counted(canaries: CanarySet, notes: Sequence[str]) -> dict[str, Any]:
    """What the JSON document says of canaries."""
    planted, power = sum(canary.planted for canary in canaries), canaries.power()
    return {
        "planted": planted,
        "withheld": len(canaries) - planted,
        "manifest_sha256": canaries.sha256,
        "power": power,
        "warnings": [*notes, *power.warnings],
    }


def _import(given: Plant, file: Path, formats: list[Any], session: Session) -> None:
    """Make a canaries.json from another tool's canaries."""
    if given.corpus is not None or given.source_format is not None or len(formats) > 1:
        raise InputError(
            "--from reads canaries that were planted already, all of one --format; leave out CORPUS and --source-format"
        )
    session.into(given.out, MANIFEST_NAME, recorded=False)
    imported = import_canaries(file, format=next(iter(formats), None), withhold=given.withhold)
    canaries, path = imported.canaries, make_directory(given.out) / MANIFEST_NAME
    # A run that was killed after it had written the very same file is not in the way.
    if path.exists() and not given.overwrite and read_bytes(path, "the manifest") != canaries.to_bytes():
        raise InputError(f"{path} exists already; write to another directory, or allow --overwrite")
    canaries.save(path)
    session.say(imported_summary(imported, path, canaries.power()))
    session.document({"manifest": str(path), "tool": imported.tool} | _counted(canaries, imported.notes))


class Expose(Arguments, frozen=True, kw_only=True):
    """What `coalmine expose` takes.

    Attributes:
        out: Directory for the results; default: MODEL-audit/exposure, or secrets-exposure for secrets.
        canaries: The canaries.json of `coalmine plant`, the secrets.json of `coalmine data scan`, or its directory.
    """

    model: Where
    canaries: Annotated[Path, Argument()]
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
    chosen = CanarySet.load(given.canaries)
    folder = "secrets-exposure" if chosen.natural else "exposure"
    session.beside(given.model, folder, RESULTS_FILE, SCORES_FILE)
    results = exposing.expose(
        session.model(given.model),
        chosen,
        given.options,
        engine=session.engine,
        resume=session.ledger,
        progress=session.progress(),
    )
    results.save(session.directory)
    facts: dict[str, Any] = {"seed": given.options.seed, "manifest_sha256": chosen.sha256}
    session.record(model=results.model, expansions=results.expansions, **facts)
    if results.natural:
        session.say(KINDS.terminal(by_kind(secrets_of_exposures(results))), "")
    texts = {one.canary_id: one.text for one in chosen} if given.reveal else None
    session.say(
        exposure_table(results, texts), *remarks_in_words(results), placed("Results", session.directory)
    )
    session.document(results if given.reveal else results.without_users())


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
    canaries: Annotated[Path | None, Argument()] = None
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
    options = given.options
    if given.prompts is not None:
        prompts = read_prompts(read_text(given.prompts, "the prompts"))
        options = msgspec.structs.replace(options, prompts=prompts)
    if given.format is not None:
        _extract_format(given, options, given.format, session)
    elif given.canaries is not None:
        _extract_canaries(given, options, CanarySet.load(given.canaries), session)


def _extract_format(given: Extract, options: ExtractionOptions, template: str, session: Session) -> None:
    """Search one format, write what comes out, and show it."""
    session.beside(given.model, "extraction", extracted.RESULTS_FILE)
    result = extracting.extract(
        session.model(given.model),
        format_from(template, words_from(given.words)),
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


def _extract_canaries(
    given: Extract, options: ExtractionOptions, chosen: CanarySet, session: Session
) -> None:
    """Search the formats of canaries, write which come out, and show it."""
    files = (extracted.VERIFIED_FILE, *(extracted.extraction_file(one) for one in chosen.formats))
    session.beside(given.model, "secrets-extraction" if chosen.natural else "extraction", *files)
    asked = session.model(given.model)
    results, extractions = extracting.verify_extraction(
        asked, chosen, options, engine=session.engine, resume=session.ledger, progress=session.progress()
    )
    described = framed(asked, chosen, writes=True).describe()
    facts: dict[str, Any] = {"manifest_sha256": chosen.sha256, "model": described}
    extracted.save_verification(session.directory, results, extractions, **facts)
    certificates = {name: one.certificate for name, one in extractions.items()}
    session.record(expansions=sum(one.expansions for one in certificates.values()), **facts)
    session.say(*searched(results, extractions), placed("Results", session.directory))
    session.document({"canaries": results, "certificates": certificates})


class MembershipArguments(Arguments, frozen=True, kw_only=True):
    """What `coalmine membership` takes.

    Attributes:
        scores: Instead of RESULTS: a CSV or JSON of scores with in and out, or a report of another tool.
        lower_is_member: With --scores: whether lower scores mean trained on; default: what the file or the column's name says.
        reference: Results of a model without the canaries; its scores are subtracted.
        out: Directory for membership.json; default: beside RESULTS, in MODEL-audit, or here.
        results: What `coalmine expose` wrote: its directory, its exposure.json, or the model that it measured.
    """

    results: Annotated[Path | None, Argument()] = None
    scores: Path | None = None
    lower_is_member: bool | None = None
    reference: Path | None = None
    options: Annotated[
        MembershipOptions, Part(("delta", "confidence", "claimed_epsilon", "seed"), title="What is bounded")
    ]
    out: Path | None = None


def membership(given: MembershipArguments, session: Session) -> None:
    """Put exposure beside random guessing, membership inference and differential privacy.

    Writes membership.json, readable by you only, with every rate and every bound; docs/explanation/interpretation.md explains them. A
    table for --scores has a column named `score`, one named `in` and, where they differ, one named `copies`.
    """
    results = given.results
    session.into(
        given.out or (Path() if results is None else _beside(results)), MEMBERSHIP_FILE, recorded=False
    )
    if (results is None) == (given.scores is None):
        raise InputError("membership needs either RESULTS, which may have a --reference, or --scores FILE")
    if results is not None:
        found = comparing.membership(results, given.options, reference=given.reference)
    else:
        way = given.lower_is_member
        found = comparing.membership_of_file(given.scores or "", given.options, lower_is_member=way)
    path = found.save(session.directory)
    session.say(
        POPULATIONS.terminal(found.populations),
        "",
        *membership_in_plain_words(found),
        *noted(found.warnings),
        placed("Results", path),
    )
    session.document(found)


def _beside(results: Path) -> Path:
    """Beside the results of `expose`; for a model's directory, in the audit directory beside that."""
    if not results.is_dir():
        return results.parent
    if (results / RESULTS_FILE).is_file():
        return results
    return (results if audited_model(results) is not None else audit_directory(results)) / "membership"
