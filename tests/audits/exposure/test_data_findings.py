"""Findings about data, training and what is missing: hashes that do not match, few canaries, and the first look that shows memory."""

import math
from pathlib import Path

import pytest

from coalmine import findings_of
from coalmine.audits.registry import catalog
from coalmine.audits.watching.results import WatchedTraining
from coalmine.corpus import Fields
from coalmine.corpus.planting.manifest_records import PlantedCorpus
from coalmine.evidence.run import Located
from coalmine.records.run_record import RUN_RECORDS
from coalmine.records.watching import Moment as WatchedMoment
from coalmine.training.options import TrainingOptions
from coalmine.training.record import EpochRecord, TrainingRecord
from reports import verdict_parts as made


def exactly(bits=1.0):
    return made.interval(bits, bits, bits, confidence=None, method="exact")


def found(run, code):
    return [one for one in findings_of(run) if one.code == code]


def the(run, code):
    (one,) = found(run, code)
    return one


def codes(run):
    return {one.code for one in findings_of(run)}


ROWS = (("a", "f0", 4, True, None),)
CORPUS = PlantedCorpus(
    name="corpus.txt",
    original_name="corpus.txt",
    sha256_before="1" * 64,
    sha256_after="2" * 64,
    documents_before=1,
    documents_after=2,
    fields=Fields(),
)


def exposures(manifest, **parts):
    return made.document([made.result("a", exactly())], manifest=manifest.sha256, **parts)


def training(data="2" * 64, epochs=2):
    return TrainingRecord(
        options=TrainingOptions(),
        data_sha256=data,
        weights_sha256="3" * 64,
        config_sha256="4" * 64,
        documents=1,
        tokens=1,
        parameters=1,
        epochs=[
            EpochRecord(epoch=n + 1, steps=5, training_loss_bits=1.0, validation_loss_bits=1.0)
            for n in range(epochs)
        ],
        best_epoch=1,
        stopped_early=False,
        watch=None,
        watched=[],
    )


@pytest.mark.parametrize(
    ("corpus", "model", "trained", "status", "says"),
    [
        (CORPUS, {"trained_on_sha256": "2" * 64}, None, None, ""),
        (CORPUS, {}, training(), None, ""),
        (CORPUS, {"trained_on_sha256": "9" * 64}, training(), None, ""),  # one of them is the planted corpus
        (CORPUS, {"trained_on_sha256": "9" * 64}, None, "found", "222222222222..., but the model was trained on 999999999999..."),
        (CORPUS, {"trained_on_sha256": "9" * 64}, training("8" * 64), "found", "trained on 888888888888..."),
        (CORPUS, {"trained_on_sha256": 7}, None, "not_tested", "the model does not say which data it was trained on"),
        (CORPUS, {}, None, "not_tested", "the model does not say which data it was trained on"),
        (None, {"trained_on_sha256": "2" * 64}, None, "not_tested", "does not say which corpus was planted"),
        (None, {}, None, "not_tested", "does not say which corpus was planted"),
        ("absent", {"trained_on_sha256": "2" * 64}, None, "not_tested", "the canaries.json was not given"),
    ],
)  # fmt: skip
def test_whether_the_model_was_trained_on_the_planted_corpus(corpus, model, trained, status, says):
    manifest = made.manifest_of(*ROWS, corpus=None if corpus == "absent" else corpus)
    run = made.run_of(
        exposures(manifest, model=model),
        manifests=[] if corpus == "absent" else [manifest],
        trainings=[] if trained is None else [trained],
    )
    told = found(run, "CM501")
    assert [(one.status, one.severity) for one in told] == (
        [] if status is None else [(status, "high" if status == "found" else "info")]
    )
    assert all(says in one.evidence for one in told)
    # Without exposures nothing needs to have been trained on the corpus, unless it is shown that it was not.
    without = made.run_of(manifests=[manifest], trainings=[] if trained is None else [trained])
    assert not [one for one in found(without, "CM501") if one.status == "not_tested"]


def test_what_commands_did_not_read_is_reported_as_not_tested():
    said = "2 strings of the conversations in chat.jsonl were not read: tools (2)"
    manifest = made.manifest_of(*ROWS)
    run = made.run_of(exposures(manifest), manifests=[manifest])
    assert "CM510" not in codes(run)
    records = [{"not_read": [said]}, {"not_read": [said, "another"]}, {"not_read": 7}, {}]
    located = tuple(Located(Path(f"{place}/run.json"), one) for place, one in enumerate(records))
    one = the(run.with_all(RUN_RECORDS, located), "CM510")
    assert (one.status, one.evidence) == ("not_tested", f"{said}; another.")


def test_what_expose_warned_of_is_told_once():
    manifest = made.manifest_of(*ROWS)
    run = made.run_of(
        exposures(manifest, warnings=("trained on other data", "trained on other data")), manifests=[manifest]
    )
    one = the(run, "CM501")
    assert (one.severity, one.evidence) == ("high", "Trained on other data.")


def test_the_manifest_is_the_one_that_was_measured():
    manifest, other = made.manifest_of(*ROWS), made.manifest_of(*ROWS, ("b", "f1", 1, True, None))
    assert not found(made.run_of(exposures(manifest), manifests=[manifest]), "CM502")
    one = the(made.run_of(exposures(manifest), manifests=[other]), "CM502")
    assert (one.severity, one.status) == ("high", "found")
    assert (
        f"{other.sha256[:12]}..., but the exposures were measured with {manifest.sha256[:12]}..."
        in one.evidence
    )
    absent = the(made.run_of(exposures(manifest)), "CM502")
    assert (absent.severity, absent.status) == ("info", "not_tested")
    assert not found(made.run_of(manifests=[manifest]), "CM502")


def test_results_of_other_canaries():
    def document(manifest=made.MANIFEST, times=4):
        return made.document([made.result("a", exactly(), times=times)], manifest=manifest)

    assert not found(made.run_of(document(), document()), "CM503")
    several = the(made.run_of(document(), *[document(str(n)) for n in range(4)]), "CM503")
    assert "(4 files: run/exposures-1/exposures.json, " in several.evidence
    assert several.evidence.count("exposures.json") == 3
    for manifest, told in ((None, False), (made.MANIFEST, False), ("other", True)):
        run = made.run_of(document(), memberships=[made.memberships(made.population(), manifest=manifest)])
        assert bool(found(run, "CM503")) == told
    # One of several is enough.
    run = made.run_of(
        document(),
        memberships=[made.memberships(made.population(), manifest=one) for one in (made.MANIFEST, "other")],
    )
    assert the(run, "CM503").severity == "high"


def test_canaries_of_an_extraction_that_the_exposures_do_not_have():
    def strange(*canaries):
        document = made.document([made.result("a", exactly())])
        return found(made.run_of(document, searches={"s": ({}, made.verified(canaries))}), "CM503")

    assert strange(made.came("a")) == []
    assert strange(made.came("a", times=1))[0].subject == ("a",)
    (one,) = strange(made.came("a"), *[made.came(f"x{n:02}") for n in range(51)])
    assert (one.severity, len(one.subject), one.subject[0]) == ("high", 50, "x00")
    assert one.evidence == "51 canaries of the extraction are not those of the exposures: x00, x01, x02."


def test_fewer_than_twenty_canaries_of_a_kind_are_few():
    def few(*counts, times=4):
        results = [
            made.result(f"c{kind}-{n}", exactly(), times=times + kind)
            for kind, count in enumerate(counts)
            for n in range(count)
        ]
        return found(made.run_of(made.document(results)), "CM504")

    assert few(20) == []
    assert few(19)[0].evidence.endswith("there are only 19 trained on 4 times.")
    assert few(20, 3)[0].evidence.endswith("there are only 3 trained on 5 times.")
    assert few(2, times=1)[0].evidence.endswith("only 2 trained on once.")
    assert few(1, times=0) == []
    assert few(*[1] * 8)[0].evidence.endswith("1 trained on 11 times.")
    assert few(*[1] * 10)[0].evidence.endswith("1 trained on 11 times and 2 more kinds.")
    assert (few(19)[0].severity, few(19)[0].status) == ("info", "found")
    two = made.document(
        [made.result("a", exactly()), made.result("b", exactly(), format_id="f1")], formats=("f0", "f1")
    )
    assert (
        "only 1 of f0 is {digits:6} trained on 4 times, 1 of f1 is" in the(made.run_of(two), "CM504").evidence
    )
    assert not found(made.run_of(), "CM504")


# When memorization began


def look(step, *lows, times=4, epoch=1.0, **entry):
    seen = [
        {
            "canary_id": f"c{n}",
            "repetitions": times,
            "status": "measured",
            "exposure": low,
            "low": low,
            **entry,
        }
        for n, low in enumerate(lows)
    ]
    return WatchedMoment(step=step, epoch=epoch, seen=seen)


def watched(*moments, method="references", **parts):
    return made.run_of(watches=[WatchedTraining(watch={"method": method}, watched=list(moments))], **parts)


@pytest.mark.parametrize(("low", "status"), [(7.33, "found"), (7.31, "not_measured")])
def test_the_first_look_that_shows_memorization_beyond_chance(low, status):
    """Two canaries and two looks: 2.5% / 4 is 2^-7.32."""
    one = the(watched(look(10, 1.0, 1.0), look(2000, 1.0, low, epoch=2.5)), "CM107")
    assert (one.status, one.severity) == (status, "info")
    if status == "found":
        assert one.subject == ("c1",)
        assert one.evidence.startswith(
            "The first canary that stands out is c1, trained on 4 times per epoch, at step 2,000 (epoch 2.5) with an exposure of at "
            "least 7.3 bits"
        )
    else:
        assert one.evidence.startswith("At none of 2 looks did a canary show memorization by itself")


def test_looks_and_canaries_share_the_error():
    def status(*moments):
        return the(watched(*moments), "CM107").status

    # Exactly at the level is not below it: 2.5% / 13 is 1 / 520.
    level = math.log2(520)
    assert 2.0**-level == 0.025 / 13
    assert status(look(1, level, *[0.0] * 12)) == "not_measured"
    assert status(look(1, level + 1e-9, *[0.0] * 12)) == "found"
    assert status(look(1, 5.33)) == "found"
    assert status(look(1, 5.31)) == "not_measured"
    assert status(look(1, 5.33), look(2, 1.0)) == "not_measured"
    # Moments at which nothing was seen are no looks, and canaries that are not trained on are not asked.
    assert status(look(1, 5.33), WatchedMoment(step=2, epoch=1.0, seen=[])) == "found"
    mixed = look(1, 5.33)
    mixed.seen.append({**mixed.seen[0], "canary_id": "w", "repetitions": 0, "low": 19.0})
    assert the(watched(mixed), "CM107").subject == ("c0",)
    assert status(look(1, 19.0, times=0)) == "not_measured"
    assert status(look(1, 19.0, times=1)) == "found"
    # The number of canaries is that of the last look.
    assert status(look(1, 5.33, 0.0), look(2, 0.0)) == "not_measured"
    assert status(look(1, 6.33, 0.0), look(2, 0.0)) == "found"
    assert the(watched(look(1, 19.0), look(2, 19.5)), "CM107").evidence.startswith(
        "The first canary that stands out is c0, trained on 4 times per epoch, at step 1 "
    )


@pytest.mark.parametrize(
    ("entry", "status"),
    [
        ({"low": None, "exposure": 9.0}, "found"),
        ({"low": None, "exposure": None}, "not_measured"),
        ({"low": 0.5, "exposure": 9.0}, "not_measured"),
        ({"low": 9.0, "exposure": None, "status": "lower_bound"}, "found"),
        ({"low": 9.0, "status": "not_measured"}, "not_measured"),
    ],
)
def test_the_lower_limit_of_a_look_counts(entry, status):
    assert the(watched(look(1, 1.0, **entry)), "CM107").status == status


def test_looks_that_show_nothing_and_those_of_a_curve():
    empty = WatchedMoment(step=2, epoch=1.0, seen=[])
    assert (
        the(watched(empty), "CM107").evidence
        == "Exposure was watched, but could not be measured at any moment."
    )
    curve = the(watched(look(1, 19.0), method="extrapolated"), "CM107")
    assert (curve.status, curve.severity) == ("not_measured", "info")
    assert not found(made.run_of(), "CM107")
    kept = the(watched(look(1, 19.0), trainings=[training(epochs=3)]), "CM107").evidence
    assert kept.endswith("; the weights that were kept are those of epoch 1 of 3.")
    assert "weights" not in the(watched(look(1, 19.0), trainings=[training(epochs=0)]), "CM107").evidence


# What is missing


def test_every_audit_that_is_not_there_is_told():
    assert codes(made.run_of()) == {f"CM90{n}" for n in range(1, 8)} | {"CM913"}
    assert {one.status for one in findings_of(made.run_of())} == {"not_tested"}
    missing = the(made.run_of(), "CM902")
    assert missing.evidence.startswith("There is no verified.json or extraction.json, so it is not known")
    assert missing.advice == "Run `coalmine extract MODEL --verify canaries.json`."


def test_the_advice_is_that_for_the_status():
    entry = catalog()["CM105"]
    assert entry.advice_for("found") == entry.advice_for("not_tested") == entry.advice
    assert entry.advice_for("not_measured") == entry.if_not_measured != ""
    assert entry.advice_for("clear") == entry.if_clear != ""
    assert catalog()["CM204"].advice_for("not_tested") == catalog()["CM204"].if_not_tested != ""
    # Where there is none for a status, the advice is the general one.
    assert catalog()["CM101"].advice_for("clear") == catalog()["CM101"].advice


def test_claims_controls_and_baselines_that_are_not_there():
    with_verdict, without = (
        made.memberships(made.population(), verdict=one) for one in (made.verdict("consistent"), None)
    )
    for documents, told in (([without], True), ([with_verdict], False), ([without, with_verdict], False)):
        assert ("CM907" in codes(made.run_of(memberships=documents))) == told
    planted = made.result("a", exactly())
    withheld = made.result("w", exactly(), times=0, planted=False)
    for results, told in (([planted], True), ([planted, withheld], False), ([withheld], False)):
        assert ("CM908" in codes(made.run_of(made.document(results)))) == told
    assert "CM908" not in codes(made.run_of())
    calm = made.group(made.interval(0.0, 0.0, 0.001))
    beside, alone = made.recitations(calm, baseline=True), made.recitations(calm)
    for documents, told in (([alone], True), ([beside], False), ([beside, alone], True)):
        assert ("CM909" in codes(made.run_of(recitations=documents))) == told


@pytest.mark.parametrize(
    ("measured", "seen", "told"),
    [(("a", "a"), "a", False), (("a", None), None, False), (("a", "b"), None, True), (("a",), "b", True)],
)
def test_different_chat_templates_are_told(measured, seen, told):
    documents = [
        made.document(
            [made.result("a", exactly())],
            model={"weights_sha256": "1", **({} if one is None else {"chat_template_sha256": one})},
        )
        for one in measured
    ]
    more = {} if seen is None else {"chat_template_sha256": seen}
    watch = WatchedTraining(watch={"method": "references"}, watched=[look(1, 1.0)], **more)
    templates = found(made.run_of(*documents, watches=[watch]), "CM506")
    assert bool(templates) == told
    if told:
        assert templates[0].severity == "medium"
        assert "2 different chat templates" in templates[0].evidence
