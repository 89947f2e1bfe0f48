"""Membership from the results of `expose` and from anyone's scores: who is compared with whom, files, and the command."""

import json
import math
import stat

import msgspec
import numpy as np
import pytest

from cli.in_process import run
from coalmine import (
    Canary,
    CanarySet,
    Format,
    ScriptedModel,
    check,
    expose,
    membership,
    membership_of_scores,
    parse_policy,
    read_run,
)
from coalmine.audits import read_membership
from coalmine.audits.membership.populations import load_source, populations
from coalmine.audits.membership.report import membership_in_plain_words
from coalmine.errors import InputError, NotMeasurableError
from coalmine.statistics import CoinScores, MembershipScores, compare_with_guessing, tpr_p_value
from coalmine.statistics.epsilon.best import headline_test
from resealing import resealed

DIGITS = "0123456789"
FORM = Format("pin {digits:4}")


def planted_set(repetitions=(1, 8), each=30, references=200, withhold=True, form=FORM):
    """Canaries of each number of copies, the odd ones withheld."""
    drawn = form.sample(each * len(repetitions) + references, seed=3, replace=False)
    canaries = [
        Canary(
            canary_id=f"c{copies}-{place}",
            format_id="f0",
            text=drawn[group * each + place],
            repetitions=copies,
            planted=not (withhold and place % 2),
        )
        for group, copies in enumerate(repetitions)
        for place in range(each)
    ]
    return CanarySet(
        canaries,
        {"f0": form},
        references={"f0": drawn[len(canaries) :]},
        withhold=0.5 if withhold else 0.0,
    )


def model_with_memory(canaries, remembers=lambda copies: copies > 1):
    """A model that remembers planted canaries of so many copies, each at one part in a thousand."""
    memory = {c.text: 1e-3 for c in canaries if c.planted and remembers(c.repetitions)}
    return ScriptedModel("pin " + DIGITS, memory=memory, frequencies={"1": 3, "7": 2})


@pytest.fixture(scope="module")
def canaries():
    return planted_set()


@pytest.fixture(scope="module")
def exposures(canaries):
    return expose(model_with_memory(canaries), canaries, method="references")


def test_who_is_compared_with_whom(canaries, exposures):
    found, _ = populations(load_source(exposures))
    assert [one.name for one in found] == ["once", "8 times", "pooled"]
    bits = {result.canary_id: result.log_perplexity_bits for result in exposures}
    for one, copies in zip(found[:2], (1, 8), strict=True):
        planted = [c for c in canaries if c.planted and c.repetitions == copies]
        withheld = [c for c in canaries if not c.planted and c.repetitions == copies]
        assert sorted(one.scores.in_scores) == sorted(-bits[c.canary_id] for c in planted)
        assert sorted(one.coins.out_scores) == sorted(-bits[c.canary_id] for c in withheld)
        # All that was withheld, whatever it was meant for, and all references.
        assert len(one.scores.out_scores) == 30 + 200
    assert found[2].pooled
    assert found[2].copies == 8
    assert len(found[2].scores.in_scores) == 30


def test_remembered_canaries_are_told_from_others_and_forgotten_ones_are_not(exposures):
    result = membership(exposures, claimed_epsilon=0.3)
    once, often, pooled = result.populations
    assert once.guessing_p_value > 0.01
    assert once.best.canary.low == 0.0
    assert often.guessing_p_value < 1e-6
    # 30 coins alone show less than 15 against 230 scores that are taken for independent.
    assert often.best.canary.low > 1.5
    assert often.independent.canary.low > 2
    assert "independent" in often.independent.canary.assumptions[0]
    assert not any("independent" in text for text in often.best.canary.assumptions)
    assert often.best.one_copy.low < often.best.canary.low / 8 + 1e-6
    assert often.verdict.copies == 8
    assert pooled.verdict is None
    assert all(bound.canary.assumptions for bound in often.epsilon)
    assert [rate.status for rate in often.tpr_at_fpr] == ["measured", "measured", "not_measured"]
    assert "cannot be measured with 230 references" in often.tpr_at_fpr[2].statement


def test_results_say_all_that_the_bound_from_one_run_needs(exposures, tmp_path):
    exposures.save(tmp_path)
    result = membership(tmp_path)
    assert result.settings.inclusion == 0.5
    assert {one.best.canary.status for one in result.populations} == {"lower_bound"}
    with resealed(tmp_path / "exposure.json") as document:
        document["inclusion"] = None
    assert {one.best.canary.status for one in membership(tmp_path).populations} == {"not_measured"}


def test_results_on_disk_say_the_same(tmp_path, exposures):
    exposures.save(tmp_path / "exposure")
    from_disk = membership(tmp_path / "exposure")
    assert from_disk == membership(exposures)
    path = from_disk.save(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_membership(tmp_path) == from_disk


def test_among_all_members_the_planted_ones_are_left_out(canaries):
    form_model = model_with_memory(canaries)
    exact = expose(form_model, canaries, method="exact")
    found, _ = populations(load_source(exact))
    planted = {c.text for c in canaries if c.planted}
    truth = sorted(math.log2(float(form_model.probability(text))) for text in FORM if text not in planted)
    assert np.sort(found[0].scores.out_scores) == pytest.approx(np.array(truth), abs=1e-9)


def test_draws_that_follow_the_model_are_no_references(canaries):
    guided = expose(model_with_memory(canaries), canaries, method="guided", budget=5, samples=500)
    found, _ = populations(load_source(guided))
    assert len(found[0].scores.out_scores) == 30 + 200  # the withheld canaries and the references
    none_withheld = planted_set(withhold=False, references=0)
    with pytest.raises(NotMeasurableError, match="nothing that was not trained on"):
        membership(expose(model_with_memory(none_withheld), none_withheld, method="bounded"))


def test_formats_are_never_mixed():
    first, second = planted_set(each=8, references=20), Format("key {digits:3}")
    more = [
        Canary(canary_id=f"k{i}", format_id="f1", text=text, repetitions=1, planted=i < 4)
        for i, text in enumerate(second.sample(48, seed=1, replace=False)[:8])
    ]
    both = CanarySet(
        [*first, *more],
        {"f0": FORM, "f1": second},
        references={"f0": first.references["f0"], "f1": second.sample(48, seed=1, replace=False)[8:]},
    )
    model = ScriptedModel("pinkey " + DIGITS)
    found, _ = populations(load_source(expose(model, both, method="references")))
    assert [one.name for one in found] == [
        "pin {digits:4}, once",
        "pin {digits:4}, 8 times",
        "pin {digits:4}, pooled",
        "key {digits:3}, once",
    ]
    assert len(found[-1].scores.out_scores) == 4 + 40


def test_calibration_subtracts_a_reference_model():
    # Some members are easy for every model, and a model that never saw the canaries knows which.
    canaries = planted_set(repetitions=(8,), each=16, references=40)
    easy = {c.text: 4e-3 for i, c in enumerate(canaries) if i % 3 == 0}
    easy |= dict.fromkeys(canaries.references["f0"][:25], 3e-3)
    learned = {c.text: 3e-4 for c in canaries if c.planted}
    both = {text: easy.get(text, 0) + learned.get(text, 0) for text in {*easy, *learned}}
    trained, base = (ScriptedModel("pin " + DIGITS, memory=memory) for memory in (both, easy))
    results = [expose(model, canaries, method="references") for model in (trained, base)]
    plain = membership(results[0])
    calibrated = membership(results[0], reference=results[1])
    assert calibrated.populations[0].auc.value > plain.populations[0].auc.value
    assert calibrated.reference_model == base.describe()
    assert "reference model" in calibrated.score


def test_models_without_memorization_are_rarely_called_memorized():
    whole = membership_of_scores(np.arange(30.0), np.arange(30.0))
    (one,) = whole.populations

    def with_p_values(rng):
        scores = MembershipScores(rng.random(30), rng.random(30))
        return msgspec.structs.replace(
            one,
            guessing_p_value=compare_with_guessing(*scores).p_value,
            tpr_p_values=(tpr_p_value(*scores, 0.1),),
            epsilon_p_value=headline_test(scores, CoinScores(scores), 1e-5, 0, "one").p_value(0.0, 1e-5),
        )

    wrong = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        run = msgspec.structs.replace(whole, populations=tuple(with_p_values(rng) for _ in range(3)))
        wrong += any(": memorized (p" in line for line in membership_in_plain_words(run))
    assert wrong <= 10


def test_a_model_is_no_reference_for_itself(exposures):
    # All scores would be 0, and the model would look as if it remembered nothing.
    with pytest.raises(InputError, match="not trained on the canaries"):
        membership(exposures, reference=exposures)


def test_without_coins_one_run_has_no_headline_and_many_runs_have_one():
    # 200 in and 2,000 out do not come from a fair coin.
    given = (np.arange(200.0) + 1900, np.arange(2000.0))
    one = membership_of_scores(*given, claimed_epsilon=1.0)
    (population,) = one.populations
    assert population.best.canary.status == "not_measured"
    assert "--withhold 0.5" in population.best.canary.statement
    assert population.epsilon_p_value is None
    assert population.epsilon_ceiling == 0.0
    assert population.independent.canary.low > 2
    assert one.verdict.outcome == "too little power"
    many = membership_of_scores(*given, claimed_epsilon=1.0, runs="many")
    (population,) = many.populations
    assert population.best.canary.low == population.independent.canary.low
    assert population.epsilon_p_value < 1e-6
    assert population.epsilon_ceiling > population.best.canary.low
    assert many.verdict.outcome == "violated"
    with pytest.raises(InputError, match='"one" or "many"'):
        membership_of_scores(*given, runs="several")


def test_groups_are_those_of_the_coins_whatever_is_left_of_the_copies():
    canaries = planted_set(repetitions=(1, 8), each=30)
    left = {canary.canary_id: 0 if canary.canary_id == "c8-0" else int(canary.planted) for canary in canaries}
    after = CanarySet(
        [msgspec.structs.replace(one, counted=left[one.canary_id]) for one in canaries],
        canaries.formats,
        references=canaries.references,
        withhold=canaries.withhold,
    )
    model = model_with_memory(canaries)
    results = expose(model, after, method="references")
    lost = next(one for one in results if one.canary_id == "c8-0")
    assert (lost.repetitions, lost.planted, lost.planned_repetitions) == (0, True, 8)
    plain, _ = populations(load_source(expose(model, canaries, method="references")))
    found, warnings = populations(load_source(results))
    # The very same populations as without rewriting: leaving out what lost its copies would be a choice made after the coins.
    assert [one.name for one in found] == [one.name for one in plain] == ["once", "8 times", "pooled"]
    for one, other in zip(found, plain, strict=True):
        assert [side.tolist() for side in one.scores] == [side.tolist() for side in other.scores]
        assert [side.tolist() for side in one.coins] == [side.tolist() for side in other.coins]
    assert any(
        "15 canaries of format" in warning and "(1 are not in it at all)" in warning for warning in warnings
    )
    assert membership(results).populations[1].copies == 8


@pytest.mark.parametrize(
    ("ins", "outs", "says"),
    [
        (
            range(30),
            range(100, 130),
            "either the scores have the wrong sign, or something pushed members away",
        ),
        ([7] * 30, [7] * 30, "AUC cannot be measured: all 60 scores are equal"),
    ],
)
def test_scores_that_cannot_show_anything_are_not_called_innocent(tmp_path, ins, outs, says):
    (tmp_path / "scores.json").write_text(json.dumps({"in": list(ins), "out": list(outs)}))
    shown = run("membership", "--scores", tmp_path / "scores.json", "--out", tmp_path).said
    assert says in " ".join(shown.split())
    rules = "[membership]\nauc_at_most = 0.6\ntpr_at_fpr_1_percent_at_most = 0.5\nepsilon_at_most = 1"
    assert {one.outcome for one in check(read_run(tmp_path), parse_policy(rules)).rules} == {"not_shown"}
