"""How fast a model is: the lines of text that it scores, and the steps that it makes, per second."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from coalmine.audits.provenance.users import UserText
from coalmine.audits.provenance.views import look, view_of
from coalmine.errors import MissingExtraError, ModelError, NotMeasurableError
from coalmine.models.protocols import Model, Scorer, Stepper, max_length, open_sequence

Clock = Callable[[], float]
# What a line is, in characters: so short that any model can read it, and a server answers soon.
LINE = 100
# How long a model is timed for, and the most lines or branches that it is asked about at once.
PROBE_SECONDS, MOST_ROWS = 0.5, 256


class Speeds(NamedTuple):
    """How fast a model is; None for what it cannot be asked.

    Attributes:
        lines: lines of text scored per second.
        steps: steps of incremental decoding per second.
    """

    lines: float | None = None
    steps: float | None = None


def measure(model: Model, texts: Sequence[UserText], clock: Clock = time.perf_counter) -> Speeds:
    """The speeds of a model on texts of a corpus."""
    lines = [one._replace(text=one.text[:LINE]) for one in texts[:MOST_ROWS]]

    def score(rows: int) -> float:
        asked = [lines[place % len(lines)] for place in range(rows)]
        try:
            view = view_of(model)
        except NotMeasurableError:
            if not isinstance(model, Scorer):
                raise
            model.score([open_sequence(model, one.text) for one in asked])
        else:
            look(model, view, asked)
        return sum(len(one.text) for one in asked) / LINE

    return Speeds(_rate(score, clock), _rate(lambda rows: _steps(model, rows), clock))


def _steps(model: Model, rows: int) -> float:
    if not isinstance(model, Stepper):
        raise NotMeasurableError("it supports no incremental decoding")
    depth = min(8, (max_length(model) or 16) - len(model.context) - 1)
    states: Any = model.start([model.context or (0,)]).states
    parents, tokens = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)
    for _ in range(depth):
        states = model.step(states, parents, tokens).states
        parents = np.arange(rows, dtype=np.int64)
    return rows * depth


def _rate(ask: Callable[[int], float], clock: Clock) -> float | None:
    """How much per second; the first call, which may load and compile, counts only where it is slow enough to be trusted."""
    rows, rate = 1, None
    try:
        while True:
            began = clock()
            done = ask(rows)
            took = max(clock() - began, 1e-9)
            rate = done / took
            if took >= PROBE_SECONDS or rows >= MOST_ROWS:
                return rate
            rows *= 4
    except (NotMeasurableError, ModelError, MissingExtraError):
        return rate


class Timing(NamedTuple):
    """How time and speeds are measured, so that a test can say what they are.

    Attributes:
        clock: seconds that only grow.
        measure: the speeds of a model on texts of a corpus.
    """

    clock: Clock = time.monotonic
    measure: Callable[[Model, Sequence[UserText]], Speeds] = measure
