"""Models that are loaded again from where they were: another machine that has the same files gets the same weights, to the last bit."""

import pickle

import pytest

from coalmine.engines.sending import in_parts
from coalmine.models import Context, ScriptedModel, load_model
from coalmine.models.protocols import loads_of
from coalmine.models.reference.pair_networks import PAIR_NETWORKS
from models.local_models import save_adapter, save_checkpoint, save_reference_models


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    save_reference_models(root)
    save_adapter(root / "adapter", save_checkpoint(root / "causal"))
    return root


def weights_of(value):
    return {buffer.tobytes() for buffer in in_parts(value).buffers}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["reference-lstm", "reference-transformer", "causal", "adapter"])
def test_the_weights_are_those_of_the_model_in_any_context(saved, name, precision, monkeypatch):
    monkeypatch.chdir(saved)
    model = load_model(name, precision=precision)
    monkeypatch.chdir("/")  # as a worker, which is somewhere else
    for one in (model, model.in_context(Context("bos", (3,), "another token"))):
        [load] = pickle.loads(pickle.dumps(loads_of(one)))
        assert weights_of(one) <= weights_of(load())


def test_a_model_of_pairs_with_its_source_held_fixed(saved):
    pairs = load_model(saved / f"reference-{min(PAIR_NETWORKS)}")
    [load] = loads_of(pairs.given("4921"))
    assert weights_of(pairs) <= weights_of(load())


def test_a_live_model_is_not_loaded_again():
    assert loads_of(ScriptedModel("ab")) == ()
