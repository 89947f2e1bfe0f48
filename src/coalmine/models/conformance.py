"""Checks that an adapter keeps the promises that every audit relies on. Run it on yours before you trust a number.

    from coalmine.models.conformance import check_model
    check_model(my_model, ["some text", "another, longer text"])

Each check raises ConformanceError with the promise that was broken and the numbers that show it. Checks of a protocol that
the model does not offer are skipped and listed in the result.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coalmine.errors import CoalmineError
from coalmine.models.protocols import (
    Generator,
    Lister,
    MaskedModel,
    Model,
    PairModel,
    Ranker,
    Reciter,
    Sampling,
    Scorer,
    Stepper,
    TokenSequence,
    text_sequence,
)
from coalmine.models.resolution import allowed_bits, most_for_precision

# What the order of a sum changes in double precision, for a model that declares a resolution of nothing.
LEAST_BITS = 1e-9
# However coarse its numbers are, a distribution sums to one but for this: the softmax makes it so.
LARGEST_REST = 1e-4


class ConformanceError(CoalmineError):
    """An adapter broke a promise of the model boundary."""


def check_model(model: Model, texts: Sequence[str]) -> list[str]:
    """Run every check that applies; returns the names of those that did not apply.

    `texts` should differ in length, and have tokens that are likely under the model and tokens that are not.
    """
    if len({len(text) for text in texts}) < 2:
        raise ConformanceError(
            "give at least two texts of different length: padding cannot be tried on equal ones"
        )
    _check_resolution(model)
    _check_tokens(model, texts)
    skipped = []
    if isinstance(model, Scorer):
        _check_scorer(model, texts)
    else:
        skipped.append("Scorer")
    if isinstance(model, Stepper):
        _check_stepper(model, texts)
    else:
        skipped.append("Stepper")
    if isinstance(model, Scorer) and isinstance(model, Stepper):
        _check_stepping_equals_scoring(model, texts)
    if isinstance(model, Generator) and isinstance(model, Scorer):
        _check_generator(model, texts)
    else:
        skipped.append("Generator")
    # A model that does not offer it is followed by its scores, so that nothing is missing where it does not.
    if isinstance(model, Reciter) and isinstance(model, Generator):
        _check_reciter(model, texts)
    if isinstance(model, Ranker) and isinstance(model, Scorer):
        _check_ranker(model, texts)
    else:
        skipped.append("Ranker")
    if isinstance(model, Lister) and isinstance(model, Stepper):
        _check_lister(model, texts)
    return skipped


def check_pairs(model: PairModel, pairs: Sequence[tuple[str, str]]) -> None:
    """Run the checks of a model of (source, target) pairs: on each source held fixed, and on pairs with different sources.

    Targets and sources should differ in length.
    """
    targets = [target for _, target in pairs]
    sequences = [text_sequence(model, target, source) for source, target in pairs]
    together = model.score(sequences)
    for (source, target), sequence, score in zip(pairs, sequences, together, strict=True):
        fixed = model.given(source)
        alone = fixed.score([text_sequence(fixed, target)])[0]
        _close(
            model,
            alone.log2_probabilities,
            score.log2_probabilities,
            "with the source held fixed and in a batch",
        )
        _close(
            model,
            model.score([sequence])[0].log2_probabilities,
            score.log2_probabilities,
            "alone and in a batch",
        )
    for source in (pairs[0][0], pairs[-1][0]):
        check_model(model.given(source), targets)


def _check_tokens(model: Model, texts: Sequence[str]) -> None:
    _require(bool(model.context), "a text is never scored after nothing: context must not be empty")
    for text in texts:
        tokens = model.tokenizer.encode(text)
        _require(
            model.tokenizer.decode(tokens) == text, f"decode(encode(text)) must be the text, for {text!r}"
        )
        pieces = [model.tokenizer.pieces(first=place == 0)[token] for place, token in enumerate(tokens)]
        _require(
            b"".join(piece or b"" for piece in pieces) == text.encode(),
            f"the pieces of {text!r} must join to it, got {pieces}",
        )


def _check_scorer(model: Scorer, texts: Sequence[str]) -> None:
    sequences = [text_sequence(model, text) for text in texts]
    together = model.score(sequences, ranks=True)
    _require(len(together) == len(sequences), f"{len(sequences)} sequences gave {len(together)} scores")
    for sequence, score in zip(sequences, together, strict=True):
        values = np.asarray(score.log2_probabilities)
        _require(
            values.shape == (len(sequence.target),), f"one score a target token, got shape {values.shape}"
        )
        _require(bool(np.isfinite(values).all()), "log-probabilities must be finite")
        _require(bool((values <= 0).all()), f"log-probabilities must be at most 0, got {values.max()}")
        if score.ranks is not None:
            _require(bool((np.asarray(score.ranks) >= 1).all()), "ranks start at 1")
            _require(
                bool((score.is_argmax <= (np.asarray(score.ranks) == 1)).all()),
                "a token that is the argmax has rank 1",
            )
    for sequence, score in zip(sequences, together, strict=True):
        _close(
            model,
            model.score([sequence])[0].log2_probabilities,
            score.log2_probabilities,
            "alone and in a batch",
        )
    backwards = model.score(sequences[::-1])[::-1]
    for first, second in zip(together, backwards, strict=True):
        _close(model, first.log2_probabilities, second.log2_probabilities, "in another order")
    _require(model.score([]) == [], "no sequences give no scores")
    _check_token_zero(model, sequences)
    _check_moved_boundary(model, sequences)


def _check_token_zero(model: Scorer, sequences: Sequence[TokenSequence]) -> None:
    """Id 0 is an ordinary token: it is scored, and what follows it depends on it."""
    target = sequences[0].target
    for padded in ((*target, 0), (0, *target), (*target, 0, 0, 0)):
        own = model.score([TokenSequence(model.context, padded), sequences[-1]])[0]
        _require(
            len(own.log2_probabilities) == len(padded),
            "token 0 must be scored like any other, not taken for padding",
        )
    if isinstance(model, MaskedModel):
        return  # it sees both sides of a token, so what stands behind a token changes its score
    behind = model.score([TokenSequence(model.context, (*target, 0)), *sequences])[0]
    _close(
        model,
        behind.log2_probabilities[:-1],
        model.score([sequences[0]])[0].log2_probabilities,
        "before a token 0",
    )


def _check_moved_boundary(model: Scorer, sequences: Sequence[TokenSequence]) -> None:
    """Tokens score the same whether the ones before them are context or target."""
    for context, target, _ in sequences:
        whole = model.score([TokenSequence(context, target)])[0].log2_probabilities
        for cut in {1, len(target) // 2, len(target) - 1} - {0}:
            part = model.score([TokenSequence(context + target[:cut], target[cut:])])[0].log2_probabilities
            _close(model, part, whole[cut:], f"with the boundary moved by {cut} tokens")


def _check_stepper(model: Stepper, texts: Sequence[str]) -> None:
    first = model.start([model.context])
    size = model.tokenizer.size
    _require(
        first.log2_probabilities.shape == (1, size),
        f"expected shape (1, {size}), got {first.log2_probabilities.shape}",
    )
    _sums_to_one(first.log2_probabilities)
    tokens = np.array(sorted({model.tokenizer.encode(text)[0] for text in texts} | {0}))
    parents = np.zeros(len(tokens), dtype=np.int64)
    step = model.step(first.states, parents, tokens)
    _sums_to_one(step.log2_probabilities)
    again = model.step(first.states, parents, tokens)
    _close(model, again.log2_probabilities, step.log2_probabilities, "when a state is used a second time")
    for row, token in enumerate(tokens):
        alone = model.step(first.states, parents[:1], np.array([token]))
        _close(
            model, alone.log2_probabilities[0], step.log2_probabilities[row], "stepping alone and in a batch"
        )
    mixed = model.gather([(step.states, np.array([len(tokens) - 1, 0])), (again.states, np.array([1]))])
    onwards = model.step(mixed, np.array([0, 1, 2]), tokens[[0, 0, 0]])
    straight = model.step(step.states, np.array([len(tokens) - 1, 0, 1]), tokens[[0, 0, 0]])
    _close(
        model,
        onwards.log2_probabilities,
        straight.log2_probabilities,
        "of states gathered from several batches",
    )
    _require(model.state_bytes(step.states) > 0, "states take memory: state_bytes must say how much")
    columns = np.array([size - 1, 0])
    narrow = model.step(first.states, parents, tokens, columns=columns)
    _close(model, narrow.log2_probabilities, step.log2_probabilities[:, columns], "with columns restricted")


def _check_stepping_equals_scoring(model: Model, texts: Sequence[str]) -> None:
    if not isinstance(model, Stepper) or not isinstance(model, Scorer):
        return
    for text in texts:
        sequence = text_sequence(model, text)
        scored = model.score([sequence])[0].log2_probabilities
        step = model.start([sequence.context])
        stepped = []
        for token in sequence.target:
            stepped.append(step.log2_probabilities[0, token])
            step = model.step(step.states, np.array([0]), np.array([token]))
        _close(model, np.array(stepped), scored, f"stepping through {text!r} and scoring it")


def _check_generator(model: Model, texts: Sequence[str]) -> None:
    if not isinstance(model, Generator) or not isinstance(model, Scorer):
        return
    prompts = [[*model.context, *model.tokenizer.encode(text)] for text in texts]
    together = model.generate(prompts, length=4)
    for prompt, continuation in zip(prompts, together, strict=True):
        _require(len(continuation) == 4, f"asked for 4 tokens, got {len(continuation)}")
        score = model.score([TokenSequence(tuple(prompt), tuple(continuation))])[0]
        _require(
            bool(score.is_argmax.all()),
            "every token of a greedy continuation is the argmax after what precedes it",
        )
        _require(
            model.generate([prompt], length=4)[0] == continuation,
            "a continuation depends on its own prompt only",
        )


def _check_reciter(model: Reciter, texts: Sequence[str]) -> None:
    """Following a text says what generating and scoring say."""
    if not isinstance(model, Generator):
        return
    prompts = [(*model.context, *model.tokenizer.encode(text)) for text in texts]
    written = model.generate(prompts, length=4)
    truths = [TokenSequence(prompt, tuple(tokens)) for prompt, tokens in zip(prompts, written, strict=True)]
    size = model.tokenizer.size
    others = [
        sequence._replace(target=(*sequence.target[:2], (sequence.target[2] + 1) % size, sequence.target[3]))
        for sequence in truths
    ]
    expected = [None] * len(truths) + [2] * len(others)
    for stop in (False, True):
        found = [one.first_miss for one in model.follow([*truths, *others], stop_at_miss=stop)]
        _require(
            found == expected,
            f"the first token that greedy decoding does not write must be at {expected}, got {found}",
        )
    sequences = [text_sequence(model, text) for text in texts]
    followed = model.follow(sequences, samplings=[Sampling()])
    totals = [-score.log_perplexity_bits for score in model.score(sequences)]
    _close(
        model,
        np.array([one.log2_probabilities[0] for one in followed]),
        np.array(totals),
        "of whole texts, followed and scored,",
    )


def _check_ranker(model: Model, texts: Sequence[str]) -> None:
    if not isinstance(model, Ranker) or not isinstance(model, Scorer):
        return
    prompts = [[*model.context, *model.tokenizer.encode(text)] for text in texts]
    for prompt, tokens in zip(prompts, model.top(prompts, k=5), strict=True):
        expected = min(5, model.tokenizer.size)
        _require(len(set(tokens)) == expected, f"asked for {expected} different tokens, got {tokens}")
        scores = model.score([TokenSequence(tuple(prompt), (token,)) for token in tokens])
        values = np.array([score.log2_probabilities[0] for score in scores])
        _require(
            bool((np.diff(values) <= 2 * _allowed(model, values).max()).all()),
            "the top tokens must be in order of likelihood",
        )
        _require(bool(scores[0].is_argmax[0]), "the first of the top tokens is the argmax")


def _check_lister(model: Model, texts: Sequence[str]) -> None:
    if not isinstance(model, Lister) or not isinstance(model, Stepper):
        return
    sequences = [text_sequence(model, text) for text in texts]
    for sequence, listed in zip(sequences, model.likeliest(sequences, k=5), strict=True):
        _require(
            len(listed) == len(sequence.target), "the likeliest tokens are listed for each place of a target"
        )
        last = model.start([sequence.context + sequence.target[:-1]]).log2_probabilities[0]
        tokens = [token for token, _ in listed[-1]]
        _require(
            tokens[0] == int(last.argmax())
            or abs(last[tokens[0]] - last.max()) <= 2 * _allowed(model, last.max()),
            "the first of the likeliest tokens is the argmax",
        )
        highest = np.sort(last)[::-1][: len(tokens)]
        _close(model, np.array([bits for _, bits in listed[-1]]), last[tokens], "listed and walked")
        _close(model, last[tokens], highest, "of the listed tokens and of the highest there are")


def _sums_to_one(log2_probabilities: np.ndarray) -> None:
    sums = np.exp2(np.asarray(log2_probabilities, dtype=np.float64)).sum(axis=1)
    _require(
        bool(np.allclose(sums, 1, rtol=0, atol=LARGEST_REST)), f"a distribution must sum to one, got {sums}"
    )


def _close(model: Model, first: np.ndarray, second: np.ndarray, how: str) -> None:
    one, other = (np.asarray(numbers, dtype=np.float64) for numbers in (first, second))
    difference, allowed = np.abs(one - other), _allowed(model, np.maximum(np.abs(one), np.abs(other)))
    wrong = np.flatnonzero(~(difference <= allowed))
    if len(wrong):
        worst = wrong[np.argmax((difference / allowed).ravel()[wrong])]
        _require(
            False,
            f"scores {how} must agree to {allowed.ravel()[worst]:.2g} bits, by the resolution that the model declares, and differ "
            f"by {difference.ravel()[worst]:.2g}",
        )


def _allowed(model: Model, bits: ArrayLike) -> NDArray[np.float64]:
    """How far numbers of this size may differ: as the model declares, and no less than sums in double precision do."""
    return allowed_bits(max(model.resolution_bits, LEAST_BITS), bits)


def _check_resolution(model: Model) -> None:
    declared, most = model.resolution_bits, most_for_precision(model.describe())
    _require(
        0 <= declared <= most,
        f"resolution_bits must be from 0 to {most:g}, the most that the precision that describe() gives allows, got {declared:g}",
    )


def _require(kept: bool, promise: str) -> None:
    if not kept:
        raise ConformanceError(promise)
