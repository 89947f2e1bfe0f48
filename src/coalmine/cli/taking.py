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
from coalmine.records.options import MEGABYTE, Option, Options
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

    `title` is above them in the help; in the annotation of another field, above that one. The others are taken by `--set NAME=VALUE` if
    `rest`.
    """

    names: tuple[str, ...] = ()
    title: str = ""
    rest: bool = True


_ALL = Part()
# Options that have a short name too.
SHORT = {"out": ("-o",), "format": ("-f",), "policy": ("-p",), "quiet": ("-q",)}
# What says the opposite, where that is not `--no-` and the name.
OPPOSITE = {"lower_is_member": "--higher-is-member"}


class TitledOption(click.Option):
    """An option with the title above it in the help."""

    title = ""


class ShownArgument(click.Argument):
    """An argument with help, which click has for options alone in most versions."""

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
            name, _, value = text.partition("=")
            name = name.replace("-", "_")
            try:
                chosen[name] = msgspec.convert(value, offered.settable[name], strict=False)
            except (KeyError, msgspec.ValidationError):
                raise InputError(
                    f"--set takes NAME=VALUE with a value that it can have, where a name is one of {', '.join(known)}, got {text!r}"
                ) from None
        return offered.value(given | {"set": chosen})

    return parameters, filled


def _offered_record(record: type[msgspec.Struct], part: Part = _ALL) -> Offered:
    """A record, of which fields without help are for Python alone."""
    hints = get_type_hints(record, include_extras=True)
    helps = _attributes(record) if issubclass(record, Arguments) else {}
    offered: dict[str, Offered] = {}
    for field in msgspec.structs.fields(record):
        name, hint = field.name, hints[field.name]
        made = _offered(name, hint, field.default, helps.get(name))
        if made is None:
            continue
        if not part.names or name in part.names:
            offered[name] = made
        elif part.rest and issubclass(record, Options):
            offered[name] = _settable(name, made, hint)
    return Offered(
        [one for made in offered.values() for one in made.parameters],
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


def _offered(name: str, hint: Any, default: Any, says: str | None) -> Offered | None:
    kind, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    known = {type(one): one for one in marks}
    part, argument, option = known.get(Part, _ALL), known.get(Argument), known.get(Option)
    if isinstance(kind, type) and issubclass(kind, Arguments | Options):
        return _titled(_offered_record(kind, part), part.title)
    if argument is not None:
        return _parameter(name, kind, default, Option(says or argument.help), argument)
    if option is None and says is None:
        return None
    made = _titled(_parameter(name, kind, default, option or Option(says or "")), part.title)
    if option is None or not option.off:
        return made
    off = _titled(_parameter(f"no_{name}", bool, False, Option(option.off)), part.title)
    return Offered(
        [*made.parameters, *off.parameters],
        lambda given: None if off.value(given) else made.value(given),
        {},
    )


def _titled(offered: Offered, title: str) -> Offered:
    for one in offered.parameters:
        if isinstance(one, TitledOption):
            one.title = one.title or title
    return offered


def _parameter(
    name: str, kind: Any, default: Any, option: Option, argument: Argument | None = None
) -> Offered:
    """An option or argument for a field; what the command line has no type for is a text, which the record checks."""
    flag = "--" + name.rstrip("_").replace("_", "-")
    shown: dict[str, Any] = {"required": True} if default is msgspec.NODEFAULT else {"default": default}
    to_python: Callable[[Any], Any] = lambda found: found  # noqa: E731
    either = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    first = next(one for one in either if one is not NoneType)
    many = get_origin(first) is list
    if many:
        [first] = get_args(first)
        to_python = lambda found: list(found) or None  # noqa: E731
    if get_origin(first) is tuple:
        to_python = partial(whole_numbers, option=flag)
        shown["default"] = None if default is None else ",".join(map(str, default))
    elif option.in_bytes:
        first = str
        to_python = partial(bytes_in, option=flag)
        shown["default"] = f"{default // MEGABYTE}MB"
    elif first is bool:
        if default is True or kind is not bool:
            flag += "/" + OPPOSITE.get(name, f"--no-{flag[2:]}")
        shown |= {"is_flag": True}
    elif first is int and option.least is not None:
        first = click.IntRange(min=option.least)
    elif first is Path:
        first = click.Path(path_type=Path)
    known = first in (bool, int, float) or isinstance(first, click.ParamType)
    shown["type"] = first if known else str
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


def bytes_in(size: str, option: str) -> int:
    """A number of bytes from the command line, where it has a unit.

    >>> bytes_in("500MB", "--memory"), bytes_in("1.5 gb", "--memory")
    (500000000, 1500000000)
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT]?)B", size.strip().upper())
    if found is None:
        raise InputError(f"{option} takes a size with its unit, such as 500MB or 2GB, got {size!r}")
    return int(Fraction(found[1]) * 1000 ** " KMGT".index(found[2] or " "))
