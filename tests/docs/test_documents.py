"""What the documents say is true: their code runs, their links lead somewhere, and what they name exists."""

import functools
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from coalmine.cli.main import app, every_command
from coalmine.corpus import write_embedded_corpus

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]
COMMANDS = {" ".join(names): command for names, command in every_command()}
GROUPS = {name.split()[0] for name in COMMANDS if " " in name}
# The quickstart's own sizes are for people; with these every step is the same, and short.
SMALLER = {
    "200_000": "20_000",
    "epochs=4": "epochs=1",
    "--epochs 4": "--epochs 1",
    "hidden=128": "hidden=16",
}

# The code of the README is the same for five digits, and its search is short.
README_SMALLER = {
    "{digits:9}": "{digits:5}",
    "repeat=[1, 4, 16], ": "repeat=[1, 4, 16], canaries=1, withhold=0.0, ",
}

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def blocks(document):
    return [(found[1], found[2]) for found in BLOCK.finditer(document)]


def code_lines(document):
    """Code that is not Python: each span, and each line of a block."""
    lines = SPAN.findall(BLOCK.sub("", document))
    for language, content in blocks(document):
        if language != "python":
            lines += content.splitlines()
    return lines


def options_of(*commands):
    """The options of commands."""
    return {name for command in commands for p in command.params for name in (*p.opts, *p.secondary_opts)}


def wrong_commands(document):
    """The commands and options in a document that the command line does not have."""
    anywhere = options_of(app, *COMMANDS.values()) | {"--help"}
    wrong = []
    for line in code_lines(document):
        found = re.search(rf"(?<!from )\bcoalmine ((?:{'|'.join(GROUPS)}) [a-z]+|[a-z]+)", line)
        script = re.search(r"\bpython -m (benchmarks\S*|mutants)(?: ([a-z]+))?", line)
        of_ray = re.search(r"(?:^|`)ray ([a-z-]+)", line)
        if script is not None:
            wrong += wrong_script(script, line)
        elif of_ray is not None:
            wrong += wrong_command_of_ray(of_ray[1], line)
        elif found is None:
            wrong += [option for option in OPTION.findall(line) if option not in anywhere]
        elif found[1] in GROUPS:
            continue
        elif found[1] not in COMMANDS:
            wrong.append(found[0])
        else:
            known = options_of(COMMANDS[found[1]]) | {"--help"}
            wrong += [f"{found[0]} {option}" for option in OPTION.findall(line) if option not in known]
    return wrong


@functools.cache
def options_of_ray():
    """The commands of Ray with their options, from a process of its own: Ray decides on its authentication when it is imported."""
    code = (
        "import json; from ray.scripts.scripts import cli; "
        "print(json.dumps({name: [o for p in one.params for o in (*p.opts, *p.secondary_opts)] for name, one in cli.commands.items()}))"
    )
    return json.loads(
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        ).stdout.splitlines()[-1]
    )


def wrong_command_of_ray(name, line):
    """A command of Ray that does not exist, or those of its options that do not."""
    if name not in options_of_ray():
        return [f"ray {name}"]
    return [f"ray {name} {option}" for option in OPTION.findall(line) if option not in options_of_ray()[name]]


def wrong_script(script, line):
    """What a command that runs a benchmark or mutants names and does not exist: the module, or an undeclared option."""
    module = f"{script[1]}.{script[2]}" if script[2] else script[1]
    path = ROOT / f"{module.replace('.', '/')}.py"
    if not path.is_file():
        path = path.with_suffix("") / "__main__.py"
    if not path.is_file():
        return [module]
    declared = path.read_text("utf-8")
    return [f"{module} {option}" for option in OPTION.findall(line) if f'"{option}"' not in declared]


def anchors(document):
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(path):
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", SPAN.sub("", BLOCK.sub("", path.read_text("utf-8")))):
        if re.match(r"[a-z]+:", link):
            continue  # elsewhere than in this repository
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        if not target.exists() or (anchor and anchor not in anchors(target.read_text("utf-8"))):
            broken.append(link)
    return broken


def missing_paths(document):
    """Modules and folders that are named and are neither in the repository nor in the package."""
    document = re.sub(r"<!-- generated: begin -->.*<!-- generated: end -->", "", document, flags=re.DOTALL)
    named = [s for s in SPAN.findall(document) if re.fullmatch(r"[\w./-]+(\.py|\.toml|/)", s)]
    return [s for s in named if not any((home / s).exists() for home in (ROOT, ROOT / "src" / "coalmine"))]


@pytest.mark.parametrize("name", NAMES)
def test_every_relative_link_leads_somewhere(name):
    assert broken_links(ROOT / name) == []


@pytest.mark.parametrize("name", NAMES)
def test_every_command_and_option_exists(name):
    assert wrong_commands((ROOT / name).read_text("utf-8")) == []


@pytest.mark.parametrize("name", NAMES)
def test_every_named_path_exists(name):
    assert missing_paths((ROOT / name).read_text("utf-8")) == []


def test_the_command_table_of_the_readme_has_every_command():
    document = (ROOT / "README.md").read_text("utf-8")
    assert [name for name in COMMANDS if f"| `coalmine {name}" not in document] == []


def test_what_is_wrong_would_be_noticed(tmp_path):
    text = (
        "`coalmine fly` `coalmine plant --hidden 3` `--nope`\n\n```sh\ncoalmine expose m c --repeat 1\n```\n"
    )
    expected = ["coalmine fly", "coalmine plant --hidden", "--nope", "coalmine expose --repeat"]
    assert wrong_commands(text) == expected
    scripts = "`python -m benchmarks search --work D` `python -m benchmarks.search --fly` `python -m benchmarks run`"
    assert wrong_commands(scripts) == ["benchmarks.search --fly", "benchmarks.run"]
    page = tmp_path / "page.md"
    page.write_text("# A head: line\n[a](#a-head-line) [b](#no) [c](no.md) [d](https://example.com) `[e](f)`")
    assert broken_links(page) == ["#no", "no.md"]
    assert missing_paths("`errors.py` `formats/` `formats/no.py` `pyproject.toml` `canaries.json`") == [
        "formats/no.py"
    ]


def test_the_readme_opens_with_its_two_commands_and_shows_the_demo():
    document = (ROOT / "README.md").read_text("utf-8")
    _, first = blocks(document)[0]
    assert [line.split("#")[0].split() for line in first.splitlines()] == [["make", "demo"], ["make", "test"]]
    shown = re.search(r"<!-- demo output: begin -->\n(.*)<!-- demo output: end -->\n", document, re.DOTALL)
    assert shown is not None
    [(language, content)] = blocks(shown[1])
    assert language == "text"
    assert "exposure" in content


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_embedded_corpus("corpus.txt", 4_000)
    with open("corpus.txt", "a") as corpus:
        corpus.write(
            "0123456789\n" * 10
        )  # a vocabulary with every digit, which a longer corpus has by itself
    [example] = [
        content for language, content in blocks((ROOT / "README.md").read_text()) if language == "python"
    ]
    run_python(made_smaller(example, README_SMALLER), {})
    *printed, extracted = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in printed] == [["f0-x1-0", "1"], ["f0-x4-0", "4"], ["f0-x16-0", "16"]]
    proven, members = extracted.split(maxsplit=1)
    assert proven == "True"
    assert members.count("the random number is ") == 3


def test_the_quickstart_runs_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    document = made_smaller((ROOT / "docs" / "tutorial" / "quickstart.md").read_text("utf-8"), SMALLER)
    names = {}
    for language, content in blocks(document):
        if language == "python":
            run_python(content, names)
        elif language == "sh":
            for line in content.splitlines():
                program, *arguments = shlex.split(line)
                assert program == "coalmine"
                assert not app(arguments, standalone_mode=False), line
    # The steps in Python come after those on the command line and find them done: both say the same thing.
    assert not names["trained"].trained_now
    assert not names["watched"].trained_now
    printed = capsys.readouterr().out
    assert "All 3 files are what was written." in printed
    assert "Proven in" in printed
    # Every file that a step made in a directory of its own has a row in the table of files, with its mode.
    files = (ROOT / "docs" / "reference" / "files.md").read_text("utf-8")
    rows = re.findall(r"^\| \[?`([^`]+)`\S* \|[^|]+\| (0\d{3}) \|", files, re.MULTILINE)
    for path in Path().glob("*/**/*"):
        if path.is_file():
            said = [mode for row, mode in rows if path.match(Path(row).name)]
            assert said == [f"{path.stat().st_mode & 0o777:04o}"], path


def made_smaller(document, sizes):
    for long, short in sizes.items():
        assert long in document, f"{long} is no longer there to be made smaller"
        document = document.replace(long, short)
    return document


def run_python(code, names):
    exec(compile(code, "document", "exec"), names)
