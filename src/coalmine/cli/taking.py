"""What commands take: records whose fields become arguments and options of the command line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from fractions import Fraction
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import typer
from typer.models import ArgumentInfo, OptionInfo

from coalmine.errors import InputError
from coalmine.records.options import GIGABYTE, MEGABYTE, Option, Options, described
from coalmine.storage.files import check_ordinary


class Arguments(msgspec.Struct, frozen=True, kw_only=True):
    """The base of what commands take: arguments and options, and as fields the records that several commands or Python take."""


class Changes(NamedTuple):
    """In the annotation of a dictionary: it gets those options of a record that are given, for presets with other defaults.

    `without` names those that the command has options of its own for, and `prefix` is put before the names of all.
    """

    record: type[Options]
    without: tuple[str, ...] = ()
    prefix: str = ""


class Part(NamedTuple):
    """In the annotation of a record: which of its options a command offers, and what it puts before their names."""

    names: tuple[str, ...]
    prefix: str = ""


Taken = TypeVar("Taken", bound=Arguments)


def takes(command: Callable[[Taken], int]) -> Callable[..., int]:
    """The command for Typer of a function that takes one record, whose fields become arguments and options.

    A field `per_bucket` with an `Option` in its annotation becomes `--per-bucket`, one with an annotation of Typer becomes what
    that says, and the fields of a record in it follow in its place.
    """
    [parameter] = inspect.signature(command, eval_str=True).parameters.values()
    offered = _offered_record(parameter.annotation)

    @wraps(command)
    def filled(**given: Any) -> int:
        return command(offered.value(given))

    signature = inspect.Signature(offered.parameters, return_annotation=int)
    filled.__signature__ = signature  # type: ignore[attr-defined]  # read by inspect
    filled.__annotations__ = {one.name: one.annotation for one in offered.parameters}
    return filled


class _Offered(NamedTuple):
    """A field of a record as the command line offers it, and its value from all that was given there."""

    parameters: list[inspect.Parameter]
    value: Callable[[dict[str, Any]], Any]


def _offered_record(record: type[msgspec.Struct], part: Part | None = None) -> _Offered:
    """A record, of which fields without help are for Python alone."""
    hints = get_type_hints(record, include_extras=True)
    defaults = {field.name: field.default for field in msgspec.structs.fields(record)}
    offered = {}
    for name, hint in hints.items():
        if name in defaults and (part is None or name in part.names):
            one = _offered(name if part is None else part.prefix + name, hint, defaults[name])
            if one is not None:
                offered[name] = one
    return _Offered(
        [parameter for one in offered.values() for parameter in one.parameters],
        lambda given: record(**{name: one.value(given) for name, one in offered.items()}),
    )


def _offered(name: str, hint: Any, default: Any) -> _Offered | None:
    kind, *said = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    for one in said:
        if isinstance(one, Option):
            return _switched(name, one, kind, default) if one.off else _option(name, one, kind, default)
        if isinstance(one, Changes):
            return _changes(one)
        if isinstance(one, OptionInfo | ArgumentInfo):
            return _parameter(name, hint, default)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and issubclass(kind, Arguments | Options):
        return _offered_record(kind, next((one for one in said if isinstance(one, Part)), None))
    return None


def _changes(changes: Changes) -> _Offered:
    hints = get_type_hints(changes.record)
    offered = {
        changes.prefix + name: _option(changes.prefix + name, option, hints[name] | None, None)
        for name, option in described(changes.record).items()
        if name not in changes.without
    }
    return _Offered(
        [parameter for one in offered.values() for parameter in one.parameters],
        lambda given: {
            name: found for name, one in offered.items() if (found := one.value(given)) is not None
        },
    )


def _switched(name: str, option: Option, kind: Any, default: Any) -> _Offered:
    """An option that another one, such as `--no-near`, makes None."""
    on = _option(name, option, kind, default)
    off = _option(f"no_{name}", Option(option.off or ""), bool, False)
    return _Offered(
        on.parameters + off.parameters, lambda given: None if off.value(given) else on.value(given)
    )


def _parameter(
    name: str, shown: Any, default: Any, to_python: Callable[[Any], Any] | None = None
) -> _Offered:
    start = inspect.Parameter.empty if default is msgspec.NODEFAULT else default
    parameter = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=start, annotation=shown)

    def value(given: dict[str, Any]) -> Any:
        found = given.get(name, start)
        for one in found if isinstance(found, list) else [found]:
            if isinstance(one, Path):
                check_ordinary(one)
        return found if to_python is None else to_python(found)

    return _Offered([parameter], value)


def _numbers(flag: str, text: str | None) -> tuple[int, ...] | None:
    return None if text is None else tuple(whole_numbers(text, flag))


def _option(name: str, option: Option, kind: Any, default: Any) -> _Offered:
    flag = "--" + name.replace("_", "-")
    to_python: Callable[[Any], Any] | None = None
    if any(get_origin(one) is tuple for one in (kind, *get_args(kind))):
        to_python = partial(_numbers, flag)
        kind = str if default is not None else str | None
        default = None if default is None else ",".join(map(str, default))
    elif kind is Any:
        kind = str
    elif (kind is bool and default is True) or kind == bool | None:
        flag += f"/--no-{flag[2:]}"
    elif any(get_origin(one) is Literal for one in (kind, *get_args(kind))):
        kind = str if default is not None else str | None  # the record says which there are
    elif option.in_bytes:
        to_python = partial(bytes_in, option=flag)
        kind, default = str, size_in_words(default)
    shown = Annotated[kind, typer.Option(flag, help=option.help, min=option.least)]
    return _parameter(name, shown, default, to_python)


def whole_numbers(text: str, option: str) -> list[int]:
    """A list such as "1,4,16" from the command line.

    >>> whole_numbers("1,4,16", "--repeat")
    [1, 4, 16]
    """
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"{option} takes whole numbers with commas between, such as 1,4,16, got {text!r}"
        ) from None


_UNITS = {"B": 1, "KB": 1_000, "MB": MEGABYTE, "GB": GIGABYTE, "TB": 1_000 * GIGABYTE}


def bytes_in(size: str, option: str) -> int:
    """A number of bytes from the command line, where it has a unit.

    >>> bytes_in("500MB", "--memory"), bytes_in("1.5 gb", "--memory")
    (500000000, 1500000000)
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT]?B)", size.strip().upper())
    if found is None:
        raise InputError(f"{option} takes a size with its unit, such as 500MB or 2GB, got {size!r}")
    return int(Fraction(found[1]) * _UNITS[found[2]])


def size_in_words(size: int) -> str:
    """A number of bytes in the largest unit that it is a whole number of.

    >>> size_in_words(1_024_000_000), size_in_words(2_000_000_000)
    ('1024MB', '2GB')
    """
    unit = max((name for name, one in _UNITS.items() if size % one == 0), key=lambda name: _UNITS[name])
    return f"{size // _UNITS[unit]}{unit}"
