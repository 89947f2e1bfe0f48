"""Writes a corpus again without the secrets in it: masked, replaced with surrogates, or dropped, by kind."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from coalmine.corpus.files.corpora import Edits
from coalmine.corpus.files.documents import BOUNDARY, DocumentBlock, Fields
from coalmine.corpus.files.kinds import kind_of
from coalmine.corpus.files.reading import nonempty_blocks, open_corpus, reported
from coalmine.corpus.files.strings import strings_of
from coalmine.corpus.outputs import exists_already, first_in_the_way, sole_writing
from coalmine.corpus.planting.manifest import MANIFEST_NAME, CanarySet
from coalmine.corpus.planting.recounting import KnownManifest, manifest_of
from coalmine.corpus.redaction.keys import SurrogateKey
from coalmine.corpus.redaction.options import RedactOptions, name_of
from coalmine.corpus.redaction.report import REDACTIONS, REPORT_FILE, RedactedKind, Redaction, finished_before
from coalmine.corpus.redaction.texts import KeyLines, Redactor
from coalmine.corpus.rewriting import OriginalCorpus, refuse_itself
from coalmine.corpus.secrets.finding import Candidate
from coalmine.errors import CorpusError
from coalmine.progress import Progress, Silent
from coalmine.storage.directories import UNFINISHED_FILE
from coalmine.storage.files import FileGroup, check_places, together

if TYPE_CHECKING:
    from coalmine.models.protocols import IntArray


def redact(
    corpus: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    key: SurrogateKey | bytes | None = None,
    canaries: CanarySet | str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    record: Callable[[Redaction], None] | None = None,
    options: RedactOptions | None = None,
    **changes: Any,
) -> Redaction:
    r"""Write a copy of a corpus in which no secret of a known kind is left, and record what was done without the secrets.

    What was written is scanned again before it takes its name, and nothing is found. Documents without a secret keep their bytes (in
    Parquet, their values). In the others every string of the row is looked at, but not the fields that say whose it is and when it was
    written. For a planted corpus, the copies of canaries that are left
    are counted, and `canaries.json` is written beside it with these counts.

    Args:
        corpus: a corpus file of any kind that `read_documents` reads.
        out: the directory for `corpus` (with the suffixes of the original) and `redaction.json`.
        key: what surrogates depend on, at least 16 bytes: the same secret gets the same surrogate in every run with this key. It is not
            stored. Without one, a random key is used and forgotten.
        canaries: the manifest of a planted corpus; None takes the canaries.json beside the corpus if it belongs to it.
        overwrite: replace what an earlier run wrote to `out`. Without it, what the very same call wrote there is left as it is, and
            anything else is refused.
        progress: gets the bytes read.
        record: called with the result; what it writes appears together with the corpus and the record.
        options: what becomes of each kind; by default all are masked.
        changes: fields of `RedactOptions` by name, such as `replace="email,phone"`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_text("write to bob@mail.com\nor do not\n")
    ...     report = redact(Path(folder, "a.txt"), Path(folder, "out"))
    ...     Path(folder, "out", "corpus.txt").read_text()
    'write to [email]\nor do not\n'
    """
    chosen = RedactOptions.of(options, changes).checked()
    surrogates = key if isinstance(key, SurrogateKey) else SurrogateKey(key)
    source, folder = Path(corpus), Path(out)
    target = folder / f"corpus{kind_of(source).full_suffix}"
    refuse_itself(source, target)
    check_places(folder, target.name, MANIFEST_NAME, REPORT_FILE, UNFINISHED_FILE)
    with open_corpus(source, chosen.fields):
        known = manifest_of(source, canaries)
    written = (target.name, *(() if known.canaries is None else (MANIFEST_NAME,)), REPORT_FILE)
    places = [] if overwrite else [folder / name for name in written]
    if (there := first_in_the_way(*places)) is not None:
        planted = known.canaries is not None
        done = finished_before(source, target, chosen, surrogates.fingerprint, planted=planted)
        if done is None:
            raise exists_already(there)
        return done
    with sole_writing(folder, written, places), together() as group:
        redacting = _Redacting(chosen, surrogates, progress or Silent())
        report = redacting.write(source, target, known, group)
        if record is not None:
            record(report)
    return report


class _Plan(NamedTuple):
    """What becomes of the documents of a corpus: a new text, or None where one is left out, by its place."""

    changes: dict[int, Callable[[str], str] | None]
    documents: int


class _Redacting:
    """One redaction of a corpus."""

    def __init__(self, options: RedactOptions, key: SurrogateKey, progress: Progress) -> None:
        self._options, self._key, self._progress = options, key, progress
        self._redactor = Redactor(options, key)
        self._done: Counter[tuple[str, str]] = Counter()
        self._lines = self._specimens = 0
        self._key_lines = KeyLines()
        # The fields that were not looked at.
        self._unsearched: list[str] = []

    def write(self, source: Path, target: Path, known: KnownManifest, group: FileGroup) -> Redaction:
        """The corpus, the manifest of a planted one, and the record last."""
        fields = self._options.fields
        original = OriginalCorpus.of(source, fields)
        plan = self._plan(source, fields)
        dropped, changed = _numbers(plan)
        edits = Edits(changes=plan.changes, everywhere=self._beside_rows)
        digest = original.write(target, edits, self._progress)
        self._check(group.where(target), target)
        documents = plan.documents
        if dropped == documents:
            raise CorpusError(
                f"nothing of {source} would be left, because every document is dropped; mask or replace some kinds instead"
            )
        recount = original.recount(target, known, group, self._progress, by="redact", documents=documents)
        report = Redaction(
            corpus=target.name,
            sha256_before=original.sha256,
            sha256_after=digest,
            documents_before=documents,
            documents_after=documents - dropped,
            documents_changed=min(changed, documents - dropped),
            lines_dropped=self._lines,
            kinds=tuple(self._kinds()),
            specimens=self._specimens,
            settings=self._options,
            key_fingerprint=self._key.fingerprint if self._options.replaces else None,
            canaries=recount,
            warnings=(*known.warnings, *self._warnings(), *(() if recount is None else recount.warnings)),
        )
        REDACTIONS.save(target.parent, report)
        return report

    def _kinds(self) -> Iterator[RedactedKind]:
        """What became of each kind of which something was found."""
        actions = {name_of(kind): self._options.action_of(kind) for kind in self._options.kinds}
        for name, action in actions.items():
            numbers = {what: self._done[name, what] for what in ("found", "masked", "replaced", "dropped")}
            if numbers["found"]:
                yield RedactedKind(kind=name, action=action, **numbers)

    def _warnings(self) -> Iterator[str]:
        masked = sum(one.masked for one in self._kinds() if one.action == "replace")
        if masked:
            yield f"{masked:,} secrets that were to be replaced have no surrogate that a scan would not find, and are masked"
        if self._options.replaces and self._key.is_random:
            yield "surrogates were made with a random key that is forgotten, so that another run replaces the same secrets differently"
        kept = [name_of(kind) for kind in self._options.kinds if self._options.action_of(kind) == "keep"]
        if self._unsearched:
            names = ", ".join(map(repr, self._unsearched))
            yield f"these fields were not looked at, because they say whose a row is and when it was written, or hold no strings: {names}"
        if kept:
            yield f"secrets of these kinds were left as they are: {', '.join(dict.fromkeys(kept))}"

    def _plan(self, path: Path, fields: Fields) -> _Plan:
        """Find the documents that change; only these are looked at one by one."""
        changes: dict[int, Callable[[str], str] | None] = {}
        documents, self._key_lines = 0, KeyLines()
        with (
            open_corpus(path, fields) as corpus,
            reported(corpus, self._progress, "looking for secrets") as advance,
        ):
            for block in nonempty_blocks(corpus):
                content, ends = _everything(block)
                everything = self._redactor.finder.find(content)
                hits = [one.start for one in everything if self._redactor.counts(one)]
                self._specimens += (
                    sum(one.specimen for one in everything) if not self._options.specimens else 0
                )
                places = np.unique(np.searchsorted(ends, hits, side="right")).tolist()
                for place in self._with_next(places, block.count):
                    self._decide(changes, block, place, lines_are_documents=not corpus.kind.has_fields)
                for at, one in self._split(block):
                    if at not in places:
                        changes[block.first + at] = None
                        name = name_of(one.kind)
                        self._done.update([(name, "found"), (name, "dropped")])
                documents = block.first + block.count
                advance()
            self._unsearched = corpus.unwritten()
        return _Plan(changes, documents)

    def _with_next(self, places: list[int], count: int) -> Iterator[int]:
        """The places of a block at which something was found, and those that follow while a private key goes on."""
        waiting = iter([*places, count])
        at, following = 0, next(waiting)
        while at < count:
            if self._key_lines.is_open or at == following:
                yield at
                at += 1
            else:
                at = following
            while following < at:
                following = next(waiting)

    def _decide(
        self,
        changes: dict[int, Callable[[str], str] | None],
        block: DocumentBlock,
        at: int,
        *,
        lines_are_documents: bool,
    ) -> None:
        """Decide what becomes of a document."""
        place = block.first + at
        strings = strings_of(partial(block.rewritten, at))
        if self._key_lines.continues(strings[0]):
            made = self._redactor.key_body()
            changes[place] = None if made is None else lambda _: made
            return
        done, lines, texts = Counter[tuple[str, str]](), 0, []

        def redacted(text: str) -> str:
            nonlocal lines
            found = self._redactor.redacted(text)
            done.update(found.done)
            lines += found.lines
            texts.append(found)
            return found.text or ""

        block.rewritten(at, redacted)
        if any(found.text is None for found in texts):
            changes[place] = None
            done = _all_dropped(done)
        elif any(found.done for found in texts):
            changes[place] = self._again
        self._done.update(done)
        self._lines += lines
        if lines_are_documents and any(found.opens_key for found in texts):
            self._key_lines.open()

    def _again(self, text: str) -> str:
        """The new text of a string in a row that stays."""
        return self._redactor.redacted(text).text or ""

    def _beside_rows(self, text: str) -> str:
        """The new text of a string of the metadata, which is counted as it is written."""
        found = self._redactor.redacted(text)
        self._done.update(found.done)
        return found.text or ""

    def _split(self, block: DocumentBlock) -> list[tuple[int, Candidate]]:
        """The secrets in the turns of conversations; one that is in no string is divided between parts of a turn."""
        if not block.conversations():
            return []
        piece = block.piece(users=False)
        return [(bisect_right(piece.ends, one.start), one) for one in self._redactor.found(piece.content)]

    def _check(self, content: Path, target: Path) -> None:
        """Scan what was written; a document in which something is left would be a bug."""
        with (
            open_corpus(content, self._options.fields, kind=kind_of(target)) as corpus,
            reported(corpus, self._progress, "checking that nothing is left") as advance,
        ):
            for block in corpus.blocks():
                if self._redactor.found(_everything(block)[0]) or self._split(block):
                    raise CorpusError(
                        "a secret was left in the corpus that was about to be written, so nothing was written; please report this"
                    )
                advance()


def _everything(block: DocumentBlock) -> tuple[bytes, IntArray]:
    """Every string of the rows of a block in UTF-8, with a boundary after each, and where each row ends."""
    rows = [
        b"".join([string.encode("utf-8") + BOUNDARY for string in strings_of(partial(block.rewritten, at))])
        for at in range(block.count)
    ]
    return b"".join(rows), np.cumsum([len(row) for row in rows], dtype=np.int64)


def _all_dropped(done: Counter[tuple[str, str]]) -> Counter[tuple[str, str]]:
    """What was done to the secrets of a document, once it is left out as a whole."""
    found = [(name, count) for (name, what), count in done.items() if what == "found"]
    return Counter({(name, what): count for name, count in found for what in ("found", "dropped")})


def _numbers(plan: _Plan) -> tuple[int, int]:
    """How many documents are left out, and how many others change."""
    dropped = sum(change is None for change in plan.changes.values())
    return dropped, len(plan.changes) - dropped
