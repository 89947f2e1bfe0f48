"""The judge: one error for all tests of a report, one veto, and a catalog that has words for every measure."""

import pytest

from coalmine.audits import Measure
from coalmine.audits.registry import audits
from coalmine.errors import InputError
from coalmine.evidence.measures import LEVEL, decide
from coalmine.reports.catalog import catalog
from coalmine.reports.conclusion import conclusion_of
from coalmine.reports.findings import judged
from reports.verdict_parts import interval, unknown


def test_kinds_share_the_error_and_weights_divide_it():
    kinds = ("canary", "group", "control", "membership", "claim", "recitation")
    measures = [
        Measure(key="k", test=(kind, "x"), p_value=1.0, weight=4.0 if kind == "canary" else 1.0)
        for kind in kinds
    ]
    levels = decide(measures).levels
    assert levels == pytest.approx(
        {(kind, "x"): LEVEL * (4 if kind == "canary" else 1) / 9 for kind in kinds}
    )
    # Those of one kind share its part, and kinds that are not there leave theirs to the others.
    few = [Measure(key="k", test=("canary", name), p_value=1.0, weight=4.0) for name in "abcd"]
    few.append(Measure(key="k", test=("group", "g"), p_value=1.0))
    assert decide(few).levels["canary", "a"] == pytest.approx(LEVEL * 4 / 5 / 4)
    assert decide(few).levels["group", "g"] == pytest.approx(LEVEL / 5)


def test_what_is_shown_leaves_its_part_to_the_others():
    one, other = (
        Measure(key="k", test=("canary", "a"), p_value=0.0),
        Measure(key="k", test=("group", "g"), p_value=0.02),
    )
    decided = decide([one, other])
    assert decided.shows(one)
    assert decided.shows(other)


def test_different_results_about_one_thing_share_its_error_and_the_same_number_is_one_test():
    def shows(*p_values):
        measures = [Measure(key="k", test=("canary", "a"), p_value=one) for one in p_values]
        return decide(measures).shows(measures[0])

    assert shows(0.025)
    assert shows(0.025, 0.025)
    assert not shows(0.025, 0.9)
    assert shows(0.0125, 0.9)
    # What is only for rules, and what an audit decided itself, is no test.
    only_rules = Measure(key="k", p_value=0.0, is_test=False)
    remark = Measure(key="k", p_value=0.0, status="found")
    assert not decide([only_rules, remark]).levels
    assert not decide([only_rules]).shows(only_rules)


GROUP = {"key": "exposure.group", "test": ("group", "g"), "says": "12 canaries"}


def group(p_value=0.5, **parts):
    return Measure(**{**GROUP, "p_value": p_value, "about": ("a", "b"), **parts})


def single(name, p_value, **parts):
    return Measure(
        key="exposure.canary",
        name=name,
        estimate=interval(9.0, 8.0, 10.0),
        p_value=p_value,
        about=(name,),
        size=0.6,
        **parts,
    )


def statuses(*measures):
    return {one.key: one.status for one in judged(measures)}


def test_nothing_is_clear_that_another_measure_accuses():
    area = Measure(key="membership.auc", estimate=interval(0.55, 0.5, 0.59), p_value=0.5, about=("a",))
    assert statuses(group(), area) == {"exposure.group": "clear", "membership.auc": "clear"}
    accused = statuses(group(), area, single("a", 1e-9))
    assert accused == {
        "exposure.canary": "found",
        "exposure.group": "not_measured",
        "membership.auc": "not_measured",
    }
    # A doubt is one too, and so is a number that is not there.
    assert statuses(group(doubt="these are too few")) == {"exposure.group": "not_measured"}
    assert statuses(group(estimate=unknown())) == {"exposure.group": "not_measured"}


def test_a_group_speaks_of_those_that_are_not_found_by_themselves():
    (found,) = [one for one in judged([group(1e-9), single("a", 1e-9)]) if one.key == "exposure.group"]
    assert (found.status, found.subject) == ("not_measured", ("b",))
    assert "exposure.group" not in statuses(group(1e-9), single("a", 1e-9), single("b", 1e-9))
    assert statuses(group(1e-9)) == {"exposure.group": "found"}


def test_the_worst_finding_answers_and_doubt_takes_good_news_back():
    clear = group()
    assert conclusion_of(judged([clear])).tone == "good"
    other = Measure(key="data.apart", status="found", says="the weights are others")
    doubted = conclusion_of(judged([clear, other]))
    assert [one.tone for one in doubted.answers] == ["open", "warn"]
    assert doubted.sentence.endswith("But not all results belong to this model and these canaries.")
    control = Measure(key="exposure.control", p_value=1e-9, says="median 9 bits", about=("w",))
    assert conclusion_of(judged([clear, control])).sentence.startswith("The measurement cannot be trusted")
    assert conclusion_of(()).tone == "open"
    assert "not known" in conclusion_of(()).sentence


def test_the_catalog_has_words_for_everything_that_audits_say():
    known = catalog()
    for audit in audits():
        assert all(rule.of in known for rule in audit.rules)
        assert not audit.is_missed or f"missing.{audit.name}" in known
    for key, entry in known.items():
        assert entry.code and entry.title and entry.advice, key  # noqa: PT018
        assert all(code.startswith("CM") for code in entry.code.values()), key
        assert not entry.discredits or entry.verdict, key
        assert not entry.rest_of or entry.rest_of in known, key
    with pytest.raises(InputError, match=r"'toys\.broken', which no catalog has"):
        judged([Measure(key="toys.broken")])
