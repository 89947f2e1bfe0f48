"""Ranks and moments of distributions are those of a softmax over all logits, and only the positions that are scored are projected."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine.models import (
    OpenTokenizer,
    TokenSequence,
    WordTokenizer,
    from_transformers,
    from_transformers_pairs,
    open_sequence,
    text_sequence,
)
from coalmine.models.inference import projection, ranking
from coalmine.models.inference.pairs import PairNetworkModel
from coalmine.models.inference.projection import Projection
from coalmine.models.reference.pair_networks import PAIR_NETWORKS, SourceTokenizer
from coalmine.randomness import arrays
from models.inference.test_projection import NETWORKS, one_layer, small_blocks
from models.random_networks import ARCHITECTURES, random_model
from models.tiny_pairs import byte_level_pairs, tiny_pairs, unigram
from models.tiny_transformers import byte_level
from training.test_pairs_lessons import random_network

TEXTS = ["the random number is 281265017", "a", "00", "some other text", "0 zero first"]


def moments_of(logits):
    """The mean and the standard deviation of log2 p over all tokens, weighted by p, in double precision."""
    log2 = torch.log_softmax(logits.double(), dim=-1) / math.log(2)
    weights = torch.exp2(log2)
    known = torch.where(weights > 0, log2, 0.0)
    mean = (weights * known).sum(dim=-1)
    return mean.numpy(), (weights * (known - mean[..., None]) ** 2).sum(dim=-1).sqrt().numpy()


def ranks_of(logits, tokens):
    own = logits[torch.arange(len(tokens)), torch.as_tensor(tokens)]
    return ((logits > own[:, None]).sum(dim=1) + 1).tolist()


@torch.inference_mode()
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_moments_are_those_of_all_logits(data):
    vocabulary, many = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 12))
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64]))
    network = one_layer(
        vocabulary,
        dtype=dtype,
        bias=data.draw(st.booleans()),
        in_parts=data.draw(st.booleans()),
        size=data.draw(st.sampled_from([0.0, 0.001, 0.3, 3.0, 30.0])),
        seed=data.draw(st.integers(0, 99)),
    )
    hidden = torch.randn(many, 7, dtype=dtype)
    draw = arrays(data.draw(st.integers(0, 99)), "test", "questions")
    rows = draw.integers(0, many, data.draw(st.integers(0, 30)))
    tokens = draw.integers(0, vocabulary, len(rows))
    logits = network.project(hidden)
    with pytest.MonkeyPatch.context() as patch:
        small_blocks(patch, data.draw(st.integers(1, 5)), data.draw(st.integers(1, 11)))
        asked = Projection(network, whole_at_a_time=data.draw(st.integers(1, 100)))
        judged = asked.judge(hidden, rows, tokens, ranks=True, moments=True)
        plain = asked.judge(hidden, rows, tokens)
    within = 1e-4 if dtype == torch.float32 else 1e-9
    mean, deviation = moments_of(logits)
    assert judged.mean_bits == pytest.approx(mean[rows], abs=within)
    assert judged.deviation_bits == pytest.approx(deviation[rows], abs=within)
    assert (judged.log2 <= 0).all()
    assert judged.log2 == pytest.approx(plain.log2, abs=within)
    assert judged.is_argmax.tolist() == plain.is_argmax.tolist()
    assert (judged.is_argmax <= (judged.ranks == 1)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@torch.inference_mode()
def test_a_large_vocabulary_in_blocks_loses_nothing(dtype):
    network = one_layer(30_000, width=64, dtype=dtype, size=0.3)
    hidden = torch.randn(50, 64, dtype=dtype)
    tokens = np.arange(50) * 599
    judged = Projection(network, whole_at_a_time=1).judge(
        hidden, np.arange(50), tokens, ranks=True, moments=True
    )
    logits = network.project(hidden)
    mean, deviation = moments_of(logits)
    within = 1e-4 if dtype == torch.float32 else 1e-9
    assert judged.mean_bits == pytest.approx(mean, abs=within)
    assert judged.deviation_bits == pytest.approx(deviation, abs=within)
    # The blocks round in their own way; in double precision no two logits are so near that it matters.
    off = np.abs(judged.ranks - np.array(ranks_of(logits, tokens)))
    assert off.max() <= (2 if dtype == torch.float32 else 0)


@torch.inference_mode()
def test_moments_where_most_mass_is_far_below_the_highest_logit():
    """One token stands out, and thirty thousand nearly equal ones below it share the rest: what a difference of large sums would lose."""
    network = one_layer(30_000, width=1, bias=False)
    network.layer.weight.copy_(torch.randn(30_000, 1) * 0.01 - 6)
    network.layer.weight[17_000] = 0.0
    hidden = torch.ones(1, 1)
    judged = Projection(network, whole_at_a_time=1).judge(
        hidden, np.array([0]), np.array([5]), ranks=True, moments=True
    )
    mean, deviation = moments_of(network.project(hidden))
    assert judged.mean_bits == pytest.approx(mean, abs=1e-4)
    assert judged.deviation_bits == pytest.approx(deviation, abs=1e-4)


@torch.inference_mode()
def test_tokens_that_cannot_occur_have_no_part_in_a_moment(monkeypatch):
    network = one_layer(12)
    network.layer.bias[3:9] = -math.inf  # the whole of two blocks
    network.layer.bias[10] = -math.inf
    small_blocks(monkeypatch, 2, 3)
    hidden = torch.randn(3, 7)
    tokens = np.array([0, 4, 11])
    judged = Projection(network, whole_at_a_time=24).judge(
        hidden, np.arange(3), tokens, ranks=True, moments=True
    )
    logits = network.project(hidden)
    mean, deviation = moments_of(logits)
    assert judged.mean_bits == pytest.approx(mean, abs=1e-4)
    assert judged.deviation_bits == pytest.approx(deviation, abs=1e-4)
    assert judged.ranks.tolist() == ranks_of(logits, tokens)
    assert np.isneginf(judged.log2[1, 0])
    assert judged.ranks[1] == 6
    network.layer.bias[5] = math.nan
    broken = Projection(network, whole_at_a_time=24).judge(hidden, np.arange(3), tokens, moments=True)
    assert not np.isfinite(broken.mean_bits).any()


def close_together(vocabulary, width, dtype, seed):
    """A layer whose logits for a one-hot input are its weights, bit for bit: many are equal, and others differ in the last bit."""
    network = one_layer(vocabulary, width=width, dtype=dtype, bias=False, size=1.0, seed=seed)
    draw = arrays(seed, "test", "neighbors")
    weights = np.asarray(draw.choice([1.0, 1.5, -2.25], (vocabulary, width)), dtype=str(dtype)[6:])
    steps = draw.integers(-3, 4, (vocabulary, width))
    for _ in range(3):
        weights = np.where(steps > 0, np.nextafter(weights, np.inf, dtype=weights.dtype), weights)
        weights = np.where(steps < 0, np.nextafter(weights, -np.inf, dtype=weights.dtype), weights)
        steps -= np.sign(steps)
    network.layer.weight.copy_(torch.from_numpy(weights))
    return network


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(4))
@torch.inference_mode()
def test_ranks_among_neighbors_that_differ_in_the_last_bit(dtype, seed, monkeypatch):
    network = close_together(60, 5, dtype, seed)
    small_blocks(monkeypatch, 3, 7)
    rows, tokens = np.repeat(np.arange(5), 60), np.tile(np.arange(60), 5)
    hidden = torch.eye(5, dtype=dtype)
    judged = Projection(network, whole_at_a_time=1).judge(hidden, rows, tokens, ranks=True, moments=True)
    assert judged.ranks.tolist() == ranks_of(network.layer.weight.T[rows], tokens)


def passes(monkeypatch):
    """The number of positions of each pass over the vocabulary, as they are made."""
    seen = []

    class Watched(projection.Pass):
        def __iter__(self):
            seen.append(len(self.hidden))
            return super().__iter__()

        def at(self, rows):
            found = super().at(rows)
            found.__class__ = Watched
            return found

    monkeypatch.setattr(projection, "Pass", Watched)
    return seen


@torch.inference_mode()
def test_ranks_need_no_second_pass_over_the_vocabulary(monkeypatch):
    network = one_layer(5_000, width=64, size=0.3)
    hidden = torch.randn(400, 64)
    tokens = np.arange(400) * 12
    seen = passes(monkeypatch)
    Projection(network, whole_at_a_time=1).judge(hidden, np.arange(400), tokens, ranks=True, moments=True)
    assert seen[0] == 400
    # Tokens with a neighbor that is as near as rounding are few, and only their positions are read again.
    assert sum(seen[1:]) < 40
    # Without bounds, everything is.
    monkeypatch.setattr(ranking, "ROUNDINGS", 0)
    again = Projection(network, whole_at_a_time=1).judge(hidden, np.arange(400), tokens, ranks=True)
    assert seen[-1] == 400
    assert len(again.ranks) == 400


@torch.inference_mode()
def test_a_vocabulary_of_one_block_needs_one_pass_in_any_precision(monkeypatch):
    seen = passes(monkeypatch)
    for dtype in (torch.float32, torch.bfloat16):
        network = one_layer(300, dtype=dtype)
        hidden = torch.randn(9, 7, dtype=dtype)
        judged = Projection(network, whole_at_a_time=1).judge(
            hidden, np.arange(9), np.arange(9), ranks=True, moments=True
        )
        assert judged.ranks.tolist() == ranks_of(network.project(hidden).float(), np.arange(9))
    assert seen == [9, 9]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.inference_mode()
def test_ranks_in_half_precision_count_the_logits_as_they_are_rounded(dtype, monkeypatch):
    network = one_layer(500, dtype=dtype, bias=False)
    hidden = torch.eye(7, dtype=dtype)
    small_blocks(monkeypatch, 3, 64)
    rows, tokens = np.arange(70) % 7, np.arange(70) * 7
    judged = Projection(network, whole_at_a_time=1).judge(hidden, rows, tokens, ranks=True, moments=True)
    assert judged.ranks.tolist() == ranks_of(network.layer.weight.T[rows], tokens)


def distributions_of(logits, sequence):
    """What all logits of (positions, vocabulary) say of a target."""
    tokens = np.array(sequence.target)
    log2 = (torch.log_softmax(logits.double(), dim=1) / math.log(2)).numpy()
    return log2[np.arange(len(tokens)), tokens], ranks_of(logits, tokens), *moments_of(logits)


def compare(model, sequences, all_logits, within):
    together = model.score_distribution(sequences)
    for sequence, found, score in zip(sequences, together, model.score(sequences, ranks=True), strict=True):
        log2, ranks, mean, deviation = distributions_of(all_logits(sequence), sequence)
        assert found.log2_probabilities == pytest.approx(log2, abs=within)
        assert found.mean_bits == pytest.approx(mean, abs=within)
        assert found.deviation_bits == pytest.approx(deviation, abs=within)
        assert found.ranks.tolist() == score.ranks.tolist()
        assert np.abs(found.ranks - np.array(ranks)).max(initial=0) <= (0 if within < 1e-6 else 1)
        assert found.is_argmax.tolist() == score.is_argmax.tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_reference_networks(architecture, dtype, monkeypatch):
    model = random_model(architecture, dtype=dtype)
    small_blocks(monkeypatch, 8, 11)

    @torch.inference_mode()
    def all_logits(sequence):
        row = torch.tensor([sequence.context + sequence.target])
        logits, _ = model._network(row, model._network.initial_state(1))
        return logits[0, len(sequence.context) - 1 : -1]

    compare(
        model,
        [text_sequence(model, text) for text in TEXTS],
        all_logits,
        1e-4 if dtype == torch.float32 else 1e-9,
    )


@pytest.mark.parametrize("kind", NETWORKS)
def test_causal_transformers(kind, monkeypatch):
    network = NETWORKS[kind]()
    model = from_transformers(network, byte_level())
    small_blocks(monkeypatch, 4, 37)

    @torch.inference_mode()
    def all_logits(sequence):
        row = torch.tensor([sequence.context + sequence.target])
        return network(input_ids=row, use_cache=False).logits[0, len(sequence.context) - 1 : -1]

    compare(model, [text_sequence(model, text) for text in TEXTS], all_logits, 2e-3)


PAIRS = [
    ("the number is 281", "my number is 281"),
    ("a longer source, of the river 90", "the"),
    ("Who?", "it is 4"),
]


def pair_model(kind):
    if kind in PAIR_NETWORKS:
        tokens = WordTokenizer({word for pair in PAIRS for text in pair for word in text.split()})
        return PairNetworkModel(random_network(kind, tokens.size), tokens, SourceTokenizer(tokens))
    tokenizer = byte_level_pairs(opens=True) if kind == "bart" else unigram()
    return from_transformers_pairs(tiny_pairs(kind, len(tokenizer) + 3), tokenizer)


PAIR_KINDS = [*PAIR_NETWORKS, "t5", "t5-gated-untied", "umt5", "marian", "bart", "mbart", "pegasus"]


@pytest.mark.parametrize("kind", PAIR_KINDS)
def test_models_of_pairs(kind, monkeypatch):
    model = pair_model(kind)
    small_blocks(monkeypatch, 4, 7)

    @torch.inference_mode()
    def all_logits(sequence):
        row = torch.tensor([sequence.context + sequence.target])
        source = torch.tensor([sequence.source])
        logits = model.network(source, torch.tensor([len(sequence.source)]), row)
        return logits[0, len(sequence.context) - 1 : -1]

    sequences = [text_sequence(model, target, source) for source, target in PAIRS]
    compare(model, sequences, all_logits, 1e-9)
    # With one source for all, the decoder is read alone.
    alike = [sequence._replace(source=sequences[0].source) for sequence in sequences]
    compare(model, alike, all_logits, 1e-9)


def asked_about(sequences):
    return sum(len(sequence.target) for sequence in sequences)


@pytest.mark.parametrize("kind", PAIR_KINDS)
def test_neither_padding_nor_context_of_pairs_is_projected(kind, monkeypatch):
    model = pair_model(kind)
    assert model.network.head() is not None
    sequences = [text_sequence(model, target, source) for source, target in PAIRS]
    sequences[0] = sequences[0]._replace(
        context=sequences[0].context + sequences[0].target[:1], target=sequences[0].target[1:]
    )
    seen = passes(monkeypatch)
    model.score_distribution(sequences)
    assert seen[0] == asked_about(sequences)
    seen.clear()
    model.score_distribution([sequence._replace(source=sequences[0].source) for sequence in sequences])
    # Some share their first position.
    assert sum(seen) <= asked_about(sequences)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_neither_padding_nor_context_is_projected(architecture, monkeypatch):
    model = random_model(architecture)
    context = model.context + tuple(model.tokenizer.encode("a long context before the texts "))
    sequences = [TokenSequence(context, tuple(model.tokenizer.encode(text))) for text in TEXTS]
    sequences.append(TokenSequence((*context, 3, 4, 5, 6), (7,)))
    seen = passes(monkeypatch)
    model.score(sequences, ranks=True)
    # Five of them have their first position in common.
    assert seen == [asked_about(sequences) - 4]


def test_a_user_with_many_texts_is_one_batch(monkeypatch):
    model = random_model("lstm")
    sequences = [text_sequence(model, "a text of many " + "words " * (place % 7)) for place in range(32)]
    reads = []
    read_hidden = model._network.read_hidden

    def counted(tokens, state, keep):
        reads.append(tokens.shape)
        return read_hidden(tokens, state, keep)

    monkeypatch.setattr(model._network, "read_hidden", counted)
    seen = passes(monkeypatch)
    assert len(model.score_distribution(sequences)) == 32
    assert len(reads) == 2  # the common prefix, and the rest
    assert len(seen) == 1


def test_no_position_at_all():
    model = random_model("lstm")
    nothing, something = TokenSequence(model.context, ()), text_sequence(model, "ab")
    for sequences in (
        [nothing],
        [nothing, something],
        [something, nothing._replace(context=something.target)],
    ):
        found = model.score_distribution(sequences)
        assert [len(one.ranks) for one in found] == [len(one.target) for one in sequences]
    pairs = pair_model("attention")
    targets = [TokenSequence(pairs.context, (), (1,)), TokenSequence(pairs.context, (2, 3), (1, 4))]
    assert [len(one.mean_bits) for one in pairs.score_distribution(targets)] == [0, 2]
    assert [
        len(one.ranks) for one in pairs.score([*targets[:1], targets[0]._replace(source=(2,))], ranks=True)
    ] == [0, 0]


def test_any_text_is_read_by_a_tokenizer_with_an_unknown_token():
    model = pair_model("t5")
    assert isinstance(model.tokenizer, OpenTokenizer)
    sequence = open_sequence(model, "a \u2603 in the yard", "of \u2603 and the river")
    assert model.tokenizer.unknown in sequence.target
    assert len(model.score_distribution([sequence])[0].ranks) == len(sequence.target)
    words = pair_model("encoder-decoder")
    sequence = open_sequence(words, "my other number", "an unheard-of source")
    assert sequence.target[1] == words.tokenizer.unknown == sequence.source[0]
    assert len(words.score_distribution([sequence])[0].ranks) == 3
    assert not isinstance(from_transformers(NETWORKS["gpt2"](), byte_level()).tokenizer, OpenTokenizer)
