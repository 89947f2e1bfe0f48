"""Plans: each step gets its share of the time when it begins, what is not needed is passed on, and what does not fit says so."""

from types import SimpleNamespace
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalmine.audits import Review, StepRecord
from coalmine.audits.whole import auditing
from coalmine.audits.whole.auditing import LEAST, PLANNED_SHARE, REPORTING
from coalmine.audits.whole.steps import AuditStep, Plan
from coalmine.errors import NotMeasurableError
from coalmine.progress import Silent

# In so many minutes, steps are planned to take 100 seconds.
MINUTES = 125 / 60


class Toys:
    """A table of steps of so many parts, each of which is thought to take a second; each needs a few of them to say anything."""

    def __init__(self, folder, now=0.0):
        self.now, self.steps = now, []
        self.subject = SimpleNamespace(folder=folder)

    def step(self, name, parts, *, least=1, share=1.0, why=None, takes=None):
        """Add one, which takes as long as was thought, or so many seconds; if these are endless, until it is stopped."""

        def plan(_subject, seconds):
            if why is not None:
                raise NotMeasurableError(why)
            number = max(least, min(parts, int(seconds)))
            return Plan({"parts": number}, number, f"{number} parts")

        def run(_subject, settings, running):
            while takes == float("inf"):
                self.now += 1
                running.progress.advance()
            self.now += settings["parts"] if takes is None else takes

        self.steps.append(AuditStep(name, name, (), share, plan, run))
        return self

    def run(self, minutes=MINUTES):
        """What became of each step."""
        planned = tuple(StepRecord(name=one.name, title=one.title, audits=()) for one in self.steps)
        review = Review(model={}, minutes=minutes, steps=planned)
        with mock.patch.object(auditing, "clock", side_effect=lambda: self.now):
            return auditing.run_steps(
                review,
                self.steps,
                self.subject,
                engine=None,
                progress=Silent(),
                began=0.0,
                save=lambda _: None,
            ).steps

    def sizes(self):
        return [one.settings.get("parts") for one in self.run()]


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
        ({"parts": 1000, "why": "no toys were given"}, {"parts": 1000}, [None, 100]),
    ],
)
def test_time_is_shared_by_the_shares(toys, a, b, sizes):
    assert toys.step("a", **a).step("b", **b).sizes() == sizes


def test_a_step_that_takes_longer_leaves_later_steps_the_least(toys):
    found = toys.step("a", 60, takes=float("inf")).step("b", 4).step("c", 5).run(minutes=2.5)
    assert [one.status for one in found] == ["no_time", "done", "done"]
    assert found[0].why.startswith("the time was up before it was finished")
    assert toys.now <= 150


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
    records = toys.run(minutes)
    assert toys.now <= max(spent, planned, 60 * minutes - REPORTING) + LEAST * len(records)
    # Nothing that would have fit into what is left was left out.
    for (parts, least, _), record in zip(given_steps, records, strict=True):
        assert record.status == "done" or min(least, parts) > planned - toys.now
