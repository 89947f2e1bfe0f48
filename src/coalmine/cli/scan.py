"""`coalmine data scan`: find the secrets that are already in a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from coalmine.cli.options import Corpus, CorpusFields, Overwrite, formats_from
from coalmine.cli.output import noted, placed
from coalmine.cli.runner import Session
from coalmine.cli.taking import Arguments, Part
from coalmine.corpus.secrets.natural import NaturalOptions
from coalmine.visible import visible

if TYPE_CHECKING:
    from coalmine.corpus.secrets.canaries import NaturalCanaries
    from coalmine.corpus.secrets.results import KindFound, Scan

_SHOWN = 10


class ScanArguments(Arguments, frozen=True, kw_only=True):
    """What `coalmine data scan` takes.

    Attributes:
        out: Directory for scan.json and the secrets that were found.
        kinds: Kinds to look for, such as ssn,card,email; default: all.
        format: A further kind, as a secret format, such as "employee {digits:6}"; may be given many times.
        index: An index of CORPUS; copies of each secret are counted anywhere in it too.
        reveal: Show the secrets and the names of users on the terminal.
    """

    corpus: Corpus
    out: Path
    kinds: str | None = None
    format: list[str] | None = None
    index: Path | None = None
    options: Annotated[NaturalOptions, Part(("seed",))]
    reveal: bool = False
    overwrite: Overwrite = False
    columns: CorpusFields


def scan(given: ScanArguments, session: Session) -> None:
    """Find secrets in a corpus: personal numbers, payment cards, accounts, addresses, phone numbers, keys, and your own formats.

    Writes DIR/scan.json, which counts them by kind, user and number of copies and holds none of them; and DIR/occurrences.jsonl,
    DIR/distinct.jsonl, DIR/secrets.json and, with --user-field, DIR/users.jsonl, which hold the secrets and are readable by you only.
    What chance alone would let pass is shown beside what was found. Well-known examples, such as 078-05-1120, are counted apart.

    DIR/secrets.json is a manifest like canaries.json, for `coalmine expose` and `coalmine extract`: each secret in its own
    context, with references of its kind that do not occur in the corpus.
    """
    from coalmine.corpus.planting.manifest import SECRETS_NAME
    from coalmine.corpus.secrets.scanned import canaries_of_scan
    from coalmine.corpus.secrets.scanning import scan

    session.into(given.out, SECRETS_NAME)
    out, formats = given.out, formats_from(given.format or [], None)
    found = scan(
        given.corpus,
        out,
        kinds=None if given.kinds is None else [name.strip() for name in given.kinds.split(",")],
        formats=formats,
        fields=given.columns.fields(),
        index=given.index,
        overwrite=given.overwrite,
        progress=session.progress(),
        record=lambda made: session.record(corpus_sha256=made.corpus_sha256, seed=given.options.seed),
    )
    made = canaries_of_scan(out, given.corpus, given.options, formats=formats)
    made.canaries.save(out / SECRETS_NAME)
    session.say(*_shown(found, out, reveal=given.reveal), *_measurable(made, out))
    session.document(found)


def _measurable(made: NaturalCanaries, out: Path) -> list[str]:
    """How many secrets can be measured, why others cannot, and what to do next."""
    from coalmine.corpus.planting.manifest import SECRETS_NAME
    from coalmine.corpus.secrets.canaries import left_out_in_words

    lines = noted(left_out_in_words(made.left_out))
    if not len(made.canaries):
        return [*lines, "No secret can be measured."]
    place, number = visible(str(out / SECRETS_NAME)), len(made.canaries)
    counted = f"{number:,} secret{'' if number == 1 else 's'}"
    return [
        *lines,
        f"{counted} can be measured: `coalmine expose MODEL {place}`, and `coalmine extract MODEL {place}`.",
    ]


def _shown(found: Scan, out: Path, *, reveal: bool) -> list[Any]:
    from coalmine.corpus.secrets.results import DISTINCT_FILE

    shown: list[Any] = [f"Documents: {found.documents:,}; text: {found.bytes / 1e6:,.1f} MB.", ""]
    if found.occurrences or any(kind.specimens or kind.shaped for kind in found.kinds):
        shown.append(_kinds_table(found))
    if not found.occurrences:
        shown.append("No secrets of these kinds were found in what was searched.")
    if found.not_searched:
        shown.append(
            f"Note: these fields were not searched: {visible(', '.join(map(repr, found.not_searched)))}."
        )
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
    return [*shown, "", placed("The secrets themselves, for you only", out / DISTINCT_FILE)]


def _kinds_table(found: Scan) -> Any:
    from coalmine.evidence.tables import table_of

    numbers = ("secrets", "occurrences", "documents", "users", "shaped")
    return table_of(
        ("kind", *numbers, "by chance", "examples"),
        (
            (kind.kind, *(getattr(kind, name) for name in numbers), kind.expected_by_chance, kind.specimens)
            for kind in found.kinds
            if kind.shaped or kind.specimens
        ),
    )


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
    from coalmine.evidence.tables import table_of

    return table_of(
        ("kind", "secret", "copies", "documents", "first in"),
        (
            (
                one.kind,
                one.masked if texts is None else texts[one.document, one.start],
                one.copies,
                one.documents,
                f"document {one.document}",
            )
            for one in found.repeated[:_SHOWN]
        ),
    )


def _users_table(found: Scan, out: Path, *, reveal: bool) -> Any:
    from coalmine.corpus.secrets.results import users_in
    from coalmine.evidence.tables import table_of

    listed = found.by_user[:_SHOWN]
    names = {number: one.user for number, one in enumerate(users_in(out), 1)} if reveal else {}
    return table_of(
        ("user", "occurrences", "of which"),
        (
            (
                names.get(one.user, f"user {one.user}"),
                one.occurrences,
                ", ".join(
                    f"{count:,} {kind}" for kind, count in sorted(one.kinds.items(), key=lambda it: -it[1])
                ),
            )
            for one in listed
        ),
    )
