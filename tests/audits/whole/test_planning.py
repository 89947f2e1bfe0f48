"""Plans: each step gets its share of the time when it begins, what is not needed is passed on, and what does not fit says so."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalmine import ScriptedModel
from coalmine.audits import Review, StepRecord
from coalmine.audits.whole.running import LEAST, PLANNED_SHARE, REPORTING, AuditRun, AuditStep, Sized, TooLong
from coalmine.errors import InputError
from coalmine.progress import Silent

# In so many minutes, steps are planned to take 100 seconds.
MINUTES = 125 / 60


class Toys:
    """A table of steps of so many parts, each of which is thought to take a second; each needs a few of them to say anything."""

    def __init__(self, folder, now=0.0):
        self.now, self.steps, self.saved = now, [], []
        self.subject = SimpleNamespace(model=ScriptedModel("ab"), folder=folder)

    def step(self, name, parts, *, least=1, share=1.0, why=None, takes=None):
        """Add one, which takes as long as was thought, or so many seconds; if these are endless, until it is stopped."""

        def plan(_subject, seconds):
            number = min(parts, int(seconds))
            cut = "" if number == parts else "cut"
            return (
                Sized({"parts": number}, number, f"{number} parts", cut)
                if number >= least
                else TooLong(least)
            )

        def run(_subject, settings, running):
            while takes == float("inf"):
                self.now += 1
                running.progress.advance()
            self.now += settings["parts"] if takes is None else takes

        self.steps.append(
            AuditStep(
                name=name,
                title=name.capitalize(),
                audits=("toys",),
                share=share,
                files=("toys.json",),
                obstacles=(lambda _: why,),
                plan=plan,
                run=run,
            )
        )
        return self

    def run(self, minutes=MINUTES):
        """What became of each step."""
        planned = [
            StepRecord(name=one.name, title=one.title, audits=one.audits, status="planned")
            for one in self.steps
        ]
        return AuditRun(
            review=Review(model={}, minutes=minutes, steps=tuple(planned)),
            steps=self.steps,
            subject=self.subject,
            engine=None,
            progress=Silent(),
            clock=lambda: self.now,
            began=0.0,
            save=self.saved.append,
        ).finished()

    def sizes(self):
        return [one.settings.get("parts") for one in self.run().steps]


@pytest.fixture
def toys(tmp_path):
    return Toys(tmp_path)


@pytest.mark.parametrize(
    ("a", "b", "sizes"),
    [
        ({"parts": 1000, "share": 3.0}, {"parts": 1000}, [75, 25]),
        # What one does not need goes to those after it.
        ({"parts": 10}, {"parts": 1000}, [10, 90]),
        # The first ones have the least that says anything before later ones have more.
        ({"parts": 80, "least": 60}, {"parts": 1000}, [60, 40]),
    ],
)
def test_time_is_shared_by_the_shares(toys, a, b, sizes):
    assert toys.step("a", **a).step("b", **b).sizes() == sizes


def test_time_that_a_step_saves_makes_the_later_ones_larger(toys):
    toys.step("a", 1000, takes=10).step("b", 1000, takes=30).step("c", 1000)
    assert toys.sizes() == [33, 45, 60]


def test_a_step_that_takes_longer_leaves_later_steps_the_least(toys):
    found = toys.step("a", 60, takes=float("inf")).step("b", 4).step("c", 5).run(minutes=2.5)
    assert [one.status for one in found.steps] == ["no_time", "done", "done"]
    assert found.steps[0].why.startswith("the time was up before it was finished")
    assert toys.now <= 150


def test_a_step_that_takes_longer_than_all_of_the_time_leaves_the_cheapest_steps_a_little(toys):
    found = toys.step("a", 60, takes=200).step("b", 15, least=15).step("c", 3).step("d", 1).run()
    assert [one.status for one in found.steps] == ["done", "no_time", "done", "done"]
    assert found.steps[1].why == "it would take about 15 seconds, and no time is left for it"


def test_a_step_that_does_not_fit_at_all_says_what_it_would_take(toys):
    big, small = toys.step("big", 5000, least=5000).step("small", 20).run().steps
    assert big.status == "no_time"
    assert big.why == "it would take about 83.3 minutes, and 1.7 minutes are left for it"
    assert (small.status, small.why, small.size) == ("done", "", "20 parts")


def test_a_step_that_does_not_apply_takes_no_time_and_says_why(toys):
    none, other = toys.step("a", 1000, why="no toys were given").step("b", 1000).run().steps
    assert (none.status, none.why) == ("not_applicable", "no toys were given")
    assert other.settings == {"parts": 100}


def test_a_time_that_is_too_short_for_anything_is_refused_with_one_that_is_not(toys):
    toys.now = 30.0
    toys.step("big", 5000, least=5000).step("small", 600, least=600)
    with pytest.raises(InputError) as refused:
        toys.run(minutes=1)
    assert str(refused.value) == (
        "1 minutes are too short for any step: the shortest, small, would take about 10 minutes, after 30 seconds for reading and "
        "measuring; give --minutes 17"
    )
    assert not toys.saved
    assert toys.run(minutes=17).steps[1].status == "done"


def test_inputs_that_nothing_can_be_tested_with_are_refused(toys):
    with pytest.raises(InputError, match=r"nothing can be tested with what was given \(a: no toys\)"):
        toys.step("a", 1, why="no toys").run()


@given(
    st.lists(st.tuples(st.integers(1, 300), st.integers(1, 60), st.floats(0.1, 5.0)), min_size=1, max_size=6),
    st.floats(0.1, 10.0),
    st.floats(0.0, 200.0),
)
def test_an_audit_never_takes_more_than_there_is(tmp_path_factory, given_steps, minutes, spent):
    toys = Toys(tmp_path_factory.getbasetemp() / "none", spent)
    for place, (parts, least, share) in enumerate(given_steps):
        toys.step(f"s{place}", parts, least=min(least, parts), share=share)
    planned = PLANNED_SHARE * 60 * minutes
    try:
        records = toys.run(minutes).steps
    except InputError:
        records = [SimpleNamespace(status="no_time")] * len(toys.steps)
    assert toys.now <= max(spent, planned, 60 * minutes - REPORTING) + LEAST * len(records)
    # Nothing that would have fit into what is left was left out.
    for (parts, least, _), record in zip(given_steps, records, strict=True):
        assert record.status == "done" or min(least, parts) > planned - toys.now
