"""Trainings side by side: what is preferred, what cannot be compared, and real models."""

import json
import math
import shutil

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student
from scipy.stats import ttest_ind_from_stats

from audits.compared_runs import LESS, MORE, seeds, strategy, varied
from coalmine import expose, load_model, plant, train
from coalmine.audits import ComparisonOptions, compare_runs
from coalmine.audits.comparison.measure import compare, labeled_runs, loss_relation
from coalmine.audits.comparison.records import COMPARISONS
from coalmine.audits.comparison.report import loss_figure
from coalmine.corpus import write_embedded_corpus
from coalmine.errors import InputError
from coalmine.statistics import run_difference

CLOSE = [2.000, 2.001, 2.002]


def test_of_equal_loss_the_less_exposed_way_of_training_is_preferred():
    sides = [
        *seeds("a", [varied(MORE, seed) for seed in range(3)], [2.500, 2.501, 2.502]),
        *seeds("b", [varied(LESS, seed) for seed in range(3, 6)], [2.503, 2.501, 2.505]),
    ]
    found = compare(sides)
    [pair] = found.pairs
    assert (pair.first, pair.second, pair.unit, pair.trainings) == ("a", "b", "trainings", (3, 3))
    means = [
        [np.mean([r.exposure for r in one.exposure.results]) for one in sides if one.side == s] for s in "ab"
    ]
    assert pair.exposure.estimate.value == pytest.approx(np.mean(means[0]) - np.mean(means[1]))
    error = math.sqrt(sum(np.var(side, ddof=1) / 3 for side in means))
    # Student's t with 2 degrees of freedom has a closed form.
    t = pair.exposure.estimate.value / error
    assert pair.exposure.p_value == pytest.approx(1 - t / math.sqrt(2 + t**2))
    assert pair.loss_relation == "equal"
    assert pair.statement.endswith("prefer b")
    assert not any("cannot be known" in warning for warning in found.warnings)
    costly = [one._replace(loss=one.loss + (one.side == "b")) for one in sides]
    assert "a trade, because b exposes less and a has the better loss" in compare(costly).pairs[0].statement


def test_the_difference_over_trainings_is_that_of_the_smaller_side():
    """Welch's error, with the degrees of freedom of the smaller side, which are never too many."""
    first, second = np.array([6.1, 6.6, 6.3, 6.0]), np.array([2.0, 2.9])
    found = run_difference(first, second)
    t = ttest_ind_from_stats(
        first.mean(), first.std(ddof=1), 4, second.mean(), second.std(ddof=1), 2, equal_var=False
    ).statistic
    assert found.p_value == pytest.approx(2 * student(1).sf(t))
    half = student(1).ppf(0.975) * (first.mean() - second.mean()) / t
    assert found.estimate.high - found.estimate.value == pytest.approx(half)


def test_seeds_that_differ_as_much_as_the_sides_show_nothing():
    # Each pair of models differs beyond doubt, canary by canary; the seeds of one side do so as well.
    shifts = {"a": (0.0, 4.0, 2.0), "b": (1.0, 5.0, 3.5)}
    sides = [
        one
        for side, own in shifts.items()
        for one in seeds(side, [[value + shift for value in LESS] for shift in own], [2.5] * 3)
    ]
    alone = compare([sides[0]._replace(side=None), sides[3]._replace(side=None)])
    assert alone.pairs[0].exposure.p_value < 0.01
    [pair] = compare(sides).pairs
    assert pair.exposure.p_value > 0.3
    assert "no difference in exposure is shown" in pair.statement


def test_what_cannot_be_tested_says_why():
    one = seeds("a", [varied(MORE, seed) for seed in range(3)], CLOSE)
    two = seeds("b", [varied(LESS, seed) for seed in range(2)], CLOSE[:2])
    for others, why in (
        ([strategy("b", LESS)], "how much a seed matters"),
        ([*two, strategy("b2", LESS, side="b", repetitions=[1] * 4 + [4] * 4)], "different repetitions"),
        # Leaving it out would leave out what is remembered best.
        ([*two, strategy("b2", [*LESS[:-1], None], side="b")], "1 exposures have no value"),
        (seeds("b", [LESS, LESS, LESS], CLOSE), None),
    ):
        [pair] = compare([*one, *others]).pairs
        assert (pair.exposure is None) == (why is not None)
        assert why is None or why in pair.statement
    with pytest.raises(InputError, match="different labels"):
        compare(two)
    with pytest.raises(InputError, match="both a run"):
        compare([strategy("b", MORE), *one, *two])


def test_formats_are_never_mixed():
    def two_formats(name, small, large):
        one = strategy(name, [*small, *large])
        facts = msgspec.structs.replace(
            one.exposure.formats[0], format_id="f1", template="key {hex:16}", size=str(16**16), size_bits=64.0
        )
        results = [
            msgspec.structs.replace(r, format_id="f1", most_possible_bits=64.0) if place >= len(small) else r
            for place, r in enumerate(one.exposure.results)
        ]
        parts = {"formats": (*one.exposure.formats, facts), "results": tuple(results)}
        return one._replace(exposure=msgspec.structs.replace(one.exposure, **parts))

    far = [value + 40 for value in MORE]
    found = compare([two_formats("a", MORE, far), two_formats("b", LESS, far)])
    assert [(run.name, run.template, run.exposure.value, run.canaries) for run in found.runs] == [
        (name, template, np.median(values), 8)
        for template, both in (("pin {digits:6}", (MORE, LESS)), ("key {hex:16}", (far, far)))
        for name, values in zip("ab", both, strict=True)
    ]
    differ, same = found.pairs
    assert differ.exposure.estimate.value == pytest.approx(np.mean(MORE) - np.mean(LESS))
    assert same.exposure.estimate.value == 0
    # Each pair and format is one of the tests that share the error.
    assert differ.adjusted_p_value == pytest.approx(2 * differ.exposure.p_value)
    assert [panel.title for panel in loss_figure(found).panels] == ["pin {digits:6}", "key {hex:16}"]
    one_format = compare([strategy("a", MORE), two_formats("b", LESS, far)])
    assert "there are no such canaries in a" in one_format.pairs[1].statement


def test_two_models_say_which_of_them_exposes_less_and_prefer_no_way_of_training():
    found = compare([strategy("a", MORE, 2.500), strategy("b", LESS, 2.510), strategy("c", MORE, 2.9)])
    [pair, _, _] = found.pairs
    assert pair.exposure.p_value == pytest.approx(2 / 2**8)
    assert pair.adjusted_p_value == pytest.approx(3 * pair.exposure.p_value)
    assert pair.statement.endswith("loss: equal: of these two models, b exposes less")
    assert "it cannot be known whether the ways of training differ" in found.warnings[-1]
    assert [run.dominated_by for run in found.runs] == [(), (), ("a", "b")]


points = st.tuples(st.integers(0, 5), st.integers(0, 5))


@given(st.lists(points, min_size=2, max_size=6))
def test_the_frontier_is_that_of_brute_force(drawn):
    found = compare([strategy(str(n), [float(y)] * 3, x) for n, (x, y) in enumerate(drawn)])
    for run, (x, y) in zip(found.runs, drawn, strict=True):
        beaten = any((a < x and b <= y) or (a <= x and b < y) for a, b in drawn)
        assert run.on_frontier is (not beaten)


def test_a_side_stands_at_the_means_of_its_trainings():
    """The second side is better in the mean of both, although one of its trainings is worse than each of the first."""
    first = seeds("a", [[5.0] * 6, [5.0] * 6], [2.5, 2.5])
    second = seeds("b", [[2.0] * 6, [6.0] * 6], [2.0, 2.8])
    assert [run.dominated_by for run in compare([*first, *second]).runs] == [("b",), ("b",), (), ()]
    # One that has no place leaves its side without one.
    found = compare([*first, second[0], second[1]._replace(loss=None)])
    assert {run.dominated_by for run in found.runs} == {None}


def test_exposures_without_a_value_are_never_left_out():
    found = compare([strategy("a", [*MORE[:-1], None]), strategy("b", LESS)])
    assert found.pairs[0].exposure is None
    assert "could not be measured" in found.pairs[0].statement
    # The median of the eight is known all the same: seven values decide it.
    assert found.runs[0].exposure.value is not None
    most = compare([strategy("a", [None] * 5), strategy("b", LESS[:5])])
    assert most.runs[0].exposure.value is None
    assert most.runs[0].dominated_by is None


def test_two_trainings_with_other_canaries_are_not_compared():
    found = compare(
        [strategy("a", MORE, repetitions=1), strategy("b", LESS, manifest="other", repetitions=8)]
    )
    assert found.pairs[0].exposure is None
    assert "by the same canaries" in found.pairs[0].statement
    assert any("different repetitions" in warning for warning in found.warnings)
    assert [run.dominated_by for run in found.runs] == [None, None]
    withheld = compare([strategy(name, LESS, repetitions=[0, 0, *[1] * 6]) for name in "ab"])
    assert [run.canaries for run in withheld.runs] == [6, 6]


def relation(first, second, *, within=0.02, grounds=((None,) * 3, (None,) * 3)):
    sides = [
        [
            strategy(str(place), LESS, loss)._replace(measured_on=ground)
            for place, (loss, ground) in enumerate(zip(*side, strict=False))
        ]
        for side in ((first, grounds[0]), (second, grounds[1]))
    ]
    return loss_relation(sides, ComparisonOptions(equal_within=within))


def test_losses_are_equal_only_where_the_whole_interval_is_within_what_counts_as_equal():
    other = [value + 0.001 for value in CLOSE]
    found = run_difference(CLOSE, other, unit="").estimate
    widest = max(-found.low, found.high)
    assert relation(CLOSE, other, within=widest) == relation(other, CLOSE, within=widest) == "equal"
    assert relation(CLOSE, other, within=widest * 0.99) == "not told apart"
    assert relation([2.0] * 3, [2.0] * 3) == "not told apart"  # without an interval
    assert relation([2.0, None, 2.1], CLOSE) == "not known"
    assert relation(CLOSE, CLOSE, grounds=(["x"] * 3, ["x", "y", "x"])) == "not known"
    # Where the user vouches for one, there is nothing to compare it with.
    assert relation(CLOSE, [9.0, 9.1, 9.2], grounds=(["x"] * 3, ["x", None, None])) == "first better"


# Real models


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The same corpus and canaries, trained on for two epochs and for hardly any."""
    folder = tmp_path_factory.mktemp("compare")
    write_embedded_corpus(folder / "corpus.txt", 8_000)
    options = {"repeat": [24], "canaries": 8, "references": 9, "withhold": 0.0}
    plant(folder / "corpus.txt", "pin {digits:3}", out=folder / "planted", **options)
    small = {"hidden": 32, "embedding": 16, "batch_size": 8, "window": 32, "layers": 1, "holdout": 0.1}
    for name, how in {
        "long": {"epochs": 5, "learning_rate": 0.02},
        "short": {"epochs": 1},
        "other": {"epochs": 1, "seed": 1},
    }.items():
        train(folder / "planted", out=folder / name, **small, **how)
        expose(load_model(folder / name), folder / "planted").save(folder / name / "exposure")
    return folder


def test_real_runs_side_by_side(trained, tmp_path):
    found = compare_runs([trained / "long", trained / "short"])
    assert [(run.name, run.canaries) for run in found.runs] == [("long", 8), ("short", 8)]
    losses = [run.loss for run in found.runs]
    assert losses[0] < losses[1]
    records = [json.loads((trained / name / "training.json").read_text()) for name in ("long", "short")]
    for loss, record in zip(losses, records, strict=True):
        assert loss == record["epochs"][record["best_epoch"] - 1]["validation_loss_bits"]
    saved = COMPARISONS.save(tmp_path, found)
    again = compare_runs([trained / "long", trained / "short"])
    assert COMPARISONS.save(tmp_path / "again", again).read_bytes() == saved.read_bytes()


def test_losses_of_other_documents_are_not_compared(trained):
    # Another seed holds out other documents.
    found = compare_runs([trained / "long", trained / "other"])
    assert found.pairs[0].loss_relation == "not known"
    assert [run.dominated_by for run in found.runs] == [None, None]
    assert "different documents" in found.warnings[0]
    vouched = compare_runs([trained / "long", trained / "other"], loss=[2.5, 2.6])
    assert vouched.pairs[0].loss_relation == "first better"
    assert None not in [run.dominated_by for run in vouched.runs]


def test_labels_say_which_runs_are_trainings_of_one_kind(trained, tmp_path):
    labels, paths = labeled_runs([f"kind={trained}/[os]*", str(trained / "long")])
    assert labels == ["kind", "kind", None]
    assert [path.name for path in paths] == ["other", "short", "long"]
    assert compare_runs(paths, labels=labels).pairs[0].trainings == (2, 1)
    for name in ("plain-0", "plain-0-audit", "plain-1-audit"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    _, found = labeled_runs([f"plain={tmp_path}/runs/plain-*"])
    assert [path.name for path in found] == ["plain-0", "plain-1-audit"]
    shutil.copytree(trained / "short", tmp_path / "copy")
    with pytest.raises(InputError, match="the same model"):
        compare_runs([trained / "short", tmp_path / "copy", trained / "long"], labels=["kind", "kind", None])
