"""`coalmine dedup`: write a corpus again without what is repeated in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from coalmine.cli.options import (
    Corpus,
    Json,
    Overwrite,
    Quiet,
    SourceField,
    TargetField,
    TextField,
    UserField,
    fields_from,
    takes,
)
from coalmine.cli.output import Output
from coalmine.corpus.deduplication.options import DedupOptions
from coalmine.storage.files import check_places, no_empty_directory

if TYPE_CHECKING:
    from coalmine.corpus.deduplication.report import Deduplication


@takes(options=DedupOptions)
def command(
    *,
    corpus: Corpus,
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for the new corpus and the report.")],
    options: DedupOptions,
    canaries: Annotated[
        Path | None,
        typer.Option(
            "--canaries",
            help="The canaries.json of a planted corpus; default: the one beside CORPUS, if it belongs to it.",
        ),
    ] = None,
    overwrite: Overwrite = False,
    text_field: TextField = "text",
    user_field: UserField = None,
    source_field: SourceField = None,
    target_field: TargetField = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Remove repeated text and near duplicates from a corpus, and report what was removed, where and why.

    Writes DIR/corpus.*, DIR/dedup.json and DIR/removed.jsonl, which has one line per removal; all are readable by you only. A
    second run on the result finds nothing left. For a planted corpus it also writes DIR/canaries.json, with the number of copies
    that are left of each canary: give that one to `coalmine expose`.
    """
    with Output(json=json, quiet=quiet) as output, no_empty_directory(out):
        from coalmine.cli.run_record import RUN_FILE, RunClock
        from coalmine.corpus.deduplication.deduplicating import deduplicate

        clock = RunClock()
        check_places(out, RUN_FILE)
        fields = fields_from(text_field, user_field, source_field, target_field)
        report = deduplicate(
            corpus,
            out,
            canaries=canaries,
            options=msgspec.structs.replace(options, fields=fields),
            overwrite=overwrite,
            progress=output.progress(),
            record=lambda made: clock.save(out, seed=options.seed, corpus_sha256=made.sha256_before),
        )
        output.say(_summary(report, out))
        output.document(report)
    return 0


def _summary(report: Deduplication, out: Path) -> str:
    from coalmine.corpus.planting.recounting import recount_in_words
    from coalmine.visible import visible

    share = 100 * (1 - report.bytes_after / max(1, report.bytes_before))
    lines = [
        f"Documents: {report.documents_before:,} before, {report.documents_after:,} after; {share:.1f}% of the text was removed."
    ]
    if report.exact is not None:
        exact = report.exact
        kept = "all but the first copy" if exact.keep == "one" else "all copies"
        lines.append(
            f"Repeated text of {exact.length} bytes or more, {kept}: {exact.parts:,} parts, {exact.bytes:,} bytes "
            f"({exact.documents_emptied:,} documents had nothing else); searches: {exact.rounds}, the last of which found nothing."
        )
    if report.near is not None:
        near = report.near
        lines.append(
            f"Near duplicates of earlier documents (similarity {near.threshold:g} or more): {near.documents:,} documents, "
            f"{near.bytes:,} bytes."
        )
    if report.canaries is not None:
        lines.append(recount_in_words(report.canaries))
    lines += [f"Note: {visible(warning)}" for warning in report.warnings]
    lines.append(
        f"New corpus: {visible(str(out / report.corpus))}; what was removed: {visible(str(out / 'removed.jsonl'))}"
    )
    return "\n".join(lines)
