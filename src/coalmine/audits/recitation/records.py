"""Results of recitation: shares with their intervals, trends, what one model recites and others do not, and examples."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from coalmine.audits.recitation.options import RecitationOptions
from coalmine.models.protocols import IntArray
from coalmine.records import Estimate
from coalmine.records.documents import Document, Origin, differences
from coalmine.records.estimate import Count
from coalmine.statistics.intervals import clustered_interval
from coalmine.statistics.trends import Trend

SCHEMA = "coalmine.recitation/3"
SEQUENCES_FILE = "sequences.parquet"
_METHOD = "exact binomial"
_ALONE = "sequences are independent of each other"
_CLUSTERED = "documents are independent of each other, and a model may recite all sequences of one or none"


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """How much a model recites of the sequences of one context, or of those of one number of copies among them."""

    model: str
    # None for masked models, which are given the text around gaps, and for chat endpoints, which are given the conversation before a turn.
    context: int | None
    # None for all of them together.
    bucket: int | None = None
    # The fewest and the most copies, and the geometric mean, of the sequences in this group.
    copies: tuple[int, int]
    mean_copies: float
    recited: Estimate
    # How many documents the sequences are of; those of one count together in all intervals.
    clusters: Count | None = None
    # The exact interval of the share among all such sequences of this very corpus, from which they were drawn independently.
    recited_in_corpus: tuple[float, float] | None = None
    # What comes out in other ways than greedy decoding, by their names, such as "best of 3 beams".
    ways: dict[str, Estimate] = {}


class RecitationTrend(msgspec.Struct, frozen=True, kw_only=True):
    """How the recited share grows with the logarithm of something; model or context is None if the trend is over all of them."""

    by: Literal["repetitions", "context", "size"]
    model: str | None
    context: int | None
    trend: Trend


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """A sequence that was recited; texts are masked unless the user asked to reveal them."""

    document: int
    offset: int
    copies: int
    context: int | None
    prompt: str
    suffix: str
    recited_by: tuple[str, ...]


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A model that was asked."""

    name: str
    role: Literal["asked", "baseline"]
    # None if the adapter does not say; such a model is not part of trends by size.
    parameters: int | None
    description: dict[str, Any]


class Recitation(msgspec.Struct, frozen=True, kw_only=True):
    """The shares of sequences that models recite, between 0 and 1; recitation.json. All answers are in sequences.parquet.

    >>> result = recite(model, "index/", contexts=[50])  # doctest: +SKIP
    >>> result.overall(result.models[0].name, 50).recited.value  # doctest: +SKIP
    0.12
    """

    schema: str = SCHEMA
    index: dict[str, Any]
    models: tuple[ModelFacts, ...]
    settings: RecitationOptions
    sequences: Count
    questions: Count
    groups: tuple[Group, ...]
    trends: tuple[RecitationTrend, ...]
    # How many sequences each model recites at the main context that each of the others does not.
    exclusive: dict[str, dict[str, int]]
    examples: tuple[Example, ...]
    revealed: bool
    # Of the sequences.parquet that was written with it; None for a result that was never written.
    sequences_sha256: str | None = None
    # Why there are no answers to some questions, which are in no number above.
    not_measured: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Write recitation.json, readable by its owner only."""
        return RECITATIONS.save(directory, self)

    @property
    def chat_template_sha256(self) -> str | None:
        """Of the template that wrote the conversations of the index; None for plain texts."""
        return self.index.get("chat_template_sha256")

    @property
    def main_context(self) -> int | None:
        """The context of the headline: the one with the most sequences, of several the longest; None for masked models."""
        return main_context(self.groups)

    def overall(self, model: str, context: int | None) -> Group | None:
        """All sequences of one context together."""
        groups = (one for one in self.groups if one.bucket is None)
        return next((one for one in groups if (one.model, one.context) == (model, context)), None)


def main_context(groups: Sequence[Group]) -> int | None:
    """The context with the most sequences, of several the longest; all sequences of a context are one group, and no part is larger."""
    best = max(groups, key=lambda group: (group.recited.n, group.context or 0), default=None)
    return None if best is None else best.context


def asked_model(recitation: Recitation) -> dict[str, Any]:
    """The model that a recitation is about: the largest of a family."""
    asked = [one for one in recitation.models if one.role == "asked"]
    return max(asked, key=lambda one: one.parameters or 0).description if asked else {}


def _again(path: Path, recitation: Recitation) -> Iterator[str]:
    """Shares and trends follow from the answers in the sequences.parquet beside them."""
    from coalmine.audits.recitation.shares import counted_again

    sequences = path.with_name(SEQUENCES_FILE)
    if sequences.is_file():
        yield from differences(recitation, counted_again(recitation, sequences))


RECITATIONS = Document(
    record=Recitation,
    schema=SCHEMA,
    file="recitation.json",
    title="recitation",
    by="`coalmine recite`",
    others={
        SEQUENCES_FILE: "one row for each model, context and sequence: places, no text",
    },
    again=_again,
    companions=lambda recitation: {SEQUENCES_FILE: recitation.sequences_sha256},
    origin=Origin(model=asked_model),
)
"""recitation.json: `run.all(RECITATIONS)` gives the results of `coalmine recite` in a run."""


def read_recitation(path: str | os.PathLike[str]) -> Recitation:
    """A recitation.json; its sequences.parquet must be the one that was written with it, if it exists.

    >>> read_recitation("model-audit/recitation").sequences  # doctest: +SKIP
    1000
    """
    return RECITATIONS.load(path)


def share_estimate(
    hits: int, n: int, what: str, confidence: float, *, clusters: IntArray | None = None
) -> Estimate:
    """A share with its interval; not measured if there are no sequences.

    With the cluster of each sequence, those of one cluster count together; without, or where all differ, the interval is exact.

    >>> estimate = share_estimate(3, 10, "were recited", 0.95)
    >>> estimate.value, round(estimate.low, 3), round(estimate.high, 3)
    (0.3, 0.067, 0.652)
    """
    if not n:
        return Estimate.not_measured(_METHOD, f"not measured which share of sequences {what}: there are none")
    labels = np.arange(n) if clusters is None else clusters
    low, high, worth = clustered_interval(hits, labels, confidence)
    alone = worth == n
    many = "" if alone else f", from {len(np.unique(labels)):,} documents"
    return Estimate(
        method=_METHOD if alone else "binomial over documents",
        status="measured",
        value=hits / n,
        low=low,
        high=high,
        confidence=confidence,
        n=n,
        effective_n=worth,
        statement=f"{hits:,} of {n:,} sequences{many} {what} ({100 * low:.2f}% to {100 * high:.2f}%)",
        assumptions=(_ALONE,) if alone else (_CLUSTERED,),
    )
