"""`verify_run`: is every file of ours below some directories what was written?

Sealed documents vouch for themselves and for the files that were written with them. A manifest, which people may write themselves, is
vouched for by the results that were made with it and by the record of the run that planted it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from coalmine.audits.registry import COMPARISONS, OF_CORPORA, audits
from coalmine.corpus.deduplication.report import DEDUPLICATIONS
from coalmine.corpus.index.shards import INDEXES
from coalmine.corpus.planting.manifest import MANIFESTS
from coalmine.corpus.redaction.report import REDACTIONS
from coalmine.corpus.secrets.results import SCANS
from coalmine.errors import AlteredError, ContradictionError, InputError, MissingExtraError
from coalmine.evidence.directories import audited_model, beside
from coalmine.evidence.reading import check_again, check_manifest, documents_of, measured_weights
from coalmine.evidence.run import Located
from coalmine.models.reference.checkpoint import MODELS
from coalmine.models.transformers.model_files import GGUF_ENDING
from coalmine.progress import Progress, Silent
from coalmine.records.documents import Document, is_sealed, is_there, read_sealed
from coalmine.records.documents import beside as companion
from coalmine.storage.decoding import UndecodableError, decode_python_json
from coalmine.storage.directories import UNFINISHED_FILE, is_resumed_from
from coalmine.storage.files import real_path, sha256_of_file
from coalmine.training.quantizing.record import QUANTIZATIONS
from coalmine.training.unlearning.record import UNLEARNINGS
from coalmine.visible import visible

SCHEMA = "coalmine.verification/2"
State = Literal["as written", "altered", "of something else", "unreadable", "unfinished"]
_SCHEMA = re.compile(rb'"schema"\s*:\s*"(?P<schema>[a-z][a-z0-9_.-]*/[0-9]+)"')
# Where a schema is looked for: it is the first field.
_BEGINNING = 4_096


class FileState(msgspec.Struct, frozen=True, kw_only=True):
    """One file of ours: what it is, such as "exposures", whether it is what was written, and if not, why."""

    path: str
    what: str
    state: State
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
    found = _Files([Path(run) for run in runs]).verified(progress or Silent())
    if not found.files:
        raise InputError(
            f"nothing that coalmine wrote was found below {', '.join(map(str, runs))}; name another directory"
        )
    return found


def all_documents() -> tuple[Document[Any], ...]:
    """Every kind of document that coalmine writes."""
    compared = (one.document for one in COMPARISONS)
    of_corpora = (*OF_CORPORA, DEDUPLICATIONS, SCANS, REDACTIONS, INDEXES)
    return (*documents_of(audits()), *compared, *of_corpora, MODELS, QUANTIZATIONS, UNLEARNINGS)


class _Files:
    """All files below some directories, while they are verified."""

    def __init__(self, given: list[Path]) -> None:
        self._given = given
        self._rows: dict[Path, FileState] = {}
        self._documents: dict[Path, tuple[Document[Any], Any]] = {}
        self._digests: dict[Path, str] = {}

    def verified(self, progress: Progress) -> RunVerification:
        """Look at each file by itself, then at what it says of others."""
        # A file that is reached in two ways is one file.
        every = sorted({real_path(path): path for path in reversed([*self._below()])}.values())
        progress.start("Verifying files", len(every))
        for path in every:
            if path.suffix == ".json":
                self._read(path)
            progress.advance()
        for path, (kind, document) in self._documents.items():
            self._check_companions(path, kind, document)
            self._check_weights(path, kind, document)
        self._check_manifests()
        finished = {path.parent for path in self._documents}
        for path in every:
            if is_resumed_from(path.name) or path.name == UNFINISHED_FILE:
                # Where the result is beside it, stopped work may be kept for a larger budget.
                kept = path.name != UNFINISHED_FILE and path.parent in finished
                why = "run the same command again to resume"
                self._note(path, "work file", *(() if kept else ("unfinished", why)))
        progress.finish()
        rows = tuple(sorted(self._rows.values(), key=lambda row: row.path))
        sound = all(row.state == "as written" for row in rows)
        ignored = len({real_path(path) for path in every} - set(self._rows))
        return RunVerification(sound=sound, exit_code=0 if sound else 2, files=rows, ignored=ignored)

    def _below(self) -> Iterator[Path]:
        for place in self._given:
            if not place.exists():
                raise InputError(f"{place} does not exist; name a directory that coalmine wrote to")
            tops = [place]
            if place.is_dir() or place.name.lower().endswith(GGUF_ENDING):
                model = audited_model(place)
                tops += [*beside(place), *([model] if model is not None and model.is_dir() else [])]
            for top in tops:
                if not top.is_dir():
                    yield top
                for directory, folders, names in os.walk(top):
                    folders[:] = sorted(folder for folder in folders if not folder.startswith("."))
                    here = (Path(directory) / name for name in sorted(names))
                    yield from (path for path in here if path.is_file() or path.is_symlink())

    def _note(self, path: Path, what: str, state: State = "as written", why: str = "") -> None:
        """Keep the first thing that is wrong with a file; the same file may be reached in several ways."""
        before = self._rows.get(real_path(path))
        if before is None:
            self._rows[real_path(path)] = FileState(path=str(path), what=what, state=state, why=why)
        elif before.state == "as written":
            self._rows[real_path(path)] = msgspec.structs.replace(before, state=state, why=why)

    @contextlib.contextmanager
    def _refusals_noted(self, path: Path, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            self._note(path, what, "unreadable", f"it cannot be read ({problem.strerror})")
        except MissingExtraError:
            raise
        except InputError as problem:
            altered = isinstance(problem, AlteredError | ContradictionError)
            self._note(path, what, "altered" if altered else "unreadable", str(problem))

    def _digest(self, path: Path) -> str:
        key = real_path(path)
        if key not in self._digests:
            self._digests[key] = sha256_of_file(path)
        return self._digests[key]

    def _read(self, path: Path) -> None:
        """Read a file by itself, if it is one of ours; one of an unknown kind is one of another version."""
        what = "a file of another version"
        with self._refusals_noted(path, what):
            kind, ours = _kind_of(path)
            if kind is None and ours:
                read_sealed(path, "it")
                self._note(path, what, "unreadable", "this version of coalmine does not read its schema")
            elif kind is not None:
                with self._refusals_noted(path, kind.title):
                    self._documents[path] = (kind, kind.alone(path))
                    self._note(path, kind.title)

    def _check_companions(self, path: Path, kind: Document[Any], document: Any) -> None:
        """Whether the files that were written with a document are what they were, and it follows from them."""
        sound = True
        for name, sha256 in kind.companions(document).items():
            other, what = companion(path, name), f"written with {path.name}"
            if not is_there(other):
                if sha256 is not None:
                    why = f"it is missing: {path} was written with it; restore it"
                    self._note(other, what, "unreadable", why)
                continue
            same = False
            with self._refusals_noted(other, what):
                same = sha256 is not None and self._digest(other) == sha256
                why = f"its SHA-256 is not the one in {path}; restore it, or make it again"
                self._note(other, what, *(() if same else ("altered", why)))
            sound = sound and same
        if sound:  # what it says of a file that was exchanged is not its own fault
            self._check_contradictions(path, kind, check_again, kind, path, document)

    def _check_contradictions(
        self, path: Path, kind: Document[Any], check: Callable[..., None], *given: Any
    ) -> None:
        """Note what a document contradicts; a file beside it that cannot be read has a row of its own."""
        with self._refusals_noted(path, kind.title):
            try:
                check(*given)
            except (ContradictionError, MissingExtraError):
                raise
            except InputError:
                pass

    def _check_weights(self, path: Path, kind: Document[Any], document: Any) -> None:
        """Whether a result is about the weights that are there."""
        model = {} if kind.origin.model is None else kind.origin.model(document)
        for weights, digests in measured_weights(self._given, path, model):
            with self._refusals_noted(weights, "weights"):
                if self._digest(weights) in digests:
                    self._note(weights, "weights")
                else:
                    why = f"{weights} was changed or trained again since; measure it again"
                    self._note(path, "", "of something else", why)

    def _check_manifests(self) -> None:
        """What vouches for each manifest, and whether results are of a manifest that is there."""
        made_with = {
            path: {digest for digest in kind.origin.manifests(document) if digest is not None}
            for path, (kind, document) in self._documents.items()
        }
        manifests = {path: one for path, (kind, one) in self._documents.items() if kind is MANIFESTS}
        known, named = {one.sha256: one for one in manifests.values()}, set().union(*made_with.values())
        unused = [path for path, one in manifests.items() if one.sha256 not in named]
        for path in unused:
            why = "nothing that is here says that it was so; restore it, or verify it with the results that were made with it"
            self._note(path, "", "of something else", why)
        for path, (kind, document) in self._documents.items():
            self._check_contradictions(path, kind, check_manifest, kind, Located(path, document), known)
            of_others = made_with[path] and made_with[path].isdisjoint(known)
            if unused and kind.origin.measures_canaries and of_others:
                why = f"it was made with other canaries than those in {unused[0]}"
                self._note(path, "", "of something else", why)


def _kind_of(path: Path) -> tuple[Document[Any] | None, bool]:
    """What a JSON file is, and whether it is ours: one that ends with a checksum of ours may be of another version."""
    content = path.read_bytes()
    ours = is_sealed(content)
    named = next((kind for kind in all_documents() if kind.is_named(path.name)), None)
    found = _SCHEMA.search(content[:_BEGINNING])
    schema = None if found is None else found["schema"].decode()
    if named is not None and (not named.name_is_common or schema == named.schema or ours):
        return named, True
    known = next((kind for kind in all_documents() if kind.schema == schema), None)
    if known is not None or ours or named is None:
        return known, ours
    try:  # what is empty or cut short may be ours; other programs write whole files of a common name
        decode_python_json(content)
    except UndecodableError:
        return named, True
    return None, False


def verification_in_words(found: RunVerification) -> list[str]:
    """What is wrong with each file that is not what was written, and whether all are."""
    wrong = [row for row in found.files if row.state != "as written"]
    lines = [f"{visible(row.path)} is {row.state}: {visible(row.why)}" for row in wrong]
    others = f" {found.ignored:,} other files were not looked at." if found.ignored else ""
    many = (
        f"{len(wrong):,} of {len(found.files):,} files are NOT"
        if wrong
        else f"All {len(found.files):,} files are"
    )
    return [*lines, f"{many} what was written.{others}"]
