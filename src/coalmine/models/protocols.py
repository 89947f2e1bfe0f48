"""What a model can be asked: small protocols, by what it can do, over batches, order-preserving.

An audit asks for the protocol that it needs. A model that lacks it makes that audit not applicable, with the reason; it
never scores zero. All log-probabilities are to base 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from coalmine.errors import NotMeasurableError

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]


class Tokenizer(Protocol):
    """Text to token ids and back."""

    @property
    def size(self) -> int:
        """How many token ids there are; ids are 0 to size - 1, and 0 is as good as any other."""

    def encode(self, text: str) -> list[int]:
        """The canonical tokens of a text; a ModelError names what the vocabulary does not have."""

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some tokens."""

    def pieces(self, *, first: bool) -> Sequence[bytes | None]:
        """What each id adds to a text in UTF-8, at its start or further on; None for ids that stand for no text."""

    @property
    def unambiguous(self) -> bool:
        """Whether a text can be cut into these pieces in one way only."""


class TokenSequence(NamedTuple):
    """Tokens to score, after tokens that are given.

    For a model of pairs, `source` holds the tokens of the other side, in the ids of its source tokenizer.
    """

    context: tuple[int, ...]
    target: tuple[int, ...]
    source: tuple[int, ...] = ()


class SequenceScore(NamedTuple):
    """What a model says of each token of one target."""

    log2_probabilities: FloatArray  # (target,)
    is_argmax: NDArray[np.bool_]  # (target,)
    ranks: (
        IntArray | None
    )  # (target,), 1 for the most likely token of the vocabulary; None where not asked for

    @property
    def log_perplexity_bits(self) -> float:
        """How surprised the model is by the whole target, in bits (Definition 1 of the Secret Sharer)."""
        return -float(np.sum(self.log2_probabilities, dtype=np.float64))


class Step(NamedTuple):
    """A batch of states, and what the model expects next in each of them."""

    states: Any  # opaque: only the model that made it can read it
    log2_probabilities: FloatArray  # (batch, vocabulary), or (batch, columns) where columns were named


@runtime_checkable
class Model(Protocol):
    """What every model has, whatever else it can do."""

    @property
    def name(self) -> str:
        """What to call it in a table."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokens and their text."""

    @property
    def context(self) -> tuple[int, ...]:
        """The tokens that came before each document in training: a text is scored after these.

        Where the user chose that nothing comes before a text, they are empty. Its first token is then given and not scored:
        nothing is scored after nothing.
        """

    @property
    def resolution_bits(self) -> float:
        """The most by which rounding moves a number of up to 32 bits from one way of asking to another, in proportion beyond that.

        `models/resolution.py` has what each precision allows. An audit measures what rounding really does, within this limit.
        """

    def describe(self) -> dict[str, Any]:
        """For the record of a run: the adapter, where the weights are and their hash, device, precision, context."""


@runtime_checkable
class Scorer(Model, Protocol):
    """A model that gives the probability of each token of a text."""

    def score(self, sequences: Sequence[TokenSequence], *, ranks: bool = False) -> list[SequenceScore]:
        """Scores in the order of `sequences`."""


@runtime_checkable
class Stepper(Model, Protocol):
    """A model that supports incremental decoding, many walks at a time, sharing what walks have in common."""

    def start(self, contexts: Sequence[Sequence[int]], *, columns: IntArray | None = None) -> Step:
        """One state for each context."""

    def step(
        self, states: Any, parents: IntArray, tokens: IntArray, *, columns: IntArray | None = None
    ) -> Step:
        """New row i is row parents[i] of `states`, advanced by tokens[i]. `states` remains valid.

        With `columns`, only the log-probabilities of these token ids come back, in this order.
        """

    @property
    def mixes_depths(self) -> bool:
        """Whether states that have read different numbers of tokens can stand in one batch."""

    def gather(self, parts: Sequence[tuple[Any, IntArray]]) -> Any:
        """One batch of states from rows of several batches; all of one depth, unless the model mixes depths."""

    def state_bytes(self, states: Any) -> int:
        """How much memory a batch of states takes."""


@runtime_checkable
class Generator(Model, Protocol):
    """A model that continues prompts."""

    def generate(self, prompts: Sequence[Sequence[int]], *, length: int) -> list[list[int]]:
        """The greedy continuation of each prompt by `length` tokens."""


@runtime_checkable
class Ranker(Model, Protocol):
    """A model that only tells which tokens are likeliest, in order, without probabilities."""

    def top(self, prompts: Sequence[Sequence[int]], *, k: int) -> list[list[int]]:
        """For each prompt the k likeliest next tokens, the likeliest first."""


class Sampling(NamedTuple):
    """How tokens are drawn: logits over the temperature, then only the k likeliest tokens (and those that equal the last of them)."""

    temperature: float = 1.0
    top_k: int | None = None


class Followed(NamedTuple):
    """How far greedy decoding would write a target by itself, and how likely sampling would."""

    # The place in the target of the first token that is not the argmax after the true tokens before it; None where greedy decoding
    # writes all of it.
    first_miss: int | None
    # (samplings,): log2 probability of the whole target under each way of sampling; -inf where top-k leaves a token of it out.
    log2_probabilities: FloatArray


@runtime_checkable
class Lister(Model, Protocol):
    """A model that lists the likeliest tokens at each place of a text."""

    def likeliest(self, sequences: Sequence[TokenSequence], *, k: int) -> list[list[list[tuple[int, float]]]]:
        """For each place of each target the k likeliest tokens and their log2 probabilities; among equals, the lower id first."""


@runtime_checkable
class Reciter(Scorer, Protocol):
    """A model that tells in one pass over a text whether it would write it by itself."""

    def follow(
        self,
        sequences: Sequence[TokenSequence],
        *,
        samplings: Sequence[Sampling] = (),
        stop_at_miss: bool = False,
    ) -> list[Followed]:
        """In the order of `sequences`. The argmax is the token with the highest logit, the lowest id among equals.

        With `stop_at_miss` no more is read of a target than its first miss needs; probabilities of the whole target are then not
        known, and no samplings may be asked for.
        """


@runtime_checkable
class TextScorer(Scorer, Protocol):
    """A model behind somebody else's tokenizer: it is asked about texts, and says itself which tokens they have."""

    def score_text(self, texts: Sequence[str]) -> list[SequenceScore]:
        """Scores in the order of `texts`, each text after the model's document context."""


@runtime_checkable
class PairModel(Scorer, Protocol):
    """A model of targets given sources, such as a translation model; it scores sequences that have a source."""

    @property
    def source_tokenizer(self) -> Tokenizer:
        """The tokens of the source side, which may be those of the target side."""

    def given(self, source: str) -> Scorer:
        """The same model with the source held fixed: all that a causal model can do, it can do."""


@runtime_checkable
class MaskedModel(Scorer, Protocol):
    """A model that fills gaps. It sees both sides of a token, so its scores are pseudo-log-perplexities, and no walk is possible."""

    def fill(self, sequences: Sequence[TokenSequence], gaps: Sequence[Sequence[int]]) -> list[list[int]]:
        """For each sequence the likeliest tokens at some places of its target, all of them hidden at once."""


def text_sequence(model: Model, text: str, source: str | None = None) -> TokenSequence:
    """A text as training saw it: its own tokens, after the model's document context, and given its source where it has one."""
    given: tuple[int, ...] = ()
    if source is not None:
        if not isinstance(model, PairModel):
            raise NotMeasurableError(
                f"{model.name!r} reads one text at a time, and cannot be asked about pairs"
            )
        given = tuple(model.source_tokenizer.encode(source))
    return after_context(model.context, model.tokenizer.encode(text), given)


def after_context(
    context: tuple[int, ...], tokens: Sequence[int], source: tuple[int, ...] = ()
) -> TokenSequence:
    """Tokens to score after a context; where that is empty, the first token is given and not scored."""
    given = len(context) == 0
    return TokenSequence((*context, *tokens[:given]), tuple(tokens[given:]), source)
