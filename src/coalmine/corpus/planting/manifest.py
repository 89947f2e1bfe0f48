"""Canary sets: canaries with their formats, references and corpus, as recorded in canaries.json."""

from __future__ import annotations

import copy
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, overload

import msgspec
from msgspec import UNSET

import coalmine
from coalmine.corpus.planting.manifest_checks import check_canaries
from coalmine.corpus.planting.manifest_records import (
    SCHEMA,
    CanaryManifest,
    FormatEntry,
    PlantedCorpus,
    ReferencesEntry,
    ScannedCorpus,
    decoded,
    in_decimal,
)
from coalmine.errors import FormatError, InputError, ManifestError, NotMeasurableError, ReadError
from coalmine.formats.format import Format
from coalmine.randomness import child_seed
from coalmine.records import Canary
from coalmine.records.chat import Frame
from coalmine.records.documents import Document, Origin
from coalmine.storage import files

if TYPE_CHECKING:
    from coalmine.corpus.planting.power import Power

MANIFEST_NAME = "canaries.json"
# The manifest of secrets that were found in a corpus: the same record, of canaries that nobody planted.
SECRETS_NAME = "secrets.json"
# The manifest of canaries that a corpus held before it was planted in again.
EARLIER_NAME = "earlier-canaries.json"


class CanarySet(Sequence[Canary]):
    """Canaries with the formats they were drawn from and references from the same formats; never changed once made.

    Attributes:
        formats: format id to format.
        source_formats: format id to the format of the source side, for the formats of translation pairs.
        references: format id to members of the format that were never planted.
        seed: the seed of all draws, or None for a set made by hand.
        withhold: the probability with which a canary was withheld by its coin, or None where there was no coin.
        corpus: what was planted in, or None for a set made by hand.
        listed: the ids of formats that are only lists of known texts, because it is not known what they were drawn from. Their
            canaries can be compared with withheld ones and references, but not with a secret space.
        scanned: the corpus that secrets were found in, or None for canaries that were planted.
        frame: where canaries stand in a conversation, or None where documents are texts.
        path: the canaries.json that it was loaded from, or None.

    >>> known = CanarySet.of("my pin is {digits:4}", ["my pin is 0451"], references=2)
    >>> known
    <CanarySet of 1 canaries (1 planted) and 2 references from 1 format>
    """

    def __init__(
        self,
        canaries: Iterable[Canary],
        formats: Mapping[str, Format],
        *,
        references: Mapping[str, Sequence[str]] | None = None,
        source_formats: Mapping[str, Format] | None = None,
        seed: int | None = None,
        withhold: float | None = None,
        corpus: PlantedCorpus | None = None,
        listed: Iterable[str] = (),
        scanned: ScannedCorpus | None = None,
        frame: Frame | None = None,
    ) -> None:
        self._canaries = tuple(canaries)
        self._by_id = {canary.canary_id: canary for canary in self._canaries}
        self._natural = any(canary.natural is True for canary in self._canaries)
        self.formats: Mapping[str, Format] = MappingProxyType(dict(formats))
        self.source_formats: Mapping[str, Format] = MappingProxyType(dict(source_formats or {}))
        given = references or {}
        self.references: Mapping[str, tuple[str, ...]] = MappingProxyType(
            {format_id: tuple(given.get(format_id, ())) for format_id in self.formats}
        )
        self.seed = seed
        self.withhold = withhold
        self.corpus = corpus
        self.listed = frozenset(listed)
        self.scanned = scanned
        self.frame = frame
        self.path: Path | None = None
        self._content = b""
        check_canaries(self, set(given))

    def __getstate__(self) -> dict[str, Any]:
        # To be sent to another process, to which views of dictionaries cannot be sent.
        return {
            name: dict(one) if isinstance(one, MappingProxyType) else one for name, one in vars(self).items()
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        views = ("formats", "source_formats", "references")
        vars(self).update(state | {name: MappingProxyType(state[name]) for name in views})

    @classmethod
    def of(
        cls,
        secret: Format | str,
        texts: Sequence[str],
        *,
        repetitions: int | Sequence[int] = 1,
        withheld: Sequence[str] = (),
        withheld_repetitions: int | Sequence[int] | None = None,
        references: int | Sequence[str] = 0,
        withhold: float | None = None,
        seed: int = 0,
    ) -> CanarySet:
        """A set made by hand, for a model that was trained elsewhere on texts that are known.

        Args:
            secret: the format that the texts are members of.
            texts: what the model was trained on.
            repetitions: how often each text was trained on, or one number for all.
            withheld: members of the format that were drawn in the same way and not trained on.
            withheld_repetitions: how often each of these would have been trained on, or one number for all. It can be left out
                where all texts have the same repetitions.
            references: further members that were not trained on, or how many of them to draw.
            withhold: the probability with which a coin withheld each text, or None where there was no coin.
            seed: the seed of that draw.

        >>> known = CanarySet.of("my pin is {digits:4}", ["my pin is 0451"], repetitions=3, references=100)
        >>> [(canary.canary_id, canary.times_trained_on) for canary in known]
        [('f0-x3-0', 3)]
        """
        secret = Format(secret) if isinstance(secret, str) else secret
        counts = _one_for_each(texts, repetitions, "texts", "repetitions")
        if withheld_repetitions is None:
            if withheld and len(set(counts)) > 1:
                raise ManifestError(
                    f"{len(withheld)} withheld texts were given without the number of copies that each was meant to have, and the "
                    "others have different ones; give withheld_repetitions"
                )
            withheld_repetitions = counts[0] if counts else 1
        meant = _one_for_each(withheld, withheld_repetitions, "withheld texts", "withheld_repetitions")
        trained = [(None, text, count, True) for text, count in zip(texts, counts, strict=True)]
        others = [(None, text, count, False) for text, count in zip(withheld, meant, strict=True)]
        if isinstance(references, int):
            references = _other_members(secret, {*texts, *withheld}, references, seed)
        canaries = numbered([*trained, *others])
        return cls(canaries, {"f0": secret}, references={"f0": references}, withhold=withhold)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CanarySet:
        """Load a canaries.json or secrets.json, named itself or by its directory; everything that can be checked without the corpus is.

        Of a directory that holds both, the canaries.json is loaded.
        """
        path = Path(path)
        if path.is_dir():
            path /= SECRETS_NAME if _has_only_secrets(path) else MANIFEST_NAME
        try:
            content = files.read_bytes(path, "the manifest of planted canaries")
        except ReadError:
            raise  # it does not mean that there is no manifest
        except InputError as error:
            raise ManifestError(str(error)) from None
        try:
            loaded = _read(content)
        except ManifestError as error:
            raise ManifestError(f"{path}: {error}") from None
        loaded.path = path
        loaded._content = content  # noqa: SLF001 - of the same class
        return loaded

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write to a file, or as canaries.json (of natural ones secrets.json) to a directory; readable by its owner only."""
        path = Path(path)
        if path.is_dir():
            path /= SECRETS_NAME if self.natural else MANIFEST_NAME
        files.write_bytes(path, self.to_bytes(), mode=files.PRIVATE)
        return path

    def with_counts(self, counts: Mapping[str, int], corpus: PlantedCorpus) -> CanarySet:
        """The same canaries in a corpus that was rewritten, with how often each one's text is in it, by canary id."""
        return CanarySet(
            [msgspec.structs.replace(canary, counted=counts[canary.canary_id]) for canary in self._canaries],
            self.formats,
            references=self.references,
            source_formats=self.source_formats,
            seed=self.seed,
            withhold=self.withhold,
            corpus=corpus,
            listed=self.listed,
            scanned=self.scanned,
            frame=self.frame,
        )

    def with_corpus(self, corpus: PlantedCorpus, path: Path) -> CanarySet:
        """The same canaries, once they are planted in a corpus and `path` is their manifest."""
        planted = copy.copy(self)
        planted.corpus = corpus
        planted.path = path
        planted._content = b""  # noqa: SLF001 - of the same class
        return planted

    def with_scanned(self, scanned: ScannedCorpus) -> CanarySet:
        """The same secrets, with the corpus that they were found in."""
        found = copy.copy(self)
        found.scanned = scanned
        found._content = b""  # noqa: SLF001 - of the same class
        return found

    def first(self, number: int, *, searchable: bool = False) -> CanarySet:
        """The first canaries; with `searchable`, those of them whose format has members that can be searched."""
        these = [one for one in self[:number] if not (searchable and one.format_id in self.listed)]
        names = list(dict.fromkeys(one.format_id for one in these))
        return CanarySet(
            these,
            {name: self.formats[name] for name in names},
            references={name: self.references[name] for name in names},
            source_formats={name: self.source_formats[name] for name in names if name in self.source_formats},
            seed=self.seed,
            withhold=self.withhold,
            listed=[name for name in names if name in self.listed],
            scanned=self.scanned,
            frame=self.frame,
        )

    def to_bytes(self) -> bytes:
        """What `save` writes; for a set that was loaded, what was read."""
        if not self._content:
            self._content = files.to_json(_as_document(self)) + b"\n"
        return self._content

    @property
    def natural(self) -> bool:
        """Whether these are secrets that were in the data all along, and not canaries that were planted."""
        return self._natural

    @property
    def sha256(self) -> str:
        """The SHA-256 of the manifest, in hexadecimal."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @property
    def corpus_sha256(self) -> str | None:
        """The SHA-256 of the corpus that holds them: the planted one, or the one that was scanned; None where neither is known."""
        if self.corpus is not None:
            return self.corpus.sha256_after
        return None if self.scanned is None else self.scanned.sha256

    @property
    def corpus_path(self) -> Path | None:
        """Where the planted corpus is, for a set that was loaded and has one."""
        return None if self.path is None or self.corpus is None else self.path.parent / self.corpus.name

    def power(self, *, delta: float = 1e-5, confidence: float = 0.95) -> Power:
        """The most that an audit of a model trained with these canaries can show, whatever it remembers."""
        from coalmine.corpus.planting.power import power_of

        return power_of(self, delta=delta, confidence=confidence)

    def format_of(self, canary: Canary) -> Format:
        """The format that a canary was drawn from."""
        return self.formats[canary.format_id]

    def by_id(self, canary_id: str) -> Canary:
        """The canary with this id; a ManifestError where there is none."""
        try:
            return self._by_id[canary_id]
        except KeyError:
            some = ", ".join(list(self._by_id)[:5])
            raise ManifestError(f"there is no canary {canary_id!r}; the ids begin with {some}") from None

    def named_texts(self) -> Iterator[tuple[str, str, str]]:
        """Each canary and reference: its name in messages, its format id, and its text."""
        for canary in self._canaries:
            yield f"canary {canary.canary_id}", canary.format_id, canary.text
        for format_id, texts in self.references.items():
            for number, text in enumerate(texts):
                yield f"reference {number} of format {format_id}", format_id, text

    @overload
    def __getitem__(self, index: int) -> Canary: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Canary, ...]: ...
    def __getitem__(self, index: int | slice) -> Canary | tuple[Canary, ...]:
        return self._canaries[index]

    def __len__(self) -> int:
        return len(self._canaries)

    def __iter__(self) -> Iterator[Canary]:
        return iter(self._canaries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CanarySet) and self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash(self.to_bytes())

    def __repr__(self) -> str:
        planted = sum(canary.planted for canary in self._canaries)
        references = sum(map(len, self.references.values()))
        return (
            f"<CanarySet of {len(self)} canaries ({planted} planted) and {references} references "
            f"from {len(self.formats)} format{'' if len(self.formats) == 1 else 's'}>"
        )


def _has_only_secrets(directory: Path) -> bool:
    return (directory / SECRETS_NAME).is_file() and not (directory / MANIFEST_NAME).exists()


def _as_document(canaries: CanarySet) -> CanaryManifest:
    formats = []
    for format_id, secret in canaries.formats.items():
        source = canaries.source_formats.get(format_id)
        words = None if secret.words is None else tuple(secret.words)
        template = None if source is None else source.template
        formats.append(
            FormatEntry(
                format_id,
                secret.template,
                words,
                template,
                in_decimal(secret.size),
                True if format_id in canaries.listed else UNSET,
            )
        )
    references = tuple(ReferencesEntry(format_id, texts) for format_id, texts in canaries.references.items())
    return CanaryManifest(
        SCHEMA,
        coalmine.__version__,
        canaries.seed,
        tuple(formats),
        tuple(canaries),
        references,
        canaries.corpus,
        canaries.withhold,
        UNSET if canaries.scanned is None else canaries.scanned,
        UNSET if canaries.frame is None else canaries.frame,
    )


def _read(content: bytes) -> CanarySet:
    manifest = decoded(content)
    formats: dict[str, Format] = {}
    source_formats: dict[str, Format] = {}
    for entry in manifest.formats:
        if entry.format_id in formats:
            raise ManifestError(f"two formats have the id {entry.format_id!r}; plant again")
        try:
            formats[entry.format_id] = secret = Format(entry.template, words=entry.words)
            if entry.source_template is not None:
                source_formats[entry.format_id] = Format(entry.source_template, words=entry.words)
        except FormatError as error:
            raise ManifestError(
                f"format {entry.format_id!r} does not compile, at character {error.position + 1} of its template; correct it, or plant "
                "again"
            ) from None
        if in_decimal(secret.size) != entry.size:
            raise ManifestError(
                f"format {entry.format_id!r} has another number of members than the {in_decimal(secret.size)} of its template; "
                "plant again with this version of coalmine"
            )
    references: dict[str, tuple[str, ...]] = {}
    for group in manifest.references:
        if group.format_id in references:
            raise ManifestError(f"format {group.format_id!r} has two lists of references; plant again")
        references[group.format_id] = group.texts
    return CanarySet(
        manifest.canaries,
        formats,
        references=references,
        source_formats=source_formats,
        seed=manifest.seed,
        withhold=manifest.withhold,
        corpus=manifest.corpus,
        listed=[entry.format_id for entry in manifest.formats if entry.listed is True],
        scanned=None if manifest.scanned is UNSET else manifest.scanned,
        frame=None if manifest.frame is UNSET else manifest.frame,
    )


def numbered(found: Iterable[tuple[str | None, str, int, bool]]) -> list[Canary]:
    """Canaries of one format from (id, text, copies, planted); those without an id get one."""
    numbers: Counter[int] = Counter()
    canaries = []
    for name, text, copies, planted in found:
        canary_id = name or f"f0-x{copies}-{numbers[copies]}"
        numbers[copies] += 1
        canaries.append(
            Canary(canary_id=canary_id, format_id="f0", text=text, repetitions=copies, planted=planted)
        )
    return canaries


def _one_for_each(texts: Sequence[str], counts: int | Sequence[int], what: str, name: str) -> list[int]:
    listed = [counts] * len(texts) if isinstance(counts, int) else list(counts)
    if len(listed) != len(texts):
        raise ManifestError(
            f"{len(texts)} {what} were given with {len(listed)} {name}; give one for each text"
        )
    return listed


def _other_members(secret: Format, taken: set[str], count: int, seed: int) -> tuple[str, ...]:
    """`count` members drawn uniformly from those that are not taken."""
    if count < 0:
        raise ManifestError(f"the number of references should be at least 0, but is {count}")
    available = secret.size - len(taken)
    if count > available:
        raise NotMeasurableError(
            f"{count:,} references were requested, but only {available:,} members of {secret.template!r} are left; "
            "ask for fewer, or use a larger format"
        )
    # After this many draws enough are left, whichever are taken; dropping some of a uniform draw leaves a uniform draw.
    drawn = secret.sample(count + len(taken), child_seed(seed, "references"), replace=False)
    return tuple(text for text in drawn if text not in taken)[:count]


def as_canary_set(given: Any) -> CanarySet:
    """A canary set from what callers give: a set, what `plant` returned, or the path of a manifest."""
    if isinstance(given, CanarySet):
        return given
    if isinstance(given, str | os.PathLike):
        return CanarySet.load(given)
    inside = getattr(given, "canaries", None)
    if isinstance(inside, CanarySet):
        return inside
    raise InputError(
        f"canaries must be a CanarySet or the path of a canaries.json, got {type(given).__name__}"
    )


def _manifest_before(canaries: CanarySet) -> list[str]:
    """The SHA-256 of the manifest that one was made from, where its corpus was rewritten."""
    corpus = canaries.corpus
    if corpus is None or corpus.rewritten is msgspec.UNSET:
        return []
    return [corpus.rewritten.manifest_sha256]


MANIFESTS = Document(
    record=CanarySet,
    schema=SCHEMA,
    file=MANIFEST_NAME,
    title="canaries",
    names=r"(canaries|secrets)\.json",
    by="`coalmine plant`, `coalmine plant --from`, `coalmine data dedup`, `coalmine data scan`",
    others={
        "corpus.*": "the corpus with canaries, with the file type and compression of the original",
        "earlier-canaries.json": "the manifest of the canaries that the corpus already held, for the new corpus",
    },
    companions=lambda canaries: (
        {} if canaries.corpus is None else {canaries.corpus.name: canaries.corpus.sha256_after}
    ),
    # Results are about the manifest; only `verify` asks whether its corpus is still the one that was planted.
    verifies_companions=False,
    reader=CanarySet.load,
    origin=Origin(
        natural=lambda canaries: canaries.natural,
        manifests=_manifest_before,
    ),
)
