"""Works on their way to Ray's workers: large memory, such as weights, reaches each machine once, from its own files where it has them.

Pieces of memory are known by the hash of their content. The driver puts each into Ray's object store once, however many works in a row
hold it, and a machine fetches only what it lacks. A machine that can load the same model from the same path is asked to do so first, and
what it finds is used if the hashes are those of the driver's memory: other weights at that path, or none, only mean that they are sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from coalmine.engines.sending import Parts, from_parts, in_parts
from coalmine.engines.units import InFiles, Work

# Less memory than this travels with the works.
PIECE_BYTES = 1_000_000

Pieces = dict[bytes, np.ndarray]  # by the SHA-256 of their bytes


class _Piece(NamedTuple):
    """A piece of memory that is sent apart from the works that hold it."""

    digest: bytes
    sent: Any  # Ray's reference to the memory in the driver's store


class _Parcel(NamedTuple):
    """Works in parts."""

    content: bytes
    buffers: list[np.ndarray | _Piece]


class Sender:
    """What the driver sends: one parcel of works at a time, and the pieces of memory that it is made of."""

    def __init__(self, ray: Any, environment: Mapping[str, str]) -> None:
        """`environment` is that of the processes that load models."""
        self._ray, self._home = ray, ray.get_runtime_context().get_node_id()
        self._load = ray.remote(
            num_cpus=0,  # workers have the CPUs of the machine, and wait for it
            max_retries=0,
            max_calls=1,  # the process ends, and with it the memory that it loaded the model into
            runtime_env={"env_vars": dict(environment)},
        )(pieces_in_files)
        self._pieces: dict[bytes, Any] = {}
        self._loads: tuple[Callable[[], Any], ...] = ()
        self._loaded: dict[str, Any] = {}  # by machine: references to what was found in its files
        self._parcel: Any = None

    def pack(self, works: Sequence[Work]) -> None:
        """Put works into the store, without the pieces that are there already."""
        self._parcel = None  # those before make room
        content, buffers = in_parts(works, self._ray.cloudpickle.CloudPickler)
        digests = [_digest(buffer) if buffer.nbytes >= PIECE_BYTES else None for buffer in buffers]
        self._pieces = {digest: sent for digest, sent in self._pieces.items() if digest in digests}
        for digest, buffer in zip(digests, buffers, strict=True):
            if digest is not None and digest not in self._pieces:
                self._pieces[digest] = self._ray.put(buffer)
        parcel = _Parcel(
            content,
            [
                buffer if digest is None else _Piece(digest, self._pieces[digest])
                for digest, buffer in zip(digests, buffers, strict=True)
            ],
        )
        self._parcel = self._ray.put(parcel)
        loads = tuple(
            dict.fromkeys(load for work in works if isinstance(work, InFiles) for load in work.loads)
        )
        if loads != self._loads:
            self._loads, self._loaded = loads, {}

    def addressed_to(self, machine: str) -> list[Any]:
        """What a worker on a machine, given by Ray's id, opens; in a list, because Ray would fetch bare references for each unit."""
        if machine == self._home or not self._loads or not self._pieces:
            return [self._parcel]
        if machine not in self._loaded:
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            there = NodeAffinitySchedulingStrategy(machine, soft=False)
            loading = self._load.options(scheduling_strategy=there)
            self._loaded[machine] = loading.remote(in_parts(self._loads), list(self._pieces))
        return [self._parcel, self._loaded[machine]]


class Receiver:
    """What a worker has of the pieces; those that the next works hold too are not fetched again."""

    def __init__(self) -> None:
        self._pieces: Pieces = {}

    def open(self, ray: Any, parcel: Sequence[Any]) -> Sequence[Work]:
        """The works in a parcel."""
        content, buffers = ray.get(parcel[0])
        wanted = {one.digest: one.sent for one in buffers if isinstance(one, _Piece)}
        self._pieces = {digest: piece for digest, piece in self._pieces.items() if digest in wanted}
        if len(parcel) > 1 and not wanted.keys() <= self._pieces.keys():
            self._pieces |= _found(ray, parcel[1])
        lacking = [digest for digest in wanted if digest not in self._pieces]
        self._pieces |= zip(lacking, ray.get([wanted[digest] for digest in lacking]), strict=True)
        memory = [self._pieces[one.digest] if isinstance(one, _Piece) else one for one in buffers]
        works: Sequence[Work] = from_parts(Parts(content, memory))
        return works


def pieces_in_files(loads: Parts, wanted: Sequence[bytes]) -> Pieces:
    """The wanted pieces of memory that loading from files of this machine gives; none where something cannot be loaded."""
    import ray

    try:
        found = in_parts([load() for load in from_parts(loads)], ray.cloudpickle.CloudPickler).buffers
    except Exception:  # noqa: BLE001 - whatever this machine lacks, the driver has the memory itself
        return {}
    known = {_digest(buffer): buffer for buffer in found}
    return {digest: known[digest] for digest in wanted if digest in known}


def _found(ray: Any, loaded: Any) -> Pieces:
    try:
        found: Pieces = ray.get(loaded)
    except ray.exceptions.RayError:  # its process was killed
        return {}
    return found


def _digest(buffer: np.ndarray) -> bytes:
    return hashlib.sha256(buffer.data).digest()
