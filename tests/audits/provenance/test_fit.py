"""Fits: halves of the reference users, recipes, the same bytes on every engine and after a kill, and the classifier of ranks."""

import os
import signal
import stat
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audits.provenance.small_users import SMALL, files_below, saved_model, small_users
from coalmine import audit_provenance, fit_provenance, load_model
from coalmine.audits import AuditedUsers, FitOptions, ProvenanceOptions, load_fit, read_runs
from coalmine.audits.provenance.fit import (
    fit_classifier,
    halves,
    recipe_of,
    train_shadows,
)
from coalmine.audits.provenance.views import look, view_of
from coalmine.audits.provenance.words import with_chosen_texts
from coalmine.engines.engine import open_engine
from coalmine.errors import InputError
from coalmine.statistics import RankHistogram
from coalmine.training.record import read_training
from coalmine.training.trainer import train_documents
from waiting import wait_until

USERS = small_users(8)
FIT = {"shadows": 4, "training": SMALL}
# Long enough to be killed in the middle.
LONGER = recipe_of(FitOptions(shadows=3), training={**SMALL, "epochs": 60})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit")
    return fit_provenance(USERS, folder, **FIT), folder


@given(users=st.integers(4, 40), shadows=st.integers(1, 9), seed=st.integers(0, 5))
def test_halves_are_halves_and_every_user_is_in_half_of_the_shadows(users, shadows, seed):
    found = halves(users, shadows, seed=seed)
    assert found.shape == (users, shadows)
    assert set(found.sum(axis=0)) <= {users // 2, users - users // 2}
    assert set(found.sum(axis=1)) <= {shadows // 2, shadows - shadows // 2}
    assert np.array_equal(found, halves(users, shadows, seed=seed))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Three shadows, trained here."""
    folder = tmp_path_factory.mktemp("here")
    return train_shadows(USERS, halves(8, 3, seed=0), LONGER, folder), folder


def test_each_is_what_training_on_its_users_alone_gives(trained, tmp_path):
    models, folder = trained
    for number, column in enumerate(halves(8, 3, seed=0).T):
        texts = [text.text for user, is_in in zip(USERS, column, strict=True) if is_in for text in user.texts]
        options = {**SMALL, "epochs": 60, "seed": LONGER.options[number].seed}
        alone = train_documents(texts, out=tmp_path / str(number), preset="provenance-words", **options)
        assert files_below(alone.path) == files_below(models[number].path)
        assert models[number].path.parent == folder


def train_there():
    """In a child of the fork server."""
    options = {"engine": "processes:2", "snapshot_seconds": 0.0}
    train_shadows(USERS, halves(8, 3, seed=0), LONGER, Path(sys.argv[1]), **options)


def test_what_was_killed_resumes_with_the_same_bytes(trained, fork_server, tmp_path):
    out = tmp_path / "out"
    child = fork_server.start([out], call="audits.provenance.test_fit:train_there")
    wait_until(lambda: list(out.glob("unfinished-*.npz")))
    os.kill(child.pid, signal.SIGKILL)
    fork_server.wait(child)
    assert (out / "unfinished.units").exists()
    train_shadows(USERS, halves(8, 3, seed=0), LONGER, out)
    assert files_below(out) == files_below(trained[1])


@pytest.mark.parametrize("queries", [None, 2])
def test_scores_are_those_of_a_classifier_of_ranks_that_are_counted_by_hand(made, queries):
    fit, folder = made
    options = ProvenanceOptions(bins=8, queries=queries, selection="random")
    histogram = RankHistogram(vocabulary=fit.shadows[0].tokenizer.size, bins=8)

    def by_hand(model, user):
        texts = with_chosen_texts(user, options, str.split, len).texts
        views = [look(model, view_of(model), [text])[0] for text in texts]  # one text at a time
        return histogram.features(np.concatenate([view.ranks for view in views]))

    models = [load_model(folder / "shadows" / name) for name in fit.record.shadows]
    features = np.array([by_hand(model, user) for model in models for user in USERS])
    labels = np.array([place in users for users in fit.record.shadows.values() for place in range(8)])
    expected = fit_classifier(features, labels)
    # The small models remember whom they were trained on.
    assert queries or ((expected.score(features) > 0) == labels).mean() > 0.8
    suspects = [user._replace(name=f"suspect {user.name}") for user in small_users(4, seed=1)]
    found = audit_provenance(models[0], AuditedUsers(suspects, reference=USERS), options, fit=fit)
    scores = expected.score([by_hand(models[0], user) for user in suspects])
    assert [row.scores["rank-histogram"] for row in found.questions[0].rows] == pytest.approx(scores)


def test_the_same_files_from_processes_and_from_a_second_call(made, tmp_path):
    _, folder = made
    before = files_below(folder)
    with open_engine("processes:2") as engine:
        fit_provenance(USERS, tmp_path, **FIT, engine=engine)
    assert files_below(tmp_path) == before
    fit_provenance(USERS, folder, **FIT)
    assert files_below(folder) == before
    assert not [name for name in before if "unfinished" in name]
    for users, options in ((USERS[:7], FIT), (USERS, {**FIT, "training": {**SMALL, "epochs": 1}})):
        with pytest.raises(InputError, match="already holds shadow models of other reference users"):
            fit_provenance(users, folder, **options)


def test_a_fit_that_was_written_is_the_same_when_it_is_read_and_names_nobody(made):
    fit, folder = made
    read = load_fit(folder)
    assert read.record == fit.record
    assert [model.describe() for model in read.shadows] == [model.describe() for model in fit.shadows]
    assert read.trained_on.sum(axis=1).tolist() == [2] * 8
    assert read.made_with(USERS)
    assert not read.made_with(USERS[::-1])
    content = (folder / "provenance-fit.json").read_bytes()
    assert b"user 3" not in content
    assert not any(text.text.encode() in content for user in USERS for text in user.texts)
    assert stat.S_IMODE((folder / "provenance-fit.json").stat().st_mode) == 0o600
    # Reports take shadows for no models of their own.
    [run] = read_runs(folder)
    assert [len(these) for these in run.documents.values() if these] == [1]


def test_shadows_of_a_private_target_have_its_words_and_privacy_and_noise_of_their_own(tmp_path):
    private = {"dp_noise": 0.5, "dp_unit": "user", "dp_delta": 1e-4, "dp_seed": 5}
    texts = [(user.name, text.text) for user in small_users(10, seed=9) for text in user.texts]
    names, documents = zip(*texts, strict=True)
    options = {"preset": "provenance-words", **SMALL, **private, "batch_size": 10, "epochs": 4}
    target = train_documents(documents, users=names, out=tmp_path / "target", **options)
    fit, again = (
        fit_provenance(USERS, tmp_path / name, like=target.path, shadows=2) for name in ("fit", "again")
    )
    checks = {target.record.options.private.seed_check}
    for name in fit.record.shadows:
        record = read_training(tmp_path / "fit" / "shadows" / name)
        claim = record.privacy
        assert (claim.unit, claim.units, claim.noise_multiplier, claim.steps) == ("user", 4, 0.5, 4)
        checks.add(record.options.private.seed_check)
    assert len(checks) == 3
    words = load_model(target.path).tokenizer.words
    assert {model.tokenizer.words for model in fit.shadows} == {words}
    # The noise follows from the seed, so the same fit elsewhere is the same.
    weights = [[model.describe()["weights_sha256"] for model in one.shadows] for one in (fit, again)]
    assert weights[0] == weights[1]


def test_a_function_of_one_s_own_saves_models_where_it_is_told_and_resumes(tmp_path):
    calls = []

    def train(documents, directory):
        calls.append(len(documents))
        if len(calls) == 2:
            (directory / "half").write_text("of a model")
            raise KeyboardInterrupt
        saved_model(documents, directory)

    with pytest.raises(KeyboardInterrupt):
        fit_provenance(USERS, tmp_path / "fit", shadows=2, train=train)
    for _ in range(2):
        fit_provenance(USERS, tmp_path / "fit", shadows=2, train=train)
    read = load_fit(tmp_path / "fit")
    assert calls == [24, 24, 24]
    assert list(read.record.shadows) == ["own-1", "own-2"]


def examples(number, width, seed=0):
    drawn = np.random.default_rng(seed)
    labels = np.arange(number) % 2 == 0
    features = drawn.dirichlet(np.ones(width), size=number)
    features[labels, 0] += 0.2
    return features, labels


def test_scores_are_those_of_a_pipeline_of_scikit_learn():
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import LinearSVC

    features, labels = examples(400, 20)
    features[:, 3] = 0.25  # an empty bin
    pipeline = make_pipeline(StandardScaler(), LinearSVC(dual=False)).fit(features, labels)
    found = fit_classifier(features, labels)
    fresh, _ = examples(50, 20, seed=1)
    assert found.score(fresh) == pytest.approx(pipeline.decision_function(fresh), abs=1e-9)
    assert found.scale[3] == 1.0
