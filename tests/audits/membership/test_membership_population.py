"""What is said of one population of scores beside its numbers."""

import numpy as np
import pytest

from coalmine import membership_of_scores


def warnings(members, others):
    chance = np.random.default_rng(0)
    result = membership_of_scores(chance.normal(1, 1, members), chance.normal(0, 1, others), runs="many")
    return " ".join(result.populations[0].warnings)


@pytest.mark.parametrize(
    ("members", "others", "few"), [(19, 400, True), (400, 19, True), (20, 20, False), (20, 400, False)]
)
def test_fewer_than_twenty_scores_on_either_side_are_said_to_be_few(members, others, few):
    assert ("are few" in warnings(members, others)) == few
