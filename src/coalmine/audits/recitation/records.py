"""The options of `recite`, and its results: shares with their intervals, trends, what one model recites and others do not, and examples."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from coalmine.audits.options import SEED, Option, Options
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

# Beyond this, a float does not hold every whole number.
MOST_TRIES = 2**53
# With a vocabulary of bytes, half as many take all of the memory that a beam may have.
MOST_BEAMS = 1_000_000


class RecitationOptions(Options, frozen=True, kw_only=True):
    """What models are asked to recite; `settings` in recitation.json, which has what was left open as it was decided.

    Attributes:
        suffix: how many tokens must come out.
        contexts: how many tokens are given before the suffix. Without `lengths`, each is tried on sequences of its own length. None
            takes the usual ones that the models can read; models that fill gaps have none.
        lengths: of the sequences, in tokens; each context is then tried on all that are long enough, so that one long length compares
            contexts on the same suffixes.
        sample: "normalized" draws up to `per_bucket` sequences of every length and number of copies; "uniform" draws `per_bucket`
            places of each length.
        per_bucket: see `sample`.
        max_sequences: the most sequences in all.
        temperature: of drawing tokens, for the probability that a suffix comes out by sampling.
        top_k: draw only from this many of the likeliest tokens.
        tries: a suffix counts as found in n tries where it comes out at least once with probability `chance`.
        chance: see `tries`.
        greedy_only: only the greedy verdict, which stops reading a suffix at its first miss.
        beam: also whether beam search of this width writes the suffix.
        anywhere: also whether prompt and output occur together anywhere in the corpus.
        hidden_share: for masked models, which are given whole sequences with this share of tokens hidden.
        confidence: the level of all intervals, between 0 and 1.
        seed: of the sample.

    >>> RecitationOptions(contexts=(50, 100), per_bucket=200).suffix
    50
    """

    suffix: Annotated[int, Option("Tokens that must come out.")] = 50
    contexts: Annotated[tuple[int, ...] | None, Option("Tokens that are given, such as 50,100.")] = None
    lengths: Annotated[tuple[int, ...] | None, Option("Tokens of the sequences, for all contexts.")] = None
    sample: Annotated[str, Option("normalized (as many of each number of copies) or uniform.")] = "normalized"
    per_bucket: Annotated[int, Option("Sequences of each length and number of copies, at most.")] = 1000
    max_sequences: Annotated[int | None, Option("Sequences in all, at most.")] = None
    temperature: Annotated[float, Option("Of sampling.", decides=True)] = 1.0
    top_k: Annotated[int | None, Option("Sample from this many of the likeliest tokens.", decides=True)] = (
        None
    )
    tries: Annotated[tuple[int, ...], Option("Tries in which a suffix should be sampled.")] = (1, 100, 10_000)
    chance: Annotated[float, Option("With which probability it should, at least.")] = 0.5
    greedy_only: Annotated[bool, Option("No sampling: stop at the first miss.", decides=True)] = False
    beam: Annotated[int | None, Option("Also by beam search of this width (slow).", decides=True)] = None
    anywhere: Annotated[
        bool, Option("Also outputs that follow their prompt anywhere in the corpus.", decides=True)
    ] = False
    hidden_share: Annotated[float | None, Option("Share of tokens that is hidden.", decides=True)] = 0.15
    confidence: float = 0.95
    seed: Annotated[int, SEED] = 0

    def check(self) -> None:
        """Reject values that nothing can be asked with; `hidden_share` is a number until the models are known."""
        for name in ("contexts", "lengths"):
            sizes = getattr(self, name)
            self._require(sizes is None or min(sizes, default=0) >= 1, name, "at least 1", 50)
        most = self.max_sequences
        self._require(self.suffix >= 1, "suffix", "at least 1")
        self._require(most is None or most >= 1, "max_sequences", "at least 1", 1000)
        self._require(self.sample in {"normalized", "uniform"}, "sample", "normalized or uniform")
        share = self.hidden_share
        self._require(share is not None and 0 < share < 1, "hidden_share", "above 0 and below 1")
        in_range = all(1 <= one <= MOST_TRIES for one in self.tries)
        self._require(in_range, "tries", "from 1 to 2^53", 100)
        self._require(0 < self.chance < 1, "chance", "above 0 and below 1")
        beam = self.beam
        self._require(beam is None or 1 <= beam <= MOST_BEAMS, "beam", f"from 1 to {MOST_BEAMS}", 100)


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
