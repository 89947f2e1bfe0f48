"""Shares of recited sequences from the answers: by repetitions, context, sequence length and model size, with the trend of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from coalmine.audits.recitation.answers import Answers
from coalmine.audits.recitation.options import RecitationOptions
from coalmine.audits.recitation.questions import Questions
from coalmine.audits.recitation.results import (
    Exclusive,
    Group,
    Recitation,
    RecitationTrend,
    SampledShare,
    share_estimate,
)
from coalmine.audits.recitation.sequences import Elsewhere, read_sequences
from coalmine.audits.recitation.tries import log2_chance_in_tries
from coalmine.models.protocols import IntArray
from coalmine.records import Estimate
from coalmine.statistics.intervals import clopper_pearson
from coalmine.statistics.trends import log_linear_trend

Chosen = NDArray[np.bool_]
NOT_OF_SIZE = (
    "these models differ, but this few cannot show that their size is why: another training of the same size may differ by as "
    "much; ask models of more sizes"
)


class Asked(NamedTuple):
    """A model: its name, its number of parameters (None if unknown), and its answers."""

    name: str
    parameters: int | None
    answers: Answers
    elsewhere: Elsewhere


class QuestionColumns(NamedTuple):
    """For each question: its context, and the length, the copies, the bucket and the cluster of its sequence."""

    contexts: IntArray
    lengths: IntArray
    counts: IntArray
    buckets: IntArray
    clusters: IntArray


def columns_of(questions: Questions) -> QuestionColumns:
    """What shares and trends need to know of the questions."""
    facts = np.array(
        [(sample.length, sample.count, sample.bucket) for sample in questions.samples], dtype=np.int64
    )[questions.which]
    clusters = questions.clusters[questions.which]
    return QuestionColumns(questions.contexts, facts[:, 0], facts[:, 1], facts[:, 2], clusters)


def groups_of(one: Asked, columns: QuestionColumns, settings: RecitationOptions) -> Iterator[Group]:
    """For each context all sequences together, then by copies, and by length where there are several lengths."""
    for context in np.unique(columns.contexts).tolist():
        here = columns.contexts == context
        yield _group(one, columns, here, settings)
        for bucket in np.unique(columns.buckets[here]).tolist():
            yield _group(one, columns, here & (columns.buckets == bucket), settings, bucket=bucket)
        lengths = np.unique(columns.lengths[here]).tolist()
        if len(lengths) > 1:
            for length in lengths:
                yield _group(one, columns, here & (columns.lengths == length), settings, length=length)


def _group(
    one: Asked,
    columns: QuestionColumns,
    chosen: Chosen,
    settings: RecitationOptions,
    *,
    length: int | None = None,
    bucket: int | None = None,
) -> Group:
    answers, found = one.answers, one.elsewhere
    counts, clusters = columns.counts[chosen], columns.clusters[chosen]
    n, recited = int(chosen.sum()), int(answers.recited[chosen].sum())

    def share(hits: Chosen, what: str) -> Estimate:
        return share_estimate(int(hits[chosen].sum()), n, what, settings.confidence, clusters=clusters)

    sampled = [
        SampledShare(
            tries=tries,
            chance=settings.chance,
            share=share(
                log2_chance_in_tries(answers.log2_probabilities[:, 0], tries) >= np.log2(settings.chance),
                f"come out in {tries:,} tries with a chance of {settings.chance:g} or more",
            ),
        )
        for tries in settings.tries
    ]
    return Group(
        model=one.name,
        context=int(columns.contexts[chosen][0]) or None,
        length=length,
        bucket=bucket,
        copies=(int(counts.min()), int(counts.max())),
        mean_copies=float(np.exp(np.mean(np.log(counts)))),
        recited=share(answers.recited, "were recited"),
        clusters=len(np.unique(clusters)),
        recited_in_corpus=clopper_pearson(recited, n, settings.confidence),
        sampled=tuple(sampled),
        beam=None if settings.beam is None else share(answers.beam_place == 1, "were the best beam"),
        among_beams=None if settings.beam is None else share(answers.beam_place >= 1, "were among the beams"),
        anywhere=share(found.counts > 0, "led to an output that follows its prompt somewhere in the corpus")
        if settings.anywhere
        else None,
        near=None
        if settings.near is None
        else share(found.distances <= settings.near, f"were recited up to {settings.near} edits"),
    )


def trends_of(
    asked: Sequence[Asked], columns: QuestionColumns, settings: RecitationOptions
) -> tuple[RecitationTrend, ...]:
    """Log-linear trends in repetitions, context, length and model size."""
    contexts = np.unique(columns.contexts).tolist()
    trends: list[RecitationTrend] = []
    for one in asked:
        for context in contexts:
            here = columns.contexts == context
            trends.append(
                _trend("repetitions", one, columns, here, columns.buckets, columns.counts, settings)
            )
            if len(np.unique(columns.lengths[here])) > 1:
                trends.append(
                    _trend("length", one, columns, here, columns.lengths, columns.lengths, settings)
                )
        if contexts != [0]:
            everything = np.ones(len(columns.contexts), dtype=np.bool_)
            trends.append(
                _trend("context", one, columns, everything, columns.contexts, columns.contexts, settings)
            )
    if len(asked) > 1:
        trends += [_by_size(asked, columns, context, settings) for context in contexts]
    return tuple(trends)


def _trend(
    by: str,
    one: Asked,
    columns: QuestionColumns,
    chosen: Chosen,
    labels: IntArray,
    values: IntArray,
    settings: RecitationOptions,
) -> RecitationTrend:
    x, hits, trials, clusters = [], [], [], []
    for label in np.unique(labels[chosen]):
        own = chosen & (labels == label)
        x.append(float(np.exp(np.mean(np.log(values[own])))))
        hits.append(int(one.answers.recited[own].sum()))
        trials.append(int(own.sum()))
        clusters.append(columns.clusters[own])
    context = int(columns.contexts[chosen][0]) or None
    return RecitationTrend(
        by=by,  # type: ignore[arg-type]  # one of those that are named there
        model=one.name,
        context=None if by == "context" else context,
        trend=log_linear_trend(x, hits, trials, clusters=clusters, confidence=settings.confidence),
    )


def _by_size(
    asked: Sequence[Asked], columns: QuestionColumns, context: int, settings: RecitationOptions
) -> RecitationTrend:
    here = columns.contexts == context
    sized = [one for one in asked if one.parameters]
    fit = partial(
        log_linear_trend,
        [float(one.parameters or 0) for one in sized],
        [int(one.answers.recited[here].sum()) for one in sized],
        [int(here.sum())] * len(sized),
        clusters=[columns.clusters[here]] * len(sized),
        confidence=settings.confidence,
    )
    trend, of_these = fit(trained_apart=True), fit()
    level = 1 - settings.confidence
    if (
        trend.p_value is not None
        and of_these.p_value is not None
        and of_these.p_value <= level < trend.p_value
    ):
        slope = msgspec.structs.replace(trend.slope, warnings=(*trend.slope.warnings, NOT_OF_SIZE))
        trend = msgspec.structs.replace(trend, slope=slope)
    return RecitationTrend(by="size", model=None, context=context or None, trend=trend)


def exclusives(found: Sequence[Asked], columns: QuestionColumns) -> tuple[Exclusive, ...]:
    """For each model and context how many sequences it recites, and how many of those each other model does not recite."""
    rows = []
    for context in np.unique(columns.contexts).tolist():
        here = columns.contexts == context
        for one in found:
            own = one.answers.recited[here]
            others = {
                other.name: int((own & ~other.answers.recited[here]).sum())
                for other in found
                if other is not one
            }
            rows.append(
                Exclusive(
                    model=one.name,
                    context=context or None,
                    recited=int(own.sum()),
                    of=int(here.sum()),
                    not_recited_by=others,
                )
            )
    return tuple(rows)


def counted_again(recitation: Recitation, sequences: Path) -> Recitation:
    """The same result with all shares and trends from the answers in a sequences.parquet."""
    table = read_sequences(sequences)
    asked = []
    for one in recitation.models:
        own = {name: values[table["model"] == one.name] for name, values in table.items()}
        nothing = np.full(len(own["model"]), -1)
        answers = Answers(
            recited=own["recited"].astype(bool),
            first_miss=nothing,
            log2_probabilities=own.get("log2_probability", nothing)[:, None],
            written=nothing[:, None],
            beam_place=own.get("beam_place", nothing),
        )
        asked.append(
            Asked(
                one.name,
                one.parameters,
                answers,
                Elsewhere(own.get("output_copies", nothing), own.get("edits", nothing)),
            )
        )
    columns = QuestionColumns(*(own[name] for name in ("context", "length", "copies", "bucket", "cluster")))
    settings, trained = recitation.settings, sum(one.role == "asked" for one in recitation.models)
    return msgspec.structs.replace(
        recitation,
        questions=len(columns.contexts),
        groups=tuple(group for one in asked for group in groups_of(one, columns, settings)),
        trends=trends_of(asked[:trained], columns, settings),
        exclusive=exclusives(asked, columns),
    )
