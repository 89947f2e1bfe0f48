"""Results of `expose`, and their files: exposure.json for people and tools, scores.parquet for every candidate."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure.estimators import (
    EXACT,
    METHODS,
    REFERENCES,
    SAMPLED,
    CandidateKind,
    estimator_of,
)
from coalmine.corpus.files.streams import pyarrow_for
from coalmine.errors import InputError, NotMeasurableError
from coalmine.records import Estimate
from coalmine.records.documents import Document, Origin, SaidOfCanary, SaidOfFormat, differences
from coalmine.records.estimate import Bits, Count, Digits, Level, Place, Share
from coalmine.search.walks.resolution import Resolution
from coalmine.search.walks.thresholds import in_steps
from coalmine.statistics.exposure.extrapolation import TailFit
from coalmine.statistics.exposure.ranks import exact_exposure, reference_exposures, sampled_exposures
from coalmine.storage.columns import arrow_column, numpy_column, repeated_text
from coalmine.storage.files import PRIVATE, sha256_of_file, together, whole_file

SCHEMA = "coalmine.exposure/2"
RESULTS_FILE = "exposure.json"
SCORES_FILE = "scores.parquet"

# A warning: a model that has turns of conversations by heart may give none of them as plain text.
NOT_IN_TURNS = "the secrets are from conversations, and this chat model was asked about them as plain text: in its turns they may come out"
# How the warning begins that the model was trained on other data than those of the manifest.
OTHER_DATA = "the model was trained on other data"
# Why a method was taken that the user named.
ASKED_FOR = "asked for"


class CandidateScores(NamedTuple):
    """Scores of members of a format that canaries were compared with."""

    format_id: str
    kind: CandidateKind
    indices: NDArray[Any]  # (candidates,), places in the format's order: `Format.at` gives the text
    log_perplexities_bits: NDArray[np.float64]  # (candidates,)
    # Minus log2 of the probability with which each was drawn, where these probabilities differ.
    log2_weights: NDArray[np.float64] | None = None


class ExposureResult(msgspec.Struct, frozen=True, kw_only=True):
    """The exposure of one canary, in bits.

    `exposure` is its value, `interval` its limits, and `estimate` all that is known about it.

    >>> for one in expose(model, "planted/"):  # doctest: +SKIP
    ...     print(one.canary_id, one.repetitions, one.exposure, one.interval)
    """

    canary_id: str
    format_id: str
    # How often the model was trained on it; 0 for one that was withheld.
    repetitions: Count
    planted: bool
    # How often it would occur in the training data had its coin said so; the same as `repetitions` for a planted one.
    planned_repetitions: Count | None = None
    method: str
    # `log_perplexity_bits` in the file; None where the model could not score the canary.
    known_log_perplexity_bits: Bits | None = msgspec.field(name="log_perplexity_bits")
    # Its place among all members (exact) or among the references, from 1; None where the method gives no rank.
    rank: Place | None
    # The exposure of the least surprising member: log2 |R|.
    most_possible_bits: Bits
    estimate: Estimate
    # Of a secret that was in the data all along: what it is, such as "phone", and whose text it is in.
    kind: str | msgspec.UnsetType = msgspec.UNSET
    user: str | msgspec.UnsetType = msgspec.UNSET
    # Of such a secret: log2 of how much more probable the most probable of all that were compared is than the others together.
    lead_bits: float | msgspec.UnsetType = msgspec.UNSET

    @property
    def log_perplexity_bits(self) -> float:
        """Bits; a NotMeasurableError with the reason where the model could not score the canary."""
        if self.known_log_perplexity_bits is None:
            raise NotMeasurableError(
                f"canary {self.canary_id} has no log-perplexity: {self.estimate.statement}"
            )
        return self.known_log_perplexity_bits

    @property
    def exposure(self) -> float | None:
        """Bits, or None where only a bound is known or nothing could be measured; see `estimate.status`."""
        return self.estimate.value

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """The interval of the exposure at the confidence of the estimate, as (low, high)."""
        return self.estimate.interval


class FormatFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A format, and how its canaries were measured, or were to be: their estimates say whether they could."""

    format_id: str
    template: str
    size: Digits  # decimal digits, because many JSON readers lose integers above 2^53
    size_bits: Bits
    method: str
    # Why this method was taken, or `ASKED_FOR`.
    why: str
    # How far apart log-perplexities must be for their order to be known; None where no rank was counted.
    resolution: Resolution | None = None
    # Whether the probabilities of all members sum to at most 1, so that no more than 2^x of them have a log-perplexity of x bits or
    # less, and that of a canary proves an exposure.
    is_distribution: bool = False


class Exposures(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The exposure of every canary in the order of the manifest, with what it rests on; the content of exposure.json.

    It is also a sequence of its `results`. The same seed, model and manifest give the same bytes.

    >>> from coalmine import CanarySet, ScriptedModel, expose
    >>> model = ScriptedModel("pin 0123456789", memory={"pin 49": 0.25})
    >>> found = expose(model, CanarySet.of("pin {digits:2}", ["pin 49"]), method="exact")
    >>> [(one.canary_id, one.rank, round(one.exposure, 2)) for one in found]  # bits
    [('f0-x1-0', 1, 6.64)]
    """

    schema: str = SCHEMA
    seed: int
    confidence: Level
    manifest_sha256: str
    model: dict[str, Any]
    formats: tuple[FormatFacts, ...]
    # Nodes of the tree that the model was asked about.
    expansions: Count
    # The probability with which a canary was planted, by its coin; None where it is not known.
    inclusion: Share | None = None
    # Of the scores.parquet that was written with it; None for results that were never written.
    scores_sha256: str | None = None
    tail_fits: dict[str, TailFit]
    warnings: tuple[str, ...] = ()
    results: tuple[ExposureResult, ...]

    def beside(self, candidates: Sequence[CandidateScores], sha256: str | None = None) -> Self:
        """The same results with the scores of candidates, which go to scores.parquet, and the SHA-256 of the file they are from."""
        self.__dict__.update(candidates=tuple(candidates), saved_sha256=sha256)
        return self

    @property
    def candidates(self) -> tuple[CandidateScores, ...]:
        """The scores that go to scores.parquet; empty if the results were read from their file."""
        found: tuple[CandidateScores, ...] = self.__dict__.get("candidates", ())
        return found

    @property
    def natural(self) -> bool:
        """Whether these are secrets that were in the data all along, and not canaries that were planted."""
        return any(one.kind is not msgspec.UNSET for one in self.results)

    def without_users(self) -> Self:
        """The same results without the names of users, which are personal data."""
        return msgspec.structs.replace(
            self, results=tuple(msgspec.structs.replace(one, user=msgspec.UNSET) for one in self.results)
        )

    @property
    def saved_sha256(self) -> str | None:
        """The SHA-256 of the exposure.json that these results were last written to; None before that."""
        return self.__dict__.get("saved_sha256")

    def __getitem__(self, place: int) -> ExposureResult:
        return self.results[place]

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[ExposureResult]:
        return iter(self.results)

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Write exposure.json and scores.parquet, both readable by their owner only; returns the directory."""
        target = Path(directory)
        with together():
            # The document last, because it vouches for the table.
            digest = write_scores(target / SCORES_FILE, self.candidates)
            path = EXPOSURES.save(target, msgspec.structs.replace(self, scores_sha256=digest))
        self.__dict__["saved_sha256"] = sha256_of_file(path)
        return target


Sequence.register(Exposures)


def write_scores(path: Path, candidates: Sequence[CandidateScores]) -> str:
    """One row per candidate: format_id, kind, index (decimal text), log_perplexity_bits, and log2_weight of guided draws.

    Returns the SHA-256 of the file.
    """
    pa = pyarrow_for("writing scores.parquet")
    import pyarrow.parquet as pq

    schema = pa.schema(
        [
            ("format_id", pa.dictionary(pa.int32(), pa.string())),
            ("kind", pa.dictionary(pa.int32(), pa.string())),
            # Text where a space is too large for 64 bits would change the type from file to file, so always text.
            ("index", pa.string()),
            ("log_perplexity_bits", pa.float64()),
            ("log2_weight", pa.float64()),
        ]
    )
    with whole_file(path, mode=PRIVATE) as temporary:
        with open(temporary, "wb") as stream, pq.ParquetWriter(stream, schema) as writer:
            for scores in candidates:
                n = len(scores.indices)
                columns = [
                    repeated_text(scores.format_id, n),
                    repeated_text(scores.kind, n),
                    arrow_column(scores.indices.astype(str)),
                    arrow_column(scores.log_perplexities_bits.astype(np.float64)),
                    pa.nulls(n, pa.float64())
                    if scores.log2_weights is None
                    else arrow_column(scores.log2_weights),
                ]
                writer.write_table(pa.Table.from_arrays(columns, schema=schema))
        return sha256_of_file(temporary)


def read_candidates(path: Path, *, indices: bool = True) -> list[CandidateScores]:
    """The scores in a scores.parquet by format and kind; without `indices` these are not read, and all are empty."""
    pa = pyarrow_for("reading scores.parquet")
    import pyarrow.parquet as pq

    names = ["format_id", "kind", "log_perplexity_bits", *(["index"] if indices else [])]
    try:
        # By its bytes, because a path that is not UTF-8 is not text to pyarrow.
        with pa.OSFile(os.fsencode(path)) as source, pq.ParquetFile(source) as file:
            table = file.read(columns=names)
        table.validate(full=True)
        bits = numpy_column(table["log_perplexity_bits"].cast(pa.float64()))
        # As codes into a list, because millions of rows share a few names.
        coded = [table[name].cast(pa.string()).combine_chunks().dictionary_encode() for name in names[:2]]
        numbers = numpy_column(table["index"].cast(pa.string())) if indices else None
    except (pa.ArrowException, OSError, KeyError, MemoryError, OverflowError, UnicodeError):
        raise _damaged(path, "it cannot be read as one") from None
    (form_codes, kind_codes), (forms, kinds) = zip(
        *((numpy_column(one.indices), one.dictionary.to_pylist()) for one in coded), strict=True
    )
    missing = any(table[name].null_count for name in names) or np.isnan(bits).any()
    if missing or not set(kinds) <= set(get_args(CandidateKind)):
        raise _damaged(path, "a value in it is missing, not a number, or a kind of score that is not known")
    found = []
    for form in dict.fromkeys(form_codes.tolist()):
        of_form = form_codes == form
        for kind in dict.fromkeys(kind_codes[of_form].tolist()):
            rows = of_form & (kind_codes == kind)
            places = np.empty(0, dtype=object) if numbers is None else numbers[rows]
            found.append(CandidateScores(forms[form], kinds[kind], places, bits[rows]))
    return found


def _damaged(path: Path, why: str) -> InputError:
    return InputError(f"{path} is not a scores.parquet of `coalmine expose` ({why}); run expose again")


def _preference(document: Exposures) -> tuple[int, int]:
    """Of two measurements of the same canaries, the one that leaves fewer without evidence is preferred, then the better estimator."""
    unmeasured = sum(
        one.estimate.status == "not_measured" or not estimator_of(one.estimate.method).is_evidence
        for one in document.results
    )
    known = [METHODS.index(facts.method) for facts in document.formats if facts.method in METHODS]
    return unmeasured, max(known, default=len(METHODS))


def score_problems(document: Exposures, kept: Sequence[CandidateScores]) -> Iterator[str]:
    """What the results of `expose` say, and the scores that were written with them contradict.

    Scores that were not kept contradict nothing, and neither do draws of which an estimate depends on more than their scores.
    """
    facts = {one.format_id: one for one in document.formats}
    for scores in (one for one in kept if one.format_id in facts):
        bits = scores.log_perplexities_bits
        known = [
            one
            for one in document.results
            if one.format_id == scores.format_id and one.known_log_perplexity_bits is not None
        ]
        if scores.kind == "canary":
            told = [one.log_perplexity_bits for one in known]
            yield from differences(told, bits.tolist(), "log_perplexity_bits of canaries")
            continue
        method = next((one.name for one in (EXACT, REFERENCES, SAMPLED) if one.keeps == scores.kind), None)
        own = [one for one in known if one.method == method and one.estimate.status != "not_measured"]
        again = _again(document, facts[scores.format_id], own, bits) if own else []
        for result, expected in zip(own, again, strict=True):
            what = f"exposure of canary {result.canary_id!r} among {len(bits):,} others"
            yield from differences((result.rank, result.estimate), expected, what)


def _again(
    document: Exposures, facts: FormatFacts, results: Sequence[ExposureResult], bits: NDArray[np.float64]
) -> list[tuple[int | None, Estimate]]:
    """The ranks of canaries, and their exposures, computed again from the scores of what they were compared with."""
    size, level = int(facts.size), document.confidence
    own = np.array([one.log_perplexity_bits for one in results])
    ordered = np.sort(bits)
    ranks = np.searchsorted(ordered, own, side="right")
    if results[0].method == EXACT.name:
        near = 0.0 if facts.resolution is None else facts.resolution.at(own)
        ties = ranks - np.searchsorted(ordered, own, side="left")
        least = np.searchsorted(ordered, in_steps(own - near), side="left") + ties
        most = np.searchsorted(ordered, in_steps(own + near), side="right")
        rows = zip(ranks.tolist(), least.tolist(), most.tolist(), strict=True)
        return [(rank, exact_exposure(rank, size, least=low, most=high)) for rank, low, high in rows]
    if results[0].method == SAMPLED.name:
        unknown = max(0, results[0].estimate.n - len(bits))
        return [(None, one) for one in sampled_exposures(own, bits, size, level, unknown=unknown)]
    found = reference_exposures(own, bits, level, size=size)
    return list(zip((ranks + 1).tolist(), found, strict=True))


def _contradictions(path: Path, document: Exposures) -> Iterator[str]:
    """Ranks and exposures follow from the scores.parquet beside them, and what is possible from the sizes of formats."""
    bits = {one.format_id: math.log2(int(one.size)) for one in document.formats}
    yield from differences([one.size_bits for one in document.formats], list(bits.values()), "size_bits")
    possible = [bits.get(one.format_id, 0.0) for one in document.results]
    told = [one.most_possible_bits for one in document.results]
    yield from differences(told, possible, "most_possible_bits")
    for one, most in zip(document.results, possible, strict=True):
        if one.method == "bounded" and one.rank is not None and one.estimate.value is not None:
            exposure = most - math.log2(one.rank)
            yield from differences(one.estimate.value, exposure, f"the exposure of canary {one.canary_id!r}")
    scores = scores_beside(path)
    if scores is not None:
        yield from score_problems(document, read_candidates(scores, indices=False))


EXPOSURES = Document(
    record=Exposures,
    schema=SCHEMA,
    file=RESULTS_FILE,
    title="exposures",
    by="`coalmine expose`",
    others={
        SCORES_FILE: "one row for each string that canaries were compared with: `format_id`, `kind` (`member`, `guided`, `sample`, "
        "`reference`, `canary`; the last two are there whatever the method), `index` (decimal text: `Format.at` gives the string), "
        "`log_perplexity_bits`, `log2_weight` (of guided draws)",
    },
    again=_contradictions,
    companions=lambda document: {SCORES_FILE: document.scores_sha256},
    preference=_preference,
    origin=Origin(
        model=lambda document: document.model,
        natural=lambda document: document.natural,
        manifests=lambda document: [document.manifest_sha256],
        canaries=lambda document: [
            SaidOfCanary(one.canary_id, one.format_id, one.repetitions, one.planned_repetitions, one.planted)
            for one in document.results
        ],
        formats=lambda document: [
            SaidOfFormat(one.format_id, one.template, int(one.size)) for one in document.formats
        ],
    ),
)
"""exposure.json: `run.all(EXPOSURES)` gives the results of `coalmine expose` in a run."""


def read_exposures(path: str | os.PathLike[str]) -> Exposures:
    """An exposure.json, or the one in a directory; a scores.parquet beside it must be the one that was written with it.

    >>> read_exposures("model-audit/exposure").results[0].exposure  # bits  # doctest: +SKIP
    9.97
    """
    return EXPOSURES.load(path)


def scores_beside(path: Path) -> Path | None:
    """The scores.parquet beside an exposure.json, if it exists."""
    scores = path.with_name(SCORES_FILE)
    return scores if scores.is_file() else None
