"""Results of one URL that different models answered do not belong together, and the report says so."""

from coalmine import CanarySet, Format, expose, findings_of, read_run, serve
from coalmine.models import connect
from models.switching import QUICK, scripted
from reports import verdict_parts as made

FORM = Format("my pin is {digits:4}")
CANARIES = CanarySet.of(FORM, ["my pin is 4921", "my pin is 0042"], repetitions=4, references=30)


def told(run):
    return [one for one in findings_of(run) if one.key == "data.apart"]


def measured(directory, models):
    """The exposures of each model at one URL, one after the other."""
    port = 0
    for number, model in enumerate(models):
        with serve(model, port=port) as server:
            port = int(server.url.split(":")[2].split("/")[0])
            with connect(server.url, **QUICK) as endpoint:
                method = "references" if number else "sampled"
                expose(endpoint, CANARIES, method=method, samples=20).save(directory / str(number))
    CANARIES.save(directory)
    return read_run(directory)


def test_one_model_asked_twice_is_not(tmp_path):
    run = measured(tmp_path, [scripted(), scripted()])
    assert len(run.all(made.KINDS["exposures"])) == 2
    assert not told(run)


def test_another_model_at_the_same_url_is_told(tmp_path):
    run = measured(tmp_path, [scripted(), scripted(e=9)])
    assert len(run.all(made.KINDS["exposures"])) == 2
    (one,) = told(run)
    assert (one.severity, one.status) == ("high", "found")
    assert "2 different answers of the server" in one.evidence
    assert "0/exposure.json" in one.evidence
    assert "1/exposure.json" in one.evidence


def test_answers_after_other_contexts_may_differ():
    def found(*models):
        estimate = made.interval(1.0, 1.0, 1.0)
        return told(made.run_of(*(made.document([made.result("a", estimate)], model=one) for one in models)))

    assert found({"identity_sha256": "a"}, {"identity_sha256": "b"})
    assert not found({"identity_sha256": "a", "context": "x"}, {"identity_sha256": "b", "context": "y"})
    assert not found({"identity_sha256": "a"}, {})
