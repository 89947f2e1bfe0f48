"""`coalmine redact`: write a corpus again without the secrets in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from coalmine.cli.options import Corpus, CorpusFields, Overwrite, format_option, out_option
from coalmine.cli.output import noted, placed
from coalmine.cli.runner import Session, command
from coalmine.cli.taking import Arguments
from coalmine.corpus.redaction.options import RedactOptions
from coalmine.records.options import Option

if TYPE_CHECKING:
    from rich.table import Table

    from coalmine.corpus.redaction.report import Redaction


class Redact(Arguments, frozen=True, kw_only=True):
    """What `coalmine redact` takes."""

    corpus: Corpus
    out: Annotated[Path, out_option("Directory for the new corpus and the record.")]
    options: RedactOptions
    format: Annotated[
        list[str] | None,
        format_option("A format of your own, such as 'employee {digits:6}'; several may be given."),
    ] = None
    key_file: Annotated[
        Path | None,
        Option(
            "A file with the key of surrogates, at least 16 bytes; without it, the variable COALMINE_REDACTION_KEY, or a random key."
        ),
    ] = None
    canaries: Annotated[
        Path | None,
        Option("The canaries.json of a planted corpus; default: the one beside CORPUS, if it belongs to it."),
    ] = None
    overwrite: Overwrite = False
    columns: CorpusFields


@command("redact")
def redact(given: Redact, session: Session) -> None:
    """Mask, replace or drop the secrets in a corpus, by kind, and record what was done without the secrets.

    All kinds that `coalmine scan` knows are masked unless something else is chosen. Writes DIR/corpus.* and DIR/redaction.json, readable by
    you only, and for a planted corpus DIR/canaries.json. A second scan finds nothing; everything else keeps its bytes.
    """
    from coalmine.corpus.redaction.keys import SurrogateKey
    from coalmine.corpus.redaction.redacting import redact

    session.into(given.out)
    report = redact(
        given.corpus,
        given.out,
        key=SurrogateKey.read(given.key_file),
        canaries=given.canaries,
        options=msgspec.structs.replace(
            given.options, formats=tuple(given.format or ()), fields=given.columns.fields()
        ),
        overwrite=given.overwrite,
        progress=session.progress(),
        record=lambda made: session.record(corpus_sha256=made.sha256_before),
    )
    if report.kinds:
        session.say(_table(report), "")
    session.say(*_summary(report, given.out))
    session.document(report)


def _table(report: Redaction) -> Table:
    from coalmine.evidence.tables import plain_table, rights

    table = plain_table("kind", *rights("found", "masked", "replaced", "dropped"))
    for one in sorted(report.kinds, key=lambda one: -one.found):
        numbers = (one.found, one.masked, one.replaced, one.dropped)
        table.add_row(one.kind, *(f"{number:,}" for number in numbers))
    return table


def _summary(report: Redaction, out: Path) -> list[str]:
    from coalmine.corpus.planting.recounting import recount_in_words

    lines = [
        f"Documents: {report.documents_before:,} before, {report.documents_after:,} after; {report.documents_changed:,} changed."
    ]
    lines.append(
        f"Secrets: {report.found:,} {'was' if report.found == 1 else 'were'} redacted, and a second scan finds none."
        if report.found
        else "Secrets: none was found, so the new corpus is a copy."
    )
    if report.lines_dropped:
        lines.append(f"Lines left out: {report.lines_dropped:,}.")
    if report.key_fingerprint is not None:
        lines.append(f"Surrogates: made with the key whose fingerprint is {report.key_fingerprint}.")
    if report.canaries is not None:
        lines.append(recount_in_words(report.canaries))
    return [*lines, *noted(report.warnings), placed("New corpus", out / report.corpus)]
