"""`coalmine scan`: find the secrets that are already in a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coalmine.cli.options import Corpus, CorpusFields, Overwrite, Printing, Seed, formats_from, out_option
from coalmine.cli.taking import Arguments, takes
from coalmine.records.options import Option
from coalmine.storage.files import check_places, no_empty_directory

if TYPE_CHECKING:
    from coalmine.corpus.secrets.results import KindFound, Scan

_SHOWN = 10


class ScanArguments(Arguments, frozen=True, kw_only=True):
    """What `coalmine scan` takes."""

    corpus: Corpus
    out: Annotated[Path, out_option("Directory for scan.json and the secrets that were found.")]
    kinds: Annotated[str | None, Option("Kinds to look for, such as ssn,card,email; default: all.")] = None
    format: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            "-f",
            help='A further kind, as a secret format, such as "employee {digits:6}"; may be given many times.',
        ),
    ] = None
    index: Annotated[
        Path | None, Option("An index of CORPUS; copies of each secret are counted anywhere in it too.")
    ] = None
    reveal: Annotated[bool, Option("Show the secrets and the names of users on the terminal.")] = False
    overwrite: Overwrite = False
    seed: Seed = 0
    columns: CorpusFields
    printing: Printing


@takes
def command(given: ScanArguments) -> int:
    """Find secrets in a corpus: personal numbers, payment cards, accounts, addresses, phone numbers, keys, and your own formats.

    Writes DIR/scan.json, which counts them by kind, user and number of copies and holds none of them; and DIR/occurrences.jsonl,
    DIR/distinct.jsonl and, with --user-field, DIR/users.jsonl, which hold the secrets and are readable by you only. What chance alone
    would let pass is shown beside what was found. Well-known examples, such as 078-05-1120, are counted apart. Nothing here is
    random: --seed changes nothing.
    """
    out = given.out
    with given.printing.output() as output, no_empty_directory(out):
        from coalmine.cli.run_record import RUN_FILE, RunClock
        from coalmine.corpus.secrets.scanning import scan

        clock = RunClock()
        check_places(out, RUN_FILE)
        found = scan(
            given.corpus,
            out,
            kinds=None if given.kinds is None else [name.strip() for name in given.kinds.split(",")],
            formats=formats_from(given.format or [], None),
            fields=given.columns.fields(),
            index=given.index,
            overwrite=given.overwrite,
            progress=output.progress(),
            record=lambda made: clock.save(out, corpus_sha256=made.corpus_sha256),
        )
        output.say(*_shown(found, out, reveal=given.reveal))
        output.document(found)
    return 0


def _shown(found: Scan, out: Path, *, reveal: bool) -> list[Any]:
    from coalmine.corpus.secrets.results import DISTINCT_FILE
    from coalmine.visible import visible

    shown: list[Any] = [f"Documents: {found.documents:,}; text: {found.bytes / 1e6:,.1f} MB.", ""]
    if found.occurrences or any(kind.specimens or kind.shaped for kind in found.kinds):
        shown.append(_kinds_table(found))
    if not found.occurrences:
        shown.append("No secrets of these kinds were found.")
    notes = [note for kind in found.kinds if (note := _note(kind))]
    shown += ["", *notes] if notes else []
    if found.repeated:
        shown += ["", "Most repeated:", _repeated_table(found, _texts(out) if reveal else None)]
    if found.by_user:
        shown += [
            "",
            f"Users with a secret: {found.users:,}; those with the most:",
            _users_table(found, out, reveal=reveal),
        ]
    return [*shown, "", f"The secrets themselves, for you only: {visible(str(out / DISTINCT_FILE))}"]


def _kinds_table(found: Scan) -> Any:
    from coalmine.evidence.tables import plain_table, rights

    table = plain_table(
        "kind", *rights("secrets", "occurrences", "documents", "users", "shaped", "by chance", "examples")
    )
    for kind in found.kinds:
        if not kind.shaped and not kind.specimens:
            continue
        chance = "" if kind.expected_by_chance is None else f"{kind.expected_by_chance:,.1f}"
        users = "" if found.users is None else f"{kind.users:,}"
        table.add_row(
            kind.kind,
            f"{kind.secrets:,}",
            f"{kind.occurrences:,}",
            f"{kind.documents:,}",
            users,
            f"{kind.shaped:,}",
            chance,
            f"{kind.specimens:,}",
        )
    return table


def _note(kind: KindFound) -> str | None:
    """Whether what was found is more than chance gives, where that can be known."""
    if kind.p_value is None or not kind.secrets or kind.expected_by_chance is None:
        return None
    if kind.p_value > 0.01:
        return (
            f"{kind.kind}: {kind.secrets:,} of {kind.shaped:,} texts of this shape pass the check, and chance alone would let "
            f"{kind.expected_by_chance:,.1f} pass; they may be other numbers."
        )
    return None


def _texts(out: Path) -> dict[tuple[int, int], str]:
    """The secrets by the place of their first copy."""
    from coalmine.corpus.secrets.results import distinct_in

    return {(one.document, one.start): one.text for one in distinct_in(out)}


def _repeated_table(found: Scan, texts: dict[tuple[int, int], str] | None) -> Any:
    from coalmine.evidence.tables import plain_table, rights
    from coalmine.visible import visible

    table = plain_table("kind", "secret", *rights("copies", "documents", "first in"))
    for one in found.repeated[:_SHOWN]:
        text = one.masked if texts is None else texts[one.document, one.start]
        table.add_row(
            one.kind, visible(text), f"{one.copies:,}", f"{one.documents:,}", f"document {one.document}"
        )
    return table


def _users_table(found: Scan, out: Path, *, reveal: bool) -> Any:
    from coalmine.corpus.secrets.results import users_in
    from coalmine.evidence.tables import Right, plain_table
    from coalmine.visible import visible

    listed = {one.user for one in found.by_user[:_SHOWN]}
    names = (
        {number: one.user for number, one in enumerate(users_in(out), 1) if number in listed}
        if reveal
        else {}
    )
    table = plain_table("user", Right("occurrences"), "of which")
    for user in found.by_user[:_SHOWN]:
        kinds = ", ".join(
            f"{count:,} {kind}" for kind, count in sorted(user.kinds.items(), key=lambda one: -one[1])
        )
        table.add_row(visible(names.get(user.user, f"user {user.user}")), f"{user.occurrences:,}", kinds)
    return table
