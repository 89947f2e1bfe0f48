"""Every command on files and directories whose names attack the terminal: the commands work, and no attack gets through."""

import json
import logging
import warnings
import xml.etree.ElementTree as ET

import pytest

from cli.every_command import REPORTS, commands, save_checkpoint, save_untrained, write_inputs
from cli.in_process import run
from cli.test_hostile_paths import HOSTILE, NOT_UTF8, is_inert
from coalmine.cli import results
from coalmine.errors import InputError
from coalmine.integrations.pytest_plugin import _reported

# What it says is that a rule cannot be decided.
NOT_SHOWN = {"check"}


@pytest.fixture(scope="module", params=["escapes", "not UTF-8"])
def world(request, tmp_path_factory):
    """A directory with such a name and everything that the commands need, and a model; weights are read from UTF-8 paths only."""
    folder = tmp_path_factory.mktemp("names")
    at = folder / (HOSTILE if request.param == "escapes" else NOT_UTF8)
    at.mkdir()
    write_inputs(at)
    model = (at if request.param == "escapes" else folder) / "model"
    save_untrained(model, (at / "corpus.txt").read_text())
    save_checkpoint(model.with_name("base"))
    ended = {name: (run(*given), run(*given, "--json")) for name, given in commands(at, model).items()}
    return at, model, ended


def test_every_command_works_and_nothing_comes_through(world):
    _, _, ended = world
    for name, (plain, with_json) in ended.items():
        for one in (plain, with_json):
            assert one.code == (2 if name in NOT_SHOWN else 0), (name, one.said)
            assert is_inert(one.said), (name, one.said)
        assert isinstance(json.loads(with_json.out), dict), name


def test_reports_hold_nothing_that_acts(world):
    at, _, _ = world
    for name in ("junit.xml", *(f"report.{end}" for end in REPORTS.values())):
        content = (at / name).read_text("utf-8")
        for character in "\x1b\x07\x9b\u202e\u2066\r":
            assert character not in content, name
        if name.endswith("xml"):
            ET.fromstring(content)


def test_another_encoding_than_utf8_is_no_failure(world):
    at, model, _ = world
    arguments = commands(at, model)
    for encoding in ("ascii", "latin-1"):
        ended = run(*arguments["extract"], encoding=encoding)
        assert ended.code == 0, ended
        assert rb"\u2022" in ended.out  # the mask over a secret
        shown = json.loads(run(*arguments["extract"], "--json", encoding=encoding).out.decode("utf-8"))
        assert "•" in shown["found"][0]["text"]


def test_what_libraries_say_is_escaped_too(tmp_path, monkeypatch):
    policy = tmp_path / "policy.toml"
    run("init", tmp_path)

    def read_run(*_):
        warnings.warn(f"a warning about {HOSTILE}", stacklevel=1)
        logging.getLogger("somebody").warning("a log line about %s", HOSTILE)
        raise ZeroDivisionError(HOSTILE + NOT_UTF8)

    monkeypatch.setattr(results, "read_run", read_run)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        ended = run("check", tmp_path, "--policy", policy)
    assert ended.code == 70
    assert is_inert(ended.said)
    assert "warning: a warning about \\x1b[2J" in ended.said
    assert "ZeroDivisionError: \\x1b[2J" in ended.said


def test_pytest_shows_the_same():
    with pytest.raises(pytest.fail.Exception) as failure, _reported():
        raise InputError(HOSTILE)
    assert is_inert(str(failure.value))
