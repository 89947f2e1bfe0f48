"""The user's own training: a function from data to a model, or to the location of one, given or named as python:module:function."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from coalmine.errors import InputError, ModelError
from coalmine.models.loading import load_model
from coalmine.models.plugins import missing_members, named_function
from coalmine.models.protocols import Model

# From data, such as the texts of some users, to a model, or to what `load_model` takes.
Train = Callable[..., Model | str | os.PathLike[str]]


class OwnTraining(NamedTuple):
    """A function that trains a model, and its name, by which a run that was stopped knows it again."""

    name: str
    train: Train

    @property
    def sha256(self) -> str:
        """A hash of the name: what the function does is not known."""
        return hashlib.sha256(self.name.encode()).hexdigest()

    @classmethod
    def of(cls, train: Train | str) -> OwnTraining:
        """From a function, or from its name."""
        if isinstance(train, str):
            return cls(train, named_function(train))
        if not callable(train):
            raise InputError(
                f"train must be a function from data to a model, or python:module:function, got {train!r}"
            )
        module, name = getattr(train, "__module__", "?"), getattr(train, "__qualname__", type(train).__name__)
        return cls(f"python:{module}:{name}", train)

    def trained(self, *data: Any) -> tuple[Model, str | None]:
        """A model that was trained on these data, and where it is, if the function says so."""
        made = self.train(*data)
        if isinstance(made, (str, os.PathLike)):
            where = os.fspath(made)
            location = os.path.abspath(where) if os.path.isdir(where) else where  # noqa: PTH100, PTH112 - it need not be a path
            return cast("Model", load_model(where)), location
        missing = missing_members(made)
        if missing:
            raise ModelError(
                f"{self.name} returned {type(made).__name__}, which is not a model: it has no {', '.join(missing)}; return a model, or "
                "where it is"
            )
        return made, None
