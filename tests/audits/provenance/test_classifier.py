"""The audit classifier: scikit-learn's own numbers, kept as JSON, and a clear error for what it cannot be fitted to."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine.audits.provenance.classifier import AuditClassifier, fit_classifier
from coalmine.errors import InputError, NotMeasurableError


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


def test_the_same_numbers_give_the_same_bytes_and_survive_json():
    features, labels = examples(60, 10)
    found = fit_classifier(features, labels)
    assert found == fit_classifier(features.copy(), labels.tolist())
    again = msgspec.json.decode(msgspec.json.encode(found), type=AuditClassifier)
    assert again == found
    assert np.array_equal(again.score(features), found.score(features))


@settings(max_examples=20)
@given(rows=st.integers(1, 9), place=st.integers(0, 8))
def test_the_score_of_a_user_does_not_depend_on_the_others(rows, place):
    features, labels = examples(40, 33)
    found = fit_classifier(features, labels)
    some = features[:rows]
    one = min(place, rows - 1)
    assert found.score(some)[one] == found.score(some[one : one + 1])[0]


def test_what_it_cannot_be_fitted_to():
    features, _ = examples(8, 4)
    with pytest.raises(NotMeasurableError, match="8 of one kind only"):
        fit_classifier(features, [True] * 8)
    found = fit_classifier(features, [True, False] * 4)
    with pytest.raises(InputError, match="takes 4 features"):
        found.score(features[:, :3])
    with pytest.raises(InputError, match="takes 4 features"):
        found.score(features[0])
