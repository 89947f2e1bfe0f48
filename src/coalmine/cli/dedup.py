"""`coalmine dedup`: write a corpus again without what is repeated in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from coalmine.cli.options import Corpus, CorpusFields, Overwrite, out_option
from coalmine.cli.runner import Session, command
from coalmine.cli.taking import Arguments
from coalmine.corpus.deduplication.options import DedupOptions
from coalmine.engines.options import EngineOptions
from coalmine.records.options import Option

if TYPE_CHECKING:
    from coalmine.corpus.deduplication.report import Deduplication


class Dedup(Arguments, frozen=True, kw_only=True):
    """What `coalmine dedup` takes."""

    corpus: Corpus
    out: Annotated[Path, out_option("Directory for the new corpus and the report.")]
    options: DedupOptions
    canaries: Annotated[
        Path | None,
        Option("The canaries.json of a planted corpus; default: the one beside CORPUS, if it belongs to it."),
    ] = None
    overwrite: Overwrite = False
    columns: CorpusFields
    running: EngineOptions


@command("dedup")
def dedup(given: Dedup, session: Session) -> None:
    """Remove repeated text and near duplicates from a corpus, and report what was removed, where and why.

    Writes DIR/corpus.*, DIR/dedup.json and DIR/removed.jsonl, which has one line per removal; all are readable by you only. A
    second run on the result finds nothing left. For a planted corpus it also writes DIR/canaries.json, with the number of copies
    that are left of each canary: give that one to `coalmine expose`.
    """
    from coalmine.corpus.deduplication.deduplicating import deduplicate

    session.into(given.out)
    report = deduplicate(
        given.corpus,
        given.out,
        canaries=given.canaries,
        options=given.columns.into(given.options),
        overwrite=given.overwrite,
        engine=session.engine,
        progress=session.progress(),
        record=lambda made: session.record(seed=given.options.seed, corpus_sha256=made.sha256_before),
    )
    session.say(_summary(report, given.out))
    session.document(report)


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
