"""Trainings of a bench as units of work: each ends with the files of a model and the time that it took, also if it was stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from coalmine.audits.defenses.defense import CorpusName, Defense
from coalmine.audits.defenses.recipes import BenchRecipe, Options, TrainingPiece
from coalmine.engines.units import Arrays, Run, Running, Unit
from coalmine.training.data import TrainingText

_SECONDS = "seconds"


class BenchTraining(NamedTuple):
    """One training: with which defense and seed, and where its model goes."""

    defense: Defense
    seed: int
    directory: Path
    options: Options

    @property
    def name(self) -> tuple[str, int]:
        """Its defense and its seed."""
        return self.defense.name, self.seed

    @property
    def label(self) -> str:
        """What notes on its progress begin with."""
        return self.directory.name


class BenchWork(NamedTuple):
    """Trainings on the corpora of a bench."""

    recipe: BenchRecipe
    texts: Mapping[CorpusName, TrainingText]
    trainings: tuple[BenchTraining, ...]
    name: str = "defend/1"

    @property
    def facts(self) -> Any:
        """Each unit has all that its result depends on."""
        return None

    @property
    def memory_bytes(self) -> int:
        """What the largest of them takes."""
        return max(self._piece(place).memory_bytes for place in range(len(self.trainings)))

    def key(self, place: int) -> str:
        """Equal for two trainings exactly when both should end with the same model."""
        return self._piece(place).key

    def unit(self, place: int) -> Unit:
        """One training as a unit of work."""
        return self._piece(place).unit._replace(payload=place)

    def prepare(self) -> Run:
        """The function that runs a training."""
        return self._run

    def save(self, unit: Unit, arrays: Arrays) -> Arrays:
        """Put the model where it belongs; the ledger keeps the time that it took."""
        contents = {name: array for name, array in arrays.items() if name != _SECONDS}
        self._piece(unit.payload).save(contents, self.trainings[unit.payload].directory)
        return {_SECONDS: arrays[_SECONDS]}

    def _piece(self, place: int) -> TrainingPiece:
        one = self.trainings[place]
        return self.recipe.piece(self.texts[one.defense.corpus], one.options, one.label)

    def _run(self, unit: Unit, running: Running) -> Arrays:
        timed = _Timed(running)
        piece = self._piece(unit.payload)
        arrays = piece.prepare()(piece.unit, timed)
        return {**arrays, _SECONDS: np.array(timed.seconds())}


class _Timed:
    """A unit while it runs, whose time is kept with its state."""

    def __init__(self, running: Running) -> None:
        self._running, self._before, self._began = running, 0.0, time.perf_counter()

    def seconds(self) -> float:
        """What it took so far, without the time in which it was stopped."""
        return self._before + time.perf_counter() - self._began

    def advance(self, amount: int = 1, note: str = "") -> None:
        self._running.advance(amount, note)

    def kept(self) -> Arrays | None:
        state = self._running.kept()
        if state is None:
            return None
        self._before = float(state[_SECONDS])
        return {name: array for name, array in state.items() if name != _SECONDS}

    def keep(self, state: Callable[[], Arrays]) -> None:
        self._running.keep(lambda: {**state(), _SECONDS: np.array(self.seconds())})
