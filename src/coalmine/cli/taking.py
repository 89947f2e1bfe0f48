"""What commands take: records whose fields become arguments and options of the command line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import click
import msgspec

from coalmine.errors import InputError
from coalmine.records.options import GIGABYTE, MEGABYTE, Option, Options, described
from coalmine.storage.files import check_ordinary


class Arguments(msgspec.Struct, frozen=True, kw_only=True):
    """The base of what commands take: arguments and options, and as fields the records that several commands or Python take.

    A field that the docstring describes under "Attributes:" is an option with that help.
    """


class Argument(NamedTuple):
    """In the annotation of a field: that it is an argument, which has no name on the command line, and what the help calls it."""

    metavar: str | None = None
    help: str = ""


class Part(NamedTuple):
    """In the annotation of a record: which of its options a command offers by name, all where none is named.

    `title` is above them in the help, and `prefix` is put before their names. The others are taken by `--set NAME=VALUE` if `rest`. In
    the annotation of a dictionary, `record` says of which record it gets the options that are given: for presets, which have other
    defaults.
    """

    names: tuple[str, ...] = ()
    title: str = ""
    prefix: str = ""
    rest: bool = True
    record: type[Options] | None = None


_ALL = Part()
# Options that have a short name too.
SHORT = {"out": ("-o",), "format": ("-f",), "policy": ("-p",), "quiet": ("-q",)}


class TitledOption(click.Option):
    """An option with the title above it in the help."""

    title = "Options"


class ShownArgument(click.Argument):
    """An argument with help."""

    def __init__(self, name: str, help: str, **attributes: Any) -> None:  # noqa: A002 - as options have it
        super().__init__([name], **attributes)
        self.help = help

    def get_help_record(self, _: Any) -> tuple[str, str]:
        """What it is called, and its help."""
        return self.human_readable_name, self.help or ""


class Offered(NamedTuple):
    """A field of a record as the command line offers it, and its value from all that was given there."""

    parameters: list[click.Parameter]
    value: Callable[[dict[str, Any]], Any]
    # The names that `--set` takes, each with the kind of its value.
    settable: dict[str, Any]


def taken(record: type[msgspec.Struct]) -> tuple[list[click.Parameter], Callable[..., Any]]:
    """The parameters of a command that takes a record, and what makes the record of their values.

    A field `per_bucket` with an `Option` in its annotation becomes `--per-bucket`, one with an `Argument` an argument, and the fields
    of a record in it follow in its place.
    """
    offered = _offered_record(record)
    parameters, known = offered.parameters, sorted(offered.settable)
    if known:
        shown = f"NAME=VALUE, may be given many times: {', '.join(known)}, as Python has them."
        parameters = [*parameters, TitledOption(["--set"], multiple=True, default=None, help=shown)]

    def filled(**given: Any) -> Any:
        chosen = {}
        for text in given.get("set") or ():
            name, equals, value = text.partition("=")
            name = name.replace("-", "_")
            if not equals or name not in known:
                raise InputError(
                    f"--set takes NAME=VALUE, where a name is one of {', '.join(known)}, got {text!r}"
                )
            try:
                chosen[name] = msgspec.convert(value, offered.settable[name], strict=False)
            except msgspec.ValidationError:
                raise InputError(f"--set {name} has a value that it cannot have, got {value!r}") from None
        return offered.value(given | {"set": chosen})

    return parameters, filled


def _offered_record(record: type[msgspec.Struct], part: Part = _ALL) -> Offered:
    """A record, of which fields without help are for Python alone."""
    hints = get_type_hints(record, include_extras=True)
    helps = _attributes(record) if issubclass(record, Arguments) else {}
    offered: dict[str, Offered] = {}
    for field in msgspec.structs.fields(record):
        made = _offered(part.prefix + field.name, hints[field.name], field.default, helps.get(field.name))
        if made is None:
            continue
        if not part.names or field.name in part.names:
            offered[field.name] = made
        elif part.rest and issubclass(record, Options):
            offered[field.name] = _settable(field.name, made, hints[field.name])
    return Offered(
        [_titled(one, part.title) for made in offered.values() for one in made.parameters],
        lambda given: record(**{name: made.value(given) for name, made in offered.items()}),
        {name: kind for made in offered.values() for name, kind in made.settable.items()},
    )


def _settable(name: str, offered: Offered, hint: Any) -> Offered:
    """An option that is only taken by `--set`: its text is read as the command line would read it."""
    as_text = isinstance(offered.parameters[0].type, click.types.StringParamType)
    kind = str if as_text else get_args(hint)[0]
    return Offered(
        [],
        lambda given: offered.value({name: given["set"][name]} if name in given["set"] else {}),
        {name: kind},
    )


def _attributes(record: type) -> dict[str, str]:
    """What the docstrings of a record and its bases say of each field."""
    found: dict[str, str] = {}
    for base in reversed(record.__mro__):
        section = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")[2]
        entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE)
        found |= {name: " ".join(text.split()) for name, text in entries}
    return found


def _titled(parameter: click.Parameter, title: str) -> click.Parameter:
    if title and isinstance(parameter, TitledOption) and parameter.title == TitledOption.title:
        parameter.title = title
    return parameter


def _offered(name: str, hint: Any, default: Any, says: str | None) -> Offered | None:
    kind, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    part = next((one for one in marks if isinstance(one, Part)), _ALL)
    argument = next((one for one in marks if isinstance(one, Argument)), None)
    option = next((one for one in marks if isinstance(one, Option)), None)
    if part.record is not None:
        return _changes(part, part.record)
    if isinstance(kind, type) and issubclass(kind, Arguments | Options):
        return _offered_record(kind, part)
    if argument is not None:
        return _parameter(name, kind, default, Option(says or argument.help), argument)
    if option is None and says is None:
        return None
    made = _parameter(name, kind, default, option or Option(says or ""))
    if option is not None and option.off:
        off = _parameter(f"no_{name}", bool, False, Option(option.off))
        on = made.value
        made = Offered(
            [*made.parameters, *off.parameters], lambda given: None if off.value(given) else on(given), {}
        )
    return made._replace(parameters=[_titled(one, part.title) for one in made.parameters])


def _changes(part: Part, record: type[Options]) -> Offered:
    """The options of a record that are given, as a dictionary."""
    hints = get_type_hints(record)
    offered = {
        part.prefix + name: _parameter(part.prefix + name, hints[name] | None, None, option)
        for name, option in described(record).items()
        if not part.names or name in part.names
    }
    return Offered(
        [_titled(one, part.title) for made in offered.values() for one in made.parameters],
        lambda given: {
            name: value for name, made in offered.items() if (value := made.value(given)) is not None
        },
        {},
    )


def _parameter(
    name: str, kind: Any, default: Any, option: Option, argument: Argument | None = None
) -> Offered:
    """An option or argument for a field; what the command line has no type for is a text, which the record checks."""
    flag = "--" + name.rstrip("_").replace("_", "-")
    required, to_python = default is msgspec.NODEFAULT, _as_it_is
    default = None if required else default
    either = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    first = next(one for one in either if one is not NoneType)
    many = get_origin(first) is list
    if many:
        [first] = get_args(first)
        to_python = _listed
    shown: dict[str, Any] = {"type": str, **({"required": True} if required else {"default": default})}
    if get_origin(first) is tuple:
        to_python = partial(whole_numbers, option=flag)
        shown["default"] = None if default is None else ",".join(map(str, default))
    elif option.in_bytes:
        to_python = partial(bytes_in, option=flag)
        shown["default"] = size_in_words(default)
    elif first is bool:
        flag += f"/--no-{flag[2:]}" if default is True or kind is not bool else ""
        shown["type"] = bool
        shown["is_flag"] = True
    elif first is int:
        shown["type"] = click.INT if option.least is None else click.IntRange(min=option.least)
    elif first in (float, Path):
        shown["type"] = click.FLOAT if first is float else click.Path(path_type=Path)
    parameter: click.Parameter
    if argument is not None:
        metavar = argument.metavar or f"{name.upper()}..." * many or None
        parameter = ShownArgument(
            name, option.help, metavar=metavar, nargs=-1 if many else 1, **{"required": False} | shown
        )
    else:
        names = [name, flag, *SHORT.get(name, ())]
        parameter = TitledOption(names, help=option.help, multiple=many, show_default=True, **shown)

    def value(given: dict[str, Any]) -> Any:
        found = given.get(name, shown.get("default"))
        for one in found if isinstance(found, list | tuple) else [found]:
            if isinstance(one, Path):
                check_ordinary(one)
        return None if found is None else to_python(found)

    return Offered([parameter], value, {})


def _as_it_is(found: Any) -> Any:
    return found


def _listed(found: tuple[Any, ...]) -> list[Any] | None:
    return list(found) or None


def whole_numbers(text: str, option: str) -> tuple[int, ...]:
    """Numbers such as "1,4,16" from the command line.

    >>> whole_numbers("1,4,16", "--repeat")
    (1, 4, 16)
    """
    try:
        return tuple(int(part) for part in text.split(","))
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
