"""Checks that an adapter keeps the promises that every audit relies on. Run them on yours before you trust a number.

    from coalmine.models import check_model

    check_model(my_model, ["some text", "another, longer text"])

Each check raises a ConformanceError with the promise that was broken and the numbers that show it. Checks of a protocol that the
model does not offer are skipped.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec
import numpy as np

from coalmine.errors import NotMeasurableError
from coalmine.models.distribution_checks import (
    check_ablations,
    check_distributions,
    check_limited,
    check_open_tokenizer,
    check_pair_distributions,
    check_ranked_text,
    check_text_ranker,
)
from coalmine.models.promises import ConformanceError, bits_alone, close, most_difference, require
from coalmine.models.protocols import (
    AblatedScorer,
    BoundedModel,
    ContextualModel,
    DistributionScorer,
    Generator,
    IntArray,
    LimitedScorer,
    Lister,
    MaskedModel,
    Model,
    OpenTokenizer,
    PairModel,
    PartialScorer,
    RankedTextScorer,
    Reciter,
    RemoteModel,
    RestReader,
    Sampling,
    Scorer,
    StateKeeper,
    Step,
    Stepper,
    TextRanker,
    TextScorer,
    TokenSequence,
    text_sequence,
)
from coalmine.models.resolution import most_for_precision

# However coarse its numbers are, a distribution sums to one up to this: the softmax makes it so.
LARGEST_REST = 1e-4


def check_model(model: Model, texts: Sequence[str]) -> list[str]:
    """Run every check that applies; returns the names of the protocols that the model does not offer.

    These are of "Scorer", "Stepper" and "Generator", without which some audits are not applicable. `texts` should differ in length, and
    have tokens that are likely under the model and tokens that are not. Differences are judged by the model's `resolution_bits`.

    >>> from coalmine.models import ScriptedModel
    >>> check_model(ScriptedModel("abc", memory={"abc": 0.5}), ["abc", "b", "ca"])
    []
    """
    if len({len(text) for text in texts}) < 2:
        raise ConformanceError(
            "give at least two texts of different lengths: with equal ones, padding cannot be tested"
        )
    _check_description(model)
    _check_tokens(model, texts)
    if isinstance(model, Scorer):
        _check_scorer(model, texts)
        _check_kind_of_scorer(model, texts)
    if isinstance(model, DistributionScorer):
        check_distributions(model, texts)
    if isinstance(model, AblatedScorer):
        check_ablations(model, [text_sequence(model, text) for text in texts])
    if isinstance(model, TextRanker):
        check_text_ranker(model, texts)
    if isinstance(model, Stepper):
        _check_stepper(model, texts)
        if isinstance(model, Scorer):
            _check_stepping_equals_scoring(model, model, texts)
        if isinstance(model, Lister):
            _check_lister(model, model, texts)
    if isinstance(model, Generator) and isinstance(model, Scorer):
        _check_generator(model, model, texts)
    # A model that is not a Reciter is followed by its scores, so nothing is missing where it is not one.
    if isinstance(model, Reciter) and isinstance(model, Generator):
        _check_reciter(model, model, texts)
    if isinstance(model, BoundedModel) and isinstance(model, Scorer):
        _check_bound(model, model, texts)
    if isinstance(model, ContextualModel):
        _check_contexts(model, texts)
    offered = {
        "Scorer": isinstance(model, Scorer),
        "Stepper": isinstance(model, Stepper),
        "Generator": isinstance(model, Generator) and isinstance(model, Scorer),
    }
    return [name for name, is_offered in offered.items() if not is_offered]


def check_pairs(model: PairModel, pairs: Sequence[tuple[str, str]]) -> None:
    """Run the checks of a model of (source, target) pairs: with a source held fixed, and on pairs with different sources.

    Targets and sources should differ in length. Differences are judged by the model's `resolution_bits`.

    >>> model = load_model("translator/")  # doctest: +SKIP
    >>> check_pairs(model, [("der Zug", "the train"), ("ein alter Zug", "an old train")])  # doctest: +SKIP
    """
    targets = [target for _, target in pairs]
    sequences = [text_sequence(model, target, source) for source, target in pairs]
    together = model.score(sequences)
    for (source, target), sequence, score in zip(pairs, sequences, together, strict=True):
        fixed, batched = model.given(source), score.log2_probabilities
        held = bits_alone(fixed, text_sequence(fixed, target))
        close(model, held, batched, "with the source held fixed and in a batch")
        close(model, bits_alone(model, sequence), batched, "alone and in a batch")
    if isinstance(model, DistributionScorer):
        check_pair_distributions(model, pairs)
    if isinstance(model, AblatedScorer):
        check_ablations(model, sequences)
    for source in (pairs[0][0], pairs[-1][0]):
        check_model(model.given(source), targets)


def _check_description(model: Model) -> None:
    """A description that JSON can hold, and a resolution within what its precision allows."""
    described = model.describe()
    _check_record("describe()", described)
    parameters = described.get("parameters")
    require(
        parameters is None or (isinstance(parameters, int) and parameters > 0),
        f'"parameters" of describe() must be a number of parameters, got {parameters!r}',
    )
    declared, most = model.resolution_bits, most_for_precision(described)
    require(
        0 <= declared <= most,
        f"resolution_bits must be from 0 to {most:g}, the most that the precision that describe() gives allows, got {declared:g}",
    )
    if isinstance(model, RemoteModel):
        _check_record("checks()", model.checks())


def _check_record(what: str, record: object) -> None:
    """A part of the record of a run must be a JSON object."""
    try:
        encoded = msgspec.json.encode(record)
    except (TypeError, ValueError) as problem:
        raise ConformanceError(f"{what} must give values that JSON can hold ({problem})") from None
    require(encoded.startswith(b"{"), f"{what} must give a dictionary, got {type(record).__name__}")


def _check_tokens(model: Model, texts: Sequence[str]) -> None:
    require(bool(model.context), "context must not be empty: no text is scored after nothing")
    for text in texts:
        tokens = model.tokenizer.encode(text)
        require(
            model.tokenizer.decode(tokens) == text, f"decode(encode(text)) must be the text, for {text!r}"
        )
        pieces = [model.tokenizer.pieces(first=place == 0)[token] for place, token in enumerate(tokens)]
        require(
            b"".join(piece or b"" for piece in pieces) == text.encode(),
            f"the pieces of {text!r} must join to it, got {pieces}",
        )
    if isinstance(model.tokenizer, OpenTokenizer):
        check_open_tokenizer(model.tokenizer, texts)


def _check_scorer(model: Scorer, texts: Sequence[str]) -> None:
    sequences = [text_sequence(model, text) for text in texts]
    together = model.score(sequences, ranks=True)
    require(len(together) == len(sequences), f"{len(sequences)} sequences gave {len(together)} scores")
    for sequence, score in zip(sequences, together, strict=True):
        values = np.asarray(score.log2_probabilities)
        require(
            values.shape == (len(sequence.target),),
            f"there must be one score per target token, got shape {values.shape}",
        )
        require(bool(np.isfinite(values).all()), "log-probabilities must be finite")
        require(bool((values <= 0).all()), f"log-probabilities must be at most 0, got {values.max()}")
        if score.ranks is not None:
            require(bool((np.asarray(score.ranks) >= 1).all()), "ranks must start at 1")
            require(
                bool((score.is_argmax <= (np.asarray(score.ranks) == 1)).all()),
                "a token that is the argmax must have rank 1",
            )
    for sequence, score in zip(sequences, together, strict=True):
        close(model, bits_alone(model, sequence), score.log2_probabilities, "alone and in a batch")
    backwards = model.score(sequences[::-1])[::-1]
    for first, second in zip(together, backwards, strict=True):
        close(model, first.log2_probabilities, second.log2_probabilities, "in another order")
    require(model.score([]) == [], "no sequences must give no scores")
    _check_token_zero(model, sequences)
    _check_moved_boundary(model, sequences)


def _check_token_zero(model: Scorer, sequences: Sequence[TokenSequence]) -> None:
    """Id 0 is an ordinary token: it is scored, and what comes after it depends on it."""
    target = sequences[0].target
    for padded in ((*target, 0), (0, *target), (*target, 0, 0, 0)):
        own = model.score([TokenSequence(model.context, padded), sequences[-1]])[0]
        require(
            len(own.log2_probabilities) == len(padded),
            "token 0 must be scored like any other, not taken for padding",
        )
    if isinstance(model, MaskedModel):
        return  # it sees both sides of a token, so what follows a token changes its score
    followed = model.score([TokenSequence(model.context, (*target, 0)), *sequences])[0]
    close(model, followed.log2_probabilities[:-1], bits_alone(model, sequences[0]), "before a token 0")


def _check_moved_boundary(model: Scorer, sequences: Sequence[TokenSequence]) -> None:
    """Tokens score the same whether the ones before them are context or target."""
    for context, target, _ in sequences:
        whole = bits_alone(model, TokenSequence(context, target))
        for cut in {1, len(target) // 2, len(target) - 1} - {0}:
            part = bits_alone(model, TokenSequence(context + target[:cut], target[cut:]))
            close(model, part, whole[cut:], f"with the boundary moved by {cut} tokens")


def _check_stepper(model: Stepper, texts: Sequence[str]) -> None:
    first = model.start([model.context])
    size = model.tokenizer.size
    require(
        first.log2_probabilities.shape == (1, size),
        f"expected shape (1, {size}), got {first.log2_probabilities.shape}",
    )
    _sums_to_one(first.log2_probabilities)
    tokens = np.array(sorted({model.tokenizer.encode(text)[0] for text in texts} | {0}))
    parents = np.zeros(len(tokens), dtype=np.int64)
    step = model.step(first.states, parents, tokens)
    _sums_to_one(step.log2_probabilities)
    again = model.step(first.states, parents, tokens)
    close(model, again.log2_probabilities, step.log2_probabilities, "when a state is used a second time")
    for row, token in enumerate(tokens):
        alone = model.step(first.states, parents[:1], np.array([token]))
        close(
            model, alone.log2_probabilities[0], step.log2_probabilities[row], "stepping alone and in a batch"
        )
    mixed = model.gather([(step.states, np.array([len(tokens) - 1, 0])), (again.states, np.array([1]))])
    onwards = model.step(mixed, np.array([0, 1, 2]), tokens[[0, 0, 0]])
    straight = model.step(step.states, np.array([len(tokens) - 1, 0, 1]), tokens[[0, 0, 0]])
    close(
        model,
        onwards.log2_probabilities,
        straight.log2_probabilities,
        "of states gathered from several batches",
    )
    if model.mixes_depths:
        _check_depths(model, model.tokenizer.encode(max(texts, key=len)))
    require(model.state_bytes(step.states) > 0, "states take memory: state_bytes must be more than 0")
    if isinstance(model, StateKeeper):
        _check_kept_states(model, step, tokens)
    if isinstance(model, RestReader):
        rests = [(0, int(token)) for token in tokens]
        read = model.read_after(first.states, parents, rests).log2_probabilities
        zero = model.step(first.states, parents, np.zeros_like(tokens)).states
        stepped = model.step(zero, np.arange(len(tokens)), tokens).log2_probabilities
        close(model, read, stepped, "reading two tokens at once and one by one")
    columns = np.array([size - 1, 0])
    narrow = model.step(first.states, parents, tokens, columns=columns)
    close(model, narrow.log2_probabilities, step.log2_probabilities[:, columns], "with columns restricted")


def _check_kept_states(model: StateKeeper, step: Step, tokens: IntArray) -> None:
    """States that were written and read again give the same bits."""
    kept = model.states_from_arrays([one.copy() for one in model.states_to_arrays(step.states)])
    rows = np.arange(len(tokens))
    before, after = (model.step(states, rows, tokens).log2_probabilities for states in (step.states, kept))
    require(
        np.array_equal(before, after),
        "states that were turned into arrays and back must give the same bits as before",
    )


def _check_depths(model: Stepper, tokens: Sequence[int]) -> None:
    """States along one text, in one batch and each alone."""
    depths = range(min(4, len(tokens)))
    states = [model.start([(*model.context, *tokens[:depth])]).states for depth in depths]
    following = np.array([tokens[depth] for depth in depths])
    mixed = model.gather([(one, np.array([0])) for one in states])
    together = model.step(mixed, np.array(depths), following).log2_probabilities
    alone = [model.step(one, np.array([0]), following[[place]]) for place, one in enumerate(states)]
    separate = np.concatenate([step.log2_probabilities for step in alone])
    close(model, together, separate, "of states of different depths in one batch")


def _check_stepping_equals_scoring(model: Stepper, scorer: Scorer, texts: Sequence[str]) -> None:
    for text in texts:
        sequence = text_sequence(model, text)
        scored = bits_alone(scorer, sequence)
        step = model.start([sequence.context])
        stepped = []
        for token in sequence.target:
            stepped.append(step.log2_probabilities[0, token])
            step = model.step(step.states, np.array([0]), np.array([token]))
        close(model, np.array(stepped), scored, f"stepping through {text!r} and scoring it")


def _check_generator(model: Generator, scorer: Scorer, texts: Sequence[str]) -> None:
    prompts = [[*model.context, *model.tokenizer.encode(text)] for text in texts]
    together = model.generate(prompts, length=4)
    for prompt, continuation in zip(prompts, together, strict=True):
        require(len(continuation) == 4, f"asked for 4 tokens, got {len(continuation)}")
        score = scorer.score([TokenSequence(tuple(prompt), tuple(continuation))])[0]
        require(
            bool(score.is_argmax.all()),
            "every token of a greedy continuation must be the argmax after the tokens before it",
        )
        require(
            model.generate([prompt], length=4)[0] == continuation,
            "a continuation must depend on its own prompt only",
        )


def _check_reciter(model: Reciter, generator: Generator, texts: Sequence[str]) -> None:
    """Following a text gives what generating and scoring give."""
    prompts = [(*model.context, *model.tokenizer.encode(text)) for text in texts]
    written = generator.generate(prompts, length=4)
    truths = [TokenSequence(prompt, tuple(tokens)) for prompt, tokens in zip(prompts, written, strict=True)]
    size = model.tokenizer.size
    others = [
        sequence._replace(target=(*sequence.target[:2], (sequence.target[2] + 1) % size, sequence.target[3]))
        for sequence in truths
    ]
    expected = [None] * len(truths) + [2] * len(others)
    for stop in (False, True):
        found = [one.first_miss for one in model.follow([*truths, *others], stop_at_miss=stop)]
        require(
            found == expected,
            f"the first token that greedy decoding does not write must be at {expected}, got {found}",
        )
    sequences = [text_sequence(model, text) for text in texts]
    followed = model.follow(sequences, samplings=[Sampling()])
    totals = [-score.log_perplexity_bits for score in model.score(sequences)]
    close(
        model,
        np.array([one.log2_probabilities[0] for one in followed]),
        np.array(totals),
        "of whole texts, followed and scored,",
    )


def _check_lister(model: Lister, stepper: Stepper, texts: Sequence[str]) -> None:
    sequences = [text_sequence(model, text) for text in texts]
    for sequence, listed in zip(sequences, model.likeliest(sequences, k=5), strict=True):
        require(
            len(listed) == len(sequence.target),
            "the likeliest tokens must be listed for each position of a target",
        )
        last = stepper.start([sequence.context + sequence.target[:-1]]).log2_probabilities[0]
        tokens = [token for token, _ in listed[-1]]
        require(
            tokens[0] == int(last.argmax())
            or abs(last[tokens[0]] - last.max()) <= 2 * most_difference(model, last.max()),
            "the first of the likeliest tokens must be the argmax",
        )
        highest = np.sort(last)[::-1][: len(tokens)]
        close(model, np.array([bits for _, bits in listed[-1]]), last[tokens], "listed and walked")
        close(model, last[tokens], highest, "of the listed tokens and of the highest there are")


def _check_kind_of_scorer(model: Scorer, texts: Sequence[str]) -> None:
    """What a scorer reports of its texts besides scores."""
    if isinstance(model, PartialScorer):
        unscored = model.unscored(texts)
        require(
            len(unscored) == len(texts)
            and all(0 <= count <= len(text) for count, text in zip(unscored, texts, strict=True)),
            f"unscored must give a number of characters from 0 to the length of each text, got {unscored}",
        )
    if isinstance(model, TextScorer):
        by_tokens = model.score([text_sequence(model, text) for text in texts])
        both = np.array(
            [[score.log_perplexity_bits for score in each] for each in (model.score_text(texts), by_tokens)]
        )
        if isinstance(model, LimitedScorer):
            both = both[:, ~np.isnan(both).all(axis=0)]
        close(model, both[0], both[1], "of whole texts, by their text and by their tokens,")
    if isinstance(model, RankedTextScorer):
        check_ranked_text(model, texts)
    if isinstance(model, LimitedScorer):
        check_limited(model, texts)
    if isinstance(model, MaskedModel):
        _check_masked(model, texts)


def _check_masked(model: MaskedModel, texts: Sequence[str]) -> None:
    """Whether a masked target is restored depends on that target and the seed only."""
    sequences = [text_sequence(model, text) for text in texts]
    for share, seed in itertools.product((0.15, 0.5), (0, 1)):
        together = model.solves_masking(sequences, share=share, seed=seed)
        alone = [model.solves_masking([sequence], share=share, seed=seed)[0] for sequence in sequences]
        require(
            [bool(solved) for solved in together] == [bool(solved) for solved in alone],
            f"solves_masking must give the same for a text alone and in a batch, got {alone} and {together}",
        )


def _check_bound(model: BoundedModel, scorer: Scorer, texts: Sequence[str]) -> None:
    """A text that is too long is refused; nothing is cut off silently."""
    most = model.max_length
    if most is None:
        return
    context = model.context
    require(most > len(context), f"max_length must leave room for a text after the context, got {most}")
    tokens = itertools.cycle(token for text in texts for token in model.tokenizer.encode(text))
    # The last token of a target may be predicted without being read.
    longer = TokenSequence(context, tuple(itertools.islice(tokens, most - len(context) + 2)))
    try:
        scorer.score([longer])
    except NotMeasurableError:
        return
    require(False, f"a text of more than max_length ({most}) tokens must raise a NotMeasurableError")


def _check_contexts(model: ContextualModel, texts: Sequence[str]) -> None:
    """The model in another context is the same model after other tokens."""
    contexts = model.contexts
    if contexts is None:
        return
    require(
        model.context == contexts.chosen.tokens,
        f"context must be that of contexts.chosen, {contexts.chosen.tokens}, got {model.context}",
    )
    for context in (contexts.chosen, *contexts.others):
        other = model.in_context(context)
        require(
            other.context == context.tokens,
            f"in_context must give a model with the context {context.tokens}, got {other.context}",
        )
    same = model.in_context(contexts.chosen)
    if isinstance(model, Scorer) and isinstance(same, Scorer):
        scores = [one.score([text_sequence(model, text) for text in texts]) for one in (model, same)]
        for own, again in zip(*scores, strict=True):
            close(model, own.log2_probabilities, again.log2_probabilities, "in the same context")


def _sums_to_one(log2_probabilities: np.ndarray) -> None:
    sums = np.exp2(np.asarray(log2_probabilities, dtype=np.float64)).sum(axis=1)
    require(
        bool(np.allclose(sums, 1, rtol=0, atol=LARGEST_REST)), f"a distribution must sum to one, got {sums}"
    )
