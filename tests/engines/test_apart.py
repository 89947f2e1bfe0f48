"""Inputs asked about together, and apart where that fails: each has its answer or its own reason, and a model that always fails is left."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalmine.engines.apart import ENOUGH_FAILURES, ask_apart
from coalmine.errors import InputError, ModelOutputError, NoNumberError, NotMeasurableError


@given(st.integers(0, 40), st.sets(st.integers(0, 39)))
def test_every_input_that_does_not_fail_has_its_answer(many, poisoned):
    def ask(numbers):
        for number in numbers:
            if number in poisoned:
                raise NotMeasurableError(f"no number for {number}")
        return [number * number for number in numbers]

    answers, problems = ask_apart(ask, range(many))
    wrong = sorted(poisoned & set(range(many)))
    if len(wrong) < ENOUGH_FAILURES or min(set(range(many)) - poisoned, default=many) < ENOUGH_FAILURES:
        assert answers == [None if number in poisoned else number * number for number in range(many)]
        assert {place: str(problem) for place, problem in problems.items()} == {
            n: f"no number for {n}" for n in wrong
        }
    assert sorted(problems) == [place for place, answer in enumerate(answers) if answer is None]


def test_a_model_that_always_fails_is_not_asked_about_everything():
    asked = []

    def ask(numbers):
        asked.extend(numbers)
        raise ModelOutputError("not a log-probability")

    answers, problems = ask_apart(ask, range(512))
    assert answers == [None] * 512
    assert len(asked) < 2.2 * 512
    assert all(isinstance(problem, NoNumberError) for problem in problems.values())


@pytest.mark.parametrize(
    "error", [InputError("a file is missing"), MemoryError(), RuntimeError("can't allocate memory")]
)
def test_what_is_not_the_fault_of_inputs_is_raised(error):
    def ask(_):
        raise error

    with pytest.raises(type(error)):
        ask_apart(ask, [1, 2])
