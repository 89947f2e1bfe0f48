"""`coalmine demo` and `coalmine audit`: a whole audit, of a model that is made here or of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coalmine.audits.exposure.display import exposure_in_plain_words, exposure_table
from coalmine.audits.exposure.measuring import expose
from coalmine.audits.extraction.measuring import verify_extraction
from coalmine.audits.extraction.results import save_verification
from coalmine.audits.membership.measure import membership
from coalmine.audits.registry import read_runs
from coalmine.audits.whole import auditing
from coalmine.audits.whole.records import ReviewOptions
from coalmine.audits.whole.report import STEPS_TABLE
from coalmine.cli.options import CorpusFields, LoadedModel, Running, Seed, Where
from coalmine.cli.output import placed
from coalmine.cli.runner import Session
from coalmine.cli.taking import Arguments
from coalmine.corpus.files.embedded import write_embedded_corpus
from coalmine.corpus.planting.options import PlantOptions
from coalmine.corpus.planting.planting import plant
from coalmine.evidence.directories import audit_directory
from coalmine.models.loading import load_model
from coalmine.models.reference.checkpoint import require_torch
from coalmine.reports.conclusion import reported
from coalmine.reports.page.html import report_page
from coalmine.reports.terminal import planted_summary, training_summary
from coalmine.storage.files import check_place, make_directory, write_bytes
from coalmine.training.trainer import train
from coalmine.visible import visible

SECRET = "the random number is {digits:9}"  # noqa: S105 - a format of secrets, not a secret
CORPUS_BYTES = 400_000
EPOCHS = 3


class Demo(Arguments, frozen=True, kw_only=True):
    """What `coalmine demo` takes.

    Attributes:
        out: The directory for everything that the demo writes.
    """

    out: Path = Path("coalmine-demo")
    seed: Seed = 0


def demo(given: Demo, session: Session) -> None:
    """Plant canaries 1, 4, 16 and 64 times, train the Secret Sharer's character LSTM, and measure how exposed each canary is.

    The corpus is the English text of Python's own standard library, so nothing is downloaded. The same steps by hand are in
    docs/tutorial/quickstart.md.
    """
    out, seed, progress = given.out, given.seed, session.progress()
    report, corpus = out / "report.html", out / "corpus.txt"
    check_place(report)
    require_torch("the demo")
    write_embedded_corpus(corpus, CORPUS_BYTES)
    options = PlantOptions(repeat=(1, 4, 16, 64), canaries=5, withhold=0.25, seed=seed)
    planted = plant(corpus, SECRET, options=options, out=out / "planted", overwrite=True, progress=progress)
    canaries = planted.canaries
    session.say(planted_summary(planted), "")
    # One model per planted corpus, so that a demo with another seed never finds the model of this one.
    path = out / f"model-{canaries.sha256[:8]}"
    trained = train(out / "planted", out=path, epochs=EPOCHS, seed=seed, progress=progress)
    session.say(training_summary(trained), "")
    model, audited = load_model(path), audit_directory(path)
    results = expose(model, canaries, seed=seed, progress=progress)
    directory = results.save(audited / "exposure")
    extracted, extractions = verify_extraction(model, canaries, progress=progress)
    facts: dict[str, Any] = {"manifest_sha256": canaries.sha256, "model": model.describe()}
    save_verification(make_directory(audited / "extraction"), extracted, extractions, **facts)
    session.record(directory, seed=seed, **facts)
    membership(results, seed=seed).save(audited / "membership")
    write_bytes(report, report_page(read_runs(path, out / "planted")).encode())
    session.say(
        exposure_table(results),
        f"\nWhat it means: each canary is one of {canaries.formats['f0'].size:,} ways to complete its sentence.",
        *exposure_in_plain_words(results),
        f"\nThe results, also of extraction and membership, are in {visible(str(audited))}, separate from the model.",
        "Next: docs/tutorial/quickstart.md does this by hand, on your own data.",
        placed("Open the report", report),
    )
    session.document(results)


class AuditArguments(Arguments, frozen=True, kw_only=True):
    """What `coalmine audit` takes.

    Attributes:
        held_out: Text like the training data that the model was not trained on, to compare with.
        reference: A model without this training data; for an adapter, its base is taken without asking.
        canaries: The canaries.json of canaries that were planted in the training data.
        index: An index of --data with the model's tokenizer, if there is one already.
        out: Directory for all results and report.html; default: MODEL-audit/review.
        data: The training data of the model, or a part of it.
    """

    model: Where
    data: Path
    held_out: Path | None = None
    reference: str | None = None
    canaries: Path | None = None
    index: Path | None = None
    out: Path | None = None
    options: ReviewOptions
    columns: CorpusFields
    loading: LoadedModel
    running: Running


def audit(given: AuditArguments, session: Session) -> int:
    """Test what a model remembers of its training data, as far as the inputs and the time allow, and write one report page.

    Reads the training data and the held-out text, measures how fast the model is, and plans: secrets, recitation, membership of documents,
    provenance of users, and exposure, extraction and membership of canaries. A step that does not fit into --minutes is cut down or left
    out, and the page says so. Run the same command again to resume a run that was stopped; steps that have their results are not repeated.
    """
    session.beside(given.model, "review")
    review = auditing.audit(
        given.model,
        given.data,
        session.directory,
        given.options,
        held_out=given.held_out,
        reference=given.reference,
        canaries=given.canaries,
        fields=given.columns.fields(),
        index=given.index,
        loading=given.loading,
        **session.work,
        record=lambda made: session.record(
            seed=given.options.seed, model=made.model, data_sha256=made.data_sha256
        ),
    )
    (found,) = reported(read_runs(session.directory))
    session.say(
        STEPS_TABLE.terminal(review.steps),
        *(visible(f"{one.title}: {one.why or one.cut}.") for one in review.steps if one.why or one.cut),
        "",
        visible(found.conclusion.sentence),
        placed("Open the report", session.directory / auditing.REPORT_FILE),
    )
    session.document(review)
    # Where nothing could be tested, nothing was measured.
    return 0 if review.tested else 2
