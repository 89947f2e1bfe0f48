"""Scores of other tools: who is compared with whom, and in which direction."""

import json
from pathlib import Path

import pytest
from scipy.stats import mannwhitneyu

from coalmine import membership_of_scores
from coalmine.audits import membership_of_file
from coalmine.audits.membership.score_files import read_scores
from coalmine.errors import InputError

FOREIGN = Path(__file__).parents[2] / "foreign"


@pytest.fixture
def written(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


def test_scores_as_jax_privacy_takes_them():
    source = json.loads((FOREIGN / "jax-privacy-scores.json").read_text())
    found = membership_of_file(FOREIGN / "jax-privacy-scores.json")
    [one] = found.populations
    test = mannwhitneyu(source["in_canary_scores"], source["out_canary_scores"])
    assert one.auc.value == pytest.approx(test.statistic / 60**2)
    assert one.auc.value < source["attack_auroc"]  # the area under the convex hull
    same = membership_of_scores(source["in_canary_scores"], source["out_canary_scores"])
    assert one == same.populations[0]
    assert any("a coin with probability 0.5 is assumed" in warning for warning in found.warnings)


def test_the_direction_is_that_of_the_column_or_what_was_said(written):
    rows = "".join(f"{20 + number},in\n{number},out\n" for number in range(30))
    higher = membership_of_file(written("a.csv", "score,in_out\n" + rows))
    assert higher.populations[0].auc.value > 0.85
    assert "say --lower-is-member if it is the other way" in higher.warnings[0]
    loss = membership_of_file(written("b.csv", "loss,in_out\n" + rows))
    assert loss.populations[0].auc.value == pytest.approx(1 - higher.populations[0].auc.value)
    assert loss.warnings[0] == "lower scores mean trained on, because the column is loss"
    said = membership_of_file(written("b.csv", "loss,in_out\n" + rows), lower_is_member=False)
    assert said.populations == higher.populations
    assert said.warnings[0] == "higher scores mean trained on, as you said"


def test_copies_make_populations_with_the_coins_of_their_own(written):
    rows = [
        {"label": number % 2 == 0, "copies": copies, "score": number + copies}
        for copies in (1, 8)
        for number in range(20)
    ]
    path = written("a.json", rows)
    found, _ = read_scores(path)
    assert [(one.name, len(one.scores.in_scores), len(one.scores.out_scores)) for one in found] == [
        ("once", 10, 20),
        ("8 times", 10, 20),
        ("pooled", 20, 20),
    ]
    assert [len(one.coins.out_scores) for one in found] == [10, 10, 20]
    assert sorted(found[1].coins.out_scores) == [number + 8.0 for number in range(1, 20, 2)]
    assert membership_of_file(path, inclusion=0.25).settings.inclusion == 0.25


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "score,in\n1,in\n", "has nothing that was not trained on"),
        ("a.csv", "score,in\n1,out\n2,control\n", "has nothing that was trained on"),
        ("a.csv", "score,in\nnan,in\n1,out\n", "has something other than a finite number"),
        ("a.json", {"in": [1, None], "out": [1]}, "is not two lists of scores"),
        ("a.json", {"in": [1]}, "neither a table with scores"),
    ],
)
def test_what_cannot_be_read_is_said(written, name, content, message):
    with pytest.raises(InputError, match=message):
        read_scores(written(name, content))
