"""From a run to its rules: which results each rule takes, and what is missing, of other weights, or not looked for."""

import dataclasses
import hashlib

import pytest

from coalmine import check, findings_of, parse_policy
from coalmine.reports.conclusion import conclusion_of
from coalmine.reports.gate.checking import EXIT_CODES
from coalmine.statistics import exact_exposure
from reports import verdict_parts as made
from reports.provenance_runs import provenance

HIGH, LOW = exact_exposure(2**5, 2**20), exact_exposure(2**19, 2**20)  # 15 bits and 1 bit


def checked(run, *lines):
    return check(run, parse_policy("\n".join(lines)))


def only(run, *lines):
    (rule,) = checked(run, *lines).rules
    return rule


def told(run, *lines):
    return [(one.rule, one.outcome, one.judged) for one in checked(run, *lines).rules]


AT_MOST_10 = ("[exposure]", "at_most = 10")


def test_the_exit_code_is_that_of_the_worst_rule():
    assert EXIT_CODES == {"holds": 0, "broken": 1, "not_shown": 2}
    run = made.run_of(made.document([made.result("a", LOW, times=1), made.result("b", HIGH, times=8)]))
    for rules, outcome, code, counts in (
        ("1 = 10", "holds", 0, (1, 0, 0)),
        ("8 = 10", "broken", 1, (0, 1, 0)),
        ("2 = 10", "not_shown", 2, (0, 0, 1)),
        ("1 = 10\n2 = 10\n3 = 10", "not_shown", 2, (1, 0, 2)),
        ("1 = 10\n2 = 10\n8 = 10", "broken", 1, (1, 1, 1)),
    ):
        found = checked(run, "[exposure.by_repetitions]", rules)
        assert (found.outcome, found.exit_code) == (outcome, code)
        assert tuple(found.counted(one) for one in ("holds", "broken", "not_shown")) == counts


def test_only_planted_canaries_up_to_the_repetitions_are_judged():
    run = made.run_of(
        made.document(
            [
                made.result("a", LOW, times=1),
                made.result("b", LOW, times=4),
                made.result("c", HIGH, times=5),
                made.result("w", LOW, times=0, planted=False),
            ]
        )
    )
    assert told(run, *AT_MOST_10, "up_to_repetitions = 4") == [("exposure.at_most", "holds", 2)]
    assert told(run, *AT_MOST_10, "up_to_repetitions = 5") == [("exposure.at_most", "broken", 3)]
    assert told(run, *AT_MOST_10) == [("exposure.at_most", "broken", 3)]
    assert only(run, *AT_MOST_10, "up_to_repetitions = 4").asks.endswith(
        "trained on up to 4 times at most 10 bits"
    )
    # Rules by repetitions come in the order of their numbers, each with its own canaries.
    assert told(run, "[exposure.by_repetitions]", "10 = 3", "5 = 3", "4 = 3") == [
        ("exposure.by_repetitions.4", "holds", 1),
        ("exposure.by_repetitions.5", "broken", 1),
        ("exposure.by_repetitions.10", "not_shown", 0),
    ]


def test_a_canary_is_judged_by_the_first_method_that_gives_a_number():
    curve = made.interval(2.0, 1.0, 3.0, method="extrapolated")
    for first in (made.unknown(), curve):
        run = made.run_of(
            made.document([made.result("a", first), made.result("b", LOW)]),
            made.document([made.result("a", HIGH), made.result("b", HIGH)]),
        )
        found = only(run, *AT_MOST_10)
        assert (found.outcome, found.judged) == ("broken", 2)
        assert found.evidence.startswith("1 of 2 canaries above it; worst: a")
    # A number is not replaced by a later one, nor by that of a canary of another manifest.
    run = made.run_of(
        made.document([made.result("a", LOW)]),
        made.document([made.result("a", exact_exposure(2**16, 2**20))]),
        made.document([made.result("a", LOW)], manifest="other"),
    )
    assert told(run, "[exposure]", "at_most = 3") == [("exposure.at_most", "holds", 2)]


def test_other_exposures_of_the_same_canaries_are_not_passed_over():
    """Such as those after the context of the training, beside some after another."""
    quiet, loud = ([made.result(f"c{place}", one) for place in range(6)] for one in (LOW, HIGH))
    run = made.run_of(made.document(quiet), made.document(loud))
    assert only(run, *AT_MOST_10).outcome == "not_shown"
    screen = conclusion_of(findings_of(run))
    assert "But not all results belong" in screen.sentence
    assert screen.answers[-1].answer == "Mend the measurement"
    alike = made.run_of(made.document(quiet), made.document(quiet))
    assert only(alike, *AT_MOST_10).outcome == "holds"
    assert "But" not in conclusion_of(findings_of(alike)).sentence


def test_warnings_of_the_exposures_are_told_once():
    documents = [made.document([made.result("a", LOW)], warnings=("beware",), manifest=one) for one in "xy"]
    assert only(made.run_of(*documents), *AT_MOST_10).warnings == ("beware",)


EVERY_RULE = (
    'require = ["exposure", "extraction", "membership", "recitation", "provenance"]',
    *AT_MOST_10,
    "[extraction]",
    "at_most_extracted = 0",
    "[membership]",
    "auc_at_most = 0.6",
    "[recitation]",
    "rate_at_most = 0.1",
    "[provenance]",
    "no_user_found = true",
)


def test_every_rule_about_an_audit_that_is_not_there_is_not_shown():
    found = checked(made.run_of(), *EVERY_RULE)
    assert [one.evidence for one in found.rules] == ["there is no result of this audit"] * 10
    audits = ["expose", "extract --verify", "membership", "recite", "provenance"]
    commands = [f"coalmine {one}" for one in audits] * 2
    assert [one.settle for one in found.rules] == [f"run `{one}`" for one in commands]
    # Rules that could have been broken share the error; those about results being there could not.
    assert [one.chance for one in found.rules] == [None] * 5 + [1.0] * 5
    assert [one.judged for one in found.rules] == [0] * 10


def whole_run(place, digest, **parts):
    return made.run_of(
        made.document([made.result("a", LOW)], model={"weights_sha256": digest}),
        place=place,
        searches={"search": ({"f0": made.search()}, made.verified([made.came("a")]))},
        memberships=[made.memberships(made.population())],
        recitations=[made.recitations(made.group(made.interval(0.01, 0.0, 0.05)))],
        provenances=[provenance((0.0, 0.1))],
        **parts,
    )


def test_results_of_other_weights_count_for_no_rule(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"trained again")
    stale = checked(whole_run(tmp_path, "0" * 64), *EVERY_RULE)
    reason = f"the results are of other weights than those in {tmp_path.name}"
    assert [one.evidence for one in stale.rules] == [reason] * 10
    assert {one.settle for one in stale.rules} == {"measure this model again"}
    assert [one.chance for one in stale.rules] == [None] * 5 + [1.0] * 5
    fresh = checked(whole_run(tmp_path, hashlib.sha256(b"trained again").hexdigest()), *EVERY_RULE)
    assert [one.outcome for one in fresh.rules] == ["holds"] * 10
    assert {(one.evidence, one.judged) for one in fresh.rules[:5]} == {("there", 1)}
    # An audit that is not there at all is missing, whatever the weights.
    few = made.run_of(made.document([], model={"weights_sha256": "0" * 64}), place=tmp_path)
    assert [one.evidence == reason for one in checked(few, *EVERY_RULE).rules] == [
        True,
        False,
        False,
        False,
        False,
    ] * 2


@pytest.mark.parametrize(
    ("weights", "digests", "stale"),
    [
        ("run/model.safetensors", "0", True),
        ("run/exposures-0/model.safetensors", "0", True),  # beside the result
        ("model.safetensors", "0", False),  # above what was named
        ("run/other/model.safetensors", "0", False),
        ("run/other.safetensors", "0", False),  # one digest is that of model.safetensors
        ("run/other.safetensors", ["0", "1"], True),
        ("run/model.safetensors", None, False),
        ("run/model.safetensors", [], False),
    ],
)
def test_where_the_weights_of_results_are_looked_for(tmp_path, weights, digests, stale):
    (tmp_path / weights).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / weights).write_bytes(b"other")
    model = {} if digests is None else {"weights_sha256": digests}
    document = made.document([made.result("a", LOW)], model=model)
    assert only(made.run_of(document, place=tmp_path / "run"), *AT_MOST_10).outcome == (
        "not_shown" if stale else "holds"
    )


def test_the_weights_of_a_model_beside_its_audit_directory(tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model.safetensors").write_bytes(b"other")
    run = made.run_of(
        made.document([made.result("a", LOW)], model={"weights_sha256": "0"}), place=tmp_path / "m-audit"
    )
    assert only(run, *AT_MOST_10).evidence == "the results are of other weights than those in m"


def test_weights_are_looked_for_below_whichever_path_was_named(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model.safetensors").write_bytes(b"other")
    run = made.run_of(
        made.document([made.result("a", LOW)], model={"weights_sha256": "0"}), place=tmp_path / "run"
    )
    both = dataclasses.replace(run, paths=(tmp_path / "elsewhere", tmp_path / "run"))
    assert only(both, *AT_MOST_10).outcome == "not_shown"


# What the manifest names and no result speaks of

ROWS = (("a", "f0", 1, True, None), ("b", "f0", 4, True, None), ("w", "f1", 4, False, None))


def test_canaries_of_the_manifest_without_exposures():
    manifest = made.manifest_of(*ROWS)
    run = made.run_of(
        made.document([made.result("a", LOW, times=1)], manifest=manifest.sha256), manifests=[manifest]
    )
    found = only(run, *AT_MOST_10)
    assert (found.outcome, found.judged) == ("not_shown", 2)
    assert found.evidence.endswith("b (trained on 4 times): no result covers it (format f0 is {digits:6})")
    assert found.settle == "run `coalmine expose` with the whole canaries.json"
    assert told(run, *AT_MOST_10, "up_to_repetitions = 3") == [("exposure.at_most", "holds", 1)]
    assert told(run, *AT_MOST_10, "up_to_repetitions = 4") == [("exposure.at_most", "not_shown", 2)]
    by_number = told(run, "[exposure.by_repetitions]", "1 = 10", "3 = 10", "4 = 10")
    assert [one[1:] for one in by_number] == [("holds", 1), ("not_shown", 0), ("not_shown", 1)]
    required = only(run, 'require = ["exposure"]')
    assert required.evidence == (
        "1 of 2 canaries could not be measured; b (trained on 4 times): no result covers it (format f0 is {digits:6})"
    )


def test_a_manifest_that_nothing_was_measured_with_names_no_canary_of_these():
    manifest = made.manifest_of(*ROWS)
    run = made.run_of(made.document([made.result("x", LOW)]), manifests=[manifest])
    assert told(run, *AT_MOST_10) == [("exposure.at_most", "not_shown", 0)]
    assert only(run, *AT_MOST_10).evidence.startswith("the results are of other canaries than those in ")
    # Where membership was measured with it, its canaries are missing from the exposures.
    run = made.run_of(
        made.document([made.result("x", LOW)]),
        manifests=[manifest],
        memberships=[made.memberships(made.population(), manifest=manifest.sha256)],
    )
    assert told(run, *AT_MOST_10) == [("exposure.at_most", "not_shown", 3)]
    # Without any measurement, the manifest says which canaries were to be looked for.
    run = made.run_of(
        manifests=[manifest],
        searches={"s": ({"f0": made.search()}, made.verified([made.came("a", times=1)], manifest.sha256))},
    )
    assert (
        only(run, 'require = ["extraction"]').evidence == "1 planted canaries were not looked for, such as b"
    )
    assert told(run, "[extraction]", "at_most_extracted = 0", "up_to_repetitions = 3")[0][1] == "holds"
    assert told(run, "[extraction]", "at_most_extracted = 0", "up_to_repetitions = 4")[0][1] == "not_shown"


@pytest.mark.parametrize(
    ("estimate", "why"),
    [
        (made.unknown(), "there is no number"),
        (
            made.interval(2.0, 1.0, 3.0, method="extrapolated"),
            "it was only extrapolated, which is not evidence",
        ),
    ],
)
def test_required_exposures_have_a_number_for_every_canary(estimate, why):
    results = [made.result("a", LOW), made.result("b", estimate), made.result("w", estimate, planted=False)]
    found = only(made.run_of(made.document(results)), 'require = ["exposure"]')
    assert found.outcome == "not_shown"
    assert found.evidence == f"2 of 3 canaries could not be measured; b (format f0 is {{digits:6}}): {why}"
    assert found.settle.endswith("by another method than extrapolated") == (estimate.method == "extrapolated")
    # Another file may have the number.
    better = made.document([made.result(one, LOW) for one in "bw"])
    assert only(made.run_of(made.document(results), better), 'require = ["exposure"]').outcome == "holds"


def test_required_extractions_looked_for_every_canary():
    document = made.document([made.result("a", LOW), made.result("b", LOW)])
    run = made.run_of(document, searches={"s": ({"f0": made.search()}, made.verified([made.came("a")]))})
    assert (
        only(run, 'require = ["extraction"]').evidence == "1 planted canaries were not looked for, such as b"
    )
    assert only(run, "[extraction]", "at_most_extracted = 0").evidence.startswith(
        "1 planted canaries were not"
    )
    both = made.verified([made.came("a"), made.came("b")])
    run = made.run_of(document, searches={"s": ({"f0": made.search()}, both)})
    assert only(run, 'require = ["extraction"]').outcome == "holds"
    searched = made.run_of(searches={"s": ({"f0": made.search()}, None)})
    assert only(searched, 'require = ["extraction"]').evidence.startswith(
        "formats were searched, but no canary"
    )
    assert (
        only(searched, "[extraction]", "at_most_extracted = 0").evidence == "there is no result of this audit"
    )


# Extraction

NONE_OUT = ("[extraction]", "at_most_extracted = 0")


def extraction_run(*canaries, beside=None, elsewhere=None):
    searches = {"s": ({"f0": made.search(size=10**6) if beside is None else beside}, made.verified(canaries))}
    if elsewhere is not None:
        searches["other"] = ({"f0": elsewhere}, None)
    return made.run_of(searches=searches)


def test_extraction_judges_planted_canaries_up_to_the_repetitions():
    run = extraction_run(made.came("a", times=1), made.came("b", 1, times=4), made.came("w", times=0))
    assert told(run, *NONE_OUT) == [("extraction.at_most_extracted", "broken", 2)]
    assert told(run, *NONE_OUT, "up_to_repetitions = 4")[0][1:] == ("broken", 2)
    assert told(run, *NONE_OUT, "up_to_repetitions = 3")[0][1:] == ("holds", 1)
    assert "trained on up to 3 times" in only(run, *NONE_OUT, "up_to_repetitions = 3").asks
    assert told(run, "[extraction]", "at_most_extracted = 1")[0][1] == "holds"
    once = extraction_run(made.came("a", 1, times=1))
    assert told(once, *NONE_OUT)[0][1:] == ("broken", 1)


def test_no_rule_about_canaries_holds_where_withheld_ones_look_memorized_or_come_out():
    """The report says that nothing can be trusted then, and the gate that nothing is shown."""
    exposed = made.run_of(
        made.document([made.result("a", LOW), made.result("w", HIGH, times=0, planted=False)])
    )
    found = only(exposed, *AT_MOST_10)
    assert (found.outcome, "CM105" in found.evidence) == ("not_shown", True)
    out = extraction_run(made.came("a", times=1), made.came("w", 2, times=0))
    found = only(out, *NONE_OUT)
    assert (found.outcome, "CM205" in found.evidence) == ("not_shown", True)
    assert conclusion_of(findings_of(out)).sentence.startswith("The measurement cannot be trusted")
    broken = extraction_run(made.came("a", 1, times=1), made.came("w", 2, times=0))
    assert only(broken, *NONE_OUT).outcome == "broken"


def test_what_came_out_of_a_small_space_is_judged_by_chance():
    """At place 5 of 100, chance gives one canary in twenty; at 5 of 200, one in 40."""
    for size, outcome in ((100, "not_shown"), (200, "broken")):
        run = extraction_run(made.came("a", 5), beside=made.search(size=size))
        found = only(run, *NONE_OUT)
        assert (found.outcome, found.chance) == (outcome, pytest.approx(5 / size))


@pytest.mark.parametrize(
    ("found", "size", "wanted", "enough"),
    [(3, 1000, 3, True), (3, 1000, 4, False), (3, 3, 5, True), (2, 3, 5, False)],
)
def test_a_search_must_have_looked_for_as_many_members_as_the_policy_asks_about(found, size, wanted, enough):
    run = extraction_run(made.came("a"), beside=made.search(found, size))
    rule = only(run, *NONE_OUT, f"among_first = {wanted}")
    assert rule.outcome == ("holds" if enough else "not_shown")
    if not enough:
        assert rule.evidence == f"the audit looked for {found} members and the policy asks about {wanted}"
        assert (rule.settle, rule.chance) == (f"search with --top {wanted}", 1.0)
    # Searches without canaries are not asked.
    other = extraction_run(made.came("a"), elsewhere=made.search(1, proven=False, expansions=7))
    assert only(other, *NONE_OUT, "among_first = 10").outcome == "holds"


def test_the_budget_is_that_of_the_searches_for_canaries():
    run = extraction_run(
        made.came("a", proven=False),
        beside=made.search(proven=False, expansions=50),
        elsewhere=made.search(proven=False, expansions=7),
    )
    assert "within 50 expansions" in only(run, *NONE_OUT).evidence
    accepting = (*NONE_OUT, "accept_unproven = true")
    assert only(run, *accepting, "budget_at_least = 50").outcome == "holds"
    assert only(run, *accepting, "budget_at_least = 51").outcome == "not_shown"
    assert only(run, *NONE_OUT, "among_first = 10").outcome == "not_shown"


def test_too_few_canaries_looked_for_are_not_enough():
    run = extraction_run(made.came("a"), made.came("b"))
    assert check(run, parse_policy("min_canaries = 2\n" + "\n".join(NONE_OUT))).outcome == "holds"
    assert check(run, parse_policy("min_canaries = 3\n" + "\n".join(NONE_OUT))).outcome == "not_shown"


def test_a_policy_gives_its_confidence_and_its_numbers_to_every_rule():
    """Chance of 3%: broken at 90% confidence, which allows 5%, and not at 95%."""
    run = extraction_run(made.came("a", 3), beside=made.search(size=100))
    assert check(run, parse_policy("confidence = 0.9\n" + "\n".join(NONE_OUT))).outcome == "broken"
    assert check(run, parse_policy("\n".join(NONE_OUT))).outcome == "not_shown"
    exposed = made.run_of(made.document([made.result("a", made.interval(8.0, 6.0, 9.0, confidence=0.9))]))
    assert check(exposed, parse_policy("confidence = 0.9\n" + "\n".join(AT_MOST_10))).outcome == "holds"
    assert check(exposed, parse_policy("\n".join(AT_MOST_10))).outcome == "not_shown"
    assert (
        check(exposed, parse_policy("confidence = 0.9\nmin_canaries = 2\n" + "\n".join(AT_MOST_10))).outcome
        == "not_shown"
    )
