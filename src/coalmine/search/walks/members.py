"""The members of a format under one model: searched token by token where that is possible, else scored one by one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine.errors import CoalmineError, ModelError, NotMeasurableError
from coalmine.formats.format import Format
from coalmine.formats.refilling import Refilling
from coalmine.models.protocols import (
    LimitedScorer,
    Model,
    PairModel,
    PartialScorer,
    Scorer,
    Stepper,
    TextScorer,
    text_sequence,
)
from coalmine.search.tree.token_tree import TokenTree
from coalmine.search.walks.frontier import BATCH, MEMORY_BYTES, Frontier
from coalmine.search.walks.scoring import Scored, score_each, score_texts
from coalmine.search.walks.thresholds import in_steps

TEXTS_OF_AN_ENDPOINT = 128
# Members that show which tokens of a format's beginning all members share; one that has others has no number.
EXAMPLES = 64
# Members whose tokens are compared with those of their neighbors, and others if one of them shares its tokens; and how many neighbors.
COMPARED_FIRST, NEIGHBORS = 16, 1_000
# A member that shares its tokens with more than this share of the bits of its format has no rank worth the name.
MOST_SHARED = 0.5


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

    def shared_bits(self, texts: Sequence[str]) -> list[float]:
        """For each of these members, log2 of about how many have the same tokens, so that the model cannot distinguish them.

        The tokens behind an endpoint are not known, so it says 0 there; `examples` has members that it can be asked about instead.
        """
        if isinstance(self.model, TextScorer) or self.model.tokenizer.unambiguous:
            return [0.0] * len(texts)
        others = self.examples(EXAMPLES)
        common = Counter(map(self._tokens, {*texts, *others}))
        refilling = Refilling(self.format)
        step = -(-len(texts) // COMPARED_FIRST)
        found = {text: self._shared(text, others, refilling) for text in texts[::step]}
        if any(found.values()) or max(common.values()) > 1:
            found = {text: found.get(text) or self._shared(text, others, refilling) for text in texts}
        return [found.get(text, 0.0) for text in texts]

    def examples(self, number: int) -> tuple[str, ...]:
        """Different members drawn at random, at most so many."""
        return tuple(dict.fromkeys(self.format.at(place) for place in self.format.sample_indices(number, 0)))

    def check_told_apart(self) -> None:
        """A NotMeasurableError where the model cannot distinguish the members."""
        texts = self.examples(4)
        if isinstance(self.model, TextScorer):
            alike = len(texts) > 1 and len(set(self.score_each(texts).bits.tolist())) == 1
        else:
            alike = min(self.shared_bits(texts)) > MOST_SHARED * math.log2(self.format.size)
        if alike:
            raise NotMeasurableError(self.alike)

    @property
    def alike(self) -> str:
        """Why a member that shares its tokens with too many cannot be measured."""
        return (
            f"the tokenizer of {self.model.name!r} gives it and other members of its format the same tokens, so the model cannot tell them "
            "apart; choose a format whose members differ in what the tokenizer keeps"
        )

    def _tokens(self, text: str) -> Any:
        """What the model sees of a member; the text itself where it has no tokens."""
        try:
            sources = self._sources_of([text])
            return text_sequence(self.model, text, None if sources is None else sources[0])
        except CoalmineError:
            return text

    def _shared(self, text: str, others: Sequence[str], refilling: Refilling) -> float:
        own = self._tokens(text)
        drawn = [self._tokens(other) == own for other in others if other != text]
        share = sum(drawn) / max(1, len(drawn))
        around = refilling.neighbors(text)
        around = around[:: max(1, len(around) // NEIGHBORS)]
        alike = [other for other in around if self._tokens(other) == own]
        # Neighbors differ in one place; what can be exchanged in several of them multiplies.
        places = Counter(
            next(place for place, pair in enumerate(zip_longest(text, other)) if pair[0] != pair[1])
            for other in alike
        )
        by_draws = math.log2(self.format.size) + math.log2(share) if share else 0.0
        return max(by_draws, sum(math.log2(1 + number) for number in places.values()))

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
