"""Works of the tests of engines: small, deterministic, and able to fail in every way that a unit can."""

import builtins
import os
import signal
import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from coalmine.engines.units import Unit
from coalmine.errors import InputError, NotMeasurableError
from coalmine.models.protocols import loads_of


class Squares(NamedTuple):
    """Squares of the numbers in a range; `folder` has a file for each unit that was run, `scale` is what the results depend on."""

    scale: int = 1
    folder: str | None = None
    name: str = "squares/1"
    memory_bytes: int = 0

    @property
    def facts(self):
        return {"scale": self.scale}

    def prepare(self):
        self._note("prepared")
        return self._run

    def _run(self, unit, running):
        start, stop = unit.inputs
        self._note(f"unit-{start}")
        running.advance(0)
        return {"squares": np.arange(start, stop, dtype=np.int64) ** 2 * self.scale}

    def _note(self, what):
        if self.folder is not None:
            Path(self.folder, f"{what}-{os.getpid()}-{time.monotonic_ns()}").touch()


class Poisoned(NamedTuple):
    """Fails at the units that are named: by an error, or by the death of its process, always or the first time only."""

    folder: str
    refused: tuple[int, ...] = ()
    deadly: tuple[int, ...] = ()
    deadly_once: tuple[int, ...] = ()
    unprepared: bool = False
    name: str = "poisoned/1"
    facts: tuple[int, ...] = ()
    memory_bytes: int = 0

    def prepare(self):
        if self.unprepared:
            raise InputError("the model cannot be read here; check the path")
        return self._run

    def _run(self, unit, _running):
        number = unit.inputs
        if number in self.refused:
            raise NotMeasurableError(f"unit {number} has no honest number")
        if number in self.deadly_once and not Path(self.folder, f"died-{number}").exists():
            Path(self.folder, f"died-{number}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if number in self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"number": np.array(number)}


class Raising(NamedTuple):
    """Stands for a model whose code fails without purpose: each unit names the exception that it raises, with a secret in the message."""

    name: str = "raising/1"
    facts: tuple[int, ...] = ()
    memory_bytes: int = 0

    def prepare(self):
        return self._run

    def _run(self, unit, _running):
        if unit.inputs != "none":
            raise getattr(builtins, unit.inputs)("the secret is 5662")
        return {"number": np.array(1)}


class Counting(NamedTuple):
    """Counts to a number in steps, keeps how far it is, and at one step says so and waits for the file `gate`, or until it is stopped or killed."""

    folder: str
    stops_at: int | None = None
    name: str = "counting/1"
    facts: tuple[int, ...] = ()
    memory_bytes: int = 0

    def prepare(self):
        return self._run

    def _run(self, unit, running):
        kept = running.kept()
        at = 0 if kept is None else int(kept["at"])
        if kept is not None:
            Path(self.folder, f"resumed-{unit.inputs}-at-{at}").touch()
        total = 0 if kept is None else int(kept["total"])
        while at < 20:
            at, total = at + 1, total + at
            state = {"at": np.array(at), "total": np.array(total)}
            running.keep(state.copy)
            running.advance()
            if at == self.stops_at and kept is None:
                written = Path(self.folder, f"reaching-{unit.inputs}")
                written.write_text(str(os.getpid()))
                written.rename(Path(self.folder, f"reached-{unit.inputs}"))
                while not Path(self.folder, "gate").exists():  # until it is stopped or killed
                    running.keep(state.copy)
                    time.sleep(0.01)
        return {"total": np.array(total)}


class Stubborn(NamedTuple):
    """Does not stop when it is asked to: the unit "late" waits for the file `gate`."""

    folder: str
    name: str = "stubborn/1"
    facts: tuple[int, ...] = ()
    memory_bytes: int = 0

    def prepare(self):
        return self._run

    def _run(self, unit, _running):
        while unit.inputs == "late" and not Path(self.folder, "gate").exists():
            time.sleep(0.01)
        return {"late": np.array(1)}


class Endless(NamedTuple):
    """Says which process runs a unit, and never returns or reports anything."""

    folder: str
    name: str = "endless/1"
    facts: tuple[int, ...] = ()
    memory_bytes: int = 0

    def prepare(self):
        return self._run

    def _run(self, unit, _running):
        written = Path(self.folder, f"starts-{unit.inputs}")
        written.write_text(str(os.getpid()))
        written.rename(Path(self.folder, f"runs-{unit.inputs}"))
        threading.Event().wait()


class Surroundings(NamedTuple):
    """The bytes of environment variables, as a worker has them."""

    name: str = "surroundings/1"
    facts: tuple[int, ...] = ()
    memory_bytes: int = 0

    def prepare(self):
        return lambda unit, _: {"value": np.frombuffer(os.environ.get(unit.inputs, "").encode(), np.uint8)}


class Scoring(NamedTuple):
    """Scores of texts by a model, which goes to the workers with the work."""

    model: object
    name: str = "scoring/1"
    memory_bytes: int = 0

    @property
    def facts(self):
        return self.model.describe()

    @property
    def loads(self):
        return loads_of(self.model)

    def prepare(self):
        return self._run

    def _run(self, unit, _running):
        found = self.model.score([self._sequence(text) for text in unit.inputs])
        return {"bits": np.concatenate([one.log2_probabilities for one in found])}

    def _sequence(self, text):
        from coalmine.models import TokenSequence

        return TokenSequence(tuple(self.model.context), tuple(self.model.tokenizer.encode(text)))


class Leaking(NamedTuple):
    """Fails with its inputs in the message: on purpose for units that begin with "refuse"; with `bug`, before it has a unit."""

    bug: str | None = None
    name: str = "leaking/1"
    facts: tuple[int, ...] = ()
    memory_bytes: int = 0

    def prepare(self):
        if self.bug is not None:
            raise ValueError(self.bug)
        return self._run

    def _run(self, unit, running):
        running.advance(1, unit.inputs)
        if unit.inputs.startswith("refuse"):
            raise NotMeasurableError(f"{unit.inputs} has no honest number")
        raise ValueError(unit.inputs)


class Unsendable(NamedTuple):
    """Holds something that no other process can have."""

    held: object
    name: str = "unsendable/1"
    facts: int = 0
    memory_bytes: int = 0

    def prepare(self):
        raise AssertionError("it was sent")


def squares(number, each=10):
    """Units of ten numbers each."""
    return [Unit((start, start + each), size=each) for start in range(0, number * each, each)]
