"""Generates the parts of the documentation that repeat what the code says: commands, result files, findings, the file map.

python scripts/generate_docs.py           # write them (`make docs` does)
python scripts/generate_docs.py --check   # exit 1 and name the pages that are not up to date
"""

from __future__ import annotations

import ast
import importlib
import inspect
import io
import pkgutil
import re
import sys
import textwrap
import tokenize
import typing
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

import coalmine
from coalmine.cli.main import every_command
from coalmine.corpus.planting.manifest import CanarySet
from coalmine.corpus.planting.manifest_records import CanaryManifest
from coalmine.records.documents import Document
from coalmine.reports.catalog import Entry, catalog, chosen
from coalmine.storage.files import PRIVATE

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "coalmine"
# The class that Python has for a document whose file is written by another record.
AS_WRITTEN: dict[type, type] = {CanarySet: CanaryManifest}
# Of the lines of a page.
WIDTH = 120
BESIDE = ("benchmarks", "examples", "experiments", "mutants", "scripts")


def commands() -> str:
    """Every command with its arguments and options, in the order of `coalmine --help`."""
    return "\n".join(
        part
        for names, command in every_command()
        for part in _command(" ".join(["coalmine", *names]), command)
    )


def _command(name: str, command: Any) -> Iterator[str]:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    usage = " ".join([name, *(_shown_argument(one) for one in arguments), "[OPTIONS]"])
    yield f"## {name}\n\n```text\n{usage}\n```\n\n{_prose(command.help or '')}\n"
    if arguments:
        rows = [(f"`{_named(one)}`", one.help or "") for one in arguments]
        yield _table(("argument", "what it is"), rows)
    options = [
        (_spelling(one), _default(one), one.help or "")
        for one in command.params
        if one.param_type_name == "option"
    ]
    yield _table(("option", "default", "what it does"), options)


def _named(argument: Any) -> str:
    name: str = argument.metavar or argument.name.upper()
    return name.strip("[].") + ("..." if argument.nargs == -1 else "")


def _shown_argument(argument: Any) -> str:
    return _named(argument) if argument.required else f"[{_named(argument)}]"


def _spelling(option: Any) -> str:
    return ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))


def _default(option: Any) -> str:
    default = option.default
    if option.required:
        return "required"
    if default is None or callable(default) or default is False or default in ((), [], ""):
        return ""
    return f"`{default}`"


def _prose(text: str) -> str:
    """The paragraphs of a docstring, each on one line and without examples; lines that are indented stay as they are."""
    paragraphs = inspect.cleandoc(text).partition("\n\nAttributes:\n")[0].split("\n\n")
    kept = [one for one in paragraphs if not one.startswith(">>>")]
    return "\n\n".join(one if one.startswith(" ") else " ".join(one.split()) for one in kept)


def _attributes(record: type) -> dict[str, str]:
    """What the section "Attributes:" of a docstring says of each field."""
    section = inspect.cleandoc(record.__doc__ or "").partition("Attributes:\n")[2]
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join("| " + " | ".join(_cell(one) for one in line) + " |\n" for line in lines)


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(text.split()))


def files() -> str:
    """Every result file with its fields, and the records inside it; records of several files come last."""
    kinds = {kind: _records(AS_WRITTEN.get(kind.record, kind.record)) for kind in documents()}
    rows = [row for kind in kinds for row in _rows(kind)]
    times = Counter(record for records in kinds.values() for record in records)
    shared = sorted((one for one, number in times.items() if number > 1), key=lambda one: one.__name__)
    parts = [_table(("file", "written by", "mode", "what is in it"), rows)]
    parts += [
        part
        for kind, inside in kinds.items()
        for part in _file(kind, [one for one in inside if times[one] == 1])
    ]
    parts.append("## Records in several files\n")
    parts += [part for record in shared for part in _record(record, f"### {record.__name__}\n")]
    return "\n".join(parts)


def _rows(kind: Document[Any]) -> Iterator[tuple[str, ...]]:
    """A document and the files that are written beside it."""
    name = f"[`{kind.file}`](#{kind.file.replace('.', '')})"
    about = (
        ""
        if kind.record.__module__ == "builtins"
        else _prose(AS_WRITTEN.get(kind.record, kind.record).__doc__ or "")
    )
    sentence = about.split("\n\n")[0].split(". ")[0].rstrip(".")
    yield (
        name,
        kind.by,
        f"{kind.mode:04o}",
        f"{sentence or 'a record of the command'}; schema `{kind.schema}`",
    )
    for other, holds in kind.others.items():
        yield f"`{other}`", f"with `{kind.file}`", f"{PRIVATE:04o}", holds


def documents() -> list[Document[Any]]:
    """All documents that the package declares, by their schema."""
    found: dict[str, Document[Any]] = {}
    for module in pkgutil.walk_packages(coalmine.__path__, "coalmine."):
        if not module.name.endswith("__main__"):
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, Document):
                    found.setdefault(value.schema, value)
    return sorted(found.values(), key=lambda kind: kind.file)


def _file(kind: Document[Any], records: list[type]) -> Iterator[str]:
    yield f"## {kind.file}\n\nSchema `{kind.schema}`, mode {kind.mode:04o}.\n"
    if not records:
        yield f"{_prose(kind.record.__doc__ or '') if kind.record.__module__ != 'builtins' else 'A JSON object.'}\n"
    for record in records:
        yield from _record(record, "" if record is records[0] else f"### {record.__name__}\n")


def _record(record: Any, heading: str) -> Iterator[str]:
    yield f"{heading}\n{_prose(record.__doc__ or '')}\n".lstrip()
    comments, hints = _comments(record) | _attributes(record), _hints(record)
    rows = [(f"`{one}`", f"`{hints[one]}`", comments.get(one, "")) for one in record.__struct_fields__]
    yield _table(("field", "type", "what it is"), rows)


def _hints(record: type) -> dict[str, str]:
    """The types of a record's fields as its source has them, inherited ones too, without what is for the command line alone."""
    hints: dict[str, str] = {}
    for base in reversed(record.__mro__):
        for name, hint in vars(base).get("__annotations__", {}).items():
            parsed = ast.parse(str(hint), mode="eval").body
            if isinstance(parsed, ast.Subscript) and ast.unparse(parsed.value) == "Annotated":
                assert isinstance(parsed.slice, ast.Tuple)
                hints[name] = ast.unparse(parsed.slice.elts[0])
            else:
                hints[name] = str(hint)
    return hints


def _records(record: Any, seen: tuple[type, ...] = ()) -> list[type]:
    """A record and those in its fields, depth first, each once; nothing for a document that is any JSON object."""
    if not isinstance(record, type) or not issubclass(record, msgspec.Struct):
        return []
    found: list[type] = [*seen, record]
    for hint in typing.get_type_hints(record).values():
        for inner in _structs(hint):
            if inner not in found:
                found = _records(inner, tuple(found))
    return found


def _structs(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for inner in typing.get_args(hint):
        yield from _structs(inner)


def _comments(record: type) -> dict[str, str]:
    """What the comments in the source of a record say of its fields: those above a field, and the one after it."""
    comments: dict[str, str] = {}
    for base in reversed(record.__mro__):
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            comments |= _comments_in(inspect.getsource(base))
    return comments


def _comments_in(source: str) -> dict[str, str]:
    by_line = {
        token.start[0]: token.string.lstrip("# ").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    [cls] = ast.parse(source).body
    assert isinstance(cls, ast.ClassDef)
    found: dict[str, str] = {}
    for node in cls.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            said: list[str] = []
            line = node.lineno - 1
            while line in by_line and not source.splitlines()[line - 1].split("#")[0].strip():
                said.insert(0, by_line[line])
                line -= 1
            said += [
                by_line[one]
                for one in range(node.lineno, (node.end_lineno or node.lineno) + 1)
                if one in by_line
            ]
            found[node.target.id] = " ".join(said)
    return found


def file_map() -> str:
    """The rooms, then the modules of each with the first sentence of their docstrings."""
    rooms = sorted(path for path in PACKAGE.iterdir() if (path / "__init__.py").is_file())
    parts = [
        _table(("room", "what it holds"), [(f"[`{one.name}/`](#{one.name})", _says(one)) for one in rooms])
    ]
    parts += ["### The package itself\n", _modules(PACKAGE)]
    for room in rooms:
        parts.append(f"### {room.name}\n\n{_says(room)}\n")
        parts += [
            _modules(folder) for folder in [room, *sorted(one.parent for one in room.rglob("*/__init__.py"))]
        ]
    for name in BESIDE:
        parts += [f"### {name}\n", _modules(ROOT / name)]
    return "\n".join(part for part in parts if part)


def _modules(folder: Path) -> str:
    base = PACKAGE if folder.is_relative_to(PACKAGE) else ROOT
    rows = [
        (f"`{one.relative_to(base)}`", _says(one))
        for one in sorted(folder.glob("*.py"))
        if one.name != "__init__.py"
    ]
    if not rows:
        return ""
    inner = folder.is_relative_to(PACKAGE) and len(folder.relative_to(PACKAGE).parts) > 1
    return (f"`{folder.relative_to(base)}/`: {_says(folder)}\n\n" if inner else "") + _table(
        ("file", "what it holds"), rows
    )


def _says(path: Path) -> str:
    """The first paragraph of a module's docstring."""
    source = path / "__init__.py" if path.is_dir() else path
    docstring = ast.get_docstring(ast.parse(source.read_text("utf-8"))) or ""
    return " ".join(docstring.split("\n\n")[0].split())


def codes() -> dict[str, list[Entry]]:
    """The entries of the catalog by their codes; an entry may have several."""
    found: dict[str, list[Entry]] = {}
    for entry in catalog().values():
        for code in dict.fromkeys(entry.code.values()):
            found.setdefault(code, []).append(entry)
    return dict(sorted(found.items()))


def findings() -> str:
    """The codes of all findings with their titles."""
    rows = [
        (f"[{code}]({code}.md)", "; ".join(dict.fromkeys(_titles(code, entries))))
        for code, entries in codes().items()
    ]
    return _table(("code", "titles"), rows)


def _titles(code: str, entries: list[Entry]) -> Iterator[str]:
    """The titles of a code, that of what is found first."""
    for entry in entries:
        for status, title in entry.title.items():
            if chosen(entry.code, status, status) == code:
                yield title


def finding_page(code: str, entries: list[Entry]) -> str:
    """The page of a code: what it means, its titles, and what to do."""
    lines = [f"# {code}: {next(_titles(code, entries))}"]
    for entry in entries:
        if entry.meaning:
            lines += ["", textwrap.fill(entry.meaning, WIDTH, break_long_words=False, break_on_hyphens=False)]
    for entry in entries:
        for status, title in entry.title.items():
            if chosen(entry.code, status, status) == code:
                advice = chosen(entry.advice, status, status)
                lines += [
                    "",
                    f"## {title}",
                    "",
                    textwrap.fill(advice, WIDTH, break_long_words=False, break_on_hyphens=False),
                ]
    return "\n".join([*lines, "", "[All findings](README.md)", ""])


GENERATED: dict[str, Callable[[], str]] = {
    "docs/reference/commands.md": commands,
    "docs/reference/files.md": files,
    "docs/explanation/design.md": file_map,
    "docs/reference/findings/README.md": findings,
}


def up_to_date(page: str, generate: Callable[[], str]) -> str:
    """A page with what is between its markers generated anew."""
    begin, end = "<!-- generated: begin -->\n", "<!-- generated: end -->"
    before, rest = (ROOT / page).read_text("utf-8").split(begin)
    return f"{before}{begin}\n{generate()}\n{end}{rest.split(end)[1]}"


def pages() -> dict[str, str]:
    """Every page that has a generated part, as it should be."""
    made = {page: up_to_date(page, generate) for page, generate in GENERATED.items()}
    for code, entries in codes().items():
        made[f"docs/reference/findings/{code}.md"] = finding_page(code, entries)
    return made


def main(arguments: list[str]) -> int:
    """Write the pages, or name those that are not up to date."""
    check = "--check" in arguments
    stale = {
        page: content for page, content in pages().items() if content != (ROOT / page).read_text("utf-8")
    }
    for page, content in stale.items():
        if not check:
            (ROOT / page).write_text(content, "utf-8")
        sys.stdout.write(f"{'stale' if check else 'generated'}: {page}\n")
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
