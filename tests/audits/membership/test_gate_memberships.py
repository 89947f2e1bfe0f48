"""The rules about membership, epsilon and recitation: which populations and groups they take, and whose verdict decides."""

import pytest

from coalmine import check, parse_policy
from coalmine.audits.recitation.records import share_estimate
from coalmine.statistics import exact_exposure
from reports import verdict_parts as made


def checked(run, *lines):
    return check(run, parse_policy("\n".join(lines)))


def only(run, *lines):
    (rule,) = checked(run, *lines).rules
    return rule


def membership_run(*populations, manifests=(), exposures=(), **parts):
    return made.run_of(
        *exposures, memberships=[made.memberships(*populations, **parts)], manifests=list(manifests)
    )


AUC = ("[membership]", "auc_at_most = 0.6")
TPR = ("[membership]", "tpr_at_fpr_1_percent_at_most = 0.5")
EPSILON = ("[membership]", "no_epsilon_shown_above = 1.0")
LOW, HIGH = made.area(0.55, 0.5, 0.6), made.area(0.9, 0.8, 0.95)


def test_each_number_of_copies_is_judged_by_itself_and_what_is_pooled_only_where_nothing_else_is_there():
    once, often = made.population(auc=LOW), made.population("four", copies=4, auc=HIGH, p_value=0.001)
    pooled = made.population("all", copies=4, pooled=True, auc=HIGH, p_value=0.001)
    assert only(membership_run(once, pooled), *AUC).outcome == "holds"
    assert only(membership_run(once, often), *AUC).outcome == "broken"
    assert only(membership_run(once, often), *AUC, "up_to_repetitions = 3").outcome == "holds"
    assert only(membership_run(once, often), *AUC, "up_to_repetitions = 4").outcome == "broken"
    assert only(membership_run(pooled), *AUC).outcome == "broken"
    assert only(membership_run(once, often), *AUC).judged == 2


@pytest.mark.parametrize(("p_value", "outcome"), [(0.025, "broken"), (0.0251, "not_shown")])
def test_an_area_is_broken_by_its_exact_test(p_value, outcome):
    assert only(membership_run(made.population(auc=HIGH, p_value=p_value)), *AUC).outcome == outcome


BELOW = made.area(0.1, 0.0, 0.49)
RATES = (made.rate(0.0, 0.0, 0.1, at="1%"),)


@pytest.mark.parametrize("rule", [AUC, TPR, EPSILON])
@pytest.mark.parametrize("auc", [BELOW, made.unknown("AUC")])
def test_no_rule_holds_by_scores_on_the_wrong_side_or_by_equal_ones(rule, auc):
    plain = made.population("other", format_id="f1", rates=RATES)
    assert only(membership_run(plain), *rule).outcome == "holds"
    strange = made.population(auc=auc, rates=RATES)
    found = only(membership_run(strange, plain), *rule)
    assert found.outcome == "not_shown"
    assert auc.statement in found.evidence


def test_a_rate_that_is_above_its_limit_breaks_the_rule_whatever_the_area():
    rates = (made.rate(0.6, 0.55, 0.7, at="1%"),)
    run = membership_run(made.population(auc=BELOW, rates=rates, rate_p_values=(0.001,)))
    assert only(run, *TPR).outcome == "broken"


def test_populations_of_too_few_canaries_are_not_shown():
    run = membership_run(made.population(canaries=40), made.population("four", copies=4, canaries=20))
    assert checked(run, "min_canaries = 20", *AUC).outcome == "holds"
    found = only(run, "min_canaries = 21", *AUC)
    assert (found.outcome, found.chance) == ("not_shown", 1.0)
    assert found.evidence == "four has 20 canaries, and the policy asks for at least 21"
    assert checked(run, "min_canaries = 21", *AUC, "up_to_repetitions = 1").outcome == "holds"


@pytest.mark.parametrize("name", ["1%", "1 %"])
def test_the_rate_at_one_percent_is_taken_with_its_p_value(name):
    rates = (
        made.rate(0.9, 0.8, 0.95, at="10%"),
        made.rate(0.6, 0.55, 0.7, at=name),
        made.rate(0.9, 0.8, 0.95, at="0.1%"),
    )
    for p_values, outcome in (
        ((0.9, 0.001, 0.9), "broken"),
        ((0.001, 0.9, 0.001), "not_shown"),
        ((), "not_shown"),
    ):
        found = only(membership_run(made.population(rates=rates, rate_p_values=p_values)), *TPR)
        assert (found.outcome, found.judged) == (outcome, 1)
    low = made.population(rates=(made.rate(0.3, 0.2, 0.5, at=name),))
    assert only(membership_run(low), *TPR).outcome == "holds"
    # An open rate says how many canaries would do: 0.4 to 0.7 around 0.6, a tenth from the limit.
    between = made.population(rates=(made.rate(0.75, 0.25, 0.9, at=name),), canaries=16)
    assert only(membership_run(between), *TPR).settle.startswith("about 64 canaries of this kind")


def test_several_files_are_several_rules_named_by_their_file():
    run = made.run_of(
        memberships=[made.memberships(made.population(auc=one, p_value=0.001)) for one in (LOW, HIGH)]
    )
    found = checked(run, *AUC)
    assert [one.outcome for one in found.rules] == ["holds", "broken"]
    assert [one.rule for one in found.rules] == [
        f"membership.auc_at_most (run/memberships-{number}/memberships.json)" for number in (0, 1)
    ]
    assert only(membership_run(made.population()), *AUC).rule == "membership.auc_at_most"
    assert only(membership_run(made.population()), *AUC).asks == "AUC at most 0.6"


def test_formats_and_copies_that_membership_says_nothing_about():
    manifest = made.manifest_of(
        ("a", "f0", 1, True, None),
        ("b", "f0", 4, True, 2),  # of four copies two are left
        ("c", "f1", 1, True, None),
        ("w", "f1", 8, False, None),
    )
    here = {"manifest": manifest.sha256, "manifests": [manifest]}
    first = made.population(auc=LOW)
    found = only(membership_run(first, **here), *AUC)
    assert (found.outcome, found.judged) == ("not_shown", 3)
    assert "f0 is {digits:6}, trained on 4 times: membership has no scores of it" in found.details
    assert "f1 is {digits:6}, trained on once: membership has no scores of it" in found.details
    assert found.settle.startswith("plant with --references")
    assert only(membership_run(first, **here), *AUC, "up_to_repetitions = 3").judged == 2
    assert only(membership_run(first, **here), *AUC, "up_to_repetitions = 4").judged == 3
    required = only(membership_run(first, **here), 'require = ["membership"]')
    assert required.evidence == "f0 is {digits:6}, trained on 4 times: membership has no scores of it"
    whole = [first, made.population("b", copies=4, auc=LOW), made.population("c", format_id="f1", auc=LOW)]
    assert only(membership_run(*whole, **here), *AUC).outcome == "holds"
    assert only(membership_run(*whole, **here), 'require = ["membership"]').outcome == "holds"
    # What is pooled does not stand in for a format.
    pooled = [*whole[:2], made.population("c", format_id="f1", auc=LOW, pooled=True)]
    assert only(membership_run(*pooled, **here), *AUC).outcome == "not_shown"
    # Results of another manifest do not say what these are of.
    strange = only(membership_run(*whole, manifest="unknown", manifests=[manifest]), *AUC)
    assert strange.evidence.startswith("the results are of other canaries than those in ")
    alone = only(membership_run(*whole, manifest="unknown"), *AUC)
    assert alone.evidence.endswith("neither its exposures nor its canaries.json were given")
    assert only(membership_run(*whole, manifests=[manifest]), *AUC).outcome == "holds"


def test_without_a_manifest_the_exposures_say_how_often_canaries_were_planted():
    results = [
        made.result("a", exact_exposure(2**19, 2**20), times=2, planned=4),
        made.result("b", exact_exposure(2**19, 2**20), times=1),
        made.result("w", exact_exposure(2**19, 2**20), times=0, planned=8, planted=False),
    ]
    exposures = [made.document(results)]
    found = membership_run(made.population(auc=LOW), exposures=exposures, manifest=made.MANIFEST)
    assert only(found, *AUC).details == (
        "f0 is {digits:6}, trained on 4 times: membership has no scores of it",
    )


def epsilon(low, **parts):
    return made.population(epsilon=(low, low), epsilon_p_value=0.001, **parts)


@pytest.mark.parametrize(
    ("at", "asked", "outcome"),
    [
        (1e-5, None, "broken"),
        (1e-5, 1e-5, "broken"),
        (1e-5, 9e-6, "broken"),
        (1e-5 * (1 - 1e-9), 1e-5, "broken"),
        (9.9e-6, 1e-5, "not_shown"),
        (1e-7, 1e-5, "not_shown"),
    ],
)
def test_a_bound_refutes_only_claims_at_no_larger_delta(at, asked, outcome):
    lines = EPSILON if asked is None else (*EPSILON, f"delta = {asked!r}")
    found = only(membership_run(epsilon(2.0), delta=at), *lines)
    assert found.outcome == outcome
    if outcome == "not_shown":
        assert found.evidence == f"epsilon was bounded at delta {at:g}"
        assert (found.settle, found.chance) == (f"run membership with --delta {asked:g}", 1.0)


def test_a_claim_of_no_leak_at_all_is_refuted_by_any_bound():
    lines = ("[membership]", "no_epsilon_shown_above = 0.0")
    assert only(membership_run(epsilon(0.5)), *lines).outcome == "broken"
    assert only(membership_run(epsilon(0.0)), *lines).outcome == "holds"
    assert only(membership_run(epsilon(0.5)), *EPSILON).outcome == "holds"


@pytest.mark.parametrize(
    ("verdict", "lines", "by_verdict"),
    [
        (made.verdict("consistent"), EPSILON, True),
        (made.verdict("consistent", epsilon=2.0), EPSILON, False),
        (made.verdict("consistent"), (*EPSILON, "up_to_repetitions = 9"), False),
        (made.verdict("consistent"), (*EPSILON, "delta = 1e-5"), True),
        (made.verdict("consistent", delta=1e-4), (*EPSILON, "delta = 1e-5"), True),
        (made.verdict("consistent", delta=1e-6), (*EPSILON, "delta = 1e-5"), False),
        (made.verdict("consistent", confidence=0.95 - 1e-9), EPSILON, True),
        (made.verdict("consistent", confidence=0.99), EPSILON, True),
        (made.verdict("consistent", confidence=0.949), EPSILON, False),
        (None, EPSILON, False),
    ],
)
def test_the_verdict_of_the_audit_decides_where_it_is_on_the_same_claim(verdict, lines, by_verdict):
    """The bound is broken by itself, so what holds does so by the verdict."""
    *others, found = checked(membership_run(epsilon(2.0), verdict=verdict), *lines).rules
    # A verdict on another claim has a rule of its own, which nobody has to ask for.
    names = [one.rule for one in others]
    assert names == ([] if by_verdict or verdict is None else ["membership.claim_not_violated"])
    assert found.outcome == ("holds" if by_verdict else "broken")
    assert (found.words == "no violation shown") == by_verdict


@pytest.mark.parametrize(
    ("verdict", "outcome", "settle"),
    [
        (made.verdict("violated", p_value=0.025), "broken", ""),
        (made.verdict("violated", p_value=0.0251), "not_shown", "plant other canaries"),
        (made.verdict("consistent"), "holds", ""),
        (made.verdict("too little power"), "not_shown", "more canaries, planted once and withheld by a coin"),
    ],
)
def test_the_outcome_of_a_verdict(verdict, outcome, settle):
    run = membership_run(epsilon(0.5), epsilon(0.5, copies=4), verdict=verdict)
    found = only(run, *EPSILON)
    assert (found.outcome, found.judged, found.chance) == (outcome, 2, verdict.p_value)
    assert found.settle.startswith(settle)
    assert bool(found.settle) == bool(settle)
    assert verdict.statement in found.evidence
    # A claim holds for every format of the manifest, or it is not shown.
    manifest = made.manifest_of(("a", "f0", 1, True, None), ("c", "f1", 1, True, None))
    here = membership_run(epsilon(0.5), verdict=verdict, manifest=manifest.sha256, manifests=[manifest])
    found = only(here, *EPSILON)
    assert found.outcome == ("not_shown" if outcome == "holds" else outcome)
    assert ("; but f1 is {digits:6}, trained on once: " in found.evidence) == (outcome == "holds")
    assert found.settle.startswith("plant with --references" if outcome == "holds" else settle)


# Recitation

RECITED = ("[recitation]", "rate_at_most = 0.1")


def share(hits, n=200):
    return share_estimate(hits, n, "were recited", 0.95)


def recited(*groups, **parts):
    return made.run_of(recitations=[made.recitations(*groups, **parts)])


def test_every_context_of_every_model_that_was_asked_is_judged_and_no_part_of_one():
    calm, much = share(4), share(60)
    assert only(recited(made.group(calm)), *RECITED).outcome == "holds"
    assert only(recited(made.group(calm), made.group(much, context=100)), *RECITED).outcome == "broken"
    parts = [made.group(much, bucket=1), made.group(much, length=100), made.group(much, model="other")]
    found = only(recited(made.group(calm), *parts, baseline=True), *RECITED)
    assert (found.outcome, found.judged) == ("holds", 1)
    two = recited(made.group(calm), made.group(much, model="second", context=None), names=("asked", "second"))
    assert "worst: second, " in only(two, *RECITED).evidence
    assert "asked at context 50" in only(recited(made.group(calm)), *RECITED).evidence
    none = only(recited(made.group(much, model="other"), baseline=True), *RECITED)
    assert (none.outcome, none.judged, none.evidence) == (
        "not_shown",
        0,
        "there are no groups among the results",
    )


def test_a_recited_share_is_broken_by_its_binomial_chance():
    """33 of 200 at a limit of a tenth: a chance of 0.3%, which seven groups share and eight do not."""
    from scipy.stats import binom

    p_value = binom.sf(32, 200, 0.1)
    found = only(recited(made.group(share(33))), *RECITED)
    assert found.chance == pytest.approx(p_value)
    two = only(recited(made.group(share(33)), made.group(share(2), context=99)), *RECITED)
    assert two.chance == pytest.approx(2 * p_value)
    assert only(recited(made.group(share(0))), *RECITED).chance == 1.0
    several = made.run_of(recitations=[made.recitations(made.group(share(one))) for one in (2, 60)])
    assert [one.outcome for one in checked(several, *RECITED).rules] == ["holds", "broken"]
    assert all(one.rule.startswith("recitation.rate_at_most (") for one in checked(several, *RECITED).rules)
    between = only(recited(made.group(share(16))), *RECITED)
    assert between.settle.endswith("sequences")
    assert between.settle.startswith("about ")
