"""Plans: each step gets its share of the time, what is not needed is passed on, and what does not fit says so."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from coalmine.review.planning import PLANNED_SHARE, make_plan, plan_steps
from coalmine.review.running import run_steps
from coalmine.review.step import ReviewStep, Sized, StepAsked, TooLong
from coalmine.review.steps.comparing import as_many_as_fit
from hypothesis import given
from hypothesis import strategies as st

from coalmine import ScriptedModel
from coalmine.audits import Review, User, UserText
from coalmine.errors import InputError
from coalmine.progress import Silent

NOTHING = SimpleNamespace(model=ScriptedModel("ab"))


class Toy(ReviewStep):
    """A step of so many parts, each of which takes a second; it needs a few of them to say anything."""

    audits, files = ("toys",), ()

    def __init__(self, name, parts, *, least=1, share=1.0, obstacle=None):
        self.name, self.title, self.share = name, name.capitalize(), share
        self.parts, self.least, self.why = parts, least, obstacle

    def obstacle(self, _subject):
        return self.why

    def plan(self, _subject, seconds):
        if seconds < self.least:
            return TooLong(float(self.least))
        number = min(self.parts, int(seconds))
        return Sized(
            {"parts": number}, float(number), f"{number} parts", "" if number == self.parts else "cut"
        )

    def run(self, subject, settings, running):
        raise NotImplementedError


def sizes(steps, seconds):
    return {one.name: one.settings.get("parts") for one in plan_steps(steps, NOTHING, seconds)}


def test_time_is_shared_by_the_shares():
    steps = [Toy("a", 1000, share=3.0), Toy("b", 1000, share=1.0)]
    assert sizes(steps, 100) == {"a": 75, "b": 25}


def test_time_that_a_step_does_not_need_goes_to_the_later_ones():
    assert sizes([Toy("a", 10), Toy("b", 1000)], 100) == {"a": 10, "b": 90}


def test_time_that_a_later_step_does_not_need_goes_back_to_the_earlier_ones():
    assert sizes([Toy("a", 1000), Toy("b", 10)], 100) == {"a": 90, "b": 10}


def test_a_step_that_does_not_fit_into_its_share_gets_what_is_left():
    assert sizes([Toy("a", 80, least=70), Toy("b", 20)], 100) == {"a": 80, "b": 20}


def test_the_first_steps_have_the_least_that_says_anything_before_later_ones_have_more():
    assert sizes([Toy("a", 80, least=60), Toy("b", 1000), Toy("c", 1000)], 100) == {"a": 60, "b": 20, "c": 20}


class Running(Toy):
    """One that can be run, and takes as long as it is told."""

    def __init__(self, name, parts, clock, seconds, **others):
        super().__init__(name, parts, **others)
        self.clock, self.seconds = clock, seconds

    def is_done(self, _subject):
        return False

    def run(self, _subject, settings, _running):
        del settings
        self.clock.append(self.clock[-1] + self.seconds)

    def asked(self, _subject, settings):
        return StepAsked(f"{settings['parts']} were asked")


def run(planned, steps, clock):
    subject = SimpleNamespace(model=NOTHING.model, folder=Path())
    review = Review(model={}, minutes=100 / 60, steps=planned)
    return run_steps(
        review, steps, subject, engine=None, progress=Silent(), clock=lambda: clock[-1], began=0.0, save=lambda _: None
    )  # fmt: skip


def test_a_step_that_did_not_fit_is_run_where_the_others_leave_enough_time():
    clock = [0.0]
    steps = [Running("a", 90, clock, 10.0, least=70), Running("b", 60, clock, 5.0, least=50)]
    planned = plan_steps(steps, NOTHING, 80)
    assert [one.status for one in planned] == ["planned", "no_time"]
    found = run(planned, steps, clock)
    assert [(one.status, one.size) for one in found.steps] == [
        ("done", "80 were asked"),
        ("done", "60 were asked"),
    ]


def test_time_that_a_step_saves_makes_the_later_ones_larger():
    clock = [0.0]
    steps = [Running("a", 1000, clock, 10.0), Running("b", 1000, clock, 30.0), Running("c", 1000, clock, 0.0)]
    planned = plan_steps(steps, NOTHING, 80)
    assert [one.settings["parts"] for one in planned] == [26, 27, 27]
    found = run(planned, steps, clock)
    # The first took 10 of its 26 seconds; the second has the other 16 too, and takes 30 of its 43.
    assert [one.settings["parts"] for one in found.steps] == [26, 43, 40]
    assert [one.size for one in found.steps] == ["26 were asked", "43 were asked", "40 were asked"]
    assert [one.status for one in found.steps] == ["done"] * 3


class Endless(Running):
    """One that reports progress and never ends, but is stopped when its time is up."""

    def run(self, _subject, _settings, running):
        running.progress.start("asking", None)
        while True:
            self.clock.append(self.clock[-1] + 1)
            running.progress.advance()


def test_a_step_that_takes_longer_does_not_take_what_cheap_later_steps_need():
    clock = [0.0]
    steps = [Endless("a", 60, clock, 0.0), Running("b", 4, clock, 4.0), Running("c", 5, clock, 5.0)]
    found = run(plan_steps(steps, NOTHING, 80), steps, clock)
    assert [one.status for one in found.steps] == ["no_time", "done", "done"]
    assert clock[-1] <= 100


def test_a_step_that_takes_longer_than_all_of_the_time_leaves_the_cheapest_steps_a_little():
    clock = [0.0]
    steps = [
        Running("a", 60, clock, 200.0),
        Running("b", 15, clock, 15.0, least=15),
        Running("c", 3, clock, 3.0),
        Running("d", 1, clock, 1.0),
    ]
    found = run(plan_steps(steps, NOTHING, 80), steps, clock)
    assert [one.status for one in found.steps] == ["done", "no_time", "done", "done"]
    assert found.steps[1].why == "it would take about 15 seconds, and no time is left for it"


def test_documents_are_compared_before_an_optional_figure_is_drawn():
    users = [User(f"u{place}", [UserText("x" * 100)]) for place in range(100)]
    subject = SimpleNamespace(models_take=lambda _: 0.01, reference=None)
    takes = {"fewest": 40, "most": 100, "what": "documents"}
    tight, wide = (as_many_as_fit(subject, users, users, seconds, **takes) for seconds in (210, 20_000))
    assert (tight.settings, tight.cut) == ({"number": 100, "figure": False}, "")
    assert wide.settings == {"number": 100, "figure": True}
    assert wide.seconds > tight.seconds


def test_a_step_that_does_not_fit_at_all_says_what_it_would_take():
    big, small = plan_steps([Toy("big", 5000, least=5000), Toy("small", 20)], NOTHING, 100)
    assert big.status == "no_time"
    assert big.why == "it would take about 83.3 minutes, and 1.3 minutes are left for it"
    assert (small.status, small.why) == ("planned", "")


def test_a_step_that_does_not_apply_takes_no_time_and_says_why():
    records = plan_steps([Toy("a", 1000, obstacle="no toys were given"), Toy("b", 1000)], NOTHING, 100)
    assert [(one.status, one.why) for one in records] == [
        ("not_applicable", "no toys were given"),
        ("planned", "cut"),
    ]
    assert records[1].settings == {"parts": 100}


def test_a_time_that_is_too_short_for_anything_is_refused_with_one_that_is_not():
    steps = [Toy("big", 5000, least=5000), Toy("small", 600, least=600)]
    with pytest.raises(InputError) as refused:
        make_plan(steps, NOTHING, minutes=1, spent=30)
    assert str(refused.value) == (
        "1 minutes are too short for any step: the shortest, small, would take about 10 minutes, after 30 seconds for reading and "
        "measuring; give --minutes 17"
    )
    assert make_plan(steps, NOTHING, minutes=17, spent=30)[1].status == "planned"


def test_inputs_that_nothing_can_be_tested_with_are_refused():
    with pytest.raises(InputError, match=r"nothing can be tested with what was given \(a: no toys\)"):
        make_plan([Toy("a", 1, obstacle="no toys")], NOTHING, minutes=1)


@given(
    st.lists(st.tuples(st.integers(1, 300), st.integers(1, 60), st.floats(0.1, 5.0)), min_size=1, max_size=6),
    st.floats(0.1, 10.0),
    st.floats(0.0, 200.0),
)
def test_a_plan_never_takes_more_than_there_is(given_steps, minutes, spent):
    steps = [
        Toy(f"s{place}", parts, least=min(least, parts), share=share)
        for place, (parts, least, share) in enumerate(given_steps)
    ]
    usable = max(0.0, PLANNED_SHARE * 60 * minutes - spent)
    records = plan_steps(steps, NOTHING, usable)
    taken = sum(one.expected_seconds for one in records if one.status == "planned")
    assert taken <= usable + 1e-6
    # Nothing that would have fit into what is left was left out.
    for step, record in zip(steps, records, strict=True):
        assert record.status == "planned" or step.least > usable - taken
