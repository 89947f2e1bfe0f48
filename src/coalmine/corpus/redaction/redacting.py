"""Writes a corpus again without the secrets in it: masked, replaced with surrogates, or dropped, by kind."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from coalmine.corpus.files.corpora import Edits
from coalmine.corpus.files.documents import Fields
from coalmine.corpus.files.kinds import kind_of
from coalmine.corpus.files.reading import nonempty_blocks, open_corpus, reported
from coalmine.corpus.outputs import exists_already, first_in_the_way, sole_writing
from coalmine.corpus.planting.manifest import MANIFEST_NAME, CanarySet
from coalmine.corpus.planting.recounting import KnownManifest, manifest_of
from coalmine.corpus.redaction.keys import SurrogateKey
from coalmine.corpus.redaction.options import RedactOptions, name_of
from coalmine.corpus.redaction.report import REDACTIONS, REPORT_FILE, RedactedKind, Redaction, finished_before
from coalmine.corpus.redaction.texts import KeyLines, Redactor
from coalmine.corpus.rewriting import OriginalCorpus, refuse_itself
from coalmine.errors import CorpusError
from coalmine.progress import Progress, Silent
from coalmine.storage.files import FileGroup, check_places, refused_writing, together
from coalmine.storage.unfinished import UNFINISHED_FILE
from coalmine.storage.work_files import work_directory


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
    Parquet, their values), and of the others all other fields keep their values. For a planted corpus, the copies of canaries that are left
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

    def write(self, source: Path, target: Path, known: KnownManifest, group: FileGroup) -> Redaction:
        """The corpus, the manifest of a planted one, and the record last."""
        fields = self._options.fields
        original = OriginalCorpus.of(source, fields)
        plan = self._plan(source, fields)
        dropped, changed = _numbers(plan)
        if fields.source is None:
            digest = original.write(target, Edits(changes=plan.changes), self._progress)
        else:
            with refused_writing(target.parent), work_directory(target.parent) as work:
                half = work / target.name
                with (
                    open_corpus(source, fields) as corpus,
                    reported(corpus, self._progress, "writing the corpus") as advance,
                ):
                    corpus.write(half, Edits(changes=plan.changes), advance)
                digest, more = self._write_sources(half, target)
            dropped, changed = dropped + more[0], changed + more[1]
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
                joined = block.joined()
                content = joined.content.tobytes()
                starts = np.concatenate([[0], joined.ends[:-1]])
                everything = self._redactor.finder.find(content)
                hits = [one.start for one in everything if self._redactor.counts(one)]
                self._specimens += (
                    sum(one.specimen for one in everything) if not self._options.specimens else 0
                )
                places = np.unique(np.searchsorted(joined.ends, hits, side="right")).tolist()
                for place in self._with_next(places, block.count):
                    text = content[starts[place] : joined.ends[place] - 1].decode("utf-8")
                    self._decide(
                        changes, block.first + place, text, lines_are_documents=not corpus.kind.has_fields
                    )
                documents = block.first + block.count
                advance()
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
        place: int,
        text: str,
        *,
        lines_are_documents: bool,
    ) -> None:
        """Decide what becomes of a document."""
        if self._key_lines.continues(text):
            made = self._redactor.key_body()
            changes[place] = None if made is None else lambda _: made
            return
        found = self._redactor.redacted(text)
        self._done.update(found.done)
        self._lines += found.lines
        if found.text is None:
            changes[place] = None
        elif found.text != text:
            changes[place] = self._again
        if found.opens_key and lines_are_documents:
            self._key_lines.open()

    def _again(self, text: str) -> str:
        """The new text of a document that stays."""
        return self._redactor.redacted(text).text or ""

    def _write_sources(self, half: Path, target: Path) -> tuple[str, tuple[int, int]]:
        """Redact the other side of pairs."""
        fields = self._options.fields
        swapped = Fields(user=fields.user, source=fields.target, target=fields.source, date=fields.date)
        plan = self._plan(half, swapped)
        written = OriginalCorpus.of(half, swapped)
        return written.write(target, Edits(changes=plan.changes), self._progress), _numbers(plan)

    def _check(self, content: Path, target: Path) -> None:
        """Scan what was written; a document in which something is left would be a bug."""
        fields = self._options.fields
        sides = [fields]
        if fields.source is not None:
            sides.append(
                Fields(user=fields.user, source=fields.target, target=fields.source, date=fields.date)
            )
        for side in sides:
            with (
                open_corpus(content, side, kind=kind_of(target)) as corpus,
                reported(corpus, self._progress, "checking that nothing is left") as advance,
            ):
                for block in corpus.blocks():
                    if self._redactor.found(block.joined().content.tobytes()):
                        raise CorpusError(
                            "a secret was left in the corpus that was about to be written, so nothing was written; please report this"
                        )
                    advance()


def _numbers(plan: _Plan) -> tuple[int, int]:
    """How many documents are left out, and how many others change."""
    dropped = sum(change is None for change in plan.changes.values())
    return dropped, len(plan.changes) - dropped
