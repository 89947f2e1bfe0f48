"""What `extract` found, and the files it is kept in."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from coalmine.audits.extraction.options import Method
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.errors import InputError
from coalmine.formats.format import Format
from coalmine.records import Estimate
from coalmine.records.documents import Document, Origin, SaidOfCanary, beside, differences, is_there
from coalmine.records.estimate import Bits, Count, Digits, Positive
from coalmine.search.walks.shortest_path import Certificate
from coalmine.storage.files import PUBLIC, remove_file, sha256_of_file, together

SCHEMA = "coalmine.extraction/2"
RESULTS_FILE = "extraction.json"
VERIFIED_FILE, VERIFIED_SCHEMA = "verified.json", "coalmine.verified/1"


class Extracted(msgspec.Struct, frozen=True, kw_only=True):
    """One member that came out."""

    place: Positive  # 1 for the least surprising
    text: str
    # None where the model gives text only.
    log_perplexity_bits: Bits | None
    # How many nodes had been expanded when it was found.
    expansions: Count


class Prompting(msgspec.Struct, frozen=True, kw_only=True):
    """How many prompts were asked, how many of them a server has no answer to, and after how many of the others a member came out."""

    asked: Count
    failed: Count
    wrote: Count
    # Of the prompts that were answered.
    share: Estimate
    # Why prompts have no answer.
    problems: tuple[str, ...] = ()


class Extraction(msgspec.Struct, frozen=True, kw_only=True):
    """The least surprising members of a format, which are secrets, and how sure it is that there are no better ones; extraction.json.

    Log-perplexities are in bits. The file holds secrets.

    >>> for one in extract(model, "my pin is {digits:4}", top=3).found:  # doctest: +SKIP
    ...     print(one.place, one.text, one.log_perplexity_bits)
    """

    schema: str = SCHEMA
    format_template: str
    # What `{word:n}` draws from.
    words: tuple[str, ...] | None = None
    # The format of the sources, for a model of pairs.
    source_template: str | None = None
    size: Digits  # decimal digits, because many JSON readers lose integers above 2^53
    given: str
    method: Method
    found: tuple[Extracted, ...]
    certificate: Certificate
    model: dict[str, Any]
    # How many members were asked for; all of the space where it has fewer.
    top: int | None = None
    # Of a search for a secret that was in the data all along: what it is, such as "phone".
    kind: str | msgspec.UnsetType = msgspec.UNSET
    # Of the prompt method; not there for others.
    prompts: Prompting | msgspec.UnsetType = msgspec.UNSET

    @property
    def proven(self) -> bool:
        """Whether these are the least surprising members there are."""
        return self.certificate.proven

    @property
    def format(self) -> Format:
        """The format of its members."""
        return Format(self.format_template, words=self.words)

    def save(self, directory: str | os.PathLike[str], name: str = RESULTS_FILE) -> Path:
        """Write the result, readable by its owner only, because it holds secrets."""
        return EXTRACTIONS.save(directory, self, name)


def extraction_problems(extraction: Extraction) -> Iterator[str]:
    """What cannot be true in an extraction, whatever the model is."""
    found, certificate = extraction.found, extraction.certificate
    size, given = int(extraction.size), "" if extraction.method == "prompt" else extraction.given
    try:
        form = extraction.format
    except InputError:
        yield "its format does not compile"
        return
    if size > form.size or (not extraction.given and size != form.size):
        yield f"it is of {size:,} members, and its format has {form.size:,}"
    if not all(one.text in form and one.text.startswith(given) for one in found):
        yield "it found a text that is not a member of its format, or does not begin with what was given"
    costs = [one.log_perplexity_bits for one in found if one.log_perplexity_bits is not None]
    if (
        [one.place for one in found] != list(range(1, 1 + len({one.text for one in found})))
        or costs != sorted(costs)
        or any(one.expansions > certificate.expansions for one in found)
    ):
        yield "what it found is not in the order of places and costs, or was found twice"
    bound, last = certificate.best_open_bits, costs[-1] if costs else None
    proves = (
        extraction.method in {"search", "brute"}
        and 0 < len(found) == len(costs) == min(extraction.top or len(found), size)
        and (bound is None) == certificate.exhausted
        and (bound is None or (last is not None and last <= bound < math.inf))
    )
    if (certificate.proven or certificate.exhausted) and not proves:
        yield f"it says that nothing cheaper is left, and what it found by {extraction.method} does not prove that"
    gap = 0.0 if certificate.proven or bound is None or last is None else last - bound
    if certificate.gap_bits is not None:
        yield from differences(certificate.gap_bits, gap, "the gap")


EXTRACTIONS = Document(
    record=Extraction,
    schema=SCHEMA,
    file=RESULTS_FILE,
    title="extraction",
    by="`coalmine extract`",
    names=r"extraction(-.*)?\.json",
    again=lambda _, extraction: extraction_problems(extraction),
    origin=Origin(
        model=lambda extraction: extraction.model,
        natural=lambda extraction: extraction.kind is not msgspec.UNSET,
    ),
)
"""extraction.json: `run.all(EXTRACTIONS)` gives the searches of a run."""


def read_extraction(path: str | os.PathLike[str]) -> Extraction:
    """An extraction.json, or the one in a directory.

    >>> read_extraction("model-audit/extraction").proven  # doctest: +SKIP
    True
    """
    return EXTRACTIONS.load(path)


class CanaryExtraction(msgspec.Struct, frozen=True, kw_only=True):
    """Whether one canary was extracted.

    `place` and `expansions` are those of the canary, or None where it is not among the members found; `proven` says whether that
    is because it has no such place, or only because the budget ended.
    """

    canary_id: str
    repetitions: Count
    extracted: bool
    place: Positive | None
    expansions: Count | None
    proven: bool
    format_id: str
    # Of a secret that was in the data all along: what it is, such as "phone".
    kind: str | msgspec.UnsetType = msgspec.UNSET
    # Why it could not be looked for, such as that its format could not be searched; None where it was.
    problem: str | None = None


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """The content of verified.json: whether each canary of a manifest was extracted."""

    schema: str = VERIFIED_SCHEMA
    manifest_sha256: str
    model: dict[str, Any]
    # The SHA-256 of the extraction of each format, by the name of its file.
    extractions: dict[str, str]
    canaries: tuple[CanaryExtraction, ...]


def extraction_file(format_id: str) -> str:
    """The name of the extraction of one of the formats of a manifest."""
    return f"extraction-{format_id}.json"


def save_verification(
    directory: str | os.PathLike[str],
    results: Sequence[CanaryExtraction],
    extractions: Mapping[str, Extraction],
    *,
    manifest_sha256: str,
    model: Mapping[str, Any],
) -> Verified:
    """Write the extraction of each format, and verified.json, which vouches for them, last.

    What an earlier run found in a format that could not be searched now is removed: it is not what this run found.
    """
    target = Path(directory)
    with together() as group:
        written = [one.save(target, extraction_file(format_id)) for format_id, one in extractions.items()]
        document = Verified(
            manifest_sha256=manifest_sha256,
            model=dict(model),
            extractions={path.name: sha256_of_file(group.where(path)) for path in written},
            canaries=tuple(results),
        )
        VERIFIED.save(target, document)
    for format_id in {one.format_id for one in results} - extractions.keys():
        remove_file(target / extraction_file(format_id))
    return document


def _again(path: Path, document: Verified) -> Iterator[str]:
    """What is said of canaries follows from the extractions beside it."""
    for format_id, extraction in _searches_beside(path, document):
        expansions = {one.place: one.expansions for one in extraction.found}
        for one in document.canaries:
            if one.format_id == format_id and (
                (one.problem is None and one.proven != extraction.proven)
                or one.extracted != (one.place is not None)
                or one.expansions != expansions.get(one.place or 0)
            ):
                yield f"canary {one.canary_id!r} is not said to be found, or proven, as the extraction of its format is"


def _searches_beside(path: Path, document: Verified) -> Iterator[tuple[str, Extraction]]:
    """The extractions of a verified.json that are beside it, with their formats."""
    for name in document.extractions:
        place = beside(path, name)
        if is_there(place):
            yield place.name.removeprefix("extraction-").removesuffix(".json"), read_extraction(place)


def _searches_and_manifest(path: Path, document: Verified, canaries: CanarySet) -> Iterator[str]:
    """What the texts in the extractions beside a verified.json contradict, by the canaries of its manifest."""
    told = {one.canary_id: one.place for one in document.canaries}
    for format_id, extraction in _searches_beside(path, document):
        form = canaries.formats.get(format_id)
        words = None if form is None or form.words is None else tuple(form.words)
        if form is None or (extraction.format_template, extraction.words) != (form.template, words):
            yield f"the search of format {format_id!r} is of another format than that of the manifest"
            continue
        yield from extraction_problems(extraction)
        places = {one.text: one.place for one in extraction.found}
        for canary in canaries:
            name = canary.canary_id
            if canary.format_id == format_id and name in told and places.get(canary.text) != told[name]:
                yield f"canary {name!r} has another place than its text in the extraction of its format"


VERIFIED = Document(
    record=Verified,
    schema=VERIFIED_SCHEMA,
    file=VERIFIED_FILE,
    title="extracted canaries",
    by="`coalmine extract`",
    others={"extraction-*.json": "an `extraction.json` for each format, such as `extraction-f0.json`"},
    mode=PUBLIC,
    again=_again,
    companions=lambda verified: verified.extractions,
    origin=Origin(
        model=lambda verified: verified.model,
        natural=lambda verified: any(one.kind is not msgspec.UNSET for one in verified.canaries),
        manifests=lambda verified: [verified.manifest_sha256],
        canaries=lambda verified: [
            SaidOfCanary(one.canary_id, one.format_id, one.repetitions) for one in verified.canaries
        ],
        manifest_beside=_searches_and_manifest,
    ),
)
"""verified.json: `run.all(VERIFIED)` gives which canaries were extracted."""


def read_verified(path: str | os.PathLike[str]) -> Verified:
    """A verified.json, or the one in a directory; extractions beside it must be those that were written with it."""
    return VERIFIED.load(path)
