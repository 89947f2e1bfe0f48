"""Objects in parts: what comes back is the same, and models score with weights in memory that cannot be written to."""

import numpy as np
import pytest
import torch

from coalmine.engines.sending import from_parts, in_parts
from coalmine.engines.units import Unit
from engines.works import Scoring
from models.random_networks import ARCHITECTURES, random_model

TEXTS = ("my pin is 4921", "a", "the quick brown fox")


def sent(value):
    """There and back, with buffers as they come out of a store of objects: read-only."""
    content, buffers = in_parts(value)
    return from_parts((content, [np.frombuffer(bytes(buffer), dtype=np.uint8) for buffer in buffers]))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6).reshape(2, 3).T,
        torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        torch.tensor(True),
        torch.empty(0, 3),
        torch.ones(3, requires_grad=True),
        torch.eye(3).to_sparse(),
        torch.nn.Parameter(torch.ones(2, 2), requires_grad=False),
    ],
)
def test_tensors_of_all_kinds_are_the_same(tensor):
    again = sent(tensor)
    assert (type(again), again.dtype, again.shape) == (type(tensor), tensor.dtype, tensor.shape)
    assert (again.requires_grad, again.layout) == (tensor.requires_grad, tensor.layout)
    assert torch.equal(again.to_dense(), tensor.to_dense())


def test_arrays_are_the_same_and_nothing_is_pickled_twice():
    shared, weight = np.arange(1_000_000.0), torch.ones(1_000_000)
    value = {"a": shared, "b": [shared], "c": weight, "d": (weight,)}
    content, buffers = in_parts(value)
    assert len(content) < 2_000
    assert sum(buffer.nbytes for buffer in buffers) == 12_000_000
    again = sent(value)
    assert again["a"] is again["b"][0]
    assert again["c"] is again["d"][0]
    assert np.array_equal(again["a"], shared)
    assert not again["a"].flags.writeable


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_models_score_with_weights_that_cannot_be_written_to(architecture):
    work = Scoring(random_model(architecture))
    here, there = (one.prepare()(Unit(TEXTS), None)["bits"] for one in (work, sent(work)))
    assert here.tobytes() == there.tobytes()


@pytest.mark.parametrize("kind", ["gpt2", "llama", "mamba"])
def test_transformers_score_with_weights_that_cannot_be_written_to(kind):
    from coalmine.models import from_transformers
    from models.tiny_transformers import byte_level, tiny

    tokenizer = byte_level()
    work = Scoring(from_transformers(tiny(kind, len(tokenizer)), tokenizer))
    here, there = (one.prepare()(Unit(TEXTS), None)["bits"] for one in (work, sent(work)))
    assert here.tobytes() == there.tobytes()
