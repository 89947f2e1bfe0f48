"""Units of work: what an engine runs, what becomes of it, and the content key under which a result is known."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from coalmine.errors import CoalmineError

# The result of a unit, and what it keeps while it runs: plain arrays, which are stored and sent without pickles.
Arrays = dict[str, NDArray[Any]]
# The first 16 bytes of a SHA-256.
Key = bytes
KEY_BYTES = 16
_Value = TypeVar("_Value")


class Unit(NamedTuple):
    """One piece of work, whose result depends on nothing but its work and its inputs.

    Attributes:
        inputs: what decides the result, made of plain values, strings, bytes, arrays, tuples and records; it is hashed.
        payload: what the work needs besides; it follows from the inputs, so it is not hashed. A function without parameters is
            called only if the unit is run, so that a result that is known already costs nothing to skip.
        size: how much the progress of the whole advances with this unit.
    """

    inputs: Any
    payload: Any = None
    size: int = 1


@runtime_checkable
class Running(Protocol):
    """A unit while it runs: it reports its progress, and keeps what it has so far if it takes long."""

    def advance(self, amount: int = 1, note: str = "") -> None:
        """Report progress. Raises KeyboardInterrupt if the run is being stopped."""

    def kept(self) -> Arrays | None:
        """What an earlier run of this unit kept before it was stopped, or None."""

    def keep(self, state: Callable[[], Arrays]) -> None:
        """Keep a state to resume from, if it is time to. If the run is being stopped, keep it now and raise KeyboardInterrupt.

        Some engines send it while the unit goes on, so its arrays are copies of what the unit changes.
        """


Run = Callable[[Unit, Running], Arrays]


@runtime_checkable
class Work(Protocol):
    """A function of units that every engine can run; it is sent to other processes, so it can be pickled.

    Attributes:
        name: the name and the version of the function, such as "recite/1"; another version has other keys.
        facts: what all results depend on besides the inputs of each unit, such as the description of the model.
        memory_bytes: what a worker may hold while it runs a unit, besides the weights.
    """

    @property
    def name(self) -> str:
        """The name and the version of the function."""

    @property
    def facts(self) -> Any:
        """What all results depend on."""

    @property
    def memory_bytes(self) -> int:
        """What a worker may hold."""

    def prepare(self) -> Run:
        """Do the expensive part, such as loading a model, once per process, and return the function that runs a unit."""


@runtime_checkable
class MayStayHere(Protocol):
    """A work that may not be able to leave this process, such as one whose model is behind an endpoint."""

    @property
    def only_here(self) -> str | None:
        """Why it cannot be sent to other processes, as the first half of a sentence; None if it can."""


@runtime_checkable
class InFiles(Protocol):
    """A work whose largest parts may be in files of other machines too, such as the weights of a model in a directory."""

    @property
    def loads(self) -> tuple[Callable[[], Any], ...]:
        """Functions that load them where the files are; they can be sent to other processes."""


class Outcome(NamedTuple):
    """What became of one unit.

    Attributes:
        number: the place of the unit among those that were given, from 0.
        unit: without its payload, which may be large.
        arrays: the result; None if the unit failed.
        problem: why it failed; None if it did not.
        attempts: how often it was run in this process's lifetime; 0 if its result was known.
    """

    number: int
    unit: Unit
    arrays: Arrays | None
    problem: CoalmineError | None = None
    attempts: int = 1

    def value(self) -> Arrays:
        """The result; raises the problem of a unit that failed."""
        if self.arrays is None:
            raise self.problem or CoalmineError("a unit of work has no result; please report this")
        return self.arrays


def facts_digest(work: Work) -> bytes:
    """A hash of what all keys of a work have in common."""
    return _digest((work.name, work.facts))


def unit_key(digest: bytes, unit: Unit) -> Key:
    """The content key of a unit; `digest` is that of its work.

    >>> unit_key(b"walk/1", Unit((0, 10))) == unit_key(b"walk/1", Unit((0, 10), size=5)) != unit_key(b"walk/2", Unit((0, 10)))
    True
    """
    return _digest((digest, unit.inputs))[:KEY_BYTES]


def in_order(outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
    """Outcomes in the order in which their units were given; those that come too early are held."""
    early: dict[int, Outcome] = {}
    following = 0
    for outcome in outcomes:
        early[outcome.number] = outcome
        while following in early:
            yield early.pop(following)
            following += 1


def advance_and_keep(running: Running, amount: int, state: Callable[[], Arrays], note: str = "") -> None:
    """Report progress, and keep a state if it is time to; if the run is being stopped, keep it now and raise KeyboardInterrupt."""
    try:
        running.advance(amount, note)
    except KeyboardInterrupt:
        running.keep(state)
        raise
    running.keep(state)


def loaded(unit: Unit) -> Unit:
    """The unit with its payload, which may be a function that makes it."""
    return unit._replace(payload=unit.payload()) if callable(unit.payload) else unit


def read_only(value: _Value) -> _Value:
    """The same with arrays that cannot be written to, as some engines send them: no work may change its inputs."""
    return cast(_Value, _frozen(value))


def _frozen(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        frozen = value.view()
        frozen.setflags(write=False)
        return frozen
    if isinstance(value, dict):
        return {name: _frozen(one) for name, one in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_frozen, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(_frozen, value))
    return value


def _digest(value: Any) -> bytes:
    encoded = msgspec.msgpack.encode(value, enc_hook=_plain, order="deterministic")
    return hashlib.sha256(encoded).digest()


def _plain(value: Any) -> Any:
    """Arrays and NumPy's scalars in a form that can be hashed; integers of more than 64 bits come as strings."""
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return ("object", value.shape, [str(one) for one in value.ravel().tolist()])
        return (value.dtype.str, value.shape, np.ascontiguousarray(value).tobytes())
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a unit of work cannot have {type(value).__name__} as input")
