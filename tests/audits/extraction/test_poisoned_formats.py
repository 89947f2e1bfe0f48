"""A format that cannot be searched: the others are, its canaries are not called safe, and nothing of an earlier run is left of it."""

import pytest

from audits.poisoned_model import PoisonedModel, RaisingModel
from coalmine import (
    Canary,
    CanarySet,
    Format,
    ScriptedModel,
    check,
    extract,
    findings_of,
    parse_policy,
    read_run,
)
from coalmine.audits import verify_extraction
from coalmine.audits.extraction.report import searched
from coalmine.audits.extraction.results import read_verified, save_verification
from coalmine.errors import NoNumberError

CHARACTERS = "pin code 0123456789"
FORMS = {"f0": Format("pin {digits:2}"), "f1": Format("code {digits:2}")}
CANARIES = CanarySet(
    [
        Canary(canary_id=name, format_id=format_id, text=text, repetitions=4, planted=True)
        for name, format_id, text in (("a", "f0", "pin 12"), ("b", "f1", "code 34"), ("c", "f1", "code 99"))
    ],
    FORMS,
)
MEMORY = {"code 34": 0.25}
POLICY = "min_canaries = 1\n[extraction]\nat_most_extracted = 1\n"


def saved(model, folder, **options):
    results, extractions = verify_extraction(model, CANARIES, **options)
    save_verification(folder, results, extractions, manifest_sha256=CANARIES.sha256, model=model.describe())
    return results, extractions


@pytest.mark.parametrize("method", ["search", "brute"])
def test_the_other_format_is_searched_and_the_canaries_of_this_one_are_not_called_safe(method, tmp_path):
    CANARIES.save(tmp_path / "canaries.json")
    whole = ScriptedModel(CHARACTERS, memory=MEMORY)
    _, before = saved(whole, tmp_path, method=method, top=1)
    model = PoisonedModel(CHARACTERS, "pin 5", memory=MEMORY)
    results, extractions = saved(model, tmp_path, method=method, top=1)
    assert extractions == {"f1": before["f1"]}
    assert [(one.extracted, one.proven) for one in results] == [
        (False, False),
        (True, True),
        (False, True),
    ]
    assert [one.problem is None for one in results] == [False, True, True]
    assert results[0].problem.endswith("check the weights")
    assert sorted(path.name for path in tmp_path.glob("extraction-*")) == ["extraction-f1.json"]
    assert list(read_verified(tmp_path).canaries) == results
    assert [*searched(results, extractions)][
        -1
    ] == f"Not looked for: 1 canaries, such as a: {results[0].problem}."
    run = read_run(tmp_path)
    judged = check(run, parse_policy(POLICY))
    assert [rule.outcome for rule in judged.rules] == ["not_shown"]
    (finding,) = [
        one for one in findings_of(run) if one.key == "extraction.canary" and one.status == "not_measured"
    ]
    assert (finding.code, list(finding.subject)) == ("CM203", ["a"])
    required = check(run, parse_policy("require = ['extraction']\n" + POLICY))
    assert any(results[0].problem in rule.evidence for rule in required.rules)


def test_where_no_format_can_be_searched_it_is_one_sentence():
    with pytest.raises(NoNumberError, match="not finite"):
        extract(PoisonedModel(CHARACTERS, "pin 5"), "pin {digits:2}")
    with pytest.raises(NoNumberError, match="ZeroDivisionError"):
        extract(RaisingModel(CHARACTERS, "pin 55"), "pin {digits:2}")
