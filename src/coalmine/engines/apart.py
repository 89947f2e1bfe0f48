"""Inputs that are asked about together, and apart where that fails: those that make a model fail get a reason, the others their answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from coalmine.engines.failures import failure_of_inputs
from coalmine.errors import CoalmineError

Item = TypeVar("Item")
Answer = TypeVar("Answer")

# A model that fails at this many single inputs before it has answered any is not asked about the rest of them.
ENOUGH_FAILURES = 8


class Answered(NamedTuple, Generic[Answer]):
    """Answers in the order of the inputs, None where there is none; and why not, by the place of the input."""

    answers: list[Answer | None]
    problems: dict[int, CoalmineError]


def ask_apart(
    ask: Callable[[Sequence[Item]], Sequence[Answer]],
    items: Sequence[Item],
    reason_of: Callable[[BaseException], CoalmineError | None] = failure_of_inputs,
) -> Answered[Answer]:
    """Ask about all items at once; where that fails, about half of them, and so on, until what fails is alone.

    What says nothing about the inputs is raised: too little memory, a file that cannot be read, a bug of ours. `reason_of` decides: it
    gives the reason that an input has no answer, or None.

    >>> def halved(numbers):
    ...     if 3 in numbers:
    ...         raise NotMeasurableError("3 is odd")
    ...     return [number // 2 for number in numbers]
    >>> from coalmine.errors import NotMeasurableError
    >>> ask_apart(halved, [2, 3, 4])
    Answered(answers=[1, None, 2], problems={1: NotMeasurableError('3 is odd')})
    """
    asking = _Halving(ask, items, reason_of)
    if items:
        asking.ask(0, len(items))
    return Answered(asking.answers, asking.problems)


class _Halving(Generic[Item, Answer]):
    """What was answered so far."""

    def __init__(
        self,
        ask: Callable[[Sequence[Item]], Sequence[Answer]],
        items: Sequence[Item],
        reason_of: Callable[[BaseException], CoalmineError | None],
    ) -> None:
        self._ask, self._items, self._reason_of = ask, items, reason_of
        self.answers: list[Answer | None] = [None] * len(items)
        self.problems: dict[int, CoalmineError] = {}
        self._answered = False

    def ask(self, start: int, stop: int) -> None:
        """Ask about the items from one place to another."""
        if not self._answered and len(self.problems) >= ENOUGH_FAILURES:
            self.problems |= dict.fromkeys(range(start, stop), self.problems[0])
            return
        try:
            found = self._ask(self._items[start:stop])
        except (Exception, SystemExit) as error:
            problem = self._reason_of(error)
            if problem is None:
                raise
            if stop - start == 1:
                self.problems[start] = problem
                return
        else:
            self.answers[start:stop] = found
            self._answered = True
            return
        middle = (start + stop) // 2
        self.ask(start, middle)
        self.ask(middle, stop)
