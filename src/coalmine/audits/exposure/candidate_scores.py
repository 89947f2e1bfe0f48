"""scores.parquet, the scores of candidates that `expose` keeps: written, read back, and what follows from them for exposures."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from coalmine.audits.exposure.estimators import REFERENCES, SAMPLED, CandidateKind, estimator_of
from coalmine.errors import InputError, MissingExtraError
from coalmine.records.documents import at_most, differences, same
from coalmine.search.walks.thresholds import in_steps
from coalmine.statistics.exposure.ranks import exposure_bits, reference_exposures, sampled_exposures
from coalmine.storage.columns import arrow_column, numpy_column, repeated_text
from coalmine.storage.files import PRIVATE, sha256_of_file, whole_file

if TYPE_CHECKING:
    from coalmine.audits.exposure.results import ExposureResult, Exposures, FormatFacts

# A few bytes of Parquet can encode any number of rows; `expose` never writes as many as these.
MOST_ROWS = 100_000_000
# A canary may cost this many times its resolution more or less among the members than when its resolution was computed.
_MOST_RESOLUTIONS = 20.0


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
            if file.metadata.num_rows > MOST_ROWS:
                raise _damaged(path, f"it claims to have {file.metadata.num_rows:,} rows")
            table = file.read(columns=names)
        table.validate(full=True)
        bits = numpy_column(table["log_perplexity_bits"].cast(pa.float64()))
        # As codes into a list, because millions of rows share a few names.
        coded = [table[name].cast(pa.string()).combine_chunks().dictionary_encode() for name in names[:2]]
        numbers = numpy_column(table["index"].cast(pa.string())) if indices else None
    except (pa.ArrowException, OSError, KeyError, MemoryError, OverflowError, UnicodeError):
        raise _damaged(path, "it cannot be read as one") from None
    if any(table[name].null_count for name in names) or np.isnan(bits).any():
        raise _damaged(path, "a value in it is missing, or not a number")
    (form_codes, kind_codes), (forms, kinds) = zip(
        *((numpy_column(one.indices), one.dictionary.to_pylist()) for one in coded), strict=True
    )
    if not set(kinds) <= set(get_args(CandidateKind)):
        raise _damaged(path, "it has a kind of score that is not known")
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
        yield from differences(
            facts.size_bits, math.log2(int(facts.size)), f"size_bits of {facts.format_id!r}"
        )
    for result in document.results:
        name, estimate, rank = f"canary {result.canary_id!r}", result.estimate, result.rank
        if result.format_id not in sizes:
            yield f"{name} is of a format that is not described"
            continue
        size = sizes[result.format_id]
        most = math.log2(size)
        yield from differences(result.most_possible_bits, most, f"most_possible_bits of {name}")
        if estimate.method != result.method or estimate.confidence not in {None, document.confidence}:
            yield f"{name} has an estimate by another method, or at another confidence, than the results say"
        proven = (document.proven_bits or {}).get(result.canary_id)
        if proven is not None:
            by_probability = max(0.0, most - (result.known_log_perplexity_bits or 0.0))
            yield from differences(proven, by_probability, f"proven_bits of {name}")
        estimator = estimator_of(result.method)
        if estimator.strength == "proven" and (rank is None) != (estimate.value is None):
            yield f"{name} has a rank without a value, or a value without a rank"
        if rank is None or estimate.status == "not_measured":
            continue
        among = max(1, estimate.n if estimator.among == "references" else size)
        exposure = exposure_bits(min(rank, among), among)
        estimated = estimate.value is None or (
            estimator.strength == "interval" and estimator.among == "space"
        )
        high = exposure if estimate.high is None else estimate.high
        if not (
            (estimated or same(estimate.value or 0.0, exposure))
            and at_most(estimate.low or 0.0, exposure)
            and at_most(exposure, high)
        ):
            yield f"{name} has rank {rank:,} of {among:,}, which is not the exposure that it is said to have"


def score_problems(document: Exposures, kept: Sequence[CandidateScores]) -> Iterator[str]:
    """What the results of `expose` say, and the scores that were written with them contradict.

    Scores that were not kept contradict nothing, and neither do draws of which an estimate depends on more than their scores.
    """
    described = {facts.format_id for facts in document.formats}
    for format_id in dict.fromkeys(one.format_id for one in kept):
        if format_id not in described:
            yield f"there are scores of format {format_id!r}, which is not described"
    for facts in document.formats:
        scores = {one.kind: one.log_perplexities_bits for one in kept if one.format_id == facts.format_id}
        own = [one for one in document.results if one.format_id == facts.format_id]
        if "canary" in scores:
            told = [one.known_log_perplexity_bits for one in own if one.known_log_perplexity_bits is not None]
            for problem in differences(told, scores["canary"].tolist(), "log_perplexity_bits"):
                yield f"canaries of format {facts.format_id!r} have other scores: {problem}"
        known = [
            one
            for one in own
            if one.estimate.status != "not_measured" and one.known_log_perplexity_bits is not None
        ]
        if "member" in scores:
            ranked = [one for one in known if estimator_of(one.method).keeps == "member"]
            yield from _rank_problems(facts, ranked, scores["member"])
        for method, kind in ((REFERENCES.name, "reference"), (SAMPLED.name, "sample")):
            answered = [one for one in known if one.method == method]
            if answered and kind in scores:
                yield from _estimate_problems(document, facts, answered, scores[kind])


def _rank_problems(
    facts: FormatFacts, results: Sequence[ExposureResult], bits: NDArray[np.float64]
) -> Iterator[str]:
    """Ranks are counts of members; what is within the resolution of a canary may be counted or not."""
    size, ordered = int(facts.size), np.sort(in_steps(bits))
    if results and len(bits) != size:
        yield f"format {facts.format_id!r} has {size:,} members, and {len(bits):,} of them have scores"
        return

    def count(value: float, *, equal: bool) -> int:
        place = in_steps(np.array([value]))[0]
        return int(np.searchsorted(ordered, place, side="right" if equal else "left"))

    for result in results:
        own, name, estimate = result.log_perplexity_bits, f"canary {result.canary_id!r}", result.estimate
        rank = count(own, equal=True)
        ties = rank - count(own, equal=False)
        if (result.rank, estimate.n) != (rank, size) or ties < 1:
            yield f"{name} has another rank than the scores of all members give it, which is {rank:,} of {size:,}"
        elif facts.resolution is not None:
            # The resolution was computed where the canary was walked by itself, and may be that of a slightly different cost.
            reach = _MOST_RESOLUTIONS * float(facts.resolution.at(own))
            narrow, wide = (float(one) for one in facts.resolution.at([own - reach, own + reach]))
            most = count(own + narrow, equal=True), count(own + wide, equal=True)
            least = count(own - wide, equal=False) + ties, count(own - narrow, equal=False) + ties
            for limit, (fewest, greatest) in ((estimate.low, most), (estimate.high, least)):
                if limit is not None and not (
                    at_most(exposure_bits(greatest, size), limit)
                    and at_most(limit, exposure_bits(fewest, size))
                ):
                    yield f"{name} has the limit {limit:.2f}, which the scores of all members do not give"


def _estimate_problems(
    document: Exposures, facts: FormatFacts, results: Sequence[ExposureResult], others: NDArray[np.float64]
) -> Iterator[str]:
    """Exposures among references or samples, computed again from their scores."""
    own, size, level = [one.log_perplexity_bits for one in results], int(facts.size), document.confidence
    ranked = results[0].method == REFERENCES.name
    try:
        if ranked:
            found = reference_exposures(own, others, level, size=size)
        else:
            unknown = max(0, results[0].estimate.n - len(others))
            found = sampled_exposures(own, others, size, level, unknown=unknown)
    except InputError:
        yield "the scores that canaries were compared with are not log-perplexities"
        return
    ranks = 1 + np.searchsorted(np.sort(others), own, side="right")
    for result, expected, rank in zip(results, found, ranks.tolist(), strict=True):
        told = (result.rank if ranked else None, result.estimate)
        for problem in differences(told, (rank if ranked else None, expected), "exposure"):
            yield f"canary {result.canary_id!r} has another one than the scores of {len(others):,} others give: {problem}"
            break
