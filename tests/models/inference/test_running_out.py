"""Where memory runs out, batches are halved until they fit, with the same numbers and a note."""

import warnings

import numpy as np
import pytest
import torch

from coalmine.cli.runner import memory_of
from coalmine.engines.failures import run_unit
from coalmine.engines.units import Unit
from coalmine.errors import WorkerLostError
from coalmine.models import Sampling, TokenSequence, from_transformers, from_transformers_pairs
from coalmine.models.inference import memory
from models.tiny_pairs import tiny_pairs, unigram
from models.tiny_transformers import byte_level, tiny

GENERATOR = np.random.default_rng(0)
PREFIX = tuple(GENERATOR.integers(0, 700, 20).tolist())
TEXTS = [tuple(GENERATOR.integers(0, 700, 6).tolist()) for _ in range(16)]
SEQUENCES = [TokenSequence(PREFIX, text) for text in TEXTS]
ERRORS = {
    "cuda": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    "cpu": RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
    "python": MemoryError(),
}
ASKED = {
    "score": lambda model: np.concatenate([one.log2_probabilities for one in model.score(SEQUENCES)]),
    "step": lambda model: (
        model.step(
            model.start([PREFIX]).states, np.zeros(16, dtype=np.int64), np.arange(16)
        ).log2_probabilities
    ),
    "start": lambda model: model.start([PREFIX + text for text in TEXTS]).log2_probabilities,
    "follow": lambda model: np.array(
        [one.log2_probabilities for one in model.follow(SEQUENCES, samplings=[Sampling()])]
    ),
    "likeliest": lambda model: np.array(
        [
            value
            for one in model.likeliest(SEQUENCES, k=2)
            for place in one
            for pair in place
            for value in pair
        ]
    ),
    "generate": lambda model: np.array(model.generate([PREFIX + text for text in TEXTS], length=3)),
}


def small_model(tokens, error=ERRORS["cuda"]):
    """A real model on a machine with memory for so many tokens at a time."""
    network = tiny("llama", len(byte_level()))
    model = from_transformers(network, byte_level())
    assert model.network.sharing == "folded"

    def allocate(_, __, given):
        if given["input_ids"].numel() > tokens:
            raise error

    network.base_model.register_forward_pre_hook(allocate, with_kwargs=True)
    return model


@pytest.fixture(scope="module")
def whole():
    model = from_transformers(tiny("llama", len(byte_level())), byte_level())
    return {name: ask(model) for name, ask in ASKED.items()}


@pytest.mark.parametrize("asked", ASKED)
def test_batches_are_halved_and_the_numbers_are_the_same(asked, whole):
    # Greedy continuations read a whole text of 26 tokens at a time; the others read what it shares once, in pieces.
    model = small_model(27 if asked == "generate" else 10)
    described = model.describe()
    assert model.memory_note is None
    with pytest.warns(RuntimeWarning, match="because memory ran out"):
        found = ASKED[asked](model)
    assert found == pytest.approx(whole[asked], abs=1e-9)
    assert memory_of(model) == {"memory": [model.memory_note]}
    assert model.memory_note.startswith("batches were halved to ")
    # What was found out is not found out again, also in another context, and the model is still the same one.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = model.in_context(model.contexts.chosen)
        assert ASKED[asked](again) == pytest.approx(whole[asked], abs=1e-9)
    assert model.describe() == described


@pytest.mark.parametrize("name", ERRORS)
def test_all_that_says_so_is_memory_that_ran_out(name, whole):
    with pytest.warns(RuntimeWarning, match="halved"):
        assert ASKED["score"](small_model(10, ERRORS[name])) == pytest.approx(whole["score"], abs=1e-9)
    assert memory_of(small_model(10), None) == {}


def test_a_single_token_that_does_not_fit_is_one_sentence():
    model = small_model(0)
    with (
        pytest.warns(RuntimeWarning),
        pytest.raises(WorkerLostError, match="not enough memory to read 1 tokens at a time"),
    ):
        model.score(SEQUENCES)
    assert "halved to 1 tokens" in model.memory_note


def test_other_errors_are_raised_as_they_are():
    with pytest.raises(RuntimeError, match="a bug"):
        ASKED["score"](small_model(10, RuntimeError("a bug")))


def test_pairs():
    tokenizer = unigram()
    network = tiny_pairs("t5", len(tokenizer))
    model = from_transformers_pairs(network, tokenizer)
    sequences = [
        TokenSequence(model.context, text[:4], (5, 6, 7 + place)) for place, text in enumerate(TEXTS)
    ]
    sequences = [one._replace(target=tuple(token % 300 for token in one.target)) for one in sequences]
    whole = [one.log_perplexity_bits for one in model.score(sequences)]

    def allocate(_, __, given):
        if given["decoder_input_ids"].numel() > 30:
            raise ERRORS["cuda"]

    network.register_forward_pre_hook(allocate, with_kwargs=True)
    with pytest.warns(RuntimeWarning, match="halved"):
        assert [one.log_perplexity_bits for one in model.score(sequences)] == pytest.approx(whole, abs=1e-9)
    assert model.memory_note is not None


def test_a_unit_that_runs_out_of_an_accelerators_memory_is_lost():
    def run(*_):
        raise ERRORS["cuda"]

    with pytest.raises(WorkerLostError, match="more memory than there is"):
        run_unit(run, Unit("one"), None)


def test_an_accelerator_gets_larger_batches_by_the_memory_it_has(monkeypatch):
    gigabytes = {0: 2, 1: 24, 2: 80}
    monkeypatch.setattr(
        torch.cuda,
        "get_device_properties",
        lambda device: type("Properties", (), {"total_memory": gigabytes[device.index] << 30}),
    )
    assert [memory.times_the_budget(torch.device("cuda", place)) for place in gigabytes] == [1, 6, 20]
    assert memory.times_the_budget(torch.device("cpu")) == 1
