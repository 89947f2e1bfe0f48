"""`ModelWork`: the base of works that ask models: how these get to workers, and why they may have to stay in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coalmine.engines.units import Arrays, Run, Running, Unit
from coalmine.models.protocols import Model, RemoteModel, loads_of
from coalmine.visible import visible


class ModelWork:
    """What all works that ask models have in common; each is a frozen dataclass with its name, its facts and `run`."""

    @property
    def models(self) -> tuple[Model | None, ...]:
        """Those that are asked; None in place of one that there is not."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The name and the version of the function."""
        raise NotImplementedError

    @property
    def facts(self) -> Any:
        """What all results depend on: the models."""
        return [None if one is None else (one.describe(), one.name) for one in self.models]

    @property
    def memory_bytes(self) -> int:
        """Logits are made in parts, and texts are small beside an interpreter."""
        return 0

    @property
    def only_here(self) -> str | None:
        """Why the work cannot leave this process, or None."""
        for model in self.models:
            if isinstance(model, RemoteModel):
                return (
                    f"{visible(model.name)!r} is behind an address, is asked by one process, and checks in it whether it is still the same "
                    "model; more processes would ask no faster"
                )
            reason = getattr(model, "only_here", None)
            if reason is not None:
                return str(reason)
        return None

    @property
    def loads(self) -> tuple[Callable[[], Any], ...]:
        """How other machines load the weights of the models."""
        return loads_of(*self.models)

    def prepare(self) -> Run:
        """The function that runs a unit; the work has all that it needs."""
        return self.run

    def run(self, unit: Unit, running: Running) -> Arrays:
        """Run a unit."""
        raise NotImplementedError
