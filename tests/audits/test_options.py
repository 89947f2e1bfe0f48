"""The records of options: one name on the command line and in Python, and what decides whether a stopped run resumes."""

import inspect
import re

import msgspec
import pytest

from coalmine import ScriptedModel, extract
from coalmine.audits import (
    ExposureOptions,
    ExtractionOptions,
    MembershipOptions,
    RecitationOptions,
)
from coalmine.cli.main import every_command
from coalmine.cli.taking import Arguments, takes
from coalmine.records.options import MEGABYTE, described

RECORDS = {
    "expose": ExposureOptions,
    "extract": ExtractionOptions,
    "membership": MembershipOptions,
    "recite": RecitationOptions,
}
COMMANDS = {" ".join(names): command for names, command in every_command()}


@pytest.mark.parametrize("command", RECORDS)
def test_every_described_field_is_an_option_of_the_same_name_or_can_be_set(command):
    offered = {flag for one in COMMANDS[command].params for flag in one.opts}
    [settable] = [one.help for one in COMMANDS[command].params if "--set" in one.opts]
    left = {name for name in described(RECORDS[command]) if f"--{name.replace('_', '-')}" not in offered}
    assert left <= set(re.findall(r"\w+", settable))


def keeping(record, received):
    """A command that takes a record and keeps what it was given."""

    def keep(given):
        received.append(given.options)
        return 0

    keep.__annotations__["given"] = msgspec.defstruct(
        "Given", [("options", record)], bases=(Arguments,), kw_only=True
    )
    return takes(keep)


@pytest.mark.parametrize("command", RECORDS)
def test_the_defaults_of_the_command_line_are_those_of_python(command):
    received = []
    keep = keeping(RECORDS[command], received)

    defaults = {one.name: one.default for one in inspect.signature(keep).parameters.values()}
    keep(**defaults)
    assert received == [RECORDS[command]()]


@pytest.mark.parametrize("command", RECORDS)
def test_out_is_where_results_go(command):
    [out] = [one for one in COMMANDS[command].params if "--out" in one.opts]
    assert "-o" in out.opts
    assert "Directory" in out.help


def test_sizes_are_bytes_in_python():
    received = []
    keeping(ExposureOptions, received)(memory="3MB")
    assert received[0].memory == 3 * MEGABYTE


def test_a_record_and_keywords_together():
    model = ScriptedModel("pin 0123456789", memory={"pin 49": 0.25})
    options = ExtractionOptions(top=3, method="brute")
    assert len(extract(model, "pin {digits:2}", options).found) == 3
    assert len(extract(model, "pin {digits:2}", options, top=5).found) == 5
    with pytest.raises(TypeError, match="tpo"):
        extract(model, "pin {digits:2}", tpo=5)


def test_what_decides_whether_a_run_resumes():
    # Another budget, memory, time or confidence resumes what another one began; another method, seed or sample does not.
    assert set(ExposureOptions().deciding()) == {"method", "samples", "budget", "seed"}
    asked = RecitationOptions(near=2).deciding()
    assert asked == RecitationOptions(near=3, tries=(7,), chance=0.9, confidence=0.9).deciding()
    assert asked != RecitationOptions().deciding()
