"""The record of a run: what is needed to repeat it, and what differs each time, separate from the results."""

from __future__ import annotations

import platform
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from coalmine.records.run_record import RUN_RECORDS, SCHEMA

RUN_FILE = RUN_RECORDS.file
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
                "command": ["coalmine", *sys.argv[1:]],
                "started_at": self._started_at,
                "elapsed_seconds": round(time.monotonic() - self._began, 3),
                "python": platform.python_version(),
                "platform": platform.platform(),
                "versions": {name: found for name in _PACKAGES if (found := _version(name)) is not None},
                **facts,
            },
        )


def identity_of(*models: Any) -> dict[str, Any]:
    """How often the identity of models at endpoints was checked, for the record; empty if all models are local."""
    from coalmine.models.protocols import RemoteModel

    checks = [model.checks() if isinstance(model, RemoteModel) else None for model in models]
    return {"identity": checks} if any(checks) else {}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
