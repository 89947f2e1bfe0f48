"""The likeliest tokens at each place, in one pass, are those that a walk token by token finds."""

import numpy as np
import pytest
import torch

from coalmine.errors import ModelOutputError, NotMeasurableError
from coalmine.models import Lister, TokenSequence, from_transformers
from coalmine.models.inference import reading
from coalmine.randomness import arrays
from models.random_networks import ARCHITECTURES, random_model
from models.tiny_transformers import byte_level, tiny

K = 5


def walked(model, sequence, k):
    """What a walk says: the k likeliest at each place, of equals the lowest ids."""
    found = []
    for place in range(len(sequence.target)):
        log2 = model.start([sequence.context + sequence.target[:place]]).log2_probabilities[0]
        order = np.lexsort((np.arange(len(log2)), -log2))[:k]
        found.append([(int(token), float(log2[token])) for token in order])
    return found


@pytest.mark.parametrize("kind", [*ARCHITECTURES, "gpt2", "mamba"])
@pytest.mark.parametrize("few", [False, True])
def test_one_pass_lists_what_a_walk_finds(kind, few, monkeypatch):
    if kind in ARCHITECTURES:
        model = random_model(kind, dtype=torch.float64)
    else:
        model = from_transformers(tiny(kind, len(byte_level())).double(), byte_level())
    assert isinstance(model, Lister)
    if few:
        monkeypatch.setitem(reading.TOKENS_AT_A_TIME, "cpu", 7)
        monkeypatch.setitem(reading.LOGITS_IN_CACHE, "cpu", 3 * model.tokenizer.size)
    draw = arrays(0, "test", "likeliest")
    texts = [tuple(draw.integers(0, model.tokenizer.size, length).tolist()) for length in (6, 1, 0, 4, 6)]
    sequences = [TokenSequence((*model.context, *text[:1]), text[1:]) for text in texts]
    for sequence, found in zip(sequences, model.likeliest(sequences, k=K), strict=True):
        expected = walked(model, sequence, K)
        assert [[token for token, _ in place] for place in found] == [
            [token for token, _ in place] for place in expected
        ]
        for place, other in zip(found, expected, strict=True):
            assert [bits for _, bits in place] == pytest.approx([bits for _, bits in other], abs=1e-9)


def test_of_equals_the_lower_ids_are_listed_and_no_more_than_there_are():
    model = random_model("transformer")
    with torch.no_grad():
        model._network.output.weight.zero_()
        model._network.output.bias.zero_()
        model._network.output.bias[[9, 4]] = 3.0
    sequence = TokenSequence(model.context, (1, 2))
    for place in model.likeliest([sequence], k=4)[0]:
        assert [token for token, _ in place] == [4, 9, 0, 1]
    everything = model.likeliest([sequence], k=10**6)[0][0]
    assert sorted(token for token, _ in everything) == list(range(model.tokenizer.size))
    assert sum(2**bits for _, bits in everything) == pytest.approx(1.0, abs=1e-5)


def test_what_cannot_be_listed_is_refused():
    model = random_model("gru")
    assert model.likeliest([], k=3) == []
    with pytest.raises(NotMeasurableError):
        model.likeliest([TokenSequence((), (1,))], k=3)
    with torch.no_grad():
        model._network.output.bias[0] = torch.nan
    with pytest.raises(ModelOutputError):
        model.likeliest([TokenSequence(model.context, (1,))], k=3)
