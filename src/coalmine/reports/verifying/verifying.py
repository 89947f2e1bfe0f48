"""`verify_run`: is every file of ours below some directories what was written?

Sealed documents vouch for themselves and for the files that were written with them. A manifest, which people may write themselves, is
vouched for by the results that were made with it and by the record of the run that planted it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from coalmine.audits.directories import audited_model, beside
from coalmine.audits.exposure.results import ExposureDocument
from coalmine.audits.extraction.results import Extraction, Verified, check_searches
from coalmine.audits.membership.results import Membership
from coalmine.audits.recitation.results import Recitation
from coalmine.corpus.deduplication.report import Deduplication
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.errors import AlteredError, ContradictionError, InputError
from coalmine.evidence.run import WatchedTraining, asked_model
from coalmine.progress import Progress, Silent
from coalmine.records.documents import beside as companion
from coalmine.records.documents import is_there, read_sealed
from coalmine.reports.runs.originals import check_manifest, measured_weights
from coalmine.reports.runs.reading import check_looks
from coalmine.reports.verifying.kinds import MANIFEST, UNKNOWN, WRITTEN_WITH, FileKind, kind_of, unfinished
from coalmine.reports.verifying.run_records import is_of_another_run, written_with
from coalmine.storage.files import sha256_of_file
from coalmine.storage.work_files import is_work_name
from coalmine.training.record import TrainingRecord

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


def verify_run(*paths: str | os.PathLike[str], progress: Progress | None = None) -> RunVerification:
    """Whether every file of ours below the given directories is what was written.

    With a model's directory its audit directory is looked at too, and the other way around. All files are read whole. Nothing is
    compared with what is not there: results without their model or manifest are judged by themselves.

    >>> import tempfile
    >>> from coalmine.audits.membership.measuring import membership_of_scores
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = membership_of_scores(range(80, 180), range(100)).save(folder)
    ...     before = verify_run(folder)
    ...     _ = path.write_bytes(path.read_bytes().replace(b"100", b"101", 1))
    ...     after = verify_run(folder)
    >>> before.sound, after.files[0].state
    (True, 'altered')
    """
    given = [Path(path) for path in paths]
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
        if not place.exists():
            raise InputError(f"{place} does not exist; name a directory that coalmine wrote to")
        yield place
        if place.is_dir():
            yield from beside(place)
            model = audited_model(place)
            if model is not None and model.is_dir():
                yield model


class _Files:
    """All files below some directories, while they are verified."""

    def __init__(self, given: list[Path], progress: Progress) -> None:
        self._given, self._progress = given, progress
        self._rows: dict[Path, FileState] = {}
        self._documents: dict[Path, Any] = {}
        self._manifests: dict[Path, CanarySet] = {}
        self._digests: dict[Path, str] = {}
        # Where each file really is, to how it was reached.
        self._all: dict[Path, Path] = {}

    def verified(self) -> RunVerification:
        """Look at each file by itself, then at what it says of others."""
        for top in _tops(self._given):
            for path in self._below(top):
                self._all.setdefault(path.resolve(), path)
        kinds = {path: self._kind(path) for path in sorted(self._all.values())}
        # Where nothing is ours, all there is to say is that.
        progress = self._progress if any(kinds.values()) else Silent()
        progress.start("Verifying files", len(self._all))
        for path, kind in kinds.items():
            if kind is not None:
                self._read(path, kind)
            progress.advance()
        for path, document in self._documents.items():
            self._check_companions(path, document, kinds[path])
        for path, document in self._documents.items():
            self._check_origin(path, document)
        self._check_records()
        self._check_manifests()
        for path in kinds:
            self._check_alone(path)
        progress.finish()
        rows = tuple(sorted(self._rows.values(), key=lambda row: row.path))
        sound = all(row.state in SOUND for row in rows)
        ignored = len(set(self._all) - set(self._rows))
        return RunVerification(sound=sound, exit_code=0 if sound else 2, files=rows, ignored=ignored)

    def _below(self, top: Path) -> Iterator[Path]:
        if not top.is_dir():
            yield top
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
            yield from (path for name in sorted(names) if (path := Path(directory) / name).is_file())

    def _note(self, path: Path, what: str, state: State, why: str = "") -> None:
        """Keep the first thing that is wrong with a file; the same file may be reached in several ways."""
        key = path.resolve()
        before = self._rows.get(key)
        if before is None:
            shown = str(self._all.get(key, path))
            self._rows[key] = FileState(path=shown, what=what, state=state, why=why)
        elif before.state in SOUND and state not in SOUND:
            self._rows[key] = msgspec.structs.replace(before, state=state, why=why)

    def _digest(self, path: Path) -> str:
        key = path.resolve()
        if key not in self._digests:
            self._digests[key] = sha256_of_file(path)
        return self._digests[key]

    def _kind(self, path: Path) -> FileKind | None:
        try:
            return kind_of(path)
        except OSError as problem:
            self._note(path, "a file", "unreadable", f"it cannot be read ({problem.strerror})")
            return None

    def _read(self, path: Path, kind: FileKind) -> None:
        try:
            if kind is MANIFEST:
                self._manifests[path] = CanarySet.load(path)
            if kind is UNKNOWN:
                read_sealed(path, "it")
                self._note(
                    path,
                    kind.shown,
                    "unreadable",
                    "its schema is not one that this version of coalmine reads",
                )
            if kind.sealed is None:
                return
            document = kind.sealed.alone(path)
            if isinstance(document, TrainingRecord | WatchedTraining):
                check_looks(path, document)
        except InputError as problem:
            self._refused(path, kind.shown, problem)
        else:
            self._documents[path] = document
            self._note(path, kind.shown, "as written")

    def _refused(self, path: Path, what: str, problem: InputError) -> None:
        state: State = "unreadable"
        if isinstance(problem, AlteredError):
            state = "altered"
        elif isinstance(problem, ContradictionError):
            state = "contradictory"
        self._note(path, what, state, str(problem))

    def _check_companions(self, path: Path, document: Any, kind: FileKind | None) -> None:
        if kind is None or kind.sealed is None:
            return
        for name, sha256 in kind.sealed.companions(document).items():
            self._check_companion(path, companion(path, name), sha256)
        if isinstance(document, Verified):
            try:
                check_searches(path, document)
            except ContradictionError as problem:
                self._refused(path, kind.shown, problem)
            except InputError:
                pass  # an extraction that cannot be read has a row of its own

    def _check_companion(self, document: Path, path: Path, sha256: str | None) -> None:
        what = f"written with {document.name}"
        try:
            if not is_there(path):
                if sha256 is not None:
                    self._note(path, what, "missing", f"{document} was written with it; restore it")
            elif sha256 is None or self._digest(path) != sha256:
                why = f"its SHA-256 is not the one in {document}; restore it, or make it again"
                self._note(path, what, "altered", why)
            else:
                self._note(path, what, "as written")
        except InputError as problem:
            self._note(path, what, "unreadable", str(problem))

    def _check_origin(self, path: Path, document: Any) -> None:
        """Whether a result is of the weights and of the results that are there."""
        for weights, digests in measured_weights(self._given, path, _model_of(document)):
            if self._digest(weights) in digests:
                self._note(weights, "weights", "as written")
            else:
                self._note(
                    path,
                    "",
                    "of other weights",
                    f"{weights} was changed or trained again since; measure it again",
                )
        if isinstance(document, Membership) and document.exposures_sha256 is not None:
            same = [
                place
                for place, other in self._documents.items()
                if isinstance(other, ExposureDocument)
                and (other.manifest_sha256, other.model) == (document.manifest_sha256, document.model)
            ]
            if same and document.exposures_sha256 not in {self._digest(place) for place in same}:
                self._note(
                    path,
                    "",
                    "of other results",
                    f"{same[0]} was measured again since; run `coalmine membership` again",
                )

    def _check_records(self) -> None:
        """Whether the document that each run.json was written with is there, and is still that one."""
        there = {**self._documents, **self._manifests}
        for path, record in self._documents.items():
            name = written_with(record) if isinstance(record, dict) else None
            if name is None:
                continue
            written = path.with_name(name)
            if not is_there(written):
                self._note(
                    written, "written with run.json", "missing", f"{path} was written with it; restore it"
                )
            elif written in there and is_of_another_run(record, there[written]):
                self._note(
                    path, "", "of other results", f"{written} was not written by the run that it tells of"
                )

    def _check_manifests(self) -> None:
        """What vouches for each manifest, its corpus, and whether results are of a manifest that is there."""
        known = {found.sha256: found for found in self._manifests.values()}
        told = [(path, digest) for path, one in self._documents.items() for digest in _manifests_told_of(one)]
        told += [(path, digest) for path, one in self._manifests.items() for digest in _manifest_before(one)]
        unused = set(known) - {digest for _, digest in told}
        for path, found in self._manifests.items():
            record = path.with_name("run.json")
            if found.sha256 not in unused:
                self._note(path, MANIFEST.shown, "as written")
            elif any(place == record for place, _ in told):
                why = f"{record} tells of another one; restore it, or make what depends on it again"
                self._note(path, MANIFEST.shown, "altered", why)
            else:
                why = "nothing that is here says what it was; verify it together with the results that were made with it"
                self._note(path, MANIFEST.shown, "not vouched for", why)
            if found.corpus is not None:
                self._check_companion(path, companion(path, found.corpus.name), found.corpus.sha256_after)
        for path, document in self._documents.items():
            if not isinstance(document, ExposureDocument | Verified | Membership):
                continue
            try:
                check_manifest(path, document, known)
            except ContradictionError as problem:
                self._refused(path, "", problem)
            if unused and document.manifest_sha256 is not None and document.manifest_sha256 not in known:
                others = next(path for path, found in self._manifests.items() if found.sha256 in unused)
                self._note(
                    path, "", "of another manifest", f"it was made with other canaries than those in {others}"
                )

    def _check_alone(self, path: Path) -> None:
        """Work that was stopped, and files that only a document that is not there could vouch for."""
        stopped = unfinished(path)
        if stopped is not None:
            if stopped.kept_by_search and self._is_open(path.parent):
                self._note(path, "search", "kept for resuming")
            elif stopped.left_over:
                self._note(
                    path,
                    "work file",
                    "left over",
                    "what it was for is finished, or its process has ended; remove it",
                )
            else:
                self._note(path, "work file", "unfinished", "run the same command again to resume")
            return
        for names, document in WRITTEN_WITH:
            if names.fullmatch(path.name) and path.resolve() not in self._rows:
                why = f"{path.with_name(document)}, which would say what it was, is missing or cannot be read"
                self._note(path, f"written with {document}", "not vouched for", why)

    def _is_open(self, folder: Path) -> bool:
        """Whether a search in a folder ended without a proof, so that it can go on with a larger budget."""
        return any(
            path.parent == folder and isinstance(document, Extraction) and not document.proven
            for path, document in self._documents.items()
        )


def _model_of(document: Any) -> Mapping[str, Any]:
    if isinstance(document, Recitation):
        return asked_model(document)
    if isinstance(document, ExposureDocument | Extraction | Verified | Membership):
        return document.model
    return {}


def _manifests_told_of(document: Any) -> Iterator[str]:
    """The SHA-256 of each manifest that a document was made with, or made."""
    told = document if isinstance(document, dict) else getattr(document, "watch", None)
    facts = told if isinstance(told, dict) else {}
    found = [facts.get("manifest_sha256"), facts.get("earlier_manifest_sha256")]
    found.append(getattr(document, "manifest_sha256", None))
    if isinstance(document, Deduplication) and document.canaries is not None:
        found.append(document.canaries.manifest_sha256)
    yield from (one for one in found if isinstance(one, str))


def _manifest_before(found: CanarySet) -> Iterator[str]:
    """The manifest that one was made from, where its corpus was rewritten."""
    if found.corpus is not None and found.corpus.rewritten is not msgspec.UNSET:
        yield found.corpus.rewritten.manifest_sha256
