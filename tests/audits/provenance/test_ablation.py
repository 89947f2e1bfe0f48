"""Ablation: predictions with hidden units at zero are those of a network whose weights are zero, and audits draw them for both groups."""

import copy

import numpy as np
import pytest
import torch

from audits.provenance.small_users import SMALL, small_users
from coalmine import ScriptedModel, audit_provenance, load_model
from coalmine.audits import AuditedUsers
from coalmine.audits.provenance.ablation import SHARES, ablation_curve
from coalmine.audits.provenance.asking import FrequencyRanks
from coalmine.audits.provenance.views import look, readable, view_of
from coalmine.engines.engine import open_engine
from coalmine.errors import InputError, NotMeasurableError
from coalmine.models import AblatedScorer
from coalmine.randomness import arrays
from coalmine.training.trainer import train_documents

USERS = small_users(10, texts=4, pairs=True)
MEMBERS, STRANGERS = USERS[:4], USERS[4:]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ablation")
    texts = [text for user in MEMBERS for text in user.texts]
    options = {**SMALL, "epochs": 40}
    train_documents([text.text for text in texts], out=folder / "words", preset="provenance-words", **options)
    pairs = {"sources": [text.source for text in texts], "preset": "provenance-dialog"}
    train_documents([text.text for text in texts], out=folder / "pairs", **pairs, **{**options, "epochs": 5})
    return {name: load_model(folder / name) for name in ("words", "pairs")}


def frequencies_of(model):
    return FrequencyRanks(np.linspace(0, 1, model.tokenizer.size, endpoint=False))


def with_zero_weights(model, units):
    """The same model, whose last layer has no weights for these units: what they say is not heard."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.network.output.weight[:, units] = 0.0
    return other


@pytest.mark.parametrize("name", ["words", "pairs"])
def test_predictions_are_those_of_a_network_without_these_weights(models, name):
    model = models[name]
    assert isinstance(model, AblatedScorer)
    assert model.hidden_units == SMALL["hidden"]
    texts = [text for user in MEMBERS for text in user.texts]
    sequences = [sequence for _, sequence, _ in readable(model, texts)]
    sets = [[], [3, 0, 7], list(range(12)), list(range(16))]
    found = model.predicts_without(sequences, sets)
    changed = False
    for place, units in enumerate(sets):
        scores = with_zero_weights(model, units).score(sequences)
        for one, score in zip(found, scores, strict=True):
            assert one[place].tolist() == score.is_argmax.tolist()
            changed |= one[place].tolist() != one[0].tolist()
    assert changed
    # One text alone goes another way in a model of pairs, which then holds its source fixed.
    for sequence, one in zip(sequences[:2], found, strict=False):
        assert model.predicts_without([sequence], sets)[0].tolist() == one.tolist()


def test_a_curve_counts_the_words_that_are_still_predicted(models):
    model = models["words"]
    texts = [text for user in MEMBERS for text in user.texts]
    frequencies = frequencies_of(model)
    curve = ablation_curve(model, texts, frequencies, seed=3)
    assert [point.ablated for point in curve] == list(SHARES)
    order = arrays(3, "provenance", "ablation").permutation(16)
    for point in curve:
        silent = with_zero_weights(model, order[: round(point.ablated * 16)].tolist())
        views = look(silent, view_of(silent), texts)
        hits = np.concatenate([view.ranks == 0 for view in views])
        rare = frequencies.shares[np.concatenate([view.tokens for view in views])] >= 0.1
        assert point.frequent == pytest.approx(hits[~rare].mean())
        assert point.rare == pytest.approx(hits[rare].mean())
    assert curve[0].rare > curve[-1].rare + 0.2
    assert curve[0].non_members_rare is None


def test_an_audit_draws_the_curves_of_suspects_and_of_non_members(models, tmp_path):
    model, users = models["words"], AuditedUsers(MEMBERS, non_members=STRANGERS)
    found = audit_provenance(model, users, out=tmp_path / "here", ablation_texts=10)
    assert [point.ablated for point in found.ablation] == list(SHARES)
    assert found.ablation[0].rare > found.ablation[0].non_members_rare + 0.2
    with open_engine("processes:2") as engine:
        audit_provenance(model, users, out=tmp_path / "two", ablation_texts=10, engine=engine)
    two, here = (tmp_path / name / "provenance.json" for name in ("two", "here"))
    assert two.read_bytes() == here.read_bytes()
    assert audit_provenance(model, users, ablation_texts=0).ablation == ()
    assert audit_provenance(model, users, top=3).ablation == ()
    assert audit_provenance(model, users._replace(non_members=())).ablation[0].non_members_rare is None


def test_a_model_without_hidden_units_has_no_curve():
    model = ScriptedModel("ab ")
    with pytest.raises(NotMeasurableError, match="scripted has no last hidden layer"):
        ablation_curve(model, MEMBERS[0].texts, frequencies_of(model))


def test_units_that_there_are_not_are_refused(models):
    model = models["words"]
    [(_, sequence, _)] = readable(model, MEMBERS[0].texts[:1])
    with pytest.raises(InputError, match="numbered from 0 to 15, got 3 to 16"):
        model.predicts_without([sequence], [[3, 16]])
