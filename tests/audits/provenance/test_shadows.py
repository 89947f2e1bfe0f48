"""Shadow models: halves of the reference users, recipes, the same bytes on every engine and after a kill, and reuse."""

import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audits.provenance.small_users import SMALL, files_below, small_users
from coalmine.audits.provenance.shadows import (
    MISMATCHED_SIZES,
    Recipe,
    halves,
    mismatched,
    recipe_like,
    recipe_of_preset,
    train_shadows,
)
from coalmine.engines.engine import open_engine
from coalmine.training.options import options_of
from coalmine.training.trainer import train_documents
from waiting import wait_until

USERS = small_users(6)
QUICK = {**SMALL, "epochs": 2}
# Long enough to be killed in the middle.
LONGER = {**SMALL, "epochs": 60}


@given(users=st.integers(4, 40), shadows=st.integers(1, 9), seed=st.integers(0, 5))
def test_halves_are_halves_and_every_user_is_in_half_of_the_shadows(users, shadows, seed):
    found = halves(users, shadows, seed=seed)
    assert found.shape == (users, shadows)
    assert set(found.sum(axis=0)) <= {users // 2, users - users // 2}
    assert set(found.sum(axis=1)) <= {shadows // 2, shadows - shadows // 2}
    assert np.array_equal(found, halves(users, shadows, seed=seed))


class TestRecipes:
    def test_that_of_a_model_is_its_own_with_its_words(self, tmp_path):
        train_documents(["a b", "b c"], out=tmp_path / "m", preset="provenance-words", **QUICK)
        recipe = recipe_like(tmp_path / "m")
        assert recipe.options == (options_of("provenance-words", QUICK),)
        assert recipe.tokenizer.words == ("a", "b", "c")
        assert recipe_like(tmp_path / "m", own_vocabulary=True).tokenizer is None
        other = mismatched(recipe)
        assert {one.architecture for one in other.options} == {"gru"}
        assert other.tokenizer.words == ("a", "b", "c")

    def test_mismatched_as_in_the_paper(self):
        found = mismatched(recipe_of_preset("provenance-translation")).options
        assert [one.hidden for one in found] == [one.embedding for one in found] == list(MISMATCHED_SIZES)
        assert MISMATCHED_SIZES == (64, 96, 128, 160, 192, 224, 256, 288, 320, 352)
        assert {(one.architecture, one.optimizer, one.epochs) for one in found} == {
            ("gru-attention", "momentum", 50)
        }
        dialog = mismatched(recipe_of_preset("provenance-dialog"))
        assert dialog.options[3].architecture == "gru-encoder-decoder"


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """Three shadows, trained here."""
    folder = tmp_path_factory.mktemp("here")
    return trained(folder), folder


def trained(folder, **arguments):
    recipe = Recipe((options_of("provenance-words", LONGER),))
    return train_shadows(USERS, halves(6, 3, seed=0), recipe, folder, **arguments)


def test_each_is_what_training_on_its_users_alone_gives(here, tmp_path):
    models, folder = here
    recipe = Recipe((options_of("provenance-words", LONGER),))
    for number, column in enumerate(halves(6, 3, seed=0).T):
        texts = [
            text.text for user, chosen in zip(USERS, column, strict=True) if chosen for text in user.texts
        ]
        seed = recipe.of_shadow(number, 0).seed
        alone = train_documents(
            texts, out=tmp_path / str(number), preset="provenance-words", **LONGER, seed=seed
        )
        assert files_below(alone.path) == files_below(models[number].path)
        assert models[number].path.parent == folder


def test_processes_give_the_same_bytes(here, tmp_path):
    with open_engine("processes:2") as engine:
        trained(tmp_path, engine=engine)
    assert files_below(tmp_path) == files_below(here[1])


def train_there():
    """In a child of the fork server."""
    trained(Path(sys.argv[1]), engine="processes:2", snapshot_seconds=0.0)


def test_what_was_killed_resumes_with_the_same_bytes(here, fork_server, tmp_path):
    child = fork_server.start([tmp_path / "out"], call="audits.provenance.test_shadows:train_there")
    wait_until(lambda: list((tmp_path / "out").glob("unfinished-*.npz")))
    os.kill(child.pid, signal.SIGKILL)
    fork_server.wait(child)
    assert (tmp_path / "out" / "unfinished.units").exists()
    trained(tmp_path / "out")
    assert files_below(tmp_path / "out") == files_below(here[1])
