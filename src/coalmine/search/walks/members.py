"""The members of a format under one model: searched token by token where that is possible, else scored one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine.errors import ModelError, NotMeasurableError
from coalmine.formats.format import Format
from coalmine.models.protocols import (
    LimitedScorer,
    Model,
    PairModel,
    PartialScorer,
    Scorer,
    Stepper,
    TextScorer,
)
from coalmine.search.tree.token_tree import TokenTree
from coalmine.search.walks.frontier import BATCH, MEMORY_BYTES, Frontier
from coalmine.search.walks.scoring import Scored, score_each, score_texts
from coalmine.search.walks.thresholds import in_steps

TEXTS_OF_AN_ENDPOINT = 128
# Members that show which tokens of a format's beginning all members share; one that has others has no number.
EXAMPLES = 64


class Members:
    """A format and the model that scores its members.

    A model of pairs scores each member given its source, which `sources` makes from the same fillings. Every member then has its own
    source, nothing is shared between members, and the tree cannot be walked.
    """

    def __init__(
        self,
        model: Model,
        form: Format,
        *,
        sources: Format | None = None,
        given: str = "",
        batch: int = BATCH,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        """`given` is a known beginning; only members with it are scored. `memory_bytes` bounds the states of a walk."""
        if isinstance(model, LimitedScorer):
            model = model.after(form.prefix, [form.at(place) for place in form.sample_indices(EXAMPLES, 0)])
        self.model, self.format, self.given = model, form, given
        # An endpoint is so slow that a large batch would show no progress for minutes.
        self.batch = min(batch, TEXTS_OF_AN_ENDPOINT) if isinstance(model, TextScorer) else batch
        self.memory_bytes = memory_bytes
        # A model of single texts was trained on the target side, and scores that.
        self.sources = sources if isinstance(model, PairModel) else None
        if isinstance(model, PairModel) and sources is None:
            raise NotMeasurableError(
                f"{model.name!r} is a model of pairs and needs a source for each text; plant pairs (a source format next to each "
                "format), or hold one source fixed"
            )

    @cached_property
    def _tree(self) -> TokenTree | str:
        """The tree, or why there is none."""
        if self.sources is not None:
            return "each member has its own source"
        if not isinstance(self.model, Stepper):
            return "it does not support incremental decoding"
        try:
            return TokenTree(self.format, self.model.tokenizer, given=self.given)
        except ModelError as problem:
            return str(problem)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What the scores of members depend on, for the key of a result."""
        return {
            "model": self.model.describe(),
            "format": [self.format.template, self.format.words],
            "sources": None if self.sources is None else self.sources.template,
            "given": self.given,
            "batch": self.batch,
        }

    @property
    def tree(self) -> TokenTree:
        """The members as a tree of tokens; a ModelError with the obstacle where there is none."""
        if isinstance(self._tree, str):
            raise ModelError(f"{self.model.name!r} cannot be searched: {self._tree}")
        return self._tree

    @property
    def obstacle(self) -> str | None:
        """Why the members cannot be searched token by token, or None where they can."""
        return self._tree if isinstance(self._tree, str) else None

    def frontier(
        self, purpose: str, advice: str, *, batch: int | None = None, leave_out: bool = False
    ) -> Frontier:
        """A frontier of the tree; where there is no tree, NotMeasurableError names `purpose`, the obstacle and the advice."""
        if isinstance(self._tree, str) or not isinstance(self.model, Stepper):
            raise NotMeasurableError(
                f"{purpose} is not applicable to {self.model.name!r}: {self.obstacle}; {advice}"
            )
        rows = self.batch if batch is None else min(batch, self.batch)
        return Frontier(
            self.model, self._tree, batch=rows, memory_bytes=self.memory_bytes, leave_out=leave_out
        )

    def score(self, texts: Sequence[str], names: Sequence[str] | None = None) -> NDArray[np.float64]:
        """The log-perplexities of these members in bits; a NoNumberError where one has none."""
        self._check_scorer()
        bits = score_texts(self.model, texts, names, sources=self._sources_of(texts))
        self._check_whole(texts)
        return in_steps(bits)

    def score_each(self, texts: Sequence[str]) -> Scored:
        """The same, but a member that has no log-perplexity does not stop the others."""
        self._check_scorer()
        found = score_each(self.model, texts, sources=self._sources_of(texts))
        self._check_whole(texts)
        return found._replace(bits=in_steps(found.bits))

    def _check_scorer(self) -> None:
        if not isinstance(self.model, Scorer):
            raise NotMeasurableError(
                f"{self.model.name!r} does not give the probability of a text, so it cannot rank texts"
            )

    def _sources_of(self, texts: Sequence[str]) -> list[str] | None:
        if self.sources is None:
            return None
        return [self.sources.fill(self.format.fillings(text)) for text in texts]

    def _check_whole(self, texts: Sequence[str]) -> None:
        # Some endpoints give no probability of the first token; where it differs between members, ranks would be wrong.
        unscored = self.model.unscored(texts) if isinstance(self.model, PartialScorer) else []
        if max(unscored, default=0) > len(self.format.prefix):
            raise NotMeasurableError(
                f"{self.model.name!r} gives no probability for the first token of a text, which contains part of the secret here, so it "
                "cannot rank texts; give the model a context, or begin the format with literal text"
            )

    def scored_one_by_one(self) -> Iterator[tuple[NDArray[Any], NDArray[np.float64]]]:
        """Every member with its log-perplexity, in batches of (places in the order of the format, bits), each scored as a whole."""
        for start in range(0, self.format.size, self.batch):
            indices = range(start, min(start + self.batch, self.format.size))
            chosen = [
                (index, text) for index in indices if (text := self.format.at(index)).startswith(self.given)
            ]
            if chosen:
                yield np.array([index for index, _ in chosen]), self.score([text for _, text in chosen])
