"""`verify_run`: is every file of ours below some directories what was written?

Sealed documents vouch for themselves and for the files that were written with them. A manifest, which people may write themselves, is
vouched for by the results that were made with it and by the record of the run that planted it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from coalmine.corpus.planting.manifest import MANIFESTS, CanarySet
from coalmine.errors import AlteredError, ContradictionError, InputError, MissingExtraError
from coalmine.evidence.directories import audit_directory, audited_model, beside, model_of_result
from coalmine.evidence.originals import check_again, check_manifest, measured_weights
from coalmine.evidence.run import Located
from coalmine.models.transformers.model_files import GGUF_ENDING
from coalmine.progress import Progress, Silent
from coalmine.records.documents import Document, is_there, read_sealed
from coalmine.records.documents import beside as companion
from coalmine.records.run_record import RUN_RECORDS
from coalmine.reports.verifying import kinds
from coalmine.reports.verifying.run_records import belongs_beside, is_of_another_run, written_with
from coalmine.storage.files import sha256_of_file
from coalmine.storage.links import LEADS_IN_A_CIRCLE, is_circle, real_path, refuse_circle
from coalmine.storage.work_files import is_work_name

SCHEMA = "coalmine.verification/1"
State = Literal[
    "as written",
    "kept for resuming",
    "altered",
    "contradictory",
    "unreadable",
    "missing",
    "of other weights",
    "of another manifest",
    "of other results",
    "not vouched for",
    "unfinished",
    "left over",
]
# States of files that are what they should be.
SOUND: frozenset[State] = frozenset({"as written", "kept for resuming"})


class FileState(msgspec.Struct, frozen=True, kw_only=True):
    """One file of ours, and whether it is what was written."""

    path: str
    # What it is, such as "exposures".
    what: str
    state: State
    # Why, in a sentence; "" where it is as written.
    why: str = ""


class RunVerification(msgspec.Struct, frozen=True, kw_only=True):
    """What was found of every file of ours; `ignored` is how many others there are."""

    schema: str = SCHEMA
    sound: bool
    exit_code: int
    files: tuple[FileState, ...]
    ignored: int


def verify_run(*runs: str | os.PathLike[str], progress: Progress | None = None) -> RunVerification:
    """Whether every file of ours below the given directories is what was written.

    With a model's directory its audit directory is looked at too, and the other way around. All files are read whole. Nothing is
    compared with what is not there: results without their model or manifest are judged by themselves.

    >>> import tempfile
    >>> from coalmine.audits.membership.measure import membership_of_scores
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = membership_of_scores(range(80, 180), range(100)).save(folder)
    ...     before = verify_run(folder)
    ...     _ = path.write_bytes(path.read_bytes().replace(b"100", b"101", 1))
    ...     after = verify_run(folder)
    >>> before.sound, after.files[0].state
    (True, 'altered')
    """
    given = [Path(run) for run in runs]
    if not given:
        raise InputError("there is nothing to verify; name a directory that coalmine wrote to")
    found = _Files(given, progress or Silent()).verified()
    if not found.files:
        raise InputError(
            f"nothing that coalmine wrote was found below {', '.join(map(str, given))}; name another directory"
        )
    return found


def _tops(given: list[Path]) -> Iterator[Path]:
    for place in given:
        refuse_circle(place)
        if not place.exists():
            raise InputError(f"{place} does not exist; name a directory that coalmine wrote to")
        yield place
        if place.is_dir() or place.name.lower().endswith(GGUF_ENDING):
            yield from beside(place)
            model = audited_model(place)
            if model is not None and model.is_dir():
                yield model
            yield from (
                other for other in (audit_directory(place), model) if other is not None and is_circle(other)
            )


class _Files:
    """All files below some directories, while they are verified."""

    def __init__(self, given: list[Path], progress: Progress) -> None:
        self._given, self._progress = given, progress
        self._rows: dict[Path, FileState] = {}
        self._documents: dict[Path, tuple[Document[Any], Any]] = {}
        self._manifests: dict[Path, CanarySet] = {}
        self._digests: dict[Path, str] = {}
        # Where each file really is, to how it was reached.
        self._all: dict[Path, Path] = {}

    def verified(self) -> RunVerification:
        """Look at each file by itself, then at what it says of others."""
        for top in _tops(self._given):
            for path in self._below(top):
                self._all.setdefault(real_path(path), path)
        found = {path: self._kind(path) for path in sorted(self._all.values())}
        # Where nothing is ours, all there is to say is that.
        progress = self._progress if any(ours for _, ours in found.values()) else Silent()
        progress.start("Verifying files", len(self._all))
        for path, (kind, ours) in found.items():
            if ours:
                self._read(path, kind)
            progress.advance()
        for path, (kind, document) in self._documents.items():
            self._check_companions(path, kind, document)
        for path, (kind, document) in self._documents.items():
            self._check_origin(path, kind, document)
        self._check_records()
        for path, (_, ours) in found.items():
            if not ours:
                self._check_replaced(path)
        self._check_manifests()
        for path in found:
            self._check_alone(path)
        progress.finish()
        rows = tuple(sorted(self._rows.values(), key=lambda row: row.path))
        sound = all(row.state in SOUND for row in rows)
        ignored = len(set(self._all) - set(self._rows))
        return RunVerification(sound=sound, exit_code=0 if sound else 2, files=rows, ignored=ignored)

    def _below(self, top: Path) -> Iterator[Path]:
        if not top.is_dir():
            yield from self._readable([top])
            return
        for directory, folders, names in os.walk(top):
            for name in folders:
                if is_work_name(name):
                    self._note(
                        Path(directory) / name,
                        "work directory",
                        "left over",
                        "its process has ended, or is still at work",
                    )
            folders[:] = sorted(folder for folder in folders if not folder.startswith("."))
            yield from self._readable(Path(directory) / name for name in sorted(names))

    def _readable(self, paths: Iterable[Path]) -> Iterator[Path]:
        """Those that are files; a link that leads in a circle may stand where a file of ours was."""
        for path in paths:
            if path.is_file():
                yield path
            elif is_circle(path):
                kind = kinds.named(path.name)
                title = "symbolic link" if kind is None else kind.title
                self._note(path, title, "unreadable", f"it {LEADS_IN_A_CIRCLE}")

    def _note(self, path: Path, what: str, state: State, why: str = "") -> None:
        """Keep the first thing that is wrong with a file; the same file may be reached in several ways."""
        key = real_path(path)
        before = self._rows.get(key)
        if before is None:
            shown = str(self._all.get(key, path))
            self._rows[key] = FileState(path=shown, what=what, state=state, why=why)
        elif before.state in SOUND and state not in SOUND:
            self._rows[key] = msgspec.structs.replace(before, state=state, why=why)

    def _digest(self, path: Path) -> str:
        key = real_path(path)
        if key not in self._digests:
            self._digests[key] = sha256_of_file(path)
        return self._digests[key]

    def _kind(self, path: Path) -> tuple[Document[Any] | None, bool]:
        try:
            return kinds.kind_of(path)
        except OSError as problem:
            self._note(path, "a file", "unreadable", f"it cannot be read ({problem.strerror})")
            return None, False

    def _read(self, path: Path, kind: Document[Any] | None) -> None:
        """Read a file of ours by itself; one of an unknown kind is one of another version."""
        title = "a file of another version" if kind is None else kind.title
        try:
            if kind is None:
                read_sealed(path, "it")
                why = "its schema is not one that this version of coalmine reads"
                self._note(path, title, "unreadable", why)
                return
            document = kind.alone(path)
            kind.check(path, document)
        except InputError as problem:
            self._refused(path, title, problem)
            return
        if kind is MANIFESTS:
            self._manifests[path] = document
        else:
            self._documents[path] = kind, document
            self._note(path, title, "as written")

    def _refused(self, path: Path, what: str, problem: InputError) -> None:
        state: State = "unreadable"
        if isinstance(problem, AlteredError):
            state = "altered"
        elif isinstance(problem, ContradictionError):
            state = "contradictory"
        self._note(path, what, state, str(problem))

    def _check_companions(self, path: Path, kind: Document[Any], document: Any) -> None:
        as_written = [
            self._check_companion(path, companion(path, name), sha256)
            for name, sha256 in kind.companions(document).items()
        ]
        if not all(as_written):
            return  # what it says of a file that was exchanged is not its own fault
        try:
            check_again(kind, path, document)
        except ContradictionError as problem:
            self._refused(path, kind.title, problem)
        except MissingExtraError:
            raise
        except InputError:
            pass  # a file beside it that cannot be read has a row of its own

    def _check_companion(self, document: Path, path: Path, sha256: str | None) -> bool:
        """Whether a file that was written with a document is absent, or still what it was."""
        what = f"written with {document.name}"
        try:
            if not is_there(path):
                if sha256 is not None:
                    self._note(path, what, "missing", f"{document} was written with it; restore it")
                return True
            if sha256 is None or self._digest(path) != sha256:
                why = f"its SHA-256 is not the one in {document}; restore it, or make it again"
                self._note(path, what, "altered", why)
                return False
            self._note(path, what, "as written")
        except InputError as problem:
            self._note(path, what, "unreadable", str(problem))
            return False
        return True

    def _check_origin(self, path: Path, kind: Document[Any], document: Any) -> None:
        """Whether a result is about the weights, and was computed from the results, that are there."""
        model = {} if kind.origin.model is None else kind.origin.model(document)
        for weights, digests in measured_weights(self._given, path, model):
            try:
                if self._digest(weights) in digests:
                    self._note(weights, "weights", "as written")
                else:
                    why = f"{weights} was changed or trained again since; measure it again"
                    self._note(path, "", "of other weights", why)
            except InputError as problem:
                self._note(weights, "weights", "unreadable", str(problem))
        source = kind.origin.source
        digest = None if source is None else source.sha256(document)
        if source is None or digest is None:
            return
        same = [
            place
            for place, (other, found) in self._documents.items()
            if other is source.document and _about(other, found) == _about(kind, document)
        ]
        if same and digest not in {self._digest(place) for place in same}:
            why = f"{same[0]} was measured again since; run `{source.command}` again"
            self._note(path, "", "of other results", why)

    @property
    def _everything(self) -> dict[Path, tuple[Document[Any], Any]]:
        """All documents and manifests that could be read, each with its kind."""
        return {**self._documents, **{path: (MANIFESTS, one) for path, one in self._manifests.items()}}

    def _check_records(self) -> None:
        """Whether the document that each run.json was written with is there, and is still that one."""
        there = self._everything
        for path, (kind, record) in self._documents.items():
            name = written_with(record) if kind is RUN_RECORDS else None
            if name is None:
                continue
            written = path.with_name(name)
            if not is_there(written):
                why = f"{path} was written with it; restore it"
                self._note(written, "written with run.json", "missing", why)
            elif written in there and is_of_another_run(record, *there[written]):
                why = f"{written} was not written by the run that it records"
                self._note(path, "", "of other results", why)

    def _check_replaced(self, path: Path) -> None:
        """Whether a file that is not ours, and has a name that other programs use too, is where one of ours was written."""
        kind = kinds.named(path.name)
        if kind is None or real_path(path) in self._rows:
            return
        folder = real_path(path.parent)
        # A directory of another program may hold a result of ours, and then a run.json that says something is its own.
        of_audit = model_of_result(path) is not None
        for place, (other, document) in self._everything.items():
            if (
                real_path(place.parent) == folder
                and belongs_beside(kind, other, document)
                and (kind is not RUN_RECORDS or of_audit or kinds.says_nothing(path))
            ):
                why = f"{place} was written with another file of this name; restore it, or make it again"
                self._note(path, kind.title, "altered", why)
                return

    def _check_manifests(self) -> None:
        """What vouches for each manifest, its corpus, and whether results are of a manifest that is there."""
        known = {found.sha256: found for found in self._manifests.values()}
        told = [
            (path, digest)
            for path, (kind, document) in self._everything.items()
            for digest in kind.origin.manifests(document)
            if digest is not None
        ]
        unused = set(known) - {digest for _, digest in told}
        for path, found in self._manifests.items():
            record = path.with_name("run.json")
            if found.sha256 not in unused:
                self._note(path, MANIFESTS.title, "as written")
            elif any(place == record for place, _ in told):
                why = f"{record} records another one; restore it, or make what depends on it again"
                self._note(path, MANIFESTS.title, "altered", why)
            else:
                why = "nothing that is here says what it was; verify it together with the results that were made with it"
                self._note(path, MANIFESTS.title, "not vouched for", why)
            for name, sha256 in MANIFESTS.companions(found).items():
                self._check_companion(path, companion(path, name), sha256)
        for path, (kind, document) in self._documents.items():
            try:
                check_manifest(kind, Located(path, document), known)
            except ContradictionError as problem:
                self._refused(path, "", problem)
            except InputError:
                pass  # a file beside it that cannot be read has a row of its own
            if not kind.origin.measures_canaries:
                continue
            made_with = {digest for digest in kind.origin.manifests(document) if digest is not None}
            if unused and made_with and not made_with & set(known):
                others = next(path for path, found in self._manifests.items() if found.sha256 in unused)
                self._note(
                    path, "", "of another manifest", f"it was made with other canaries than those in {others}"
                )

    def _check_alone(self, path: Path) -> None:
        """Work that was stopped, and files that only a document that is not there could vouch for."""
        stopped = kinds.unfinished(path)
        if stopped is not None:
            if stopped.kept_for is not None and self._resumes(path.parent, stopped.kept_for):
                self._note(path, "search", "kept for resuming")
            elif stopped.left_over:
                why = "what it was for is finished, or its process has ended; remove it"
                self._note(path, "work file", "left over", why)
            else:
                self._note(path, "work file", "unfinished", "run the same command again to resume")
            return
        kind = kinds.written_with(path)
        if kind is not None and real_path(path) not in self._rows:
            why = f"{path.with_name(kind.file)}, which would say what it was, is missing or cannot be read"
            self._note(path, f"written with {kind.file}", "not vouched for", why)

    def _resumes(self, folder: Path, kind: Document[Any]) -> bool:
        """Whether a result in a folder is one that keeps its work files, to resume with a larger budget."""
        keeps = kind.keeps_work_files
        return keeps is not None and any(
            path.parent == folder and other is kind and keeps(document)
            for path, (other, document) in self._documents.items()
        )


def _about(kind: Document[Any], document: Any) -> tuple[Any, ...]:
    """The manifest and the model that a result is about."""
    model = None if kind.origin.model is None else kind.origin.model(document)
    return tuple(kind.origin.manifests(document)), model
