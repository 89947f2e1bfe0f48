"""`coalmine demo`: a whole audit, in a few minutes, on a corpus that every machine has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coalmine.cli.options import Seed
from coalmine.cli.output import placed
from coalmine.cli.runner import Session
from coalmine.cli.taking import Arguments
from coalmine.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coalmine.audits.extraction.results import CanaryExtraction
    from coalmine.corpus.planting.planting import Planted

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
    out, seed = given.out, given.seed
    from coalmine.audits.exposure.display import exposure_in_plain_words, exposure_table
    from coalmine.audits.exposure.measuring import expose
    from coalmine.audits.extraction.measuring import verify_extraction
    from coalmine.audits.extraction.results import save_verification
    from coalmine.audits.membership.measure import membership
    from coalmine.audits.membership.report import membership_in_plain_words
    from coalmine.audits.runs import read_runs
    from coalmine.evidence.directories import audit_directory
    from coalmine.models.loading import load_model
    from coalmine.reports.page.html import report_page
    from coalmine.storage.files import check_place, make_directory, write_bytes

    report = out / "report.html"
    check_place(report)
    planted, model = _plant_and_train(out, seed, session)
    loaded, audit = load_model(model), audit_directory(model)
    results = expose(loaded, planted.canaries, seed=seed, progress=session.progress())
    directory = results.save(audit / "exposure")
    extracted, extractions = verify_extraction(loaded, planted.canaries, progress=session.progress())
    save_verification(
        make_directory(audit / "extraction"),
        extracted,
        extractions,
        manifest_sha256=planted.canaries.sha256,
        model=loaded.describe(),
    )
    session.record(directory, seed=seed, model=results.model, manifest_sha256=planted.canaries.sha256)
    meaning = membership(results, seed=seed)
    meaning.save(audit / "membership")
    write_bytes(report, report_page(read_runs(model, out / "planted")).encode())
    session.say(
        exposure_table(results),
        "",
        _space_in_words(planted),
        *exposure_in_plain_words(results),
        _extracted_in_words(extracted),
        "\nWhat that means for membership and differential privacy, by how often a canary was planted:",
        *membership_in_plain_words(meaning),
        f"\nThe results are in {visible(str(audit))}, separate from the model.",
        "Next: docs/tutorial/quickstart.md does this by hand, on your own data.",
        placed("Open the report", report),
    )
    session.document(results)


def _extracted_in_words(extracted: Sequence[CanaryExtraction]) -> str:
    trained = [one for one in extracted if one.repetitions]
    out = [one for one in trained if one.extracted]
    places = ", ".join(f"{visible(one.canary_id)} at place {one.place}" for one in out)
    return (
        f"Extraction: anyone who can query the model gets {len(out)} of {len(trained)} canaries that were trained on out of it with at "
        f"most {max((one.expansions or 0 for one in out), default=0):,} queries ({places or 'none'})."
    )


def _space_in_words(planted: Planted) -> str:
    size = planted.canaries.formats["f0"].size
    return f'What it means: each canary is one of {size:,} ways to complete "{SECRET.split("{", maxsplit=1)[0]}...".'


def _plant_and_train(out: Path, seed: int, session: Session) -> tuple[Planted, Path]:
    """A planted corpus, and the directory of a model that was trained on it."""
    from coalmine.corpus.files.embedded import write_embedded_corpus
    from coalmine.corpus.planting.planting import plant
    from coalmine.models.reference.checkpoint import require_torch
    from coalmine.reports.terminal import planted_summary, training_summary
    from coalmine.training.trainer import train

    require_torch("the demo")
    corpus = out / "corpus.txt"
    write_embedded_corpus(corpus, CORPUS_BYTES)
    planted = plant(
        corpus,
        SECRET,
        repeat=[1, 4, 16, 64],
        canaries=5,
        withhold=0.25,
        seed=seed,
        out=out / "planted",
        overwrite=True,
        progress=session.progress(),
    )
    session.say(planted_summary(planted), "")
    # One model per planted corpus, so that a demo with another seed never finds the model of this one.
    model = out / f"model-{planted.canaries.sha256[:8]}"
    trained = train(out / "planted", out=model, epochs=EPOCHS, seed=seed, progress=session.progress())
    session.say(training_summary(trained), "")
    return planted, model
