"""What commands take: records whose fields become arguments and options of the command line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from copy import copy
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
    """The base of what commands take: arguments and options, and as fields the records that several commands or Python take.

    A field that the docstring describes under "Attributes:" is an option with that help.
    """


class Least(NamedTuple):
    """In the annotation of an option: the least value that it takes."""

    value: int


class Part(NamedTuple):
    """In the annotation of a record: which of its options a command offers by name, all where none is named.

    `title` is above them in the help, and `prefix` is put before their names. The others, but those in `without`, are taken by `--set
    NAME=VALUE` if `rest`. In the annotation of a dictionary, `record` says of which record it gets the options that are given: for
    presets, which have other defaults.
    """

    names: tuple[str, ...] = ()
    title: str = ""
    prefix: str = ""
    rest: bool = True
    without: tuple[str, ...] = ()
    record: type[Options] | None = None


_ALL = Part()
# Options that have a short name too.
SHORT = {"out": ("-o",), "format": ("-f",), "policy": ("-p",), "quiet": ("-q",)}
Taken = TypeVar("Taken", bound=Arguments)


def takes(command: Callable[[Taken], int]) -> Callable[..., int]:
    """The command for Typer of a function that takes one record, whose fields become arguments and options.

    A field `per_bucket` with an `Option` in its annotation becomes `--per-bucket`, one with an annotation of Typer becomes what
    that says, and the fields of a record in it follow in its place.
    """
    [parameter] = inspect.signature(command, eval_str=True).parameters.values()
    offered = _offered_record(parameter.annotation)

    known = sorted(offered.settable)
    parameters = [*offered.parameters, *([_set_parameter(known)] if known else [])]

    @wraps(command)
    def filled(**given: Any) -> int:
        given["set"] = dict(_name_and_value(text, known) for text in given.get("set") or ())
        return command(offered.value(given))

    signature = inspect.Signature(parameters, return_annotation=int)
    filled.__signature__ = signature  # type: ignore[attr-defined]  # read by inspect
    filled.__annotations__ = {one.name: one.annotation for one in parameters}
    return filled


def _set_parameter(known: list[str]) -> inspect.Parameter:
    shown = typer.Option(
        "--set", help=f"NAME=VALUE, may be given many times: {', '.join(known)}, as Python has them."
    )
    return inspect.Parameter(
        "set", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[list[str] | None, shown]
    )


def _name_and_value(text: str, known: list[str]) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    name = name.replace("-", "_")
    if not equals or name not in known:
        raise InputError(f"--set takes NAME=VALUE, where a name is one of {', '.join(known)}, got {text!r}")
    return name, value


class _Offered(NamedTuple):
    """A field of a record as the command line offers it, and its value from all that was given there."""

    parameters: list[inspect.Parameter]
    value: Callable[[dict[str, Any]], Any]
    # The names that `--set` takes.
    settable: frozenset[str] = frozenset()


def _offered_record(record: type[msgspec.Struct], part: Part = _ALL) -> _Offered:
    """A record, of which fields without help are for Python alone."""
    hints = get_type_hints(record, include_extras=True)
    helps = _attributes(record) if issubclass(record, Arguments) else {}
    offered = {}
    for field in msgspec.structs.fields(record):
        named, hint = not part.names or field.name in part.names, hints[field.name]
        if field.name in helps:
            hint = _helped(hint, helps[field.name])
        one = _offered(part.prefix + field.name, hint, field.default)
        if one is not None and (
            named or (part.rest and issubclass(record, Options) and field.name not in part.without)
        ):
            offered[field.name] = one if named else _settable(field.name, one)
    return _Offered(
        [_titled(parameter, part.title) for one in offered.values() for parameter in one.parameters],
        lambda given: record(**{name: one.value(given) for name, one in offered.items()}),
        frozenset().union(*(one.settable for one in offered.values())),
    )


def _settable(name: str, offered: _Offered) -> _Offered:
    """An option that is only taken by `--set`: its text is read as the command line would read it."""
    parameter = offered.parameters[0]
    kind = get_args(parameter.annotation)[0]

    def value(given: dict[str, Any]) -> Any:
        text = given["set"].get(name)
        try:
            read = msgspec.convert(text, kind, strict=False) if isinstance(text, str) else None
        except msgspec.ValidationError:
            raise InputError(f"--set {name} has a value that it cannot have, got {text!r}") from None
        return offered.value({} if text is None else {parameter.name: read})

    return _Offered([], value, frozenset({name}))


def _attributes(record: type) -> dict[str, str]:
    """What the docstrings of a record and its bases say of each field."""
    found: dict[str, str] = {}
    for base in reversed(record.__mro__):
        section = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")[2]
        entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE)
        found |= {name: " ".join(text.split()) for name, text in entries}
    return found


def _helped(hint: Any, says: str) -> Any:
    """The annotation of a field with its help."""
    kind, *said = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    argument = next((copy(one) for one in said if isinstance(one, ArgumentInfo)), None)
    if argument is None:
        least = next((one.value for one in said if isinstance(one, Least)), None)
        return Annotated[(kind, *said, Option(says, least=least))]
    argument.help = says
    return Annotated[kind, argument]


def _titled(parameter: inspect.Parameter, title: str) -> inspect.Parameter:
    """A parameter under a title in the help, unless it has one."""
    kind, info = get_args(parameter.annotation)
    if not title or info.rich_help_panel:
        return parameter
    shown = copy(info)
    shown.rich_help_panel = title
    return parameter.replace(annotation=Annotated[kind, shown])


def _offered(name: str, hint: Any, default: Any) -> _Offered | None:
    kind, *said = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    part = next((one for one in said if isinstance(one, Part)), _ALL)
    for one in said:
        if isinstance(one, Option):
            made = _switched(name, one, kind, default) if one.off else _option(name, one, kind, default)
            return made._replace(parameters=[_titled(each, part.title) for each in made.parameters])
        if isinstance(one, OptionInfo | ArgumentInfo):
            return _parameter(name, hint, default)
    if part.record is not None:
        return _changes(part, part.record)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and issubclass(kind, Arguments | Options):
        return _offered_record(kind, part)
    return None


def _changes(part: Part, record: type[Options]) -> _Offered:
    hints = get_type_hints(record)
    offered = {
        part.prefix + name: _option(part.prefix + name, option, hints[name] | None, None)
        for name, option in described(record).items()
        if not part.names or name in part.names
    }
    return _Offered(
        [_titled(parameter, part.title) for one in offered.values() for parameter in one.parameters],
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
    flag = "--" + name.rstrip("_").replace("_", "-")
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
    shown = Annotated[kind, typer.Option(flag, *SHORT.get(name, ()), help=option.help, min=option.least)]
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
