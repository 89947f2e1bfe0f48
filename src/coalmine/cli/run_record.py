"""The record of a run: what is needed to repeat it, and what differs each time, separate from the results."""

from __future__ import annotations

import platform
import re
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from coalmine.records.run_record import RUN_RECORDS, SCHEMA

RUN_FILE = RUN_RECORDS.file
_HIDDEN = "(not recorded)"
# What this command said of strings of the corpus that it passed over.
UNREAD: list[str] = []
_PACKAGES = ("coalmine", "numpy", "scipy", "torch", "safetensors", "pyarrow")


class RunClock:
    """Started with a command; `save` writes run.json next to the command's results, as the last of its files."""

    def __init__(self) -> None:
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._began = time.monotonic()

    def save(self, directory: Path, **facts: Any) -> None:
        """Write the record; `facts` are the seeds, hashes and counts of this command."""
        RUN_RECORDS.save(
            directory,
            {
                "schema": SCHEMA,
                "command": ["coalmine", *_without_seed_of_noise(sys.argv[1:])],
                "started_at": self._started_at,
                "elapsed_seconds": round(time.monotonic() - self._began, 3),
                "python": platform.python_version(),
                "platform": platform.platform(),
                "versions": {name: found for name in _PACKAGES if (found := _version(name)) is not None},
                **({"not_read": list(UNREAD)} if UNREAD else {}),
                **facts,
            },
        )


def identity_of(*models: Any) -> dict[str, Any]:
    """How often the identity of models at endpoints was checked, for the record; empty if all models are local."""
    from coalmine.models.protocols import RemoteModel

    checks = [model.checks() if isinstance(model, RemoteModel) else None for model in models]
    return {"identity": checks} if any(checks) else {}


def memory_of(*models: Any) -> dict[str, Any]:
    """What was done because memory ran out, for the record; empty if it never did in this process."""
    notes = [note for model in models if (note := getattr(model, "memory_note", None))]
    return {"memory": notes} if notes else {}


def _without_seed_of_noise(arguments: list[str]) -> list[str]:
    """The command line without the number that the noise of a private training is made from.

    >>> _without_seed_of_noise(["train", "--dp-seed", "7", "--dp-seed=7"])
    ['train', '--dp-seed', '(not recorded)', '--dp-seed=(not recorded)']
    """
    shown = [re.sub(r"(?<=^--dp-seed=).*", _HIDDEN, one) for one in arguments]
    return [
        _HIDDEN if before == "--dp-seed" else one for before, one in zip(["", *shown], shown, strict=False)
    ]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
