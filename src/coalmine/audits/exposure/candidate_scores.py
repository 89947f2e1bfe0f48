"""scores.parquet, the scores of candidates that `expose` keeps: written, read back, and what follows from them for exposures."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure.estimators import EXACT, REFERENCES, SAMPLED, CandidateKind, estimator_of
from coalmine.errors import InputError, MissingExtraError
from coalmine.records import Estimate
from coalmine.records.documents import at_most, differences, same
from coalmine.search.walks.thresholds import in_steps
from coalmine.statistics.exposure.ranks import (
    exact_exposure,
    exposure_bits,
    reference_exposures,
    sampled_exposures,
)
from coalmine.storage.columns import arrow_column, numpy_column, repeated_text
from coalmine.storage.files import PRIVATE, sha256_of_file, whole_file

if TYPE_CHECKING:
    from coalmine.audits.exposure.results import ExposureResult, Exposures, FormatFacts


class CandidateScores(NamedTuple):
    """Scores of members of a format that canaries were compared with."""

    format_id: str
    kind: CandidateKind
    indices: NDArray[Any]  # (candidates,), places in the format's order: `Format.at` gives the text
    log_perplexities_bits: NDArray[np.float64]  # (candidates,)
    # Minus log2 of the probability with which each was drawn, where these probabilities differ.
    log2_weights: NDArray[np.float64] | None = None


def write_scores(path: Path, candidates: Sequence[CandidateScores]) -> str:
    """One row per candidate: format_id, kind, index (decimal text), log_perplexity_bits, and log2_weight of guided draws.

    Returns the SHA-256 of the file.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError("writing scores.parquet", "pyarrow", "tables") from None
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
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError("reading scores.parquet", "pyarrow", "tables") from None
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


def stated_problems(document: Exposures) -> Iterator[str]:
    """What follows from the sizes of formats and from the ranks that are stated, and is stated differently."""
    sizes = {facts.format_id: int(facts.size) for facts in document.formats}
    for facts in document.formats:
        yield from differences(facts.size_bits, math.log2(sizes[facts.format_id]), "size_bits")
    for result in document.results:
        name, estimate, size = f"canary {result.canary_id!r}", result.estimate, sizes.get(result.format_id, 1)
        yield from differences(result.most_possible_bits, math.log2(size), f"most_possible_bits of {name}")
        if estimate.method != result.method or estimate.confidence not in {None, document.confidence}:
            yield f"{name} has an estimate by another method, or at another confidence, than the results say"
        if result.rank is None or estimate.status == "not_measured":
            continue
        among = max(1, estimate.n) if estimator_of(result.method).among == "references" else size
        bits = exposure_bits(min(result.rank, among), among)
        is_exact = estimate.value is None or estimate.confidence is not None or same(estimate.value, bits)
        high = math.inf if estimate.high is None else estimate.high
        if not (is_exact and at_most(estimate.low or 0.0, bits) and at_most(bits, high)):
            yield f"{name} has rank {result.rank:,} of {among:,}, which is not the exposure that it is said to have"


def score_problems(document: Exposures, kept: Sequence[CandidateScores]) -> Iterator[str]:
    """What the results of `expose` say, and the scores that were written with them contradict.

    Scores that were not kept contradict nothing, and neither do draws of which an estimate depends on more than their scores.
    """
    for facts in document.formats:
        scores = {one.kind: one.log_perplexities_bits for one in kept if one.format_id == facts.format_id}
        known = [
            one
            for one in document.results
            if one.format_id == facts.format_id and one.known_log_perplexity_bits is not None
        ]
        if "canary" in scores:
            told = [one.log_perplexity_bits for one in known]
            yield from differences(told, scores["canary"].tolist(), "log_perplexity_bits of canaries")
        for method, kind in ((EXACT, "member"), (REFERENCES, "reference"), (SAMPLED, "sample")):
            own = [
                one for one in known if one.method == method.name and one.estimate.status != "not_measured"
            ]
            if own and kind in scores:
                again = _again(document, facts, own, scores[kind])
                for result, expected in zip(own, again, strict=True):
                    what = f"exposure of canary {result.canary_id!r} among {len(scores[kind]):,} others"
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
