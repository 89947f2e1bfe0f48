"""Results of one URL that different models answered do not belong together, and the report says so."""

from coalmine import CanarySet, Format, findings_of
from reports import verdict_parts as made

FORM = Format("my pin is {digits:4}")
CANARIES = CanarySet.of(FORM, ["my pin is 4921", "my pin is 0042"], repetitions=4, references=30)


def told(run):
    return [one for one in findings_of(run) if one.key == "data.apart"]


def test_answers_after_other_contexts_may_differ():
    def found(*models):
        estimate = made.interval(1.0, 1.0, 1.0)
        return told(made.run_of(*(made.document([made.result("a", estimate)], model=one) for one in models)))

    assert found({"identity_sha256": "a"}, {"identity_sha256": "b"})
    assert not found({"identity_sha256": "a", "context": "x"}, {"identity_sha256": "b", "context": "y"})
    assert not found({"identity_sha256": "a"}, {})
