"""One audit of everything: each step by what was given, the same results after a stop, and a page that says what was not tested."""

import contextlib
import json
import os
import random
from unittest import mock

import pytest

from cli.in_process import run
from coalmine import CanarySet, ScriptedModel, audit, read_run, verify_run
from coalmine.audits import PROVENANCES, RECITATIONS, REVIEWS
from coalmine.audits.whole import auditing, steps
from coalmine.audits.whole.records import Speeds
from coalmine.corpus import Fields
from coalmine.errors import InputError, ModelError
from coalmine.progress import Silent
from coalmine.reports.conclusion import reported

WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "and",
    "saw",
    "dogs",
    "run",
    "far",
    "away",
    "under",
    "seven",
    "trees",
    "while",
    "rain",
    "fell",
]
CHARACTERS = "abcdefghijklmnopqrstuvwxyz 0123456789-"
# The one secret of the training data, which has it three times.
PHONE, SECRET = "713-853-4921", "call the cat at 713-853-4921 and say when the rain fell under seven trees"
SPEEDS = Speeds(lines=100.0, steps=1e5)


def timed(clock=lambda: 0.0, speeds=SPEEDS):
    """A clock that stands still or is set, and speeds that are known."""
    return mock.patch.multiple(auditing, clock=clock, measure=lambda *_: speeds)


@pytest.fixture(autouse=True)
def still():
    with timed():
        yield


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Training data of which a model knows every line, and held-out text, by other users."""
    at, draw = tmp_path_factory.mktemp("world"), random.Random(0)

    def lines(number):
        return [" ".join(draw.choice(WORDS) for _ in range(10)) for _ in range(number)]

    known, others = lines(45) + [SECRET] * 3, lines(48)
    for name, texts, by in (("train", known, "u"), ("held-out", others, "v")):
        rows = [{"text": text, "user": f"{by}{place % 12}@example.org"} for place, text in enumerate(texts)]
        (at / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    memory = dict.fromkeys(known, 1 / 200) | {"pin 49": 1 / 50}
    return at, lambda: ScriptedModel(CHARACTERS, memory=memory)


def everything(at, out, model, **others):
    canaries = CanarySet.of("pin {digits:2}", ["pin 49"], references=20)
    given = {
        "held_out": at / "held-out.jsonl",
        "canaries": canaries,
        "fields": Fields(user="user"),
        "minutes": 1,
    }
    return audit(model, at / "train.jsonl", out, **given | others)  # fmt: skip


@pytest.fixture(scope="module")
def whole(world, tmp_path_factory):
    at, made = world
    out = tmp_path_factory.mktemp("whole") / "audit"
    with timed():
        return out, everything(at, out, made())


def results(out):
    """Everything that was written but the plan, which has times, and the page, which shows it."""
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name not in {"review.json", "report.html"}
    }


def test_every_step_is_run_that_something_was_given_for(whole):
    out, review = whole
    assert {one.name: one.status for one in review.steps} == {one.name: "done" for one in steps.STEPS}
    assert REVIEWS.load(out) == review
    run = read_run(out)
    assert run.first(RECITATIONS).sequences > 0
    assert {one.document.settings.by for one in run.all(PROVENANCES)} == {"document", "user"}
    assert verify_run(out).sound


def test_secrets_are_in_no_file_that_others_can_read(whole):
    out, _ = whole
    holding = {path for path in out.rglob("*") if path.is_file() and PHONE.encode() in path.read_bytes()}
    assert {path.name for path in holding} >= {"secrets.json", "distinct.jsonl"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in holding)
    assert PHONE not in (out / "report.html").read_text() + (out / "review.json").read_text()


def test_what_was_not_given_is_said_on_the_page(world, tmp_path):
    at, made = world
    review = audit(made(), at / "train.jsonl", tmp_path / "audit", minutes=1)
    left_out = {one.name: one.why for one in review.steps if one.status == "not_applicable"}
    assert left_out["documents"] == "no held-out text was given to compare with (--held-out)"
    assert left_out["canaries-exposure"] == "no manifest of planted canaries was given (--canaries)"
    (found,) = reported([read_run(tmp_path / "audit")])
    assert found.conclusion.sentence == (
        "1 of 1 tested secrets can be read out of the model. It recites training data, which without a baseline may be "
        "text that any model guesses."
    )
    assert "Did it memorize the canaries?" not in {one.question for one in found.conclusion.answers}
    reasons = {one.key: one.evidence for one in found.findings if one.status == "not_tested"}
    assert "no held-out text was given" in reasons["steps.left_out"]
    assert "Membership of training documents: no held-out text" in reasons["missing.provenance"]
    assert "Exposure of canaries: no manifest of planted" in reasons["missing.exposure"]


class Stopping(Silent):
    """Ends an audit in the middle of a step."""

    def __init__(self, title, end):
        self._title, self._end, self._there = title, end, False

    def start(self, task, total):
        del total
        self._there = task.startswith(self._title)

    def advance(self, amount=1, note=""):
        del amount, note
        if self._there:
            self._end()


def interrupted(at, out, model, title):
    """As Ctrl-C ends it."""

    def end():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        everything(at, out, model, progress=Stopping(title, end))


def killed(at, out, model, title):
    """As kill -9 ends it: nothing is put in order."""
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            everything(at, out, model, progress=Stopping(title, lambda: os._exit(9)))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


@pytest.mark.parametrize(("stop", "title"), [(interrupted, "Recitation"), (killed, "Exposure")])
def test_an_audit_that_is_stopped_resumes_and_ends_with_the_same_results(world, whole, tmp_path, stop, title):
    at, made = world
    stop(at, tmp_path / "audit", made(), title)
    # Speeds that would give another plan: the one that was made is followed.
    with timed(speeds=Speeds(lines=1.0, steps=1.0)):
        review = everything(at, tmp_path / "audit", made())
    assert [one.settings for one in review.steps] == [one.settings for one in whole[1].steps]
    assert results(tmp_path / "audit") == results(whole[0])


def test_steps_that_have_their_results_are_not_repeated(world, whole):
    at, made = world
    out, _ = whole
    model, before = made(), results(out)
    everything(at, out, model)
    assert model.calls == 0
    assert results(out) == before


class Late(Silent):
    """A clock that stands still until a step begins, and then shows another time."""

    def __init__(self, title, then):
        self._title, self._then, self.now = title, then, 0.0

    def start(self, task, total):
        del total
        if task.startswith(self._title):
            self.now = self._then

    def timed(self, speeds=SPEEDS):
        return timed(lambda: self.now, speeds)


def test_more_inputs_and_more_time_add_what_was_missing(world, tmp_path):
    at, made = world
    late, slow = Late("reading the held-out", 59.0), Speeds(lines=5.0, steps=1e5)
    given = {"held_out": at / "held-out.jsonl"}

    def run(**others):
        return audit(made(), at / "train.jsonl", tmp_path / "audit", **{"minutes": 1, **others})

    with timed(speeds=slow):
        first = run()
    with late.timed(slow):
        second = run(progress=late, **given)
    third = run(minutes=60, **given)
    found = [review.step("documents") for review in (first, second, third)]
    assert [one.status for one in found] == ["not_applicable", "no_time", "done"]
    assert found[1].why.startswith("it would take about ")
    assert third.step("recitation") == first.step("recitation")


def test_a_step_whose_time_is_up_ends_and_resumes_with_more(world, whole, tmp_path):
    at, made = world
    late = Late("Recitation", 1000.0)
    with late.timed():
        review = everything(at, tmp_path / "audit", made(), progress=late)
    stopped = review.step("recitation")
    assert stopped.status == "no_time"
    assert stopped.why.startswith("the time was up before it was finished")
    assert "running" not in {one.status for one in review.steps}
    again = everything(at, tmp_path / "audit", made(), minutes=100)
    assert again.step("recitation").status == "done"
    assert results(tmp_path / "audit").keys() == results(whole[0]).keys()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data": "missing.jsonl"}, "missing.jsonl is not a file"),
        ({"held_out": "train.jsonl"}, "is the training data itself"),
        ({"held_out": "copy.jsonl"}, "every document of the held-out text .* is in the training data"),
        ({"minutes": 0}, "minutes must be more than 0"),
    ],
)
def test_inputs_that_cannot_be_used_are_refused_in_a_sentence(world, tmp_path, changes, said):
    at, made = world
    (at / "copy.jsonl").write_text((at / "train.jsonl").read_text() + "\n")
    given = {"data": "train.jsonl", "held_out": "held-out.jsonl", "minutes": 1, **changes}
    with pytest.raises(InputError, match=said):
        audit(
            made(),
            at / given["data"],
            tmp_path / "audit",
            held_out=at / given["held_out"],
            minutes=given["minutes"],
        )
    assert not (tmp_path / "audit").exists()


def test_the_directory_of_another_audit_is_refused(world, whole, tmp_path):
    at, _ = world
    out, before = whole[0], results(whole[0])
    with pytest.raises(InputError, match=r"holds an audit of something else \(model differs\)"):
        everything(at, out, ScriptedModel(CHARACTERS))
    with pytest.raises(InputError, match=r"held_out differs"):
        audit(world[1](), at / "train.jsonl", out, fields=Fields(user="user"))
    assert results(out) == before
    (tmp_path / "recitation").mkdir()
    with pytest.raises(InputError, match="has results of something else"):
        audit(world[1](), at / "train.jsonl", tmp_path)


class Silenced(ScriptedModel):
    """A model that answers nothing, though nobody would say so before it is asked."""

    def score(self, *_, **__):
        raise ModelError("the weights are gone")

    score_distribution = start = step = score


def silenced():
    return Silenced(CHARACTERS)


def test_where_nothing_could_be_tested_every_answer_says_so(world, tmp_path):
    out = tmp_path / "audit"
    ended = run(
        *("audit", "python:audits.whole.test_auditing:silenced", "--data", world[0] / "train.jsonl"),
        *("--minutes", "1", "--out", out),
    )
    assert {one.status for one in REVIEWS.load(out).steps if one.audits} == {"not_applicable"}
    said = "Nothing was tested, so it is not known what the model remembers."
    assert ended.code == 2
    assert said in ended.said
    assert said in (out / "report.html").read_text()
    assert said in run("report", out, "--format", "markdown", "-o", tmp_path / "report.md").said
