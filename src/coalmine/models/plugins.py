"""Models that a function of the user's makes, named as `python:module:function`."""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

from coalmine.errors import CoalmineError, ModelError
from coalmine.models.protocols import Model, Tokenizer

PREFIX = "python:"


class NamedFunction(NamedTuple):
    """A function by its module and name, and the text it is called with, if any.

    >>> NamedFunction.parse("python:my_models:gru:weights/last.npz")
    NamedFunction(module='my_models', function='gru', text='weights/last.npz')
    """

    module: str
    function: str
    text: str | None

    @classmethod
    def parse(cls, where: str | os.PathLike[str]) -> NamedFunction:
        """From `python:module:function`, or `python:module:function:text`."""
        module, _, rest = os.fspath(where).removeprefix(PREFIX).partition(":")
        function, colon, text = rest.partition(":")
        if not all(part.isidentifier() for part in (*module.split("."), function)):
            raise ModelError(
                f"a model from a function is named python:module:function, got {os.fspath(where)!r}; name a module that Python can "
                "import and a function in it"
            )
        return cls(module, function, text if colon else None)

    @property
    def file_name(self) -> str:
        """A name for a directory of results: other texts make other models.

        >>> NamedFunction.parse("python:my_models:gru:weights/last.npz").file_name
        'my_models-gru-weights-last-npz'
        """
        parts = [self.module, self.function, *([] if self.text is None else re.findall(r"\w+", self.text))]
        return "-".join(parts)

    def __str__(self) -> str:
        return f"{PREFIX}{self.module}:{self.function}"


def is_function(where: str | os.PathLike[str]) -> bool:
    """Whether a model is made by a function that is named."""
    return os.fspath(where).startswith(PREFIX)


def model_of_function(where: str | os.PathLike[str]) -> Any:
    """Import the module, from the path or the current directory, call the function, and check what it returns.

    This runs the user's code. The function is called without arguments, or with the text after its name.
    """
    named = NamedFunction.parse(where)
    function = _function(named)
    arguments = () if named.text is None else (named.text,)
    model = _run(f"calling {named}", lambda: function(*arguments))
    missing = _run(f"asking for the members of what {named} returns", lambda: missing_members(model))
    if missing:
        raise ModelError(
            f"{named} returned {type(model).__name__}, which is not a model: it has no {', '.join(missing)}; see docs/guides/adapters.md for "
            "what a model must have"
        )
    return model


def missing_members(model: object) -> list[str]:
    """What every model must have and this one has not, its tokenizer's members among it.

    >>> missing_members(3)
    ['name', 'tokenizer', 'context', 'resolution_bits', 'describe']
    """
    missing = [name for name in _members(Model) if not hasattr(model, name)]
    if "tokenizer" not in missing:
        tokenizer = getattr(model, "tokenizer", None)
        missing += [f"tokenizer.{name}" for name in _members(Tokenizer) if not hasattr(tokenizer, name)]
    return missing


def _members(protocol: type) -> list[str]:
    return [name for name in vars(protocol) if not name.startswith("_")]


def _function(named: NamedFunction) -> Callable[..., Any]:
    # Last, so that a file here never takes the place of a library that is imported later.
    if os.getcwd() not in sys.path and "" not in sys.path:  # noqa: PTH109 - as sys.path has it
        sys.path.append(os.getcwd())  # noqa: PTH109
    try:
        module = _run(f"importing {named.module}", lambda: importlib.import_module(named.module))
    except ModuleNotFoundError as missing:
        raise ModelError(
            f"there is no module {missing.name!r} for {named}; run coalmine in the directory that holds it, or install it"
        ) from None
    function = getattr(module, named.function, None)
    if not callable(function):
        raise ModelError(
            f"the module {named.module!r} ({getattr(module, '__file__', 'built in')}) has no function {named.function!r}; name one "
            "that returns a model"
        )
    return function  # type: ignore[no-any-return]


def _run(act: str, call: Callable[[], Any]) -> Any:
    """Run the user's code; what it raises is told in one sentence, with the place."""
    try:
        return call()
    except (CoalmineError, ModuleNotFoundError):
        raise
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise ModelError(
            f"{act} raised {type(error).__name__}: {error} (line {last.lineno} of {last.filename}); mend the function"
        ) from error
