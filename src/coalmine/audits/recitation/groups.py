"""Shares of recited sequences from the answers: by repetitions, context, sequence length and model size, with the trend of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from coalmine.audits.recitation.options import RecitationOptions
from coalmine.audits.recitation.records import (
    Exclusive,
    Group,
    ModelFacts,
    Recitation,
    RecitationTrend,
    main_context,
    share_estimate,
)
from coalmine.audits.recitation.ways import Rows, read_sequences, ways_of
from coalmine.statistics.intervals import clopper_pearson
from coalmine.statistics.trends import log_linear_trend

Chosen = NDArray[np.bool_]
NOT_OF_SIZE = (
    "these models differ, but this few cannot show that their size is why: another training of the same size may differ by as "
    "much; ask models of more sizes"
)


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
        "exclusive": tuple(_exclusives(answers, main_context(groups))),
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
    """For each context all sequences together, then by copies, and by length where there are several lengths."""
    group = partial(_group, model, rows, settings)
    for context in np.unique(rows["context"]).tolist():
        here = rows["context"] == context
        yield group(here)
        for bucket in np.unique(rows["bucket"][here]).tolist():
            yield group(here & (rows["bucket"] == bucket), bucket=bucket)
        lengths = np.unique(rows["length"][here]).tolist()
        for length in lengths if len(lengths) > 1 else ():
            yield group(here & (rows["length"] == length), length=length)


def _group(
    model: str,
    rows: Rows,
    settings: RecitationOptions,
    chosen: Chosen,
    *,
    length: int | None = None,
    bucket: int | None = None,
) -> Group:
    copies, clusters = rows["copies"][chosen], rows["cluster"][chosen]
    n, level = int(chosen.sum()), settings.confidence
    recited = int(rows["recited"][chosen].sum())
    return Group(
        model=model,
        context=int(rows["context"][chosen][0]) or None,
        length=length,
        bucket=bucket,
        copies=(int(copies.min()), int(copies.max())),
        mean_copies=float(np.exp(np.mean(np.log(copies)))),
        recited=share_estimate(recited, n, "were recited", level, clusters=clusters),
        clusters=len(np.unique(clusters)),
        recited_in_corpus=clopper_pearson(recited, n, level),
        ways={
            way: share_estimate(int(hits[chosen].sum()), n, what, level, clusters=clusters)
            for way, what, hits in ways_of(rows, settings)
        },
    )


def _trends_of(
    asked: Sequence[ModelFacts], answers: Mapping[str, Rows], settings: RecitationOptions
) -> Iterator[RecitationTrend]:
    """Log-linear trends in repetitions, context, length and model size."""
    contexts = np.unique(answers[asked[0].name]["context"]).tolist()
    for one in asked:
        rows = answers[one.name]
        trend = partial(_trend, one.name, rows, settings)
        for context in contexts:
            here = rows["context"] == context
            yield trend("repetitions", here, rows["bucket"], rows["copies"])
            if len(np.unique(rows["length"][here])) > 1:
                yield trend("length", here, rows["length"], rows["length"])
        if contexts != [0]:
            everything = np.ones(len(rows["context"]), dtype=np.bool_)
            yield trend("context", everything, rows["context"], rows["context"])
    for context in contexts if len(asked) > 1 else ():
        yield _by_size(asked, answers, context, settings)


def _trend(
    model: str,
    rows: Rows,
    settings: RecitationOptions,
    by: Any,
    chosen: Chosen,
    labels: NDArray[Any],
    values: NDArray[Any],
) -> RecitationTrend:
    parts = [chosen & (labels == label) for label in np.unique(labels[chosen])]
    trend = log_linear_trend(
        [float(np.exp(np.mean(np.log(values[own])))) for own in parts],
        [int(rows["recited"][own].sum()) for own in parts],
        [int(own.sum()) for own in parts],
        clusters=[rows["cluster"][own] for own in parts],
        confidence=settings.confidence,
    )
    context = None if by == "context" else int(rows["context"][chosen][0]) or None
    return RecitationTrend(by=by, model=model, context=context, trend=trend)


def _by_size(
    asked: Sequence[ModelFacts], answers: Mapping[str, Rows], context: int, settings: RecitationOptions
) -> RecitationTrend:
    sized = [one for one in asked if one.parameters]
    own = [answers[one.name] for one in sized]
    here = [rows["context"] == context for rows in own]
    fit = partial(
        log_linear_trend,
        [float(one.parameters or 0) for one in sized],
        [int(rows["recited"][chosen].sum()) for rows, chosen in zip(own, here, strict=True)],
        [int(chosen.sum()) for chosen in here],
        clusters=[rows["cluster"][chosen] for rows, chosen in zip(own, here, strict=True)],
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


def _exclusives(answers: Mapping[str, Rows], context: int | None) -> Iterator[Exclusive]:
    """How many sequences each model recites at a context, and how many of those each other model does not recite."""
    recited = {name: rows["recited"][rows["context"] == (context or 0)] for name, rows in answers.items()}
    for name, own in recited.items():
        others = {other: int((own & ~theirs).sum()) for other, theirs in recited.items() if other != name}
        yield Exclusive(model=name, recited=int(own.sum()), of=len(own), not_recited_by=others)
