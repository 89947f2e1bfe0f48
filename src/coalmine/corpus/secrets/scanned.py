"""The secrets of a scan with the text before them, ready to be made into canaries: the most sensitive and most repeated first."""

from __future__ import annotations

import heapq
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import UNSET

from coalmine.corpus.files.documents import BOUNDARY, Fields
from coalmine.corpus.files.reading import open_corpus
from coalmine.corpus.planting.manifest_records import ScannedCorpus
from coalmine.corpus.secrets.canaries import NaturalCanaries, canaries_of
from coalmine.corpus.secrets.kinds import KINDS, kind_of_format
from coalmine.corpus.secrets.natural import MOST_CONTEXT, NaturalOptions, NaturalSecret
from coalmine.corpus.secrets.results import SCANS, DistinctSecret, distinct_in
from coalmine.errors import InputError
from coalmine.formats.format import Format
from coalmine.grouped import grouped
from coalmine.storage.files import sha256_of_file

# Bytes before a secret that are needed; a character has up to four of them.
_MOST_BEFORE = 4 * MOST_CONTEXT


def canaries_of_scan(
    scan: str | os.PathLike[str],
    corpus: str | os.PathLike[str],
    options: NaturalOptions | None = None,
    *,
    formats: Sequence[Format | str] = (),
) -> NaturalCanaries:
    r"""The secrets that `scan` found in a corpus as canaries, for secrets.json.

    Of a secret that occurs several times, the context is that of its first copy. Well-known examples are left out. Where there are more
    than `most`, the most sensitive are taken, and of these the most repeated.

    Args:
        scan: the directory that `scan` wrote to.
        corpus: what it scanned.
        options: how the secrets are made into canaries.
        formats: the formats that it scanned for besides the kinds that coalmine knows.

    >>> import tempfile
    >>> from coalmine.corpus import scan
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     corpus = Path(folder, "corpus.txt")
    ...     _ = corpus.write_text("ann is 219-09-9998\nbob too, 219 09 9998\n")
    ...     _ = scan(corpus, Path(folder, "scan"), kinds=["ssn"])
    ...     made = canaries_of_scan(Path(folder, "scan"), corpus)
    >>> [(one.canary_id, one.text, one.times_trained_on) for one in made.canaries]
    [('ssn-1', 'ann is 219-09-9998', 2)]
    """
    asked = NaturalOptions() if options is None else options
    folder = Path(scan)
    found_there = SCANS.load(folder)
    if sha256_of_file(Path(corpus)) != found_there.corpus_sha256:
        raise InputError(
            f"{corpus} is not the corpus that the scan in {folder} is of, or it was changed since; scan it again"
        )
    fields = found_there.fields
    too_many: Counter[str] = Counter()
    chosen = heapq.nsmallest(asked.most, _counted(distinct_in(folder), too_many), key=_urgency)
    before = dict(_texts_before(chosen, corpus, fields))
    own = {kind.name: kind.written_as or "" for kind in map(kind_of_format, formats)}
    secrets = [_natural(one, before, own) for one in sorted(chosen, key=_urgency)]
    made = canaries_of(secrets, asked, others=((one.kind, one.text) for one in distinct_in(folder)))
    too_many.subtract(Counter(one.kind for one in chosen))
    why = f"more than {asked.most:,} secrets were found, and others are more sensitive or more repeated"
    scanned = ScannedCorpus(
        name=found_there.corpus,
        sha256=found_there.corpus_sha256,
        secrets=found_there.secrets,
        conversations=UNSET if fields.rows in (UNSET, "text") else True,
    )
    return NaturalCanaries(
        made.canaries.with_scanned(scanned),
        {**made.left_out, **{(kind, why): count for kind, count in too_many.items() if count}},
    )


def _counted(distinct: Iterable[DistinctSecret], counts: Counter[str]) -> Iterator[DistinctSecret]:
    """Those that are somebody's secret, counted by kind as they pass."""
    for one in distinct:
        if not one.specimen:
            counts[one.kind] += 1
            yield one


def _urgency(one: DistinctSecret) -> tuple[int, int, int, int]:
    """The most sensitive first, then the most repeated, then in the order of the corpus."""
    kind = KINDS.get(one.kind)
    return (-(4 if kind is None else kind.sensitivity), -one.copies, one.document, one.start)


def _natural(
    one: DistinctSecret, before: Mapping[tuple[int, int], str], templates: Mapping[str, str]
) -> NaturalSecret:
    return NaturalSecret(
        kind=one.kind,
        text=one.text,
        before=before.get((one.document, one.start), ""),
        copies=one.copies,
        user=one.user,
        template=templates.get(one.kind),
    )


def _texts_before(
    secrets: list[DistinctSecret], corpus: str | os.PathLike[str], fields: Fields
) -> Iterator[tuple[tuple[int, int], str]]:
    """The end of the text before the first copy of each secret, by its document and offset; in constant memory."""
    wanted, left = grouped((one.document, one.start) for one in secrets), len(secrets)
    # Of a text that began in earlier pieces: how many of its bytes are there, and the last of them.
    begun, tail = 0, b""
    with open_corpus(corpus, fields) as opened:
        for piece in opened.pieces() if wanted else ():
            begin = 0
            for place, (number, end) in enumerate(zip(piece.numbers, piece.ends, strict=True)):
                if place or not piece.continues:
                    begun, tail = 0, b""
                for start in wanted.get(number, ()):
                    at = begin + start - begun
                    if begin <= at < end:
                        text = _end_of(tail + piece.content[max(begin, at - _MOST_BEFORE) : at])
                        # The turns of a conversation are separated as documents are.
                        readable = text.replace(BOUNDARY, b"\n").decode("utf-8", "ignore")
                        yield (number, start), readable[-MOST_CONTEXT:]
                        left -= 1
                        if not left:
                            return
                begun, tail = (
                    begun + end - begin,
                    _end_of(tail + piece.content[max(begin, end - _MOST_BEFORE) : end]),
                )
                begin = end


def _end_of(content: bytes) -> bytes:
    """As much of it as may be needed; its first character may be cut in two."""
    return content[-_MOST_BEFORE:]
