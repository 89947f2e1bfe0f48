"""Commands that fill an options record: one command-line option per field that has a description."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import msgspec
import typer

from coalmine.cli.options import whole_numbers


class _Filled(NamedTuple):
    """A field of an options record as options of a command."""

    name: str
    parameters: list[inspect.Parameter]
    # Makes the value from the arguments of the command; None where the default is to stay.
    value: Callable[[dict[str, Any]], Any]


def fills(record: type[msgspec.Struct], *, unset: bool = False) -> Callable[[Any], Any]:
    """Give a command one option per described field of `record`, in the place of its parameter `options`.

    The command gets the filled record as `options`. With `unset`, it gets a dictionary of only those that were given, which
    is what presets need. An integer may have a `unit`: `--memory 2000` with a unit of a million is `memory=2_000_000_000`.
    A field that may be None but has another default gets an option to switch it off, such as `--no-near`, with the help in `off`.
    """
    filled = [_filled(field, unset=unset) for field in msgspec.structs.fields(record) if _meta(field.type)[1]]

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(command)
        def filling(**given: Any) -> int:
            values = {each.name: each.value(given) for each in filled}
            names = {parameter.name for each in filled for parameter in each.parameters}
            rest = {name: value for name, value in given.items() if name not in names}
            if unset:
                options: Any = {name: value for name, value in values.items() if value is not None}
            else:
                options = record(**values)
            return command(**rest, options=options)

        signature = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            if parameter.name == "options":
                parameters += [one for each in filled for one in each.parameters]
            else:
                parameters.append(parameter)
        filling.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        filling.__annotations__ = {one.name: one.annotation for one in parameters}
        return filling

    return decorate


def _filled(field: msgspec.structs.FieldInfo, *, unset: bool) -> _Filled:
    kind, meta = _meta(field.type)
    name, option = field.name, f"--{field.name.replace('_', '-')}"
    optional = type(None) in typing.get_args(kind)
    if optional:
        [kind] = [one for one in typing.get_args(kind) if one is not type(None)]
    default = None if unset else field.default
    if kind is bool:
        option += f"/--no-{option[2:]}"
    if typing.get_origin(kind) is tuple:
        listed = None if default is None else ",".join(map(str, default))
        parameter = _parameter(name, str, option, meta.description, listed)
        return _Filled(name, [parameter], lambda given: whole_numbers(given[name], option))
    if typing.get_origin(kind) is typing.Literal:
        kind = str  # the record refuses what is not one of them, in the words that Python users get
    extra = meta.extra or {}
    unit = extra.get("unit", 1)
    if kind is Any:
        kind = str
    if unit != 1 and default is not None:
        default //= unit
    parameters = [_parameter(name, kind, option, meta.description, default)]
    if optional and default is not None:
        parameters.append(_parameter(f"no_{name}", bool, f"--no-{option[2:]}", extra.get("off"), False))

    def value(given: dict[str, Any]) -> Any:
        if given.get(f"no_{name}"):
            return None
        return given[name] * unit if unit != 1 else given[name]

    return _Filled(name, parameters, value)


def _parameter(name: str, kind: Any, option: str, description: str | None, default: Any) -> inspect.Parameter:
    annotation = Annotated[kind | None if default is None else kind, typer.Option(option, help=description)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _meta(annotation: Any) -> tuple[Any, Any]:
    """The type of a field and its description, which may be missing."""
    if typing.get_origin(annotation) is Annotated:
        kind, *rest = typing.get_args(annotation)
        for meta in rest:
            if isinstance(meta, msgspec.Meta) and meta.description:
                return kind, meta
        return kind, None
    return annotation, None
