"""Models that other people's code makes: a function named as `python:module:function`, or an adapter of an installed package.

A package registers an adapter under the entry point group `coalmine.models`. In its pyproject.toml:

    [project.entry-points."coalmine.models"]
    my-engine = "my_package.coalmine_adapter:load"

`load_model("my-engine:WHERE")` then calls `load("WHERE")`, with the options of `load_model` that the user gave as keywords (`kind`,
`device`, `device_map`, `precision`, `context`, `context_text`). It returns a model. Nothing of a package is imported before its adapter
is named.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable
from functools import wraps
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple

from coalmine.errors import CoalmineError, ModelError
from coalmine.models.protocols import Model, Tokenizer

GROUP = "coalmine.models"
PREFIX = "python:"
# Two characters at least: one is a drive of Windows.
_ADAPTER = re.compile(r"(?!https?:)([A-Za-z][\w.-]+):(.*)", re.DOTALL)


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

    def __str__(self) -> str:
        return f"{PREFIX}{self.module}:{self.function}"


class NamedAdapter(NamedTuple):
    """An adapter that a package registers, by its name, and where its model is.

    >>> NamedAdapter.parse("my-engine:weights/last")
    NamedAdapter(name='my-engine', where='weights/last')
    """

    name: str
    where: str

    @classmethod
    def parse(cls, where: str | os.PathLike[str]) -> NamedAdapter | None:
        """From `NAME:WHERE`; None for a path that exists, and for what has another form."""
        match = _ADAPTER.fullmatch(os.fspath(where))
        if match is None or os.path.exists(where):  # noqa: PTH110 - Path.exists raises on names that are too long
            return None
        return cls(match[1], match[2])

    def __str__(self) -> str:
        return f"the adapter {self.name!r}"


def is_plugin(where: str | os.PathLike[str]) -> bool:
    """Whether a model is made by somebody else's code; no package is imported to find out.

    >>> is_plugin("python:my_models:gru"), is_plugin("my-engine:weights"), is_plugin("out/model"), is_plugin("http://127.0.0.1/v1")
    (True, True, False, False)
    """
    return os.fspath(where).startswith(PREFIX) or NamedAdapter.parse(where) is not None


def plugin_file_name(where: str | os.PathLike[str]) -> str:
    """A name for a directory of results: other texts make other models.

    >>> plugin_file_name("python:my_models:gru:weights/last.npz"), plugin_file_name("my-engine:weights/last")
    ('my_models-gru-weights-last-npz', 'my-engine-weights-last')
    """
    adapter = None if os.fspath(where).startswith(PREFIX) else NamedAdapter.parse(where)
    if adapter is not None:
        return "-".join([adapter.name, *re.findall(r"\w+", adapter.where)])
    named = NamedFunction.parse(where)
    return "-".join([named.module, named.function, *re.findall(r"\w+", named.text or "")])


def plugin_model(where: str | os.PathLike[str], **options: Any) -> Any:
    """The model that somebody else's code makes, checked for what every model must have. This runs that code.

    A named function is called without arguments, or with the text after its name. An adapter is called with the text after its name and
    with `options`.
    """
    if os.fspath(where).startswith(PREFIX):
        function = NamedFunction.parse(where)
        arguments = () if function.text is None else (function.text,)
        return _made(function, _function(function), *arguments)
    adapter = NamedAdapter.parse(where)
    if adapter is None:
        raise ModelError(f"{os.fspath(where)!r} names neither a function nor an adapter; write NAME:WHERE")
    return _made(adapter, _adapter(adapter), adapter.where, **options)


def named_function(where: str | os.PathLike[str]) -> Callable[..., Any]:
    """The function that is named `python:module:function`, to be called with any arguments; this imports its module.

    With a text after its name, that is its last argument. What it raises is reported in one sentence, with the place.
    """
    named = NamedFunction.parse(where)
    function = _function(named)
    further = () if named.text is None else (named.text,)

    @wraps(function)
    def called(*arguments: Any) -> Any:
        return _run(named, f"calling {named}", lambda: function(*arguments, *further))

    return called


def missing_members(model: object) -> list[str]:
    """The members that every model must have and this one lacks, those of its tokenizer included.

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


def _made(
    named: NamedFunction | NamedAdapter, make: Callable[..., Any], *arguments: str, **options: Any
) -> Any:
    """What a function returns, if it is a model."""
    model = _run(named, f"calling {named}", lambda: make(*arguments, **options))
    missing = _run(named, f"reading the members of what {named} returns", lambda: missing_members(model))
    if missing:
        raise ModelError(
            f"{named} returned {type(model).__name__}, which is not a model: it has no {', '.join(missing)}; the guide to adapters "
            "lists what a model must have"
        )
    return model


def _adapter(named: NamedAdapter) -> Callable[..., Any]:
    """The function that a package registered under a name; only that package is imported."""
    offered = entry_points(group=GROUP)
    found = [point for point in offered if point.name == named.name]
    if not found:
        names = ", ".join(sorted({point.name for point in offered})) or "none"
        raise ModelError(
            f"model not found: {named.name}:{named.where} is not a directory, and no installed package registers an adapter "
            f"{named.name!r} for coalmine (registered: {names}); install the package, or name a directory, a URL or "
            "python:module:function"
        )
    if len({point.value for point in found}) > 1:
        packages = " and ".join(sorted(map(_package, found)))
        raise ModelError(f"{packages} register {named} for coalmine; uninstall all but one of them")
    function = _run(named, f"importing {named} ({found[0].value})", found[0].load)
    if not callable(function):
        raise ModelError(
            f"{named} ({found[0].value}) is not a function; ask the authors of {_package(found[0])}"
        )
    return function  # type: ignore[no-any-return]


def _package(point: EntryPoint) -> str:
    return point.value.partition(":")[0] if point.dist is None else point.dist.name


def _function(named: NamedFunction) -> Callable[..., Any]:
    # Last, so that a file here never takes the place of a library that is imported later.
    if os.getcwd() not in sys.path and "" not in sys.path:  # noqa: PTH109 - as sys.path has it
        sys.path.append(os.getcwd())  # noqa: PTH109
    module = _run(named, f"importing {named.module}", lambda: importlib.import_module(named.module))
    function = getattr(module, named.function, None)
    if not callable(function):
        raise ModelError(
            f"the module {named.module!r} ({getattr(module, '__file__', 'built in')}) has no function {named.function!r}; name one "
            "that returns a model"
        )
    return function  # type: ignore[no-any-return]


def _run(named: NamedFunction | NamedAdapter, act: str, call: Callable[[], Any]) -> Any:
    """Run somebody else's code; what it raises is reported in one sentence, with the place."""
    try:
        return call()
    except CoalmineError:
        raise
    except ModuleNotFoundError as missing:
        here = "run coalmine in the directory that holds it, or " if isinstance(named, NamedFunction) else ""
        raise ModelError(f"there is no module {missing.name!r} for {named}; {here}install it") from None
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise ModelError(
            f"{act} raised {type(error).__name__}: {' '.join(str(error).split())} (line {last.lineno} of {last.filename}); fix the function"
        ) from error
