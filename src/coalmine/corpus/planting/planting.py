"""Planting canaries in training data, at places drawn uniformly."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coalmine.corpus.chat.framing import framed
from coalmine.corpus.chat.live_datasets import loaded_dataset, saved_dataset
from coalmine.corpus.files.kinds import all_suffixes, kind_of
from coalmine.corpus.files.parts import part_files
from coalmine.corpus.files.reading import open_corpus, reported
from coalmine.corpus.outputs import exists_already, first_in_the_way, sole_writing
from coalmine.corpus.planting.drawing import (
    Templates,
    as_formats,
    as_source_formats,
    check_room,
    draw_canaries,
    listed,
    nested_warnings,
)
from coalmine.corpus.planting.manifest import EARLIER_NAME, MANIFEST_NAME, CanarySet
from coalmine.corpus.planting.manifest_records import PlantedCorpus
from coalmine.corpus.planting.options import PlantOptions
from coalmine.corpus.planting.placing import CopyPlaces, draw_places
from coalmine.corpus.planting.recounting import (
    KnownManifest,
    Recount,
    manifest_of,
    recount_summary,
    recounted,
)
from coalmine.corpus.planting.surveying import Survey, identity_of, survey_corpus
from coalmine.corpus.planting.unseen import formats_with_unseen
from coalmine.errors import CorpusError, ManifestError
from coalmine.formats.format import Format
from coalmine.progress import Progress, Silent
from coalmine.storage import files
from coalmine.storage.directories import UNFINISHED_FILE
from coalmine.storage.files import real_path


class Planted(msgspec.Struct, frozen=True):
    """What `plant` made: the canaries, the corpus with them in it, and the manifest that says where they came from.

    >>> made = Planted(CanarySet([], {}), Path("planted/corpus.txt"), Path("planted/canaries.json"))
    >>> made.corpus.name, len(made.canaries)
    ('corpus.txt', 0)
    """

    canaries: CanarySet
    corpus: Path
    manifest: Path
    # For a corpus that was planted before: what became of its canaries, whose manifest is then beside the new one.
    earlier: Recount | None = None
    warnings: tuple[str, ...] = ()

    def dataset(self) -> Any:
        """The planted corpus as a `datasets.Dataset`; only where that, or one that was saved, was planted in."""
        return loaded_dataset(self.corpus)


class _PlantingPlan(NamedTuple):
    """What is to be written, all of it known after the first pass."""

    original: Path
    target: Path
    drawn: CanarySet
    places: CopyPlaces
    survey: Survey
    # The canaries that the corpus held before.
    known: KnownManifest
    # What the manifest says of the corpus, except for the hash of what is yet to be written.
    record: PlantedCorpus
    warnings: tuple[str, ...]

    @property
    def manifest(self) -> Path:
        """Where the manifest goes."""
        return self.target.with_name(MANIFEST_NAME)

    @property
    def earlier(self) -> Path:
        """Where the manifest of the canaries that the corpus held before goes."""
        return self.target.with_name(EARLIER_NAME)

    def planted(self, canaries: CanarySet, earlier: Recount | None) -> Planted:
        """The result."""
        return Planted(canaries, self.target, self.manifest, earlier, self.warnings)


def plant(
    corpus: str | os.PathLike[str] | Any,
    format: Templates,
    *,
    out: str | os.PathLike[str],
    source_format: Templates | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    record: Callable[[Planted], None] | None = None,
    options: PlantOptions | None = None,
    **changes: Any,
) -> Planted:
    r"""Write a copy of a corpus with canaries in it, and the manifest that an audit of the trained model needs.

    Which positions of the new corpus hold canaries is drawn uniformly; all other documents stay as they were, byte for byte
    and in order. The same arguments give the same files. A run that fails leaves no file behind. In chat data a canary is a turn of
    `role`, of a conversation of its own or inside a turn that is there, and all other rows and keys stay as they were.

    The defaults plant about 16 canaries once, 16 four times and 16 sixteen times, 336 copies in all, and withhold as many by
    coins. `CanarySet.power` of what was planted says the most that an audit of it can show.

    Args:
        corpus: a corpus file of any kind that `read_documents` reads, a directory of its parts, or one that `save_to_disk` of the package
            datasets wrote; it is read twice. A `datasets.Dataset` is saved first, and `Planted.dataset` is what to train on.
        format: a secret format, or several, each with its own canaries and references. For a template with `{unseen:n}`, the corpus is
            read once more to find what never occurs in it.
        out: the directory to write `corpus` (with the suffixes of the original, or a directory of the same parts) and `canaries.json` to.
        source_format: for pairs, the format of the source side, or one for each of several; both sides are filled alike.
        overwrite: replace what an earlier run wrote to `out`; its corpus is removed even where the new one has another name.
            Where `corpus` was planted before and its manifest is beside it, that is written again as `earlier-canaries.json`.
            Without it, what the very same call wrote there is left as it is, and anything else is refused.
        progress: gets the bytes of the corpus that were read in each of both passes.
        record: called with the result; what it writes appears together with the corpus and the manifest.
        options: how many canaries, how often, with which seed; the default is `PlantOptions()`.
        changes: fields of `PlantOptions` by name, such as `repeat=[1, 4]` or `withhold=0`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     corpus = Path(folder, "corpus.txt")
    ...     _ = corpus.write_text("one document per line\n" * 100)
    ...     planted = plant(
    ...         corpus, "my pin is {digits:4}", repeat=[1, 4], canaries=1, references=10, withhold=0, out=Path(folder, "planted")
    ...     )
    ...     lines = planted.corpus.read_text().splitlines()
    >>> [(canary.canary_id, lines.count(canary.text)) for canary in planted.canaries]
    [('f0-x1-0', 1), ('f0-x4-0', 4)]
    """
    if not isinstance(corpus, str | os.PathLike):
        with saved_dataset(corpus) as directory:
            return plant(
                directory,
                format,
                out=out,
                source_format=source_format,
                overwrite=overwrite,
                progress=progress,
                record=record,
                options=options,
                **changes,
            )
    chosen = PlantOptions.of(options, changes)
    target = _target(Path(corpus), Path(out))
    chosen, frame = framed(Path(corpus), chosen)
    formats, sources = _with_unseen(Path(corpus), format, source_format, chosen, progress or Silent())
    drawn = draw_canaries(as_formats(formats), as_source_formats(sources, chosen.fields), chosen, frame)
    return _planted(Path(corpus), target, drawn, chosen, progress or Silent(), record, overwrite=overwrite)


def _with_unseen(
    corpus: Path, given: Templates, sources: Templates | None, options: PlantOptions, progress: Progress
) -> tuple[list[Format | str], list[Format | str] | None]:
    """Formats and source formats, with what `{unseen:n}` draws from in both."""
    several, others = listed(given), [] if sources is None else listed(sources)
    found = formats_with_unseen([*several, *others], corpus, options, progress)
    return found[: len(several)], None if sources is None else found[len(several) :]


def _target(original: Path, folder: Path) -> Path:
    """Where the planted corpus goes; a CorpusError where that would replace or remove the original."""
    if ".." in folder.parts:
        # Until its parents exist, "new/.." cannot be looked up, and what it would overwrite is not seen.
        folder = real_path(folder)
    target = folder / f"corpus{kind_of(original).full_suffix}"
    _check_not_itself(original, target)
    _earlier_corpus(original, target)  # refuses to remove the corpus itself, before it is read
    return target


def _planted(
    original: Path,
    target: Path,
    drawn: CanarySet,
    options: PlantOptions,
    progress: Progress,
    record: Callable[[Planted], None] | None,
    *,
    overwrite: bool,
) -> Planted:
    """Plant what was drawn, unless the very same call did that before."""
    folder, places = target.parent, (target.with_name(MANIFEST_NAME), target)
    blocked = None if overwrite else first_in_the_way(*places)
    there = None if blocked is None else _planted_with(folder, drawn)
    if blocked is not None and there is None:
        raise exists_already(blocked)
    plan = _plan(original, target, drawn, options, progress)
    if blocked is not None and there is not None:
        if not _is_done(plan, there):
            raise exists_already(blocked)
        return plan.planted(there, _recount_there(plan))
    names = (target.name, EARLIER_NAME, MANIFEST_NAME)
    # Nothing of an earlier run is touched before all of this one is on the disk.
    with (
        files.no_empty_directory(target if original.is_dir() else folder),
        sole_writing(folder, names, () if overwrite else places),
        files.together() as written,
    ):
        planted = _write_all(plan, written, progress)
        if record is not None:
            record(planted)
    return planted


def _plan(
    original: Path, target: Path, drawn: CanarySet, options: PlantOptions, progress: Progress
) -> _PlantingPlan:
    """Read the corpus once, and draw the places of the copies."""
    survey = survey_corpus(original, options.fields, drawn, progress)
    # Before the copies are listed, of which there may be more than memory holds.
    crowded = check_room(drawn, survey.text_bytes, options)
    known = manifest_of(original)
    if known.canaries is not None and original.is_dir():
        raise CorpusError(
            f"{original} was planted before, and a directory of parts is planted once only; plant all formats in one go"
        )
    if target.parent.exists() and target.parent.samefile(original.parent):
        # The manifest there is what an earlier run wrote, of another corpus.
        known = msgspec.structs.replace(known, warnings=())
    places = draw_places(original, survey, drawn, options.seed)
    record = PlantedCorpus(
        name=target.name,
        original_name=original.name,
        sha256_before=survey.sha256,
        sha256_after="",
        documents_before=survey.documents,
        documents_after=survey.documents + len(places.insertions),
        fields=options.fields,
    )
    warnings = (*known.warnings, *crowded, *nested_warnings(drawn))
    return _PlantingPlan(original, target, drawn, places, survey, known, record, warnings)


def _write_all(plan: _PlantingPlan, written: files.FileGroup, progress: Progress) -> Planted:
    """The corpus, the manifest of canaries that it held before, and last its own manifest."""
    if plan.original.is_dir():
        sha256_after = _write(plan, plan.target, progress)  # each part for itself
    else:
        with files.whole_file(plan.target, mode=files.PRIVATE) as temporary:
            sha256_after = _write(plan, temporary, progress)
    record = msgspec.structs.replace(plan.record, sha256_after=sha256_after)
    earlier = _earlier_corpus(plan.original, plan.target)
    if earlier is not None and _is_unchanged(*earlier):
        written.remove(earlier[0])
    recount = _recount_earlier(plan, written, progress)
    result = plan.drawn.with_corpus(record, plan.manifest)
    result.save(plan.manifest)
    return plan.planted(result, recount)


def _write(plan: _PlantingPlan, temporary: Path, progress: Progress) -> str:
    """Read the corpus a second time and write the planted one; returns its SHA-256."""
    edits = plan.places.edits(plan.drawn)
    with (
        open_corpus(plan.original, plan.record.fields, frame=plan.drawn.frame) as source,
        reported(source, progress, "planting canaries") as advance,
    ):
        sha256 = source.write(temporary, edits, advance)
    if identity_of(plan.original) != plan.survey.identity:
        raise CorpusError(
            f"{plan.original} changed while it was being read; plant again once nothing writes to it"
        )
    return sha256


def _recount_earlier(plan: _PlantingPlan, written: files.FileGroup, progress: Progress) -> Recount | None:
    """Write the manifest of the canaries that the corpus held already, for the new corpus, and summarize what became of them."""
    if plan.known.canaries is None:
        written.remove(plan.earlier)
        return None
    again = recounted(
        plan.known.canaries,
        plan.target,
        content=written.where(plan.target),
        by="plant",
        before=(plan.original.name, plan.record.sha256_before, plan.record.documents_before),
        fields=plan.record.fields,
        progress=progress,
    )
    again.save(plan.earlier)
    return recount_summary(plan.known.canaries, again, plan.earlier.name)


def _planted_with(folder: Path, drawn: CanarySet) -> CanarySet | None:
    """The manifest in a directory, if it is of these very draws: of a run that was killed after it had written everything."""
    path = folder / MANIFEST_NAME
    try:
        there = CanarySet.load(path)
    except ManifestError:
        return None
    if there.corpus is None or drawn.with_corpus(there.corpus, path).to_bytes() != path.read_bytes():
        return None
    return there


def _is_done(plan: _PlantingPlan, there: CanarySet) -> bool:
    """Whether the planted corpus beside a manifest is what the manifest says, and just what is planned."""
    recorded = there.corpus
    return (
        recorded is not None
        and msgspec.structs.replace(plan.record, sha256_after=recorded.sha256_after) == recorded
        and plan.target.exists()
        and files.sha256_of_file(plan.target) == recorded.sha256_after
        and (plan.known.canaries is None) == (not plan.earlier.exists())
    )


def _recount_there(plan: _PlantingPlan) -> Recount | None:
    """What became of the canaries that the corpus held before, by the manifest that was written for them."""
    if plan.known.canaries is None:
        return None
    return recount_summary(plan.known.canaries, CanarySet.load(plan.earlier), plan.earlier.name)


def _check_not_itself(original: Path, target: Path) -> None:
    if target.exists() and original.exists() and target.samefile(original):
        raise CorpusError(f"planting would replace the corpus itself, {original}; write to another directory")
    files.check_places(target.parent, MANIFEST_NAME, EARLIER_NAME, UNFINISHED_FILE)
    if original.is_dir():
        files.check_places(target, *(part.name for part in part_files(original)))
    else:
        files.check_place(target)


def _earlier_corpus(original: Path, target: Path) -> tuple[Path, str] | None:
    """The corpus that an earlier run wrote beside the target under another name, and its SHA-256, by the manifest there."""
    manifest = target.parent / MANIFEST_NAME
    if not manifest.is_file():
        return None
    try:
        recorded = CanarySet.load(manifest).corpus
    except ManifestError:
        return None
    # A manifest can be edited; what no run would have written is not removed.
    names = {f"corpus{suffix}" for suffix in all_suffixes()}
    if recorded is None or recorded.name == target.name or recorded.name not in names:
        return None
    path = target.parent / recorded.name
    if path.exists() and original.exists() and path.samefile(original):
        raise CorpusError(f"planting would remove the corpus itself, {original}; write to another directory")
    return path, recorded.sha256_after


def _is_unchanged(path: Path, sha256: str) -> bool:
    """Whether a file is what was written; what somebody else has put in its place is not removed."""
    return path.is_file() and not path.is_symlink() and files.sha256_of_file(path) == sha256
