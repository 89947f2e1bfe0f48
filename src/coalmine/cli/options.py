"""The options that every command has, and those that the records of options of the audits declare."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from operator import mul
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
import typer

from coalmine.corpus.files.kinds import KINDS, suffixes_in_words
from coalmine.errors import InputError
from coalmine.records.options import SEED, Option, Options, described

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coalmine.corpus.files.documents import Fields
    from coalmine.formats.format import Format

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output and nothing else there.")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Show no progress and no table; errors still show.")
]
Seed = Annotated[int, typer.Option("--seed", min=SEED.least, help=SEED.help)]
_CORPUS_HELP = f"Training data: {suffixes_in_words(KINDS, notes=True)}; also .gz, .zst."
Corpus = Annotated[Path, typer.Argument(help=_CORPUS_HELP)]
OptionalCorpus = Annotated[Path | None, typer.Argument(help=_CORPUS_HELP)]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what an earlier run wrote to --out.")]
Words = Annotated[
    Path | None,
    typer.Option("--words", help="For {word:n}: a file with one word per line, or a word model's directory."),
]
TextField = Annotated[
    str,
    typer.Option(
        "--text-field",
        help=f"Which field holds the text ({', '.join(kind.suffix for kind in KINDS if kind.has_fields)}).",
    ),
]
UserField = Annotated[str | None, typer.Option("--user-field", help="Which field says whose text it is.")]
SourceField = Annotated[
    str | None, typer.Option("--source-field", help="For pairs: the field of the source side.")
]
TargetField = Annotated[
    str | None, typer.Option("--target-field", help="For pairs: the field of the target side.")
]


def takes(
    *, unset: bool = False, **records: type[Options]
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Offer the fields of a record of options on the command line, in place of the parameter that takes the record.

    A field `per_bucket` becomes `--per-bucket`, with the help of its annotation; the command gets the record. With `unset`, it
    gets a dictionary of those that were given, for presets that have other defaults.
    """

    def with_records(command: Callable[..., int]) -> Callable[..., int]:
        signature = inspect.signature(command, eval_str=True)
        offered = {name: _offered(record, unset=unset) for name, record in records.items()}
        parameters: list[inspect.Parameter] = []
        for one in signature.parameters.values():
            own = [each.parameter for each in offered[one.name].values()] if one.name in offered else [one]
            parameters += [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]

        @wraps(command)
        def filled(**given: Any) -> int:
            for name, record in records.items():
                values = {
                    field: one.to_python(given.pop(field))
                    for field, one in offered[name].items()
                    if field in given
                }
                for field in described(record):
                    if values.pop(f"no_{field}", False):
                        values[field] = None
                named = {field: value for field, value in values.items() if value is not None}
                given[name] = named if unset else record(**values)
            return command(**given)

        filled.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # read by inspect
        filled.__annotations__ = {one.name: one.annotation for one in parameters}
        return filled

    return with_records


class _Offered(NamedTuple):
    """A field of a record as the command line offers it, and how what is given there is turned into its value."""

    parameter: inspect.Parameter
    to_python: Callable[[Any], Any]


def _offered(record: type[Options], *, unset: bool) -> dict[str, _Offered]:
    hints = get_type_hints(record)
    defaults = {field.name: field.default for field in msgspec.structs.fields(record)}
    offered = {}
    for name, option in described(record).items():
        if unset:
            offered[name] = _field(name, option, hints[name] | None, None)
            continue
        offered[name] = _field(name, option, hints[name], defaults[name])
        if option.off is not None:
            offered[f"no_{name}"] = _field(f"no_{name}", Option(option.off), bool, False)
    return offered


def _as_given(value: Any) -> Any:
    return value


def _numbers(flag: str, text: str | None) -> tuple[int, ...] | None:
    return None if text is None else tuple(whole_numbers(text, flag))


def _field(name: str, option: Option, kind: Any, default: Any) -> _Offered:
    flag = "--" + name.replace("_", "-")
    to_python: Callable[[Any], Any] = _as_given
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
    elif option.unit != 1:
        to_python = partial(mul, option.unit)
        default //= option.unit
    shown = Annotated[kind, typer.Option(flag, help=option.help, min=option.least)]
    parameter = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=shown)
    return _Offered(parameter, to_python)


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


def fields_from(text: str, user: str | None, source: str | None, target: str | None) -> Fields:
    """The fields of a corpus as the four options name them."""
    from coalmine.corpus.files.documents import Fields

    return Fields(text=text, user=user, source=source, target=target)


def formats_from(templates: Iterable[str], words: list[str] | None) -> list[Format]:
    """Secret formats, with the words of `--words` for those that need them."""
    from coalmine.formats.format import Format

    return [Format(template, words=words if "{word:" in template else None) for template in templates]


def words_from(path: Path | None) -> list[str] | None:
    """The words for {word:n}: a file with one word per line, or the vocabulary of a word model's directory."""
    if path is None:
        return None
    if path.is_dir():
        from coalmine.models.reference.checkpoint import vocabulary_words

        return vocabulary_words(path)
    from coalmine.storage.files import read_bytes

    try:
        text = read_bytes(path, "the list of words").decode()
    except UnicodeDecodeError as problem:
        raise InputError(
            f"the list of words {path} is not UTF-8 ({problem.reason} at byte {problem.start})"
        ) from None
    return [word for line in text.splitlines() if (word := line.strip())]
