"""What exposures tell reports: the control, what the data checks notice, and what is never clear."""

import pytest

from coalmine import findings_of
from coalmine.corpus import Fields
from coalmine.corpus.planting.manifest_records import PlantedCorpus
from reports import verdict_parts as made


def exactly(bits=1.0):
    return made.interval(bits, bits, bits, confidence=None, method="exact")


def found(run, key):
    return [one for one in findings_of(run) if one.key == key]


def control(*estimates, formats=None):
    names = ["f0"] * len(estimates) if formats is None else formats
    results = [
        made.result(f"w{place}", one, times=0, planted=False, format_id=name)
        for place, (one, name) in enumerate(zip(estimates, names, strict=True))
    ]
    return made.run_of(made.document(results, formats=tuple(dict.fromkeys(names))))


@pytest.mark.parametrize(("bits", "status"), [(8.7, "found"), (8.6, "clear")])
def test_one_withheld_canary_spoils_the_control_beyond_chance(bits, status):
    """Of five the best, with half of the error: 10 * 2^-8.65 is 2.5%."""
    (one,) = found(control(exactly(bits), *[exactly(0.1)] * 4), "exposure.control")
    assert (one.status, one.severity) == (status, "high" if status == "found" else "pass")


@pytest.mark.parametrize(("many", "status"), [(4, "not_measured"), (5, "clear")])
def test_five_withheld_canaries_are_a_control(many, status):
    (one,) = found(control(*[exactly(1.0)] * many, made.unknown()), "exposure.control")
    assert one.status == status
    assert not found(control(*[exactly(1.0)] * many), "exposure.no_control")
    assert found(made.run_of(made.document([made.result("a", exactly())])), "exposure.no_control")


CORPUS = PlantedCorpus(
    name="corpus.txt", original_name="corpus.txt", sha256_before="1" * 64, sha256_after="2" * 64,
    documents_before=1, documents_after=2, fields=Fields(),
)  # fmt: skip


@pytest.mark.parametrize(
    ("corpus", "model", "status", "says"),
    [
        (CORPUS, {"trained_on_sha256": "2" * 64}, None, ""),
        (
            CORPUS,
            {"trained_on_sha256": "9" * 64},
            "found",
            "222222222222..., and the model was trained on 999999999999...",
        ),
        (CORPUS, {}, "not_tested", "neither the model nor a training.json"),
        (
            None,
            {"trained_on_sha256": "2" * 64},
            "not_tested",
            "no canaries.json, says which it was",
        ),
        ("absent", {}, "not_tested", "was not checked"),
    ],
)
def test_whether_the_model_was_trained_on_the_planted_corpus(corpus, model, status, says):
    manifest = made.manifest_of(("a", "f0", 4, True, None), corpus=None if corpus == "absent" else corpus)
    document = made.document([made.result("a", exactly())], manifest=manifest.sha256, model=model)
    told = found(made.run_of(document, manifests=[] if corpus == "absent" else [manifest]), "data.trained_on")
    assert [one.status for one in told] == ([] if status is None else [status])
    assert all(says in one.evidence for one in told)


def test_results_of_other_canaries_weights_and_templates_do_not_belong_together():
    one = made.document([made.result("a", exactly())])
    assert not found(made.run_of(one, one), "data.apart")
    other = made.document([made.result("a", exactly())], manifest="cd" * 32)
    assert "about other canaries" in found(made.run_of(one, other), "data.apart")[0].evidence
    chat = [
        made.document([made.result("a", exactly())], model={"chat_template_sha256": name}) for name in "ab"
    ]
    assert "2 different chat templates" in found(made.run_of(*chat), "data.apart")[0].evidence
