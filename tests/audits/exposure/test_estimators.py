"""The records of estimators: complete, consistent with what they measure, and asked instead of names."""

import ast
from pathlib import Path

import pytest

import coalmine
from coalmine import CanarySet, ScriptedModel, expose
from coalmine.audits.exposure.estimators import ESTIMATORS, METHODS, estimator_of, is_known, preference

NAMES = {one.name for one in ESTIMATORS}
SET = CanarySet.of("pin {digits:3}", ["pin 490", "pin 117", "pin 555"], references=30, seed=1)


@pytest.mark.parametrize("one", ESTIMATORS, ids=lambda one: one.name)
def test_an_estimator_keeps_to_its_record(one):
    model = ScriptedModel("pin 0123456789", memory={"pin 490": 0.2}, frequencies={"1": 4, "5": 9})
    found = expose(model, SET, method=one.name, samples=400, budget=3)
    assert one.measure.__name__ == one.name
    assert {result.method for result in found} <= {one.name, *one.may_return}
    kinds = {rows.kind for rows in found.candidates} - {"reference", "canary"}
    assert kinds == ({one.keeps} - {None, "reference"})
    if one.strength == "proven":
        assert {result.estimate.confidence for result in found} == {None}
    if one.among_others:
        assert found[0].estimate.n == (30 if one.among == "references" else 400)
    assert one.is_evidence == (not found.tail_fits)


def test_names_that_are_not_known_claim_little():
    assert not is_known("auto")
    assert estimator_of("watched").is_evidence
    assert not estimator_of("watched").among_others
    assert sorted([*METHODS[1:], "watched"], key=preference) == [*METHODS[1:], "watched"]


def test_no_module_compares_the_names_of_estimators():
    """What is to be known of an estimator is a field of its record; choosing one by its record's name is fine."""
    unmistakable = NAMES - {"exact", "references"}  # words that other things are called by too
    found = []
    for path in Path(coalmine.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Compare):
                sides = [part for side in (node.left, *node.comparators) for part in ast.walk(side)]
                words = {
                    one.value for one in sides if isinstance(one, ast.Constant) and isinstance(one.value, str)
                }
                if (words & unmistakable and path.parent.name == "exposure") or len(words & NAMES) > 1:
                    found.append(f"{path.name}:{node.lineno}")
    assert found == []
