"""Provenance audits end to end: who was trained on is found, with p-values that hold; on every engine, and with what each target shows."""

import math

import numpy as np
import pytest

from audits.provenance.small_users import SMALL, files_below, small_users
from coalmine import audit_provenance, fit_provenance, load_model
from coalmine.audits import AuditedUsers, User, read_provenance
from coalmine.audits.provenance.scores import STATISTICS, UserWork, ask_users
from coalmine.audits.provenance.views import look, view_of
from coalmine.engines.engine import open_engine
from coalmine.engines.ledger import Ledger
from coalmine.errors import InputError
from coalmine.progress import Silent
from coalmine.statistics import log_ratio, min_k_plus_plus, rmia_ratio, windowed_ratio
from coalmine.training.trainer import train_documents

EVERYONE = small_users(70, texts=5)
MEMBERS, STRANGERS, NON_MEMBERS, REFERENCE = EVERYONE[:6], EVERYONE[6:12], EVERYONE[12:52], EVERYONE[52:]
NAMES = [user.name for user in MEMBERS]
OPTIONS = {**SMALL, "epochs": 40}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model of the members, and shadow models of reference users with the same recipe."""
    folder = tmp_path_factory.mktemp("provenance")
    texts = [text.text for user in MEMBERS for text in user.texts]
    train_documents(texts, out=folder / "model", preset="provenance-words", **OPTIONS)
    fit = fit_provenance(REFERENCE, folder / "fit", like=folder / "model", shadows=2)
    return folder, load_model(folder / "model"), fit


@pytest.fixture(scope="module")
def users():
    return AuditedUsers([*MEMBERS, *STRANGERS], (), NON_MEMBERS, REFERENCE, NAMES)


@pytest.fixture(scope="module")
def audited(trained, users):
    _, model, fit = trained
    return audit_provenance(model, users, fit=fit, bins=10)


def test_members_are_found_and_strangers_are_not(audited):
    [question] = audited.questions
    # The scores show who it was, and no more: among so few suspects, half of whom were used, a style could have gone unnoticed.
    assert {row.decision for row in question.rows} == {"cannot be said"}
    found = {row.user for row in question.rows if row.adjusted_p_value <= 0.05}
    assert len(found & set(NAMES)) >= 5
    assert not found - set(NAMES)
    facts = {fact.name: fact.not_applicable for fact in question.statistics}
    assert list(facts) == [one.name for one in STATISTICS]
    assert {name for name, why in facts.items() if why is not None} == {"listed-share"}
    assert "ranks every token" in facts["listed-share"]
    ratio = next(one for one in question.statistics if one.name == "likelihood-ratio")
    assert ratio.detection.auc.value > 0.95
    assert ratio.found is None
    assert [check.effect for check in question.checks] == ["untested"]


def test_numbers_are_those_of_one_text_at_a_time(trained):
    _, model, fit = trained
    statistics = tuple(one.name for one in STATISTICS if one.name != "listed-share")
    work = UserWork(model, shadows=fit.shadows, shadow_sets=((0,), (0, 1)), statistics=statistics, bins=10)
    with open_engine("here") as engine:
        found = ask_users(work, STRANGERS, engine=engine, ledger=Ledger(None), progress=Silent())
    for place, user in enumerate(STRANGERS):
        own, shadows = [], [[] for _ in fit.shadows]
        for text in user.texts:
            own += look(model, view_of(model), [text])
            for said, shadow in zip(shadows, fit.shadows, strict=True):
                said.extend(look(shadow, view_of(shadow), [text]))
        mine = np.concatenate([view.log2_probabilities for view in own])
        theirs = np.stack([np.concatenate([view.log2_probabilities for view in said]) for said in shadows])
        assert found["tokens"][place] == len(mine)
        ratio = log_ratio(mine, theirs.mean(axis=0))
        assert math.isclose(found["likelihood-ratio"][place], ratio, abs_tol=1e-4)
        assert np.allclose(
            found["rmia"][place], [rmia_ratio(mine, theirs[:1]), rmia_ratio(mine, theirs)], atol=1e-4
        )
        windows = [
            windowed_ratio(
                own[text].log2_probabilities,
                np.mean([said[text].log2_probabilities for said in shadows], axis=0),
            )
            for text in range(len(own))
        ]
        assert math.isclose(found["windowed-ratio"][place], np.mean(windows), abs_tol=0.05)
        lowest = [min_k_plus_plus(view.log2_probabilities, view.means, view.deviations) for view in own]
        assert math.isclose(found["min-k++"][place], np.mean(lowest), rel_tol=1e-3, abs_tol=1e-3)
        ranks = np.concatenate([view.ranks for view in own])
        assert np.allclose(found["rank-histogram"][place], work.ranking(model).features(ranks))


def rmia_by_hand(mine, theirs, others, slack):
    """The share of others that a user is above, in probabilities; each comparison is with the shadows that were not trained on the other."""

    def ratio(target, shadows):
        means = [sum(2.0**bits for bits in column) / len(column) for column in zip(*shadows, strict=True)]
        return math.prod(
            (2.0**bits / mean) ** (1 / len(target)) for bits, mean in zip(target, means, strict=True)
        )

    hits = [
        ratio(mine, [theirs[place] for place in left])
        >= slack * ratio(target, [shadows[place] for place in left])
        for target, shadows, left in others
    ]
    return sum(hits) / len(hits)


@pytest.mark.parametrize("number", [2, 3])
def test_rmia_compares_each_pair_of_users_with_the_same_shadows(trained, users, number, tmp_path):
    folder, model, fit = trained
    if number > 2:
        fit = fit_provenance(REFERENCE, tmp_path, like=folder / "model", shadows=number)
    found = audit_provenance(model, users, fit=fit, bins=10, ablation_texts=0)

    def said(one, user):
        views = look(one, view_of(one), user.texts)
        return np.concatenate([view.log2_probabilities for view in views]).tolist()

    others = []
    for user, in_them in zip(REFERENCE, fit.trained_on, strict=True):
        left = [place for place in range(number) if not in_them[place]]
        if left:
            others.append((said(model, user), [said(one, user) for one in fit.shadows], left))
    # With three shadows, some reference users are left out of one of them and some of two.
    assert {len(left) for _, _, left in others} == set(range(1, number))
    for row, user in zip(found.questions[0].rows, users.suspects, strict=True):
        own = said(model, user), [said(one, user) for one in fit.shadows]
        # Rounding may turn a tie, and nothing else.
        least, most = (rmia_by_hand(*own, others, slack) for slack in (1.0001, 0.9999))
        assert least <= row.scores["rmia"] <= most <= least + 1 / len(others)


def test_the_same_bytes_from_processes_and_from_a_second_run(trained, users, tmp_path):
    _, model, fit = trained
    audit_provenance(model, users, fit=fit, bins=10, out=tmp_path / "here")
    with open_engine("processes:2") as engine:
        audit_provenance(model, users, fit=fit, bins=10, out=tmp_path / "two", engine=engine)
    assert files_below(tmp_path / "here") == files_below(tmp_path / "two")
    assert list(files_below(tmp_path / "here")) == ["provenance.json"]
    assert read_provenance(tmp_path / "here").questions[0].rows


def test_without_non_members_the_classifier_decides_and_of_a_list_only_what_it_shows(trained, users):
    _, model, fit = trained
    [alone] = audit_provenance(model, users._replace(non_members=()), fit=fit, bins=10).questions
    decides = alone.deciding
    assert (decides.name, decides.calibrated, decides.p_value) == ("rank-histogram", "shadows", None)
    assert decides.detection.recall.value > 0.5
    [question] = audit_provenance(model, users, fit=fit, bins=10, top=3).questions
    computed = [one.name for one in question.statistics if one.not_applicable is None]
    assert computed == ["rank-histogram", "listed-share"]
    for row, user in zip(question.rows, users.suspects, strict=True):
        ranks = np.concatenate([view.ranks for view in look(model, view_of(model), user.texts)])
        assert row.scores["listed-share"] == pytest.approx(float(np.mean(ranks < 3)))


def test_other_texts_are_compared_with_other_texts_of_non_members(trained, users):
    _, model, fit = trained
    again = small_users(70, texts=5, seed=9)
    others = [User(one.name, again[place].texts) for place, one in enumerate(EVERYONE[:32])]
    found = audit_provenance(
        model,
        users._replace(others=others, reference=()),
        reference_model=fit.shadows[0],
        ablation_texts=0,
    )
    texts, user = found.questions
    assert (texts.non_members, user.non_members) == (40, 20)
    assert len(user.rows) == len(texts.rows)
    assert user.blind.non_members == 20


def test_suspects_whom_shadows_were_trained_on_are_refused(trained, users, tmp_path):
    _, model, fit = trained
    mixed = users._replace(suspects=[*MEMBERS, *REFERENCE[:2]])
    with pytest.raises(InputError, match="2 of the 8 suspects are reference users too"):
        audit_provenance(model, mixed, fit=fit, bins=10, out=tmp_path / "out")
    with pytest.raises(InputError, match="the reference users are not those of the shadow models"):
        audit_provenance(model, mixed._replace(reference=()), fit=fit, bins=10)
    # Documents are called by their lines, which say nothing.
    assert audit_provenance(model, mixed, fit=fit, bins=10, by="document", ablation_texts=0).questions
