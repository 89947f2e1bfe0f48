"""Pipes and devices, which would be waited for or read forever, wherever a command takes a path."""

import inspect
import os
import signal
from pathlib import Path
from typing import get_args

import pytest
from typer.models import OptionInfo

from cli.in_process import run
from coalmine.cli.main import app
from coalmine.corpus import CanarySet

SECONDS = 20  # in which a command that waits for a pipe is found out


def commands(group, *before):
    for one in group.registered_commands:
        yield (*before, one.name), inspect.signature(one.callback).parameters
    for one in group.registered_groups:
        yield from commands(one.typer_instance, *before, one.name)


def holds_path(annotation):
    return annotation is Path or any(holds_path(one) for one in get_args(annotation))


def with_options(parameters, chosen, value):
    """The arguments of a command line that gives `value` to one parameter, and something to all that must be there."""
    options, arguments = [], []
    for name, one in parameters.items():
        kind, info = get_args(one.annotation)[:2]
        if name != chosen and one.default is not inspect.Parameter.empty:
            continue
        number = kind in (int, float)
        given = value if name == chosen else "1" if number else "a" if isinstance(info, OptionInfo) else "b"
        if isinstance(info, OptionInfo):
            options += [(info.param_decls or (f"--{name.replace('_', '-')}",))[0], given]
        else:
            arguments.append(given)
    return [*options, *arguments]


PATHS = [
    pytest.param(names, parameters, name, id=f"{' '.join(names)} {name}")
    for names, parameters in commands(app)
    for name, one in parameters.items()
    if holds_path(one.annotation)
]
# What is a path only if it looks like one.
OTHERS = [
    "expose {} canaries.json",
    "expose model canaries.json --device-map {}",
    "extract vllm:{} --format a",
    "index corpus.txt --out out --tokenizer {}",
    "compare a={0} b={0}",
    "recite {} index",
    "audit model --data corpus.txt --reference {}",
    "survive {} canaries.json --data corpus.jsonl",
    "survive model canaries.json --data corpus.jsonl --chat-template-path {}",
    "provenance audit {} --suspects corpus.jsonl --others corpus.jsonl --user-field user",
    "serve {}",
]


@pytest.fixture
def pipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("model", "index"):
        Path(name).mkdir()
    Path("model", "config.json").write_text('{"model_type": "llama"}')
    Path("corpus.txt").write_text("some words\n")
    Path("corpus.jsonl").write_text('{"text": "some words", "user": "a"}\n{"text": "other", "user": "b"}\n')
    CanarySet.of("my pin is {digits:4}", ["my pin is 0451"], references=2).save("canaries.json")
    os.mkfifo("pipe")

    def waits(*_):
        raise AssertionError("it waits for the pipe")

    before = signal.signal(signal.SIGALRM, waits)
    signal.alarm(SECONDS)
    yield str(tmp_path / "pipe")
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(("names", "parameters", "name"), PATHS)
def test_a_pipe_or_device_is_refused_wherever_a_path_is_taken(names, parameters, name, pipe):
    for place in (pipe, "/dev/zero"):
        ended = run(*names, *with_options(parameters, name, place))
        assert ended.code == 2, ended.said
        assert f"{place} is a device, pipe or socket; name a regular file" in ended.said


@pytest.mark.parametrize("line", OTHERS)
def test_nothing_waits_for_a_pipe_that_is_named_as_a_model_or_its_settings(line, pipe):
    ended = run(*line.format(pipe).split())
    assert ended.code == 2, ended.said
    assert ended.said.count("\n") == 1
