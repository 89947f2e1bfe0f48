"""Trainings side by side: what is preferred, what cannot be compared, and real models."""

import io
import json
import math
import shutil

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from audits.compared_runs import LESS, MORE, seeds, strategy, varied
from coalmine import expose, load_model, plant, train
from coalmine.audits import compare_runs
from coalmine.audits.comparison.measure import compare
from coalmine.audits.comparison.records import COMPARISONS
from coalmine.audits.comparison.report import (
    comparison_in_words,
    pairs_table,
    runs_table,
    utility_figure,
)
from coalmine.audits.comparison.runs import given_utility, labeled_runs
from coalmine.corpus import write_embedded_corpus
from coalmine.errors import InputError

# Trainings, from exposures


def test_of_equal_utility_the_less_exposed_way_of_training_is_preferred():
    sides = [
        *seeds("a", [varied(MORE, seed) for seed in range(3)], ["2.500", "2.501", "2.502"]),
        *seeds("b", [varied(LESS, seed) for seed in range(3, 6)], ["2.503", "2.501", "2.505"]),
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
    assert pair.utility_relation == "equal"
    assert pair.statement.endswith("prefer b")
    assert not any("cannot be known" in warning for warning in found.warnings)
    assert [run.side for run in found.runs] == list("aaabbb")


def test_seeds_that_differ_as_much_as_the_sides_show_nothing():
    # Each pair of models differs beyond doubt, canary by canary; the seeds of one side do so as well.
    shifts = {"a": (0.0, 4.0, 2.0), "b": (1.0, 5.0, 3.5)}
    sides = [
        one
        for side, own in shifts.items()
        for one in seeds(side, [[value + shift for value in LESS] for shift in own], ["2.5"] * 3)
    ]
    assert (
        compare([sides[0]._replace(side=None), sides[3]._replace(side=None)]).pairs[0].exposure.p_value < 0.01
    )
    [pair] = compare(sides).pairs
    assert pair.exposure.p_value > 0.3
    assert "no difference in exposure is shown" in pair.statement


def test_one_training_against_several_is_not_tested_and_says_why():
    found = compare([strategy("a", MORE), *seeds("b", [LESS, varied(LESS, 1)], ["2.5", "2.5"])])
    [pair] = found.pairs
    assert pair.exposure is None
    assert "how much a seed matters" in pair.problem
    with pytest.raises(InputError, match="two sides"):
        compare(seeds("b", [LESS, MORE], ["2.5", "2.5"]))
    with pytest.raises(InputError, match="both a run"):
        compare([strategy("b", MORE), *seeds("b", [LESS, MORE], ["2.5", "2.5"])])
    alike = [*seeds("a", [MORE, MORE], ["2.5", "2.5"]), *seeds("b", [LESS, LESS], ["2.5", "2.5"])]
    assert "different seeds" in compare(alike).pairs[0].problem


def two_formats(name, small, large, **options):
    """A training with canaries of a small and of a large format."""
    one = strategy(name, [*small, *large], **options)
    facts = msgspec.structs.replace(
        one.exposure.formats[0], format_id="f1", template="key {hex:16}", size=str(16**16), size_bits=64.0
    )
    results = [
        msgspec.structs.replace(result, format_id="f1", most_possible_bits=64.0)
        if place >= len(small)
        else result
        for place, result in enumerate(one.exposure.results)
    ]
    exposure = msgspec.structs.replace(
        one.exposure, formats=(*one.exposure.formats, facts), results=tuple(results)
    )
    return one._replace(exposure=exposure)


def test_formats_are_never_mixed():
    far = [value + 40 for value in MORE]
    found = compare([two_formats("a", MORE, far), two_formats("b", LESS, far)])
    assert [(run.name, run.template) for run in found.runs] == [
        ("a", "pin {digits:6}"), ("b", "pin {digits:6}"), ("a", "key {hex:16}"), ("b", "key {hex:16}"),
    ]  # fmt: skip
    assert [run.exposure.value for run in found.runs] == [np.median(v) for v in (MORE, LESS, far, far)]
    assert [run.canaries for run in found.runs] == [8] * 4
    differ, same = found.pairs
    assert (differ.template, same.template) == ("pin {digits:6}", "key {hex:16}")
    assert differ.exposure.estimate.value == pytest.approx(np.mean(MORE) - np.mean(LESS))
    assert same.exposure.estimate.value == 0
    # Each pair and format is one of the tests that share the error.
    assert differ.adjusted_p_value == pytest.approx(2 * differ.exposure.p_value)
    assert "on `pin {digits:6}`: " in differ.statement
    shown = io.StringIO()
    console = Console(file=shown, width=200)
    console.print(runs_table(found).terminal(found.runs), pairs_table(found).terminal(found.pairs))
    assert shown.getvalue().count("key {hex:16}") == 3
    assert "f1" not in shown.getvalue()
    assert [panel.title for panel in utility_figure(found).panels] == ["pin {digits:6}", "key {hex:16}"]
    one_format = compare([strategy("a", MORE), two_formats("b", LESS, far)])
    assert one_format.pairs[1].problem == "there are no such canaries in a"


def test_two_models_say_which_of_them_exposes_less_and_prefer_no_way_of_training():
    found = compare([strategy("a", MORE, "2.500"), strategy("b", LESS, "2.510")])
    [pair] = found.pairs
    assert pair.exposure.pairing == "paired"
    assert pair.exposure.p_value == pytest.approx(2 / 2**8)
    assert pair.utility_relation == "equal"
    assert pair.statement.endswith("of these two models, b exposes less")
    assert "without an interval" in pair.statement
    assert "it cannot be known whether the ways of training differ" in found.warnings[-1]
    assert [run.on_frontier for run in found.runs] == [True, True]


def test_a_worse_model_that_exposes_less_is_a_trade_and_one_that_is_worse_in_both_is_beaten():
    found = compare([strategy("a", MORE, "2.5"), strategy("b", LESS, "2.9"), strategy("c", MORE, "2.9")])
    trade, _, _ = found.pairs
    assert trade.statement.endswith("of these two models, b exposes less, and a has the better utility")
    assert {run.name: run.on_frontier for run in found.runs} == {"a": True, "b": True, "c": False}
    assert found.runs[2].dominated_by == ("a", "b")
    assert [pair.adjusted_p_value for pair in found.pairs] == pytest.approx([3 * 2 / 256, 1.0, 3 * 2 / 256])


def test_higher_utilities_can_be_the_better_ones():
    options = {"higher_is_better": True, "utility_name": "accuracy", "equal_within": 0.001}
    found = compare([strategy("a", MORE, "0.8"), strategy("b", LESS, "0.9")], **options)
    assert found.pairs[0].utility_relation == "second better"
    assert found.pairs[0].statement.endswith("b exposes less, and has the better utility")
    assert [run.on_frontier for run in found.runs] == [False, True]
    sides = [
        *seeds("a", [varied(MORE, seed) for seed in range(3)], ["0.80", "0.81", "0.80"]),
        *seeds("b", [varied(LESS, seed) for seed in range(3, 6)], ["0.90", "0.91", "0.90"]),
    ]
    assert compare(sides, **options).pairs[0].statement.endswith("prefer b")
    trade = compare(sides, **{**options, "higher_is_better": False}).pairs[0]
    assert "a trade, because b exposes less and a has the better utility" in trade.statement
    assert [run.on_frontier for run in compare(sides, **options).runs] == [False] * 3 + [True] * 3


points = st.tuples(st.integers(0, 5), st.integers(0, 5))


@given(st.lists(points, min_size=2, max_size=6))
def test_the_frontier_is_that_of_brute_force(drawn):
    found = compare([strategy(str(n), [float(y)] * 3, str(x)) for n, (x, y) in enumerate(drawn)])
    for run, (x, y) in zip(found.runs, drawn, strict=True):
        beaten = any((a < x and b <= y) or (a <= x and b < y) for a, b in drawn)
        assert run.on_frontier is (not beaten)


def test_exposures_without_a_value_are_never_left_out_of_a_difference():
    found = compare([strategy("a", [*MORE[:-1], None]), strategy("b", LESS)])
    assert found.pairs[0].exposure is None
    assert "could not be measured" in found.pairs[0].statement
    # The median of the eight is known all the same: seven values decide it.
    assert found.runs[0].exposure.value is not None
    most = compare([strategy("a", [None] * 5), strategy("b", LESS[:5])])
    assert most.runs[0].exposure.value is None
    assert most.runs[0].on_frontier is None


def test_other_canaries_are_compared_unpaired_and_only_with_their_like():
    mixed = [1, 1, 1, 1, 8, 8, 8, 8]
    found = compare(
        [strategy("a", MORE, repetitions=mixed), strategy("b", LESS, manifest="other", repetitions=mixed)]
    )
    [pair] = found.pairs
    assert pair.exposure.pairing == "unpaired"
    assert pair.exposure.exchanges == math.comb(8, 4) ** 2
    assert set(pair.by_repetitions) == {"1", "8"}
    apart = compare(
        [strategy("a", MORE, repetitions=1), strategy("b", LESS, manifest="other", repetitions=8)]
    )
    assert "which cannot be compared" in apart.pairs[0].problem
    assert any("different repetitions" in warning for warning in apart.warnings)
    assert [run.on_frontier for run in apart.runs] == [None, None]
    with pytest.raises(InputError, match="planted 3 times"):
        compare([strategy("a", MORE), strategy("b", LESS)], repetitions=3)


def test_withheld_canaries_do_not_count():
    times = [0, 0, 4, 4, 4, 4, 4, 4]
    found = compare([strategy("a", MORE, repetitions=times), strategy("b", LESS, repetitions=times)])
    assert [run.canaries for run in found.runs] == [6, 6]
    assert found.pairs[0].exposure.estimate.n == 6


def test_utilities_by_document_have_intervals(tmp_path):
    losses = np.random.default_rng(0).normal(3.0, 1.0, size=200)
    for name, shift in (("a", 0.0), ("same", 0.003), ("worse", 0.5)):
        noise = np.random.default_rng(7).normal(0, 0.02, size=200)
        (tmp_path / name).write_text("\n".join(str(one) for one in losses + shift + noise * (name != "a")))
    runs = [strategy(name, MORE, str(tmp_path / name)) for name in ("a", "same", "worse")]
    found = compare(runs)
    # Each loss by itself is uncertain by 0.14; document by document the first two are equal within 0.02.
    assert found.runs[0].utility.high - found.runs[0].utility.low > 0.2
    assert [pair.utility_relation for pair in found.pairs] == ["equal", "first better", "first better"]
    tight = compare(runs[:2], equal_within=0.0001)
    assert tight.pairs[0].utility_relation in {"first better", "not told apart"}
    (tmp_path / "bad").write_text("loss\n3.0\n")
    for wrong in ("bad", "nowhere"):
        with pytest.raises(InputError):
            given_utility(str(tmp_path / wrong))
    with pytest.raises(InputError):
        given_utility("nan")


# Real models


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The same corpus and canaries, trained on for two epochs and for hardly any."""
    folder = tmp_path_factory.mktemp("compare")
    write_embedded_corpus(folder / "corpus.txt", 8_000)
    plant(
        folder / "corpus.txt",
        "pin {digits:3}",
        repeat=[24],
        canaries=8,
        references=9,
        withhold=0.0,
        out=folder / "planted",
    )
    small = {"hidden": 32, "embedding": 16, "batch_size": 8, "window": 32, "layers": 1, "holdout": 0.1}
    for name, options in {"long": {"epochs": 5, "learning_rate": 0.02}, "short": {"epochs": 1}}.items():
        train(folder / "planted", out=folder / name, **small, **options)
        expose(load_model(folder / name), folder / "planted").save(folder / name / "exposure")
    train(folder / "planted", out=folder / "other", **small, epochs=1, seed=1)
    expose(load_model(folder / "other"), folder / "planted").save(folder / "other" / "exposure")
    return folder


def test_real_runs_side_by_side(trained, tmp_path):
    found = compare_runs([trained / "long", trained / "short"])
    assert [run.name for run in found.runs] == ["long", "short"]
    assert [run.canaries for run in found.runs] == [8, 8]
    losses = [run.utility.value for run in found.runs]
    assert losses[0] < losses[1]
    records = [json.loads((trained / name / "training.json").read_text()) for name in ("long", "short")]
    for loss, record in zip(losses, records, strict=True):
        assert loss == record["epochs"][record["best_epoch"] - 1]["validation_loss_bits"]
    saved = COMPARISONS.save(tmp_path, found)
    again = compare_runs([trained / "long", trained / "short"])
    assert COMPARISONS.save(tmp_path / "again", again).read_bytes() == saved.read_bytes()
    assert any("no interval" in line for line in comparison_in_words(found))


def test_losses_of_other_documents_are_not_compared(trained):
    # Another seed holds out other documents.
    found = compare_runs([trained / "long", trained / "other"])
    assert found.pairs[0].utility_relation == "not known"
    assert [run.on_frontier for run in found.runs] == [None, None]
    assert "different documents" in found.warnings[0]
    vouched = compare_runs([trained / "long", trained / "other"], utility=["2.5", "2.6"])
    assert vouched.pairs[0].utility_relation == "first better"
    assert None not in [run.on_frontier for run in vouched.runs]


def test_labels_say_which_runs_are_trainings_of_one_kind(trained, tmp_path):
    labels, paths = labeled_runs([f"kind={trained}/[os]*", str(trained / "long")])
    assert labels == ["kind", "kind", None]
    assert [path.name for path in paths] == ["other", "short", "long"]
    assert compare_runs(paths, labels=labels).pairs[0].trainings == (2, 1)
    for name in ("plain-0", "plain-0-audit", "plain-1-audit"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    _, found = labeled_runs([f"plain={tmp_path}/runs/plain-*"])
    assert [path.name for path in found] == ["plain-0", "plain-1-audit"]
    odd = tmp_path / "a=b"
    odd.mkdir()
    assert labeled_runs([str(odd)]) == ([None], [odd])
    with pytest.raises(InputError, match="nothing matches"):
        labeled_runs(["kind=nowhere*"])
    with pytest.raises(InputError, match="one for each run"):
        compare_runs(paths, labels=["kind"])
    shutil.copytree(trained / "short", tmp_path / "copy")
    with pytest.raises(InputError, match="the same model"):
        compare_runs([trained / "short", tmp_path / "copy", trained / "long"], labels=["kind", "kind", None])
