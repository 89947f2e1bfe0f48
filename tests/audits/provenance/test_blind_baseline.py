"""The blind baseline: against a plain cross-validation, silent at its level on random splits, and loud on other dates or topics."""

import random

import numpy as np
import pytest
from scipy.stats import binom

from audits.provenance.small_users import divided
from coalmine.audits import User, UserText
from coalmine.audits.provenance.blind_baseline import (
    PENALTY,
    _areas,
    _corrected,
    _folds,
    _kernel,
    _orders,
    blind_baseline,
)
from coalmine.corpus import embedded_documents
from coalmine.randomness import arrays


def plain_area(values, labels, folds):
    """Cross-validation by the book: weights and an intercept from the normal equations, and every pair of a fold compared."""
    centered = values - values.mean(axis=0)
    scaled = centered / np.sqrt((centered**2).sum() / len(values))
    wins = pairs = 0.0
    for members in folds:
        others = [row for row in range(len(labels)) if row not in set(members.tolist())]
        design = np.column_stack([scaled[others], np.ones(len(others))])
        penalty = PENALTY * np.eye(design.shape[1])
        penalty[-1, -1] = 0.0
        weights = np.linalg.solve(design.T @ design + penalty, design.T @ labels[others])
        scores = {row: round(float(np.append(scaled[row], 1.0) @ weights), 9) for row in members.tolist()}
        for one, score in scores.items():
            for other, beaten in scores.items():
                if labels[one] > 0 > labels[other]:
                    wins += (score > beaten) + (score == beaten) / 2
                    pairs += 1
    return wins / pairs


@pytest.mark.parametrize(("suspects", "non_members"), [(7, 5), (22, 25)])
def test_areas_are_those_of_a_plain_cross_validation(suspects, non_members):
    chance = arrays(0, "test", suspects)
    labels = np.repeat([1.0, -1.0], [suspects, non_members])
    values = chance.normal(size=(len(labels), 6)) + 0.3 * (labels[:, None] > 0)
    folds = _folds(labels, seed=3)
    assert sorted(np.concatenate(folds).tolist()) == list(range(len(labels)))
    tried = _orders(labels, folds, 8, seed=3)
    for members in folds:
        # Each fold keeps its numbers of suspects and of non-members.
        assert len(set((tried[members] > 0).sum(axis=0).tolist())) == 1
    found = _areas(_kernel(values), folds, tried)
    expected = [plain_area(values, tried[:, order], folds) for order in range(8)]
    assert found == pytest.approx(expected, abs=1e-9)


def test_p_values_are_corrected_as_a_loop_would():
    areas = np.round(arrays(1, "test", "areas").normal(size=(3, 40)), 1)  # with ties
    areas[2] = 0.5
    orders = range(areas.shape[1])
    standard = []
    for row in areas.tolist():
        mean = sum(row) / len(row)
        spread = (sum((one - mean) ** 2 for one in row) / len(row)) ** 0.5
        standard.append([(one - mean) / spread if spread else 0.0 for one in row])
    expected = [
        sum(any(other[order] >= row[0] - 1e-9 for other in standard) for order in orders) / len(orders)
        for row in standard
    ]
    found, (imagined,) = _corrected(areas, [areas[0, 0]])
    assert found == pytest.approx(expected)
    assert imagined == found[0]


def made_users(number, seed, *, year=2000, years=10, texts=4):
    chance = random.Random(seed)
    vocabulary = [f"word{place}" for place in range(300)]
    found = []
    for name in range(number):
        own = [
            UserText(
                " ".join(chance.choices(vocabulary, k=chance.randint(3, 15))),
                date=f"{year + chance.randrange(years)}-{chance.randint(1, 12):02}-01",
            )
            for _ in range(chance.randint(max(1, texts - 3), texts + 3))
        ]
        found.append(User(f"user {seed} {name}", tuple(own)))
    return found


def test_random_splits_fire_at_their_level():
    p_values = []
    for trial in range(150):
        users = made_users(30, trial)
        p_values.append(blind_baseline(users[:15], users[15:], orders=100, seed=trial).p_value)
    for level in (0.05, 0.2, 0.5):
        fired = sum(p_value <= level for p_value in p_values)
        assert binom.sf(fired - 1, len(p_values), level) > 0.001
        assert binom.cdf(fired, len(p_values), level * 0.8) > 0.001  # and it is not merely cautious


def test_it_fires_on_real_text_of_other_topics_and_not_on_a_random_split():
    documents = embedded_documents(limit_bytes=600_000)
    half = len(documents) // 2
    one, other = divided(documents[:half], 30, 1), divided(documents[half:], 30, 2)
    found = blind_baseline(one, other)
    assert found.p_value <= 0.002
    assert found.separating()[0] == "words"
    assert found.auc.value > 0.95
    users = divided(documents, 60)
    assert blind_baseline(users[:30], users[30:]).separating() == ()


@pytest.mark.parametrize(
    ("changes", "name"), [({"year": 2006}, "dates"), ({"texts": 12}, "numbers of texts")]
)
def test_it_says_what_separates(changes, name):
    found = blind_baseline(made_users(40, 1), made_users(40, 2, **changes))
    assert found.p_value <= 2 / 2000
    assert name in found.separating()
    assert found.auc.low > 0.5
    if name == "dates":
        assert set(found.separating()) == {"dates"}


def test_it_knows_how_large_a_difference_it_would_notice():
    users = made_users(42, 1, texts=8)
    clear, none = np.arange(12) + 100.0, np.arange(12) + 9.5
    half = np.where(np.arange(12) < 8, clear, none)
    for scores, noticed in ((clear, True), (half, True), (none, False)):
        found = blind_baseline(users[:12], users[12:], scores=(scores, np.arange(30.0)))
        assert found.smallest_p_value <= 0.01
        assert (found.scores_p_value <= 0.01) == noticed
    few = blind_baseline(users[:4], users[4:10], scores=(clear[:4], np.arange(6.0)))
    assert few.smallest_p_value > 0.01
