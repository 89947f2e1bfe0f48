"""The model boundary: small protocols by what a model can do. Calls take batches, and answers keep their order.

An audit asks for the protocol that it needs. A model that lacks it makes that audit not applicable, with the reason; it never scores
zero. All log-probabilities are base 2. No audit asks a model for anything that is not declared here, and `check_model` tests it all:

    Tokenizer            text to token ids and back
    └── OpenTokenizer        any text: words that are not in the vocabulary are read as the unknown token

    Model                every model: a name, tokens, the document context, its resolution, a description
    ├── Scorer           the probability of each token of a text
    │   ├── DistributionScorer   and its rank in the vocabulary, and what the whole vocabulary says there
    │   ├── AblatedScorer        and whether it is still predicted with hidden units set to zero
    │   ├── PartialScorer    which characters at the start of a text have no probability
    │   ├── TextScorer       a text as the model itself tokenizes it
    │   │   ├── RankedTextScorer     and the rank of each token among the likeliest
    │   │   └── LimitedScorer        only where all tokens are among the likeliest; else the least that a text costs
    │   ├── PairModel        targets given sources
    │   ├── MaskedModel      a model that sees both sides of a token
    │   └── Reciter          whether it would write a text, in one pass
    ├── Stepper          incremental decoding
    │   ├── StateKeeper      its states can be written to a file
    │   └── RestReader       it reads several tokens after a state at once
    ├── Generator        greedy continuations
    ├── Lister           the likeliest tokens at each position of a text
    ├── TextRanker       the texts of the likeliest next tokens after a text
    ├── BoundedModel     how many tokens it can read
    ├── ContextualModel  other contexts to score texts after
    ├── ChatModel        texts as turns of a conversation
    ├── TextReciter      whether it would write a text, judged by the text alone
    │   └── ConversationWriter   asked in turns, which it reads back from the text of a conversation
    └── RemoteModel      it runs on another machine, and was asked whether it is still the same model
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from coalmine.errors import InputError, NotMeasurableError
from coalmine.models.contexts import Context, Contexts
from coalmine.models.scores import (
    DistributionScore,
    FloatArray,
    Followed,
    IntArray,
    Sampling,
    SequenceScore,
    Step,
    TokenSequence,
)
from coalmine.models.tokenizing import OpenTokenizer, Tokenizer
from coalmine.records.chat import Frame, Turn

__all__ = [
    "AblatedScorer",
    "BoundedModel",
    "ChatModel",
    "ContextualModel",
    "DistributionScore",
    "DistributionScorer",
    "FloatArray",
    "Followed",
    "Generator",
    "IntArray",
    "LimitedScorer",
    "Lister",
    "MaskedModel",
    "Model",
    "OpenTokenizer",
    "PairModel",
    "PartialScorer",
    "RankedTextScorer",
    "Reciter",
    "RemoteModel",
    "RestReader",
    "Sampling",
    "Scorer",
    "SequenceScore",
    "StateKeeper",
    "Step",
    "Stepper",
    "TextRanker",
    "TextScorer",
    "TokenSequence",
    "Tokenizer",
    "after_context",
    "check_listed",
    "max_length",
    "open_sequence",
    "step_row_bytes",
    "text_sequence",
]


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
        parameters, "trained_on_sha256" is the hash of the training data, and "privacy" is the claim of private training: its epsilon,
        delta and unit. The rest is for readers: the adapter, where the weights are and their hash, the device, the context.
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
class DistributionScorer(Scorer, Protocol):
    """A scorer that also gives, in the same pass, ranks and two moments of the distribution at each position, in bits.

    An audit of provenance asks for these: ranks for histograms, and moments for statistics that compare a token with the whole vocabulary.

    >>> from coalmine.models import ScriptedModel, text_sequence
    >>> model = ScriptedModel("abcd")
    >>> isinstance(model, DistributionScorer), model.score_distribution([text_sequence(model, "ab")])[0].mean_bits.tolist()
    (True, [-2.0, -2.0])
    """

    def score_distribution(self, sequences: Sequence[TokenSequence]) -> list[DistributionScore]:
        """Scores in the order of `sequences`."""


@runtime_checkable
class AblatedScorer(Scorer, Protocol):
    """A scorer that predicts with units of its last hidden layer set to zero, too; provenance asks how fast it forgets rare words then.

    >>> from coalmine.models import ScriptedModel
    >>> isinstance(ScriptedModel("ab"), AblatedScorer)
    False
    """

    @property
    def hidden_units(self) -> int:
        """The units of the last hidden layer, which are numbered from 0; 0 where they cannot be set to zero."""

    def predicts_without(
        self, sequences: Sequence[TokenSequence], units: Sequence[Sequence[int]]
    ) -> list[NDArray[np.bool_]]:
        """(sets, tokens) for each sequence: whether each token of its target is the argmax while each set of units is zero."""


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
class RankedTextScorer(TextScorer, Protocol):
    """A TextScorer that also gives ranks of a text's tokens among the likeliest ones, such as an endpoint that lists some at each position.

    >>> from coalmine.models import ScriptedModel
    >>> isinstance(ScriptedModel("ab"), RankedTextScorer)
    False
    """

    @property
    def most_listed(self) -> int:
        """The largest number of likeliest tokens that it lists."""

    def rank_text(self, texts: Sequence[str], *, k: int) -> list[IntArray]:
        """The rank of each token that `score_text` scores, from 1 to k; 0 where it is not known to be among the k likeliest.

        `k` is from 1 to `most_listed`. Texts that were ranked are scored without being read again.
        """


@runtime_checkable
class LimitedScorer(TextScorer, Protocol):
    """A TextScorer that knows only the likeliest tokens at each position, such as a chat endpoint that lists 20 of them.

    A text with a token that is not among these has no log-perplexity (NaN), but costs at least so many bits. What all members of a format
    begin with costs all of them the same, so it is given and not scored: the rank of a member does not depend on it.

    >>> from coalmine.models import ScriptedModel
    >>> isinstance(ScriptedModel("ab"), LimitedScorer)
    False
    """

    def after(self, beginning: str, examples: Sequence[str]) -> LimitedScorer:
        """The same model for texts with this beginning, such as the examples; what they share of its tokens counts 0 bits."""

    def least_bits(self, texts: Sequence[str]) -> FloatArray:
        """The fewest bits that each text can cost, in the order of `texts`; its log-perplexity where it has one."""


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
class RestReader(Stepper, Protocol):
    """A Stepper that reads several tokens after a state at once, so that what was read before them is there once for many rows.

    `gather` may be asked for no rows: what `state_bytes` says of these is the memory that all rows share.

    >>> from coalmine.models import ScriptedModel
    >>> isinstance(ScriptedModel("ab"), RestReader)
    False
    """

    def read_after(
        self,
        states: Any,
        parents: IntArray,
        rests: Sequence[Sequence[int]],
        *,
        columns: IntArray | None = None,
    ) -> Step:
        """As `step`, with as many tokens for each row as for the others, and at least one: new row i is row parents[i], then rests[i]."""


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
class TextRanker(Model, Protocol):
    """A model that is asked in text, and lists the texts of the likeliest next tokens: an endpoint, some of which list only one.

    >>> from coalmine.models import ScriptedModel
    >>> isinstance(ScriptedModel("ab"), TextRanker)
    False
    """

    @property
    def most_listed(self) -> int:
        """The largest number of next tokens that it lists. Finding this out may take a few questions."""

    def next_texts(self, prompts: Sequence[str], *, k: int) -> list[list[str]]:
        """For each prompt, after the model's document context, the texts of the k likeliest next tokens, the likeliest first.

        `k` is from 1 to `most_listed`. Texts are as the model writes them; there are fewer than k where it lists fewer, and none where it
        ends the text and lists nothing.
        """


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
class ChatModel(Model, Protocol):
    """A model of conversations, which can score texts as the content of a turn.

    >>> from coalmine.models import ScriptedModel
    >>> isinstance(ScriptedModel("ab"), ChatModel)
    False
    """

    def in_frame(self, frame: Frame) -> Model:
        """The same weights; texts are scored as turns of a frame's role, after its other turns, as the model's chat template writes them.

        A NotMeasurableError or ModelError says why a frame cannot be written, such as a template that has no system turns.
        """


@runtime_checkable
class TextReciter(Model, Protocol):
    """A model that writes text and shows no tokens of it: an endpoint. Whether it recites is judged by the text.

    >>> from coalmine.models import ScriptedModel
    >>> isinstance(ScriptedModel("ab"), TextReciter)
    False
    """

    def follow_text(self, sequences: Sequence[TokenSequence]) -> list[int | None]:
        """For each sequence the first token of its target that greedy decoding does not write; None if it writes all of the text."""


@runtime_checkable
class ConversationWriter(TextReciter, ChatModel, Protocol):
    """A chat endpoint, which is asked in turns, and reads them back from the text of a conversation.

    >>> from coalmine.models import ScriptedModel
    >>> isinstance(ScriptedModel("ab"), ConversationWriter)
    False
    """

    def as_written(self) -> Self:
        """The same model, whose prompts are conversations as its chat template writes them, up to the content of an assistant's turn."""

    @property
    def template_sha256(self) -> str:
        """The hash of the chat template that conversations are written with."""

    def turns_in(self, text: str) -> tuple[Turn, ...] | None:
        """The turns of a whole conversation that the template wrote as this text; None where it is not one."""

    def before_last(self, turns: Sequence[Turn]) -> str:
        """A conversation as the template writes it, up to the content of its last turn."""


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


def loads_of(*models: Model | None) -> tuple[Callable[[], Any], ...]:
    """How another machine that has the files of models can load their weights; those that do not say are left out.

    A model that was loaded from a directory says it in `load_again`, a function that can be sent to other processes.
    """
    found = [getattr(model, "load_again", None) for model in models]
    return tuple(load for load in found if load is not None)


def text_sequence(model: Model, text: str, source: str | None = None) -> TokenSequence:
    """A text as training saw it: its tokens after the model's document context, and given its source where it has one.

    >>> from coalmine.models import ScriptedModel
    >>> text_sequence(ScriptedModel("ab"), "ba")
    TokenSequence(context=(2,), target=(1, 0), source=())
    """
    return after_context(model.context, model.tokenizer.encode(text), _source_tokens(model, source))


def open_sequence(model: Model, text: str, source: str | None = None) -> TokenSequence:
    """As `text_sequence`, for any text where the model's tokenizer is an OpenTokenizer: other words are the unknown token.

    >>> from coalmine.models import ScriptedModel
    >>> open_sequence(ScriptedModel("ab"), "ba")
    TokenSequence(context=(2,), target=(1, 0), source=())
    """
    tokenizer = model.tokenizer
    if not isinstance(tokenizer, OpenTokenizer):
        return text_sequence(model, text, source)
    return after_context(model.context, tokenizer.encode_open(text), _source_tokens(model, source))


def check_listed(k: int, most: int) -> None:
    """Reject a number of listed tokens that a TextRanker cannot give."""
    if not 1 <= k <= most:
        raise InputError(f"k must be from 1 to {most}, the most that the model lists, got {k}")


def after_context(
    context: tuple[int, ...], tokens: Sequence[int], source: tuple[int, ...] = ()
) -> TokenSequence:
    """Tokens to score after a context; where that is empty, the first token is given and not scored."""
    given = len(context) == 0
    return TokenSequence((*context, *tokens[:given]), tuple(tokens[given:]), source)


def _source_tokens(model: Model, source: str | None) -> tuple[int, ...]:
    """The tokens of a source. It is never scored, so source tokenizers read unknown words as the unknown token, where there is one."""
    if source is None:
        return ()
    if not isinstance(model, PairModel):
        raise NotMeasurableError(f"{model.name!r} reads one text at a time, and cannot be asked about pairs")
    return tuple(model.source_tokenizer.encode(source))
