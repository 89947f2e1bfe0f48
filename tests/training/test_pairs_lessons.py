"""Networks of pairs and the batches that they are trained on."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from coalmine.errors import InputError
from coalmine.models import CharacterTokenizer, WordTokenizer, check_pairs, text_sequence
from coalmine.models.inference.pairs import PairNetworkModel
from coalmine.models.reference.pair_networks import (
    PAIR_NETWORKS,
    PairNetworkConfig,
    SourceTokenizer,
    build_pair_network,
)
from coalmine.training.data import IGNORED, Sources, TrainingData, read_corpus, tokenized
from coalmine.training.lessons import PairLessons
from coalmine.training.options import TrainingOptions, options_of
from training.pairs import planted_pairs

CHARACTERS = CharacterTokenizer("0123456789 abcdefghijklmnopqrstuvwxyz")
WORDS = WordTokenizer(["my", "is", "pin", "mon", "1", "2"])
PAIRS = {
    "characters": [
        ("my pin is 12", "mon pin 12"),
        ("a", "b"),
        ("", "a long target of nothing"),
        ("a a a", "0"),
    ],
    "words": [("my pin is 1 2", "mon pin 1 2"), ("is", "mon"), ("", "1 1"), ("never seen 2", "2 pin 2 2 2")],
}


def random_network(architecture, vocabulary, *, dtype=torch.float64, seed=0):
    torch.manual_seed(seed)
    config = PairNetworkConfig(
        architecture=architecture, vocabulary=vocabulary, embedding=6, hidden=10, layers=2, dropout=0.3
    )
    network = build_pair_network(config)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5)
    return network.to(dtype).eval()


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    return planted_pairs(tmp_path_factory.mktemp("pairs"))


class TestNetworks:
    @pytest.mark.parametrize("architecture", PAIR_NETWORKS)
    @pytest.mark.parametrize("tokenizer", [CHARACTERS, WORDS], ids=["characters", "words"])
    def test_they_conform(self, architecture, tokenizer):
        model = PairNetworkModel(
            random_network(architecture, tokenizer.size), tokenizer, SourceTokenizer(tokenizer)
        )
        check_pairs(model, PAIRS[tokenizer.kind])

    @pytest.mark.parametrize("architecture", PAIR_NETWORKS)
    def test_logits_are_those_of_one_token_at_a_time(self, architecture):
        network = random_network(architecture, 9)
        source, target = [1, 7, 0, 8], [8, 3, 0, 5]
        expected = token_by_token(network, source, target)
        found = network(torch.tensor([source]), torch.tensor([4]), torch.tensor([target]))[0]
        assert torch.allclose(found, expected, atol=1e-12)

    @pytest.mark.parametrize("architecture", PAIR_NETWORKS)
    @settings(max_examples=30)
    @given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=6), seed=st.integers(0, 99))
    def test_padding_never_reaches_a_number(self, architecture, lengths, seed):
        network = random_network(architecture, 9)
        drawn = torch.Generator().manual_seed(seed)
        sources = torch.randint(0, 9, (len(lengths), 8), generator=drawn)  # padding is any token at all
        targets = torch.randint(0, 9, (len(lengths), 5), generator=drawn)
        together = network(sources, torch.tensor(lengths), targets)
        for row, length in enumerate(lengths):
            one = slice(row, row + 1)
            alone = network(sources[one, :length], torch.tensor([length]), targets[one])[0]
            assert torch.allclose(together[row], alone, atol=1e-12)

    def test_the_source_matters(self):
        for architecture in PAIR_NETWORKS:
            network = random_network(architecture, CHARACTERS.size)
            model = PairNetworkModel(network, CHARACTERS, SourceTokenizer(CHARACTERS))
            first, second = (
                model.score([text_sequence(model, "the same target", source)])[0].log_perplexity_bits
                for source in ("one source", "one sourcf")
            )
            assert abs(first - second) > 1e-6

    def test_wrong_shapes(self):
        with pytest.raises(InputError, match="hidden must be at least 1"):
            PairNetworkConfig(architecture="attention", vocabulary=5, hidden=0)
        with pytest.raises(InputError, match="known are encoder-decoder, attention, gru-encoder-decoder"):
            PairNetworkConfig(architecture="lstm", vocabulary=5)
        with pytest.raises(InputError, match="dropout"):
            PairNetworkConfig(architecture="attention", vocabulary=5, dropout=1.0)


def token_by_token(network, source, target):
    """The logits of one pair, with single cells and sums that are written out."""
    is_gru, cells = network.architecture.startswith("gru-"), {}
    for side in ("encoder", "decoder"):
        stacked = getattr(network, side)
        for layer in range(2):
            width = 6 if layer == 0 else 10
            cell = (torch.nn.GRUCell if is_gru else torch.nn.LSTMCell)(width, 10).double()
            names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            cell.load_state_dict({name: getattr(stacked, f"{name}_l{layer}") for name in names})
            cells[side, layer] = cell
    start = torch.zeros(10).double()
    states = [start if is_gru else (start, start)] * 2

    def read(side, token):
        given_to_layer = network.embedding.weight[token]
        for layer in range(2):
            states[layer] = cells[side, layer](given_to_layer, states[layer])
            given_to_layer = states[layer] if is_gru else states[layer][0]
        return given_to_layer

    seen = [read("encoder", token) for token in source]
    logits = []
    for token in target:
        hidden = read("decoder", token)
        if network.architecture.endswith("attention"):
            weights = [torch.exp(torch.dot(hidden, place)) for place in seen]
            attended = sum(weight * place for weight, place in zip(weights, seen, strict=True)) / sum(weights)
            hidden = torch.tanh(network.combination.weight @ torch.cat([attended, hidden]))
        logits.append(network.output.weight @ hidden + network.output.bias)
    return torch.stack(logits)


class TestBatches:
    @settings(max_examples=40)
    @given(
        pairs=st.lists(
            st.tuples(
                st.lists(st.integers(0, 7), max_size=6).map(tuple),
                st.lists(st.integers(0, 7), max_size=6).map(tuple),
            ),
            min_size=1,
            max_size=40,
        ),
        size=st.integers(1, 5),
        shuffle=st.booleans(),
    )
    def test_an_epoch_holds_each_pair_once(self, pairs, size, shuffle):
        separator = 8
        sources = [np.array([*source, separator], dtype=np.int32) for source, _ in pairs]
        targets = [np.array(target, dtype=np.int32) for _, target in pairs]
        tokenizer = CharacterTokenizer("abcdefgh")
        data = TrainingData(tokenizer, targets, targets, "", Sources(sources, sources))
        lessons = PairLessons(
            random_network("attention", 9),
            data,
            data.sources,
            TrainingOptions(batch_size=size, shuffle=shuffle),
        )
        expected_pairs = [((*source, separator), target) for source, target in pairs]
        for batches in (lessons.training(0), lessons.validation()):
            read = []
            for batch in batches:
                rows, lengths, begun = batch.read
                assert len(rows) <= size
                assert batch.tokens == int((batch.expected != IGNORED).sum())
                for row, length, start, expected in zip(rows, lengths, begun, batch.expected, strict=True):
                    taken = expected[expected != IGNORED].tolist()
                    assert taken[-1] == separator
                    assert start[: len(taken)].tolist() == [separator, *taken[:-1]]
                    read.append((tuple(row[: int(length)].tolist()), tuple(taken[:-1])))
            assert sorted(read) == sorted(expected_pairs)
        if not shuffle:
            assert [pair for batch in lessons.training(0) for pair in pairs_in(batch)] == expected_pairs

    def test_each_epoch_has_an_order_of_its_own_and_little_padding(self, planted):
        options = options_of("translation", {"batch_size": 8})
        data = tokenized(read_corpus(planted.corpus.parent, None, None, [options]), options)
        lessons = PairLessons(random_network("attention", 99), data, data.sources, options)
        first, again, second = ([pairs_in(batch) for batch in lessons.training(e)] for e in (0, 0, 1))
        assert first == again
        assert first != second
        batches = lessons.training(0)
        assert batches[1:3][1].tokens == batches[2].tokens
        lengths = torch.cat([batch.read[1] for batch in batches])
        padded = sum(batch.read[0].numel() for batch in batches)
        assert padded < 1.2 * int(lengths.sum())

    @pytest.mark.parametrize("architecture", PAIR_NETWORKS)
    def test_padding_is_never_projected_and_the_loss_is_the_same(self, architecture, planted):
        options = options_of("translation", {"batch_size": 8, "holdout": 0.2, "architecture": architecture})
        data = tokenized(read_corpus(planted.corpus.parent, None, None, [options]), options)
        network = random_network(architecture, data.tokenizer.size)
        lessons = PairLessons(network, data, data.sources, options)
        projected = []
        network.output.register_forward_hook(lambda _, given, __: projected.append(given[0].numel() // 10))
        padded = 0
        for batch in [*lessons.training(0), *lessons.validation()]:
            logits, _ = lessons.predict(batch, ())
            assert projected[-1] == batch.tokens
            padded += batch.expected.numel() - batch.tokens
            whole = network(*batch.read)
            expected = F.cross_entropy(
                whole.flatten(0, 1), batch.expected.flatten(), ignore_index=IGNORED, reduction="sum"
            )
            found = F.cross_entropy(logits, batch.with_loss(batch.expected), reduction="sum")
            assert torch.allclose(found, expected, atol=1e-9)
        assert padded > 50

    def test_canaries_are_never_held_out(self, planted):
        options = options_of("translation", {"holdout": 0.3})
        data = tokenized(read_corpus(planted.corpus.parent, None, None, [options]), options)
        assert data.sources is not None
        trained_on = [
            (data.tokenizer.decode(source), data.tokenizer.decode(target))
            for source, target in zip(data.sources.training, data.training, strict=True)
        ]
        for canary in planted.canaries:
            assert trained_on.count((canary.source, canary.text)) == canary.times_trained_on
        assert len(data.validation) == len(data.sources.validation) > 20


def pairs_in(batch):
    rows, lengths, _ = batch.read
    return [
        (tuple(row[: int(length)].tolist()), tuple(expected[expected != IGNORED].tolist()[:-1]))
        for row, length, expected in zip(rows, lengths, batch.expected, strict=True)
    ]
