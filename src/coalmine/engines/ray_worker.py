"""The worker of the engine `ray`: an actor that runs units in one thread, and answers the driver in another one meanwhile.

Everything that it takes and returns is packed here and not by Ray, and no method raises: Ray writes the errors of its actors to log
files on their machines, and messages may quote what is being measured.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import threading
import traceback
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import coalmine
from coalmine.engines.ray_parcels import Receiver
from coalmine.engines.scheduling import Advanced, Kept, Message, Unprepared
from coalmine.engines.sending import Parts, from_parts, in_parts
from coalmine.engines.worker import Worker
from coalmine.errors import InputError
from coalmine.pages import keep_pages

# Another version of one of these may give other last bits, or other tokens.
PACKAGES = ("numpy", "scipy", "torch", "transformers", "tokenizers", "sentencepiece", "peft")


class Bug(NamedTuple):
    """An exception that coalmine did not raise on purpose."""

    traceback: str


class UnitWorker:
    """Runs one unit at a time; what it has to say in the meantime is handed over when the driver asks for it."""

    def __init__(self, number: int, threads: int) -> None:
        keep_pages()
        self._number = number
        self._worker = Worker(number, threads, self._send, lambda: self._stopped >= self._serial)
        self._receiver, self._works_number = Receiver(), -1
        self._serial, self._stopped = 0, -1  # of the unit that runs, and of the last one that was to stop
        self._saying = threading.Lock()
        self._amount, self._note = 0, ""
        self._kept: Kept | None = None
        self._end: Message | None = None

    def greet(self) -> dict[str, str]:
        """What must be the same here and where the driver is, the machine, and how requests are authenticated."""
        import ray
        from ray._raylet import AuthenticationMode, get_authentication_mode

        mode = "token" if get_authentication_mode() == AuthenticationMode.TOKEN else "none"
        node = ray.get_runtime_context().get_node_id()
        return facts_of_process() | {"machine": platform.node(), "node": node, "authentication": mode}

    def run(self, serial: int, works_number: int, parcel: Sequence[Any], order: Parts) -> Parts:
        """Run a unit of the works in a parcel, which is opened once. Returns the last messages."""
        try:
            with self._saying:
                self._serial, self._amount, self._note, self._kept, self._end = serial, 0, "", None, None
            if works_number != self._works_number:
                problem = self._learn(works_number, parcel)
                if problem is not None:
                    return in_parts([Unprepared(self._number, problem)])
            self._worker.run(from_parts(order))
            said = self._said(serial)
            return in_parts(said if self._end is None else [*said, self._end])
        except BaseException:  # noqa: BLE001 - a bug in the work; the driver shows it
            return in_parts(Bug(traceback.format_exc()))

    def poll(self, serial: int) -> Parts:
        """What the unit has to say since the last time; nothing if it is over."""
        return in_parts(self._said(serial))

    def stop(self, serial: int) -> None:
        """Ask the unit to keep its state and to end."""
        self._stopped = serial

    def _learn(self, works_number: int, parcel: Sequence[Any]) -> InputError | None:
        import ray

        self._worker.begin(())  # those before make room
        try:
            self._worker.begin(self._receiver.open(ray, parcel))
        except (ImportError, AttributeError) as error:
            return InputError(
                f"a worker on {platform.node()} cannot read the model or what else the work is made of ({error}); install the same "
                "packages on every machine of the cluster"
            )
        self._works_number = works_number
        return None

    def _send(self, message: Message) -> None:
        with self._saying:
            if isinstance(message, Advanced):
                self._amount, self._note = self._amount + message.amount, message.note or self._note
            elif isinstance(
                message, Kept
            ):  # the driver needs the latest only; the unit goes on to change its arrays
                self._kept = message._replace(
                    arrays={name: one.copy() for name, one in message.arrays.items()}
                )
            else:
                self._end = message

    def _said(self, serial: int) -> list[Message]:
        """The progress and the state that were not handed over yet; nothing if another unit runs by now."""
        with self._saying:
            if serial != self._serial:
                return []
            found: list[Message] = [Advanced(self._number, self._amount, self._note)] if self._amount else []
            found += [] if self._kept is None else [self._kept]
            self._amount, self._kept = 0, None
            return found


@cache
def facts_of_process() -> dict[str, str]:
    """The versions that results depend on: of this package, by its sources, and of those that it computes with.

    >>> "Python" in facts_of_process()
    True
    """
    found = {"Python": platform.python_version(), "coalmine": coalmine.__version__}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "none"
    return found | {"the sources of coalmine": _digest_of_sources()}


def _digest_of_sources() -> str:
    root, digest = Path(coalmine.__file__).parent, hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:12]
