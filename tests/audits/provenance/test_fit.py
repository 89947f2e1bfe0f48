"""Fits: the audit classifier, shadows and hashes in a directory, the same from every engine, reused, and refused where it is another."""

import stat

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audits.provenance import own_trainers
from audits.provenance.small_users import SMALL, files_below, small_users
from cli import in_process
from coalmine import fit_provenance, load_model
from coalmine.audits import User, UserText, load_fit, read_runs
from coalmine.audits.provenance.fit import fit_classifier
from coalmine.audits.provenance.views import look, view_of
from coalmine.engines.engine import open_engine
from coalmine.errors import InputError
from coalmine.statistics import RankHistogram
from coalmine.training.trainer import train_documents

USERS = small_users(8)
FIT = {"shadows": 4, "training": SMALL, "bins": 8}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit")
    return fit_provenance(USERS, folder, **FIT), folder


def ranks_by_hand(model, user):
    """One text at a time."""
    views = [look(model, view_of(model), [text])[0] for text in user.texts]
    return np.concatenate([view.ranks for view in views if view is not None])


def test_the_classifier_is_that_of_ranks_that_are_counted_by_hand(made):
    fit, folder = made
    features, labels = [], []
    for shadow in fit.record.shadows:
        model = load_model(folder / shadow.location)
        for place, user in enumerate(USERS):
            histogram = RankHistogram(vocabulary=model.tokenizer.size, bins=8)
            features.append(histogram.features(ranks_by_hand(model, user)))
            labels.append(place in shadow.users)
    expected = fit_classifier(np.array(features), labels)
    assert fit.record.classifier == expected
    # The small models remember whom they were trained on.
    decided = expected.score(np.array(features)) > 0
    assert (decided == np.array(labels)).mean() > 0.8


def test_the_same_files_from_processes_and_from_a_second_call(made, tmp_path):
    _, folder = made
    before = files_below(folder)
    with open_engine("processes:2") as engine:
        fit_provenance(USERS, tmp_path, **FIT, engine=engine)
    assert files_below(tmp_path) == before
    fit_provenance(USERS, folder, **FIT)
    assert files_below(folder) == before
    assert not [name for name in before if "unfinished" in name]


def test_a_fit_that_was_written_is_the_same_when_it_is_read(made):
    fit, folder = made
    read = load_fit(folder)
    assert read.record == fit.record
    assert [model.describe() for model in read.shadows] == [model.describe() for model in fit.shadows]
    table = read.trained_on([*USERS, User("a stranger", (UserText("w1"),))])
    assert table.shape == (9, 4)
    assert table[:8].sum(axis=1).tolist() == [2] * 8
    assert not table[8].any()
    for number, shadow in enumerate(read.record.shadows):
        assert tuple(np.flatnonzero(table[:, number])) == shadow.users


def test_names_and_texts_are_not_in_it_and_only_its_owner_can_read_it(made):
    _, folder = made
    content = (folder / "provenance-fit.json").read_bytes()
    assert b"user 3" not in content
    assert not any(text.text.encode() in content for user in USERS for text in user.texts)
    for name in ("provenance-fit.json", "ranks-1.npz", "ranks-4.npz"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600


def test_a_model_that_replaces_another_is_refused(made, tmp_path):
    _, folder = made
    place = folder / made[0].record.shadows[0].location
    with pytest.raises(InputError, match="put two shadow models in one place"):
        fit_provenance(USERS, tmp_path / "fit", train=lambda _: place, shadows=2)
    assert not list((tmp_path / "fit").glob("ranks-*"))


def test_classifiers_for_what_a_target_shows(made):
    fit, _ = made
    size = fit.shadows[0].tokenizer.size
    whole, why = fit.classifier_for(RankHistogram(vocabulary=size, bins=8))
    assert whole == fit.record.classifier
    assert not why
    few, _ = fit.classifier_for(RankHistogram(vocabulary=size, bins=8, top=3))
    assert few.width == 4
    unknown_size, _ = fit.classifier_for(RankHistogram(vocabulary=3, bins=8, top=3))
    assert unknown_size == few
    none, why = fit.classifier_for(RankHistogram(vocabulary=5000, bins=8, top=1000))
    assert none is None
    assert "rank fewer tokens than the target lists" in why
    none, why = fit.classifier_for(RankHistogram(vocabulary=4, bins=8))
    assert none is None
    assert "smaller than the number of bins" in why


def test_a_classifier_for_a_few_queries_sees_those_texts_only(made):
    fit, folder = made
    histogram = RankHistogram(vocabulary=fit.shadows[0].tokenizer.size, bins=8)
    places = [[1, 4]] * 8
    found, _ = fit.classifier_for(histogram, places)
    features, labels = [], []
    for shadow in fit.record.shadows:
        model = load_model(folder / shadow.location)
        own = msgspec.structs.replace(histogram, vocabulary=model.tokenizer.size)
        for place, user in enumerate(USERS):
            asked = user._replace(texts=(user.texts[1], user.texts[4]))
            features.append(own.features(ranks_by_hand(model, asked)))
            labels.append(place in shadow.users)
    assert found == fit_classifier(np.array(features), labels)


def test_the_target_s_own_recipe_and_words(tmp_path):
    options = {**SMALL, "epochs": 2}
    texts = [text.text for user in small_users(4, seed=9) for text in user.texts]
    train_documents(texts, out=tmp_path / "target", preset="provenance-words", **options)
    fit = fit_provenance(USERS, tmp_path / "fit", like=tmp_path / "target", shadows=2, bins=4)
    target = load_model(tmp_path / "target")
    assert {model.tokenizer.words for model in fit.shadows} == {target.tokenizer.words}
    assert fit.record.shadows[0].options.epochs == 2
    other = fit_provenance(
        USERS,
        tmp_path / "other",
        like=tmp_path / "target",
        shadows=2,
        recipe="mismatched",
        vocabulary="own",
        training={"epochs": 1, "hidden": [8, 12], "embedding": 8},
    )
    assert [shadow.options.hidden for shadow in other.record.shadows] == [8, 12]
    assert {shadow.options.architecture for shadow in other.record.shadows} == {"gru"}


def test_shadows_elsewhere_are_shared(made, tmp_path):
    _, folder = made
    fit = fit_provenance(USERS, tmp_path / "fit", **{**FIT, "bins": 4}, shadows_at=folder / "shadows")
    assert not (tmp_path / "fit" / "shadows").exists()
    assert len(fit.shadows) == 4
    assert load_fit(tmp_path / "fit").shadows[0].describe() == fit.shadows[0].describe()


class TestOwnTraining:
    def test_a_live_model_is_asked_but_not_kept(self, tmp_path):
        own_trainers.CALLS.clear()
        fit = fit_provenance(USERS, tmp_path, shadows=2, bins=4, train=own_trainers.live_model)
        assert own_trainers.CALLS == [24, 24]
        assert fit.record.trained_by == "python:audits.provenance.own_trainers:live_model"
        assert len(fit.shadows) == 2
        read = load_fit(tmp_path)
        assert read.shadows == ()
        assert "did not save them" in read.no_shadows
        assert read.classifier_for(RankHistogram(vocabulary=40, bins=4))[0] is not None
        fit_provenance(USERS, tmp_path, shadows=2, bins=4, train=own_trainers.live_model)
        assert own_trainers.CALLS == [24, 24]  # their ranks are there

    def test_a_location_is_kept(self, tmp_path):
        own_trainers.CALLS.clear()
        name = f"python:audits.provenance.own_trainers:saved_model:{tmp_path / 'models'}"
        fit_provenance(USERS, tmp_path / "fit", shadows=2, bins=4, train=name)
        read = load_fit(tmp_path / "fit")
        assert [shadow.location for shadow in read.record.shadows] == [
            str(tmp_path / "models" / f"model{number}") for number in (1, 2)
        ]
        assert len(read.shadows) == 2


class TestWrongInput:
    def test_another_fit_is_refused(self, made):
        _, folder = made
        with pytest.raises(InputError, match="already holds shadow models of other reference users"):
            fit_provenance(USERS[:7], folder, **FIT)
        with pytest.raises(InputError, match="already holds shadow models of other reference users"):
            fit_provenance(USERS, folder, **{**FIT, "training": {**SMALL, "epochs": 1}})


def test_reports_take_shadows_for_no_models_of_their_own_while_they_are_trained(tmp_path):
    def stopped(documents):
        train_documents(
            [document.text for document in documents],
            out=tmp_path / "fit" / "shadows" / "one",
            **{**SMALL, "epochs": 1},
        )
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_provenance(USERS, tmp_path / "fit", shadows=2, bins=4, train=stopped)
    assert (tmp_path / "fit" / "shadows" / "one" / "training.json").exists()
    with pytest.raises(InputError, match="no result was found"):
        read_runs(tmp_path / "fit")
    fit_provenance(USERS, tmp_path / "fit", shadows=2, bins=4, training={**SMALL, "epochs": 1})
    [run] = read_runs(tmp_path / "fit")
    assert [len(these) for these in run.documents.values() if these] == [1]
    told = in_process.run("verify", tmp_path / "fit")
    assert told.code == 0, told.said


def test_a_shadow_whose_training_diverges_is_left_out_and_said_so(tmp_path):
    training = {**SMALL, "optimizer": "sgd", "clip": 0.0, "learning_rate": [0.1, 1e30]}
    fit = fit_provenance(USERS, tmp_path, shadows=2, training=training, bins=8)
    assert len(fit.shadows) == len(fit.record.shadows) == 1
    (reason,) = fit.record.left_out
    assert reason.startswith("shadow 2: ")
    assert "diverged" in reason
    assert fit.record.warnings[0] == f"a shadow model is left out: {reason}"
    assert load_fit(tmp_path).trained_on(USERS).shape == (len(USERS), 1)


def examples(number, width, seed=0):
    drawn = np.random.default_rng(seed)
    labels = np.arange(number) % 2 == 0
    features = drawn.dirichlet(np.ones(width), size=number)
    features[labels, 0] += 0.2
    return features, labels


@pytest.mark.parametrize("number", [12, 400])
def test_scores_are_those_of_a_pipeline_of_scikit_learn(number):
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import LinearSVC

    features, labels = examples(number, 20)
    features[:, 3] = 0.25  # an empty bin
    pipeline = make_pipeline(StandardScaler(), LinearSVC(dual=False)).fit(features, labels)
    found = fit_classifier(features, labels)
    fresh, _ = examples(50, 20, seed=1)
    assert found.score(fresh) == pytest.approx(pipeline.decision_function(fresh), abs=1e-9)
    assert (found.examples, found.members, found.converged) == (number, number // 2, True)
    assert found.scale[3] == 1.0


@settings(max_examples=20)
@given(rows=st.integers(1, 9), place=st.integers(0, 8))
def test_the_score_of_a_user_does_not_depend_on_the_others(rows, place):
    features, labels = examples(40, 33)
    found = fit_classifier(features, labels)
    some = features[:rows]
    one = min(place, rows - 1)
    assert found.score(some)[one] == found.score(some[one : one + 1])[0]
