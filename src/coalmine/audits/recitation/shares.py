"""The answers of a model as a table, one row per question, and the shares and trends that follow from it.

A suffix comes out by greedy decoding, or in other ways that were asked for. By sampling, this is (n, p)-discoverable extraction
(Measuring memorization in language models via probabilistic extraction, Hayes et al., 2024, arXiv:2410.19482): a suffix that sampling
writes with probability q comes out at least once in n independent tries with probability 1 - (1 - q)^n. All of it is done in logarithms,
because q is often far below what a float can hold.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine.audits.recitation.questions import Questions
from coalmine.audits.recitation.records import (
    SEQUENCES_FILE,
    Group,
    ModelFacts,
    Recitation,
    RecitationOptions,
    RecitationTrend,
    main_context,
    share_estimate,
)
from coalmine.corpus.files.streams import pyarrow_for
from coalmine.corpus.index.queries import CorpusIndex
from coalmine.errors import InputError
from coalmine.models.protocols import FloatArray, IntArray
from coalmine.records import Estimate
from coalmine.statistics.intervals import clopper_pearson
from coalmine.statistics.trends import Trend, log_linear_trend
from coalmine.storage.columns import arrow_column, numpy_column, repeated_text
from coalmine.storage.files import PRIVATE, sha256_of_file, whole_file

Rows = dict[str, NDArray[Any]]
# Below this, q and -log(1 - q) are the same float64.
_SMALL = -60.0
# Columns that are empty where their number is less than this.
_LEAST = {"first_miss": 0, "beam_place": 1}


def rows_of(questions: Questions, answers: Rows, index: CorpusIndex) -> Rows:
    """One row per question: where its sequence is, and what the model made of it; no texts."""
    facts = np.array(
        [(one.document, one.offset, one.length, one.count, one.bucket) for one in questions.samples],
        dtype=np.int64,
    )[questions.which]
    rows: Rows = {
        "sequence": questions.which,
        # Sequences that count together in intervals.
        "cluster": questions.clusters[questions.which],
        **dict(zip(("document", "offset", "length", "copies", "bucket"), facts.T, strict=True)),
        "context": questions.contexts,
        **{name: values for name, values in answers.items() if name not in {"written", "reason"}},
    }
    if "written" in answers:
        rows["output_copies"] = _output_copies(index, questions, answers["written"])
    return rows


def ways_of(rows: Rows, settings: RecitationOptions) -> Iterator[tuple[str, str, NDArray[np.bool_]]]:
    """Each way that was asked for: its name, what a statement says of sequences that come out so, and which these are."""
    for tries in settings.tries:
        chance = log2_chance_in_tries(rows["log2_probability"], tries)
        what = f"come out in {tries:,} tries with a chance of {settings.chance:g} or more"
        name = "sampled, in 1 try" if tries == 1 else f"sampled, in {tries:,} tries"
        yield name, what, chance >= np.log2(settings.chance)
    if settings.beam is not None:
        yield f"best of {settings.beam} beams", "were the best beam", rows["beam_place"] == 1
        yield f"among {settings.beam} beams", "were among the beams", rows["beam_place"] >= 1
    if settings.anywhere:
        what = "led to an output that follows its prompt somewhere in the corpus"
        yield "output anywhere in the corpus", what, rows["output_copies"] > 0


def _output_copies(index: CorpusIndex, questions: Questions, written: IntArray) -> IntArray:
    """How often each prompt and what was written after it occur together in the corpus."""
    counts: IntArray = np.zeros(len(questions), dtype=np.int64)
    for context in np.unique(questions.contexts).tolist():
        here = np.flatnonzero(questions.contexts == context)
        prompts = np.array([questions.prompt(question) for question in here.tolist()], dtype=np.int64)
        whole = np.concatenate([prompts, written[here]], axis=1)
        # A token that no document has, such as the end of one, occurs nowhere in a sequence.
        possible = (whole < index.tokenizer.size).all(axis=1)
        counts[here[possible]] = index.counts(whole[possible])
    return counts


def log2_chance_in_tries(log2_probability: ArrayLike, tries: float) -> FloatArray:
    """Log2 of the probability that a suffix of log2 probability `log2_probability` comes out at least once in `tries` tries.

    >>> log2_chance_in_tries([0.0, -1.0, -200.0], 1).tolist()
    [0.0, -1.0, -200.0]
    >>> round(float(log2_chance_in_tries(-2000.0, 2.0**40)), 6)
    -1960.0
    """
    log2_q = np.asarray(log2_probability, dtype=np.float64)
    if not np.all(log2_q <= 1e-3):
        raise InputError("log2 probabilities must be at most 0, and numbers; check the model's scores")
    log2_q = np.minimum(log2_q, 0.0)
    with np.errstate(all="ignore"):
        # log(1 - q): each keeps its digits on its own side of one half.
        near_one = np.log(-np.expm1(log2_q * math.log(2)))
        log_missed = np.where(log2_q > -1, near_one, np.log1p(-np.exp2(np.minimum(log2_q, -1.0))))
        # (1 - q)^n = exp(-2^power); q = 1 has an infinite power.
        power = np.where(log2_q > _SMALL, np.log2(-log_missed), log2_q) + math.log2(tries)
        return np.where(power > _SMALL, np.log2(-np.expm1(-np.exp2(power))), power)


def counted(
    models: Sequence[ModelFacts], answers: Mapping[str, Rows], settings: RecitationOptions
) -> dict[str, Any]:
    """The fields of a `Recitation` that follow from the answers of each model, by its name; the baseline is in no trend."""
    groups = tuple(group for one in models for group in _groups_of(one.name, answers[one.name], settings))
    asked = [one for one in models if one.role == "asked"]
    return {
        "questions": len(answers[models[0].name]["context"]),
        "groups": groups,
        "trends": tuple(_trends_of(asked, answers, settings)),
        "exclusive": _exclusive(answers, main_context(groups)),
    }


def counted_again(recitation: Recitation, sequences: Path) -> Recitation:
    """The same result with all shares and trends from the answers in a sequences.parquet."""
    table = read_sequences(sequences)
    answers = {
        one.name: {name: values[table["model"] == one.name] for name, values in table.items()}
        for one in recitation.models
    }
    return msgspec.structs.replace(recitation, **counted(recitation.models, answers, recitation.settings))


def _groups_of(model: str, rows: Rows, settings: RecitationOptions) -> Iterator[Group]:
    """For each context all sequences together, and then by copies."""
    for context in np.unique(rows["context"]).tolist():
        here = _chosen(rows, rows["context"] == context)
        yield _group(model, here, settings)
        for bucket in np.unique(here["bucket"]).tolist():
            yield _group(model, _chosen(here, here["bucket"] == bucket), settings, bucket)


def _chosen(rows: Rows, chosen: NDArray[np.bool_]) -> Rows:
    return {name: values[chosen] for name, values in rows.items()}


def _group(model: str, rows: Rows, settings: RecitationOptions, bucket: int | None = None) -> Group:
    copies, clusters = rows["copies"], rows["cluster"]

    def share(hits: NDArray[np.bool_], what: str) -> Estimate:
        return share_estimate(int(hits.sum()), len(hits), what, settings.confidence, clusters=clusters)

    return Group(
        model=model,
        context=int(rows["context"][0]) or None,
        bucket=bucket,
        copies=(int(copies.min()), int(copies.max())),
        mean_copies=_mean(copies),
        recited=share(rows["recited"], "were recited"),
        clusters=len(np.unique(clusters)),
        recited_in_corpus=clopper_pearson(int(rows["recited"].sum()), len(copies), settings.confidence),
        ways={way: share(hits, what) for way, what, hits in ways_of(rows, settings)},
    )


def _mean(values: IntArray) -> float:
    """The geometric mean."""
    return float(np.exp(np.mean(np.log(values))))


def _trends_of(
    asked: Sequence[ModelFacts], answers: Mapping[str, Rows], settings: RecitationOptions
) -> Iterator[RecitationTrend]:
    """Log-linear trends in repetitions, context and model size."""
    contexts = np.unique(answers[asked[0].name]["context"]).tolist()
    at = {
        (one.name, context): _chosen(answers[one.name], answers[one.name]["context"] == context)
        for one in asked
        for context in contexts
    }
    level = settings.confidence
    for one in asked:
        for context in contexts:
            rows = at[one.name, context]
            parts = [_chosen(rows, rows["bucket"] == bucket) for bucket in np.unique(rows["bucket"])]
            trend = _trend([_mean(part["copies"]) for part in parts], parts, level)
            yield RecitationTrend(by="repetitions", model=one.name, context=context or None, trend=trend)
        if contexts != [0]:
            trend = _trend(contexts, [at[one.name, context] for context in contexts], level)
            yield RecitationTrend(by="context", model=one.name, context=None, trend=trend)
    sizes = {one.name: float(one.parameters) for one in asked if one.parameters}
    for context in contexts if len(asked) > 1 else ():
        parts = [at[name, context] for name in sizes]
        trend = _trend(list(sizes.values()), parts, level, trained_apart=True)
        yield RecitationTrend(by="size", model=None, context=context or None, trend=trend)


def _trend(
    x: Sequence[float], parts: Sequence[Rows], confidence: float, *, trained_apart: bool = False
) -> Trend:
    """The trend of the share that is recited of each part."""
    return log_linear_trend(
        x,
        [int(part["recited"].sum()) for part in parts],
        [len(part["recited"]) for part in parts],
        clusters=[part["cluster"] for part in parts],
        trained_apart=trained_apart,
        confidence=confidence,
    )


def _exclusive(answers: Mapping[str, Rows], context: int | None) -> dict[str, dict[str, int]]:
    """How many sequences each model recites at a context that each other model does not recite."""
    recited = {name: rows["recited"][rows["context"] == (context or 0)] for name, rows in answers.items()}
    return {
        name: {other: int((own & ~theirs).sum()) for other, theirs in recited.items() if other != name}
        for name, own in recited.items()
    }


def save_sequences(folder: Path, answers: Mapping[str, Rows]) -> str:
    """Write sequences.parquet, readable by its owner only, with the rows of each model by its name; returns its SHA-256."""
    pa = pyarrow_for(SEQUENCES_FILE)
    from pyarrow import parquet

    tables = [
        pa.table(
            {
                "model": repeated_text(model, len(rows["context"])).cast(pa.string()),
                **{
                    name: arrow_column(values, values < _LEAST[name] if name in _LEAST else None)
                    for name, values in rows.items()
                },
            }
        )
        for model, rows in answers.items()
    ]
    with whole_file(folder / SEQUENCES_FILE, mode=PRIVATE) as temporary:
        with open(temporary, "wb") as stream:
            parquet.write_table(pa.concat_tables(tables), stream, compression="zstd")
        return sha256_of_file(temporary)


def read_sequences(path: Path) -> Rows:
    """The columns of a sequences.parquet; 0 for a number that is not there."""
    pa = pyarrow_for(SEQUENCES_FILE)
    from pyarrow import parquet

    try:
        # By its bytes, because a path that is not UTF-8 is not text to pyarrow.
        with pa.OSFile(os.fsencode(path)) as source:
            table = parquet.read_table(source)
    except (pa.ArrowException, OSError) as problem:
        raise InputError(
            f"{path} cannot be read as Parquet ({type(problem).__name__}); make the recitation again"
        ) from None
    return {
        name: numpy_column(table[name].fill_null(0) if name in _LEAST else table[name])
        for name in table.column_names
    }
