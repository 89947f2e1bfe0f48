"""What a model is asked about tokens and what it answers: sequences, their scores, steps, and ways of sampling. All in bits."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]


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


class DistributionScore(NamedTuple):
    """The scores of one target with what the whole vocabulary says at each position: ranks, and two moments of log2 p.

    The moments weight each token of the vocabulary by its own probability p. `mean_bits` is the mean of log2 p, which is minus the entropy
    in bits, and `deviation_bits` the standard deviation of log2 p in bits: what an observed log2 p is to be compared with.

    >>> from coalmine.models import ScriptedModel, text_sequence
    >>> model = ScriptedModel("ab", frequencies={"a": 3, "b": 1})
    >>> score = model.score_distribution([text_sequence(model, "b")])[0]
    >>> score.log2_probabilities.round(3).tolist(), score.ranks.tolist()
    ([-2.0], [2])
    >>> score.mean_bits.round(3).tolist(), score.deviation_bits.round(3).tolist()
    ([-0.811], [0.686])
    """

    log2_probabilities: FloatArray  # (target,)
    is_argmax: NDArray[np.bool_]  # (target,)
    ranks: IntArray  # (target,), 1 plus the number of tokens that are more likely
    mean_bits: FloatArray  # (target,), 0 at most
    deviation_bits: FloatArray  # (target,), 0 at least


class Step(NamedTuple):
    """A batch of states, and the log2 probabilities of the next token in each of them.

    >>> Step(states=[()], log2_probabilities=np.array([[-1.0, -1.0]])).log2_probabilities.shape
    (1, 2)
    """

    states: Any  # opaque: only the model that made it can read it
    log2_probabilities: FloatArray  # (batch, vocabulary), or (batch, columns) where columns were named


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
