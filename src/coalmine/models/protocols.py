"""The model boundary: small protocols by what a model can do. Calls take batches, and answers keep their order.

An audit asks for the protocol that it needs. A model that lacks it makes that audit not applicable, with the reason; it never scores
zero. All log-probabilities are base 2. No audit asks a model for anything that is not declared here, and `check_model` tests it all:

    Model                every model: a name, tokens, the document context, its resolution, a description
    ├── Scorer           the probability of each token of a text
    │   ├── PartialScorer    which characters at the start of a text have no probability
    │   ├── TextScorer       a text as the model itself tokenizes it
    │   ├── PairModel        targets given sources
    │   ├── MaskedModel      a model that sees both sides of a token
    │   └── Reciter          whether it would write a text, in one pass
    ├── Stepper          incremental decoding
    │   └── StateKeeper      its states can be written to a file
    ├── Generator        greedy continuations
    ├── Lister           the likeliest tokens at each position of a text
    ├── BoundedModel     how many tokens it can read
    ├── ContextualModel  other contexts to score texts after
    └── RemoteModel      it runs on another machine, and was asked whether it is still the same model
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from coalmine.errors import NotMeasurableError
from coalmine.models.contexts import Context, Contexts

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]


class Tokenizer(Protocol):
    """Text to token ids and back. `CharacterTokenizer` has all of this:

    >>> from coalmine.models import CharacterTokenizer
    >>> tokens = CharacterTokenizer("ab")
    >>> tokens.encode("ba"), tokens.decode([1, 0]), tokens.pieces(first=True)
    ([1, 0], 'ba', [b'a', b'b', None])
    """

    @property
    def size(self) -> int:
        """The number of token ids; ids are 0 to size - 1, and 0 is an ordinary id."""

    def encode(self, text: str) -> list[int]:
        """The canonical tokens of a text; a ModelError where the vocabulary lacks a part of it."""

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some tokens."""

    def pieces(self, *, first: bool) -> Sequence[bytes | None]:
        """The UTF-8 bytes that each id adds to a text, at its start or later; None for ids that have no text."""

    @property
    def unambiguous(self) -> bool:
        """Whether there is only one way to cut any text into these pieces."""


class TokenSequence(NamedTuple):
    """Target tokens to score, and the context tokens before them.

    For a model of pairs, `source` holds the tokens of the other side, in the ids of its source tokenizer.

    >>> TokenSequence(context=(2,), target=(1, 0))
    TokenSequence(context=(2,), target=(1, 0), source=())
    """

    context: tuple[int, ...]
    target: tuple[int, ...]
    source: tuple[int, ...] = ()


class SequenceScore(NamedTuple):
    """The scores of one target, token by token: log2 probabilities in bits, argmax flags, and ranks in the vocabulary.

    >>> SequenceScore(np.array([-1.0, -2.5]), np.array([True, False]), ranks=None).log_perplexity_bits
    3.5
    """

    log2_probabilities: FloatArray  # (target,)
    is_argmax: NDArray[np.bool_]  # (target,)
    # (target,), 1 for the most likely token of the vocabulary; None if not requested.
    ranks: IntArray | None

    @property
    def log_perplexity_bits(self) -> float:
        """The log-perplexity of the whole target in bits.

        Definition 1 of "The Secret Sharer: Evaluating and Testing Unintended Memorization in Neural Networks" (Carlini, Liu, Erlingsson,
        Kos and Song, 2019, arXiv:1802.08232).
        """
        return -float(np.sum(self.log2_probabilities, dtype=np.float64))


class Step(NamedTuple):
    """A batch of states, and the log2 probabilities of the next token in each of them.

    >>> Step(states=[()], log2_probabilities=np.array([[-1.0, -1.0]])).log2_probabilities.shape
    (1, 2)
    """

    states: Any  # opaque: only the model that made it can read it
    log2_probabilities: FloatArray  # (batch, vocabulary), or (batch, columns) where columns were named


@runtime_checkable
class Model(Protocol):
    """What every model has, whatever else it can do.

    >>> from coalmine.models import ScriptedModel
    >>> model = ScriptedModel("ab")
    >>> isinstance(model, Model), model.name, model.context, model.resolution_bits
    (True, 'scripted', (2,), 1e-09)
    """

    @property
    def name(self) -> str:
        """What to call it in a table."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokens and their text."""

    @property
    def context(self) -> tuple[int, ...]:
        """The tokens that came before each document in training: a text is scored after these.

        They are empty where the user chose that nothing comes before a text. Its first token is then given and not scored: nothing is
        scored after nothing.
        """

    @property
    def resolution_bits(self) -> float:
        """The most by which rounding moves a log-perplexity of up to 32 bits between two ways of asking; in proportion beyond that.

        `models/resolution.py` has what each precision allows. An audit measures what rounding really does, within this limit.
        """

    def describe(self) -> dict[str, Any]:
        """Facts about the model for the record of a run, as values that JSON can hold. Other weights must give another description.

        Audits read these keys where they are there: "precision" and "computed_in" limit `resolution_bits`, "parameters" is the number of
        parameters, and "trained_on_sha256" is the hash of the training data. The rest is for readers: the adapter, where the weights are
        and their hash, the device, the context.
        """


@runtime_checkable
class Scorer(Model, Protocol):
    """A model that gives the probability of each token of a text, as log2 probabilities in bits.

    >>> from coalmine.models import ScriptedModel, text_sequence
    >>> model = ScriptedModel("abcd")
    >>> isinstance(model, Scorer), model.score([text_sequence(model, "ab")])[0].log2_probabilities.tolist()
    (True, [-2.0, -2.0])
    """

    def score(self, sequences: Sequence[TokenSequence], *, ranks: bool = False) -> list[SequenceScore]:
        """Scores in the order of `sequences`."""


@runtime_checkable
class PartialScorer(Scorer, Protocol):
    """A scorer that may have no probability for the beginning of a text, as some endpoints have none for the first token.

    >>> from coalmine.models import ScriptedModel
    >>> isinstance(ScriptedModel("ab"), PartialScorer)
    False
    """

    def unscored(self, texts: Sequence[str]) -> list[int]:
        """The number of characters at the beginning of each text that have no log-probability, and count 0 bits."""


@runtime_checkable
class TextScorer(Scorer, Protocol):
    """A model with a tokenizer that is not known here: it is asked about texts, and reports which tokens they have.

    >>> from coalmine.models import ScriptedModel
    >>> isinstance(ScriptedModel("ab"), TextScorer)
    False
    """

    def score_text(self, texts: Sequence[str]) -> list[SequenceScore]:
        """Scores in bits in the order of `texts`, each text after the model's document context."""


@runtime_checkable
class PairModel(Scorer, Protocol):
    """A model of targets given sources, such as a translation model; it scores sequences that have a source.

    >>> from coalmine.models import ScriptedModel
    >>> isinstance(ScriptedModel("ab"), PairModel)
    False
    """

    @property
    def source_tokenizer(self) -> Tokenizer:
        """The tokens of the source side, which may be those of the target side."""

    def given(self, source: str) -> Scorer:
        """The same model with the source held fixed, which can do everything that a causal model can do."""


@runtime_checkable
class MaskedModel(Scorer, Protocol):
    """A model that sees both sides of a token and fills gaps: its scores are pseudo-log-perplexities in bits, and it cannot be walked.

    >>> from coalmine.models import ScriptedModel
    >>> isinstance(ScriptedModel("ab"), MaskedModel)
    False
    """

    def solves_masking(self, sequences: Sequence[TokenSequence], *, share: float, seed: int) -> list[bool]:
        """Whether each target is restored without an error when a `share` of its tokens is hidden at once.

        This is recitation for masked models (section 5.1 of "Quantifying Memorization Across Neural Language Models", Carlini, Ippolito,
        Jagielski, Lee, Tramèr and Zhang, 2023, arXiv:2202.07646). Which tokens are hidden depends on the seed and the target only.
        """


class Sampling(NamedTuple):
    """How tokens are drawn: logits over the temperature, then only the k likeliest tokens (and those that equal the last of them).

    >>> Sampling(temperature=0.8, top_k=40)
    Sampling(temperature=0.8, top_k=40)
    """

    temperature: float = 1.0
    top_k: int | None = None


class Followed(NamedTuple):
    """How far greedy decoding writes a target, and how likely sampling writes all of it (log2 probabilities, in bits).

    >>> Followed(first_miss=None, log2_probabilities=np.array([-0.5])).first_miss is None
    True
    """

    # The position in the target of the first token that is not the argmax after the true tokens before it; None if greedy decoding
    # writes all of it.
    first_miss: int | None
    # (samplings,): log2 probability of the whole target under each way of sampling; -inf where top-k excludes one of its tokens.
    log2_probabilities: FloatArray


@runtime_checkable
class Reciter(Scorer, Protocol):
    """A model that finds out in one pass over a text whether it would write it. Others are asked for their scores instead.

    >>> from coalmine.models import ScriptedModel
    >>> isinstance(ScriptedModel("ab"), Reciter)
    False
    """

    def follow(
        self,
        sequences: Sequence[TokenSequence],
        *,
        samplings: Sequence[Sampling] = (),
        stop_at_miss: bool = False,
    ) -> list[Followed]:
        """Results in the order of `sequences`. The argmax is the token with the highest logit, and the lowest id among equals.

        With `stop_at_miss`, a target is read no further than its first miss requires. Probabilities of the whole target are then not
        known, and no samplings may be asked for.
        """


@runtime_checkable
class Stepper(Model, Protocol):
    """A model that supports incremental decoding of many texts at once, which share the states of common prefixes.

    >>> from coalmine.models import ScriptedModel
    >>> model = ScriptedModel("abcd")
    >>> first = model.start([model.context])
    >>> isinstance(model, Stepper), first.log2_probabilities[0, :4].tolist()
    (True, [-2.0, -2.0, -2.0, -2.0])
    """

    def start(self, contexts: Sequence[Sequence[int]], *, columns: IntArray | None = None) -> Step:
        """One state per context."""

    def step(
        self, states: Any, parents: IntArray, tokens: IntArray, *, columns: IntArray | None = None
    ) -> Step:
        """New row i is row parents[i] of `states`, advanced by tokens[i]. `states` remains valid.

        With `columns`, only the log2 probabilities of these token ids are returned, in this order.
        """

    @property
    def mixes_depths(self) -> bool:
        """Whether states that have read different numbers of tokens can be in one batch."""

    def gather(self, parts: Sequence[tuple[Any, IntArray]]) -> Any:
        """One batch of states from rows of several batches; all of one depth, unless the model mixes depths."""

    def state_bytes(self, states: Any) -> int:
        """The memory that a batch of states takes, in bytes."""


@runtime_checkable
class StateKeeper(Stepper, Protocol):
    """A Stepper whose states can be written to a file, so that a search that was stopped resumes with the same bits.

    The states of other models are computed again from the start of each text, which may round differently.

    >>> from coalmine.models import ScriptedModel
    >>> isinstance(ScriptedModel("ab"), StateKeeper)
    False
    """

    def states_to_arrays(self, states: Any) -> list[NDArray[Any]]:
        """A batch of states as plain arrays."""

    def states_from_arrays(self, arrays: Sequence[NDArray[Any]]) -> Any:
        """The same batch of states again, with the same bits."""


@runtime_checkable
class Generator(Model, Protocol):
    """A model that continues prompts.

    >>> from coalmine.models import ScriptedModel
    >>> model = ScriptedModel("abcd", memory={"abc": 0.5})
    >>> isinstance(model, Generator), model.generate([model.context], length=3)
    (True, [[0, 1, 2]])
    """

    def generate(self, prompts: Sequence[Sequence[int]], *, length: int) -> list[list[int]]:
        """The greedy continuation of each prompt by `length` tokens."""


@runtime_checkable
class Lister(Model, Protocol):
    """A model that lists the likeliest tokens at each position of a text.

    >>> from coalmine.models import ScriptedModel, text_sequence
    >>> model = ScriptedModel("abcd")
    >>> isinstance(model, Lister), model.likeliest([text_sequence(model, "a")], k=2)
    (True, [[[(0, -2.0), (1, -2.0)]]])
    """

    def likeliest(self, sequences: Sequence[TokenSequence], *, k: int) -> list[list[list[tuple[int, float]]]]:
        """For each position of each target, the k likeliest tokens and their log2 probabilities; among equals, the lower id first."""


@runtime_checkable
class BoundedModel(Model, Protocol):
    """A model that knows how many tokens it can read. Where a model is not one, no limit is known.

    >>> from coalmine.models import ScriptedModel
    >>> isinstance(ScriptedModel("ab"), BoundedModel)
    False
    """

    @property
    def max_length(self) -> int | None:
        """The most tokens that it can read in one sequence, its context included; None where there is no limit."""


@runtime_checkable
class ContextualModel(Model, Protocol):
    """A model that can score texts after another context. An audit tries whether it matters which one it is.

    >>> from coalmine.models import ScriptedModel
    >>> isinstance(ScriptedModel("ab"), ContextualModel)
    False
    """

    @property
    def contexts(self) -> Contexts | None:
        """The context in use, and others that training may have used; None where there is no choice."""

    def in_context(self, context: Context) -> Model:
        """The same weights with another context."""


@runtime_checkable
class RemoteModel(Model, Protocol):
    """A model on another machine, such as an endpoint. It may fail now and answer later, or be replaced by another model.

    >>> from coalmine.models import ScriptedModel
    >>> isinstance(ScriptedModel("ab"), RemoteModel)
    False
    """

    def checks(self) -> dict[str, Any]:
        """How often it was tested for being the same model as before, and how likely a switch would have gone unnoticed.

        For the record of a run, as values that JSON can hold.
        """


def max_length(model: Model) -> int | None:
    """The most tokens that a model can read in one sequence, its context included; None where no limit is known."""
    return model.max_length if isinstance(model, BoundedModel) else None


def step_row_bytes(model: Model) -> int:
    """The memory in bytes that a step takes for each row besides its states and answers; 0 where a model does not say.

    A model that makes the logits of its whole vocabulary at once says it in `step_row_bytes`.
    """
    return int(getattr(model, "step_row_bytes", 0))


def text_sequence(model: Model, text: str, source: str | None = None) -> TokenSequence:
    """A text as training saw it: its tokens after the model's document context, and given its source where it has one.

    >>> from coalmine.models import ScriptedModel
    >>> text_sequence(ScriptedModel("ab"), "ba")
    TokenSequence(context=(2,), target=(1, 0), source=())
    """
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
