"""What a run leaves out is never passed over: results of other canaries, of other models, or without what they rest on."""

import shutil

import msgspec
import pytest

from coalmine import CanarySet, check, findings_of, parse_policy, read_run, read_runs
from coalmine.audits import VERIFIED
from coalmine.corpus import Fields
from coalmine.corpus.planting.manifest_records import PlantedCorpus
from coalmine.errors import InputError
from reports import report_runs as made

NONE_OUT = "[extraction]\nat_most_extracted = 0\nup_to_repetitions = 1"
LOW = "[exposure]\nat_most = 12"


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """A run in which nothing is remembered, whose canaries are in `planted`."""
    directory = tmp_path_factory.mktemp("audited")
    canaries = made.audited_run(directory / "run", remembered=0)
    (directory / "planted").mkdir()
    shutil.move(directory / "run" / "canaries.json", directory / "planted" / "canaries.json")
    return directory, canaries


@pytest.fixture
def run(audited, tmp_path):
    shutil.copytree(audited[0], tmp_path / "copy")
    return tmp_path / "copy"


def outcomes(policy, *paths):
    return {one.rule: one for one in check(read_run(*paths), parse_policy(policy)).rules}


def others(directory):
    """Canaries with the ids of those that were measured, and other texts."""
    canaries = made.canary_set()
    texts = made.FORM.sample(len(canaries), seed=11, replace=False)
    changed = [msgspec.structs.replace(one, text=text) for one, text in zip(canaries, texts, strict=True)]
    found = CanarySet(changed, {"f0": made.FORM}, references={"f0": made.FORM.sample(50, seed=12)})
    found.save(directory / "canaries.json")
    return found


def test_the_extraction_of_other_canaries_with_the_same_ids_does_not_count(run):
    require = 'require = ["extraction"]\n'
    assert {one.outcome for one in outcomes(require + NONE_OUT, run / "run", run / "planted").values()} == {
        "holds"
    }
    other = others(run / "other")
    shutil.rmtree(run / "run" / "extraction")
    made.save_verified(run / "run" / "extraction", made.scripted(), other)
    found = outcomes(require + NONE_OUT, run / "run", run / "planted")
    assert {one.outcome for one in found.values()} == {"not_shown"}
    assert all("no search looked for it" in one.evidence for one in found.values())
    (apart,) = [one for one in findings_of(read_run(run / "run", run / "planted")) if one.key == "data.apart"]
    assert "run/extraction/verified.json is about other canaries than" in apart.evidence


def test_the_extraction_of_another_model_is_a_run_of_its_own(run):
    canaries = CanarySet.load(run / "planted")
    made.save_verified(run / "elsewhere", made.scripted(list(canaries)[-1:]), canaries)
    shutil.copy(run / "elsewhere" / "verified.json", run / "run" / "extraction" / "verified.json")
    (run / "run" / "extraction" / "extraction-f0.json").unlink()
    with pytest.raises(InputError, match="hold results of 2 models"):
        outcomes(NONE_OUT, run / "run", run / "planted")
    assert sorted(bool(one.all(VERIFIED)) for one in read_runs(run / "run")) == [False, True]


def test_a_search_that_is_gone_proves_nothing(run):
    (run / "run" / "extraction" / "extraction-f0.json").unlink()
    found = outcomes('require = ["extraction"]\n' + NONE_OUT, run / "run", run / "planted")
    assert all(
        one.outcome == "not_shown" and "its search is not there" in one.evidence for one in found.values()
    )


def test_a_manifest_that_was_named_and_not_measured_is_missing(run):
    policy = f'require = ["exposure"]\n{LOW}'
    named = [run / "run", run / "planted"]
    assert {one.outcome for one in outcomes(policy, *named).values()} == {"holds"}
    others(run / "other")
    for more in (run / "other", run / "other" / "canaries.json"):
        found = outcomes(policy, *named, more)
        assert {one.outcome for one in found.values()} == {"not_shown"}
        assert all("no result covers it" in one.evidence for one in found.values())
    # One that is only met on the way may be of an earlier corpus.
    shutil.move(run / "other", run / "run" / "earlier")
    assert {one.outcome for one in outcomes(policy, *named).values()} == {"holds"}


def test_a_manifest_that_the_model_was_trained_on_and_that_was_not_measured_is_missing(run):
    """Also one that was only met on the way."""
    measured = CanarySet.load(run / "planted")
    shutil.move(run / "planted", run / "run" / "planted")
    other = others(run / "run" / "other")
    policy = f'require = ["exposure"]\n{LOW}'
    for canaries, trained_on, expected in (
        (other, "2" * 64, "not_shown"),
        (other, "1" * 64, "holds"),
        # The same canaries, in a corpus that was rewritten.
        (measured, "2" * 64, "holds"),
    ):
        planted = PlantedCorpus(
            name="corpus.txt", original_name="original.txt", sha256_before="0" * 64, sha256_after="2" * 64,
            documents_before=9, documents_after=9, fields=Fields(),
        )  # fmt: skip
        canaries.with_corpus(planted, "corpus.txt").save(run / "run" / "other" / "canaries.json")
        made.save_training(run / "run", data_sha256=trained_on)
        assert {one.outcome for one in outcomes(policy, run / "run").values()} == {expected}
