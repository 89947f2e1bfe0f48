"""Checks of what an audit of provenance asks of a model: any text, distributions over the vocabulary, and lists of next tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from coalmine.errors import InputError, ModelError
from coalmine.models.promises import ConformanceError, close, most_difference, require
from coalmine.models.protocols import (
    AblatedScorer,
    DistributionScore,
    DistributionScorer,
    FloatArray,
    LimitedScorer,
    Model,
    OpenTokenizer,
    PairModel,
    RankedTextScorer,
    Stepper,
    TextRanker,
    TokenSequence,
    text_sequence,
)

# Characters for private use, which no vocabulary has as a word.
STRANGE_WORD = "\ue000\uf8ff"
# How many of the likeliest tokens are asked for, where a model lists as many.
LISTED = 5


def check_open_tokenizer(tokenizer: OpenTokenizer, texts: Sequence[str]) -> None:
    """Known texts are read as ever, and what is not in the vocabulary is read as the unknown token and not refused."""
    unknown = tokenizer.unknown
    require(
        0 <= unknown < tokenizer.size and tokenizer.pieces(first=False)[unknown] is None,
        f"unknown must be the id of a token without text, got {unknown}",
    )
    for text in texts:
        require(
            list(tokenizer.encode_open(text)) == list(tokenizer.encode(text)),
            f"encode_open must read a text that encode can read in the same way, for {text!r}",
        )
        strange = f"{text} {STRANGE_WORD}"
        try:
            found = tokenizer.encode_open(strange)
        except ModelError as problem:
            raise ConformanceError(f"encode_open must read any text, and refuses one ({problem})") from None
        try:
            tokenizer.encode(strange)
        except ModelError:
            require(
                unknown in found,
                "encode_open must read a word that is not in the vocabulary as the unknown token",
            )


def check_distributions(model: DistributionScorer, texts: Sequence[str]) -> None:
    """Distributions belong to the scores, do not depend on the batch, and are those that a walk sees."""
    sequences = [text_sequence(model, text) for text in texts]
    together = model.score_distribution(sequences)
    require(len(together) == len(sequences), f"{len(sequences)} sequences gave {len(together)} distributions")
    for sequence, score, found in zip(sequences, model.score(sequences), together, strict=True):
        _check_shapes(model, sequence, found)
        close(
            model, found.log2_probabilities, score.log2_probabilities, "with their distribution and without"
        )
        close_distributions(model, model.score_distribution([sequence])[0], found, "alone and in a batch")
        if isinstance(model, Stepper):
            _check_walked(model, _walked(model, sequence), sequence, found)
    require(model.score_distribution([]) == [], "no sequences must give no distributions")


def check_pair_distributions(model: DistributionScorer, pairs: Sequence[tuple[str, str]]) -> None:
    """Distributions of targets are the same with a source held fixed and in a batch of different sources."""
    sequences = [text_sequence(model, target, source) for source, target in pairs]
    together = model.score_distribution(sequences)
    for (source, target), sequence, found in zip(pairs, sequences, together, strict=True):
        _check_shapes(model, sequence, found)
        close_distributions(model, model.score_distribution([sequence])[0], found, "alone and in a batch")
        fixed = model.given(source) if isinstance(model, PairModel) else model
        if isinstance(fixed, DistributionScorer):
            held = fixed.score_distribution([text_sequence(fixed, target)])[0]
            close_distributions(model, held, found, "with the source held fixed and in a batch")


def check_ablations(model: AblatedScorer, sequences: Sequence[TokenSequence]) -> None:
    """Without any unit at zero the argmax is that of the scores; with all of them, what was read does not matter."""
    width = model.hidden_units
    if not width:
        return
    found = model.predicts_without(sequences, [(), range(width)])
    require(len(found) == len(sequences), f"{len(sequences)} sequences gave {len(found)} ablations")
    silent: set[int] = set()
    for sequence, score, predicted in zip(sequences, model.score(sequences), found, strict=True):
        require(
            np.shape(predicted) == (2, len(sequence.target)),
            f"there must be a row for each set of units and a column for each token, got shape {np.shape(predicted)}",
        )
        require(
            np.array_equal(predicted[0], score.is_argmax),
            "with no unit at zero, the tokens that are predicted must be those that are the argmax",
        )
        silent |= {token for token, hit in zip(sequence.target, predicted[1], strict=True) if hit}
    require(len(silent) <= 1, f"with all units at zero, one token is predicted everywhere, got {len(silent)}")


def close_distributions(model: Model, first: DistributionScore, second: DistributionScore, how: str) -> None:
    """Require that log-probabilities and moments agree within the resolution that the model declares."""
    close(model, first.log2_probabilities, second.log2_probabilities, how)
    close(model, first.mean_bits, second.mean_bits, f"{how}, as means of the distribution,")
    close(model, first.deviation_bits, second.deviation_bits, f"{how}, as deviations of the distribution,")


def _check_shapes(model: Model, sequence: TokenSequence, found: DistributionScore) -> None:
    shapes = {np.shape(part) for part in found}
    require(
        shapes == {(len(sequence.target),)},
        f"there must be one of each number per target token, got shapes {shapes}",
    )
    size = model.tokenizer.size
    ranks, means, deviations = found.ranks, found.mean_bits, found.deviation_bits
    require(bool(((ranks >= 1) & (ranks <= size)).all()), f"ranks must be from 1 to {size}")
    require(
        bool((found.is_argmax <= (ranks == 1)).all()),
        "a token that is the argmax must have rank 1, in a distribution",
    )
    slack = most_difference(model, math.log2(size))
    require(
        bool(((means <= slack) & (means >= -math.log2(size) - slack)).all()),
        f"mean_bits is minus the entropy of {size} tokens, so it must be from {-math.log2(size):.3g} to 0, got {means}",
    )
    require(
        bool((deviations >= 0).all() and np.isfinite(deviations).all()),
        f"deviation_bits must be 0 at least, got {deviations}",
    )


def _walked(model: Stepper, sequence: TokenSequence) -> FloatArray:
    """The (target, vocabulary) log2 probabilities before each token of a target."""
    step, rows = model.start([sequence.context]), []
    for token in sequence.target:
        rows.append(np.asarray(step.log2_probabilities[0], dtype=np.float64))
        step = model.step(step.states, np.array([0]), np.array([token]))
    return np.array(rows)


def _check_walked(model: Model, rows: FloatArray, sequence: TokenSequence, found: DistributionScore) -> None:
    """The moments and ranks of what stepping gives; tokens that are as near as rounding may come in either order."""
    weights = np.exp2(rows)
    # A token that cannot occur has no weight.
    known = np.where(weights > 0, rows, 0.0)
    mean = (weights * known).sum(axis=1)
    deviation = np.sqrt((weights * (known - mean[:, None]) ** 2).sum(axis=1))
    close(model, found.mean_bits, mean, "as means of the distribution and of the steps,")
    close(model, found.deviation_bits, deviation, "as deviations of the distribution and of the steps,")
    own = rows[np.arange(len(rows)), list(sequence.target)]
    slack = 2 * most_difference(model, np.abs(own))
    least = (rows > (own + slack)[:, None]).sum(axis=1) + 1
    most = (rows > (own - slack)[:, None]).sum(axis=1)
    require(
        bool(((found.ranks >= least) & (found.ranks <= most)).all()),
        f"ranks must be 1 plus the number of tokens that are more likely, {least} to {most}, got {found.ranks}",
    )


def check_text_ranker(model: TextRanker, texts: Sequence[str]) -> None:
    """As many texts as were asked for at most, which depend on their own prompt only."""
    most = model.most_listed
    require(most >= 1, f"most_listed must be at least 1, got {most}")
    k = min(most, LISTED)
    together, first = model.next_texts(texts, k=k), model.next_texts(texts, k=1)
    require(len(together) == len(texts), f"{len(texts)} prompts gave {len(together)} lists")
    for text, listed, one in zip(texts, together, first, strict=True):
        require(
            len(listed) <= k and len(one) <= 1, f"asked for {k} next tokens and for 1, got {listed} and {one}"
        )
        require(
            set(one) <= set(listed),
            f"the likeliest next token must be among the {k} likeliest, got {one} and {listed}",
        )
        require(
            model.next_texts([text], k=k)[0] == listed,
            "the likeliest next tokens must depend on their own prompt only",
        )
    require(model.next_texts([], k=1) == [], "no prompts must give no lists")
    for wrong in (0, most + 1):
        try:
            model.next_texts(texts[:1], k=wrong)
        except InputError:
            continue
        raise ConformanceError(
            f"next_texts must raise an InputError for k = {wrong}; it lists {most} at most"
        )


def check_ranked_text(model: RankedTextScorer, texts: Sequence[str]) -> None:
    """One rank for each token that is scored, from 1 to k, or 0; it depends on the token's own text only."""
    k = min(model.most_listed, LISTED)
    for text, score, ranks in zip(texts, model.score_text(texts), model.rank_text(texts, k=k), strict=True):
        require(
            np.shape(ranks) == np.shape(score.is_argmax),
            f"there must be one rank per token that is scored, got {len(ranks)} for {len(score.is_argmax)}",
        )
        require(bool(((ranks >= 0) & (ranks <= k)).all()), f"ranks must be from 0 to {k}, got {ranks}")
        require(
            bool((score.is_argmax[ranks > 0] == (ranks[ranks > 0] == 1)).all()),
            "of the tokens that are listed, exactly those that are the argmax must have rank 1",
        )
        require(
            np.array_equal(model.rank_text([text], k=k)[0], ranks),
            "ranks of a text must be the same alone and in a batch",
        )


def check_limited(model: LimitedScorer, texts: Sequence[str]) -> None:
    """The least that a text costs is what it costs, where that is known; and what all texts begin with can be given."""
    for scorer in (model, model.after("", texts)):
        known = np.array([score.log_perplexity_bits for score in scorer.score_text(texts)])
        least = np.asarray(scorer.least_bits(texts))
        require(
            least.shape == known.shape and bool((least >= 0).all()),
            f"least_bits must give one number per text, 0 at least, got {least}",
        )
        has_number = ~np.isnan(known)
        close(model, least[has_number], known[has_number], "of texts, and the least that they can be,")
