"""The records of options: one name on the command line and in Python, what decides whether a stopped run resumes, and what is refused."""

import math
import re

import msgspec
import numpy as np
import pytest

from coalmine import Format, ScriptedModel, extract
from coalmine.audits import ExposureOptions, ExtractionOptions, MembershipOptions, RecitationOptions
from coalmine.audits.recitation.shares import log2_chance_in_tries
from coalmine.cli.main import every_command
from coalmine.cli.taking import Arguments, taken
from coalmine.records.options import MEGABYTE, described

RECORDS = {
    "expose": ExposureOptions,
    "extract": ExtractionOptions,
    "membership": MembershipOptions,
    "recite": RecitationOptions,
}
COMMANDS = {" ".join(names): command for names, command in every_command()}
MODEL = ScriptedModel("pin 0123456789", memory={"pin 47": 0.1})
FORM = Format("pin {digits:2}")


def from_the_command_line(record, **given):
    """A record of options as a command gets it that is called with these, and with defaults else."""
    everything = msgspec.defstruct("Given", [("options", record)], bases=(Arguments,), kw_only=True)
    parameters, filled = taken(everything)
    return filled(**{one.name: one.default for one in parameters} | given).options


@pytest.mark.parametrize("command", RECORDS)
def test_the_command_line_has_the_options_and_defaults_of_python(command):
    offered = {flag for one in COMMANDS[command].params for flag in one.opts}
    [settable] = [one.help for one in COMMANDS[command].params if "--set" in one.opts]
    left = {name for name in described(RECORDS[command]) if f"--{name.replace('_', '-')}" not in offered}
    assert left <= set(re.findall(r"\w+", settable))
    assert from_the_command_line(RECORDS[command]) == RECORDS[command]()


def test_a_record_and_keywords_together():
    options = ExtractionOptions(top=3, method="brute")
    assert len(extract(MODEL, FORM, options).found) == 3
    assert len(extract(MODEL, FORM, options, top=5).found) == 5
    with pytest.raises(TypeError, match="tpo"):
        extract(MODEL, FORM, tpo=5)
    assert from_the_command_line(ExposureOptions, memory="3MB").memory == 3 * MEGABYTE


def test_what_decides_whether_a_run_resumes():
    # Another budget, memory, time or confidence resumes what another one began; another method, seed or sample does not.
    assert set(ExposureOptions().deciding()) == {"method", "samples", "budget", "seed"}
    asked = RecitationOptions(anywhere=True).deciding()
    assert asked == RecitationOptions(anywhere=True, tries=(7,), chance=0.9, confidence=0.9).deciding()
    assert asked != RecitationOptions().deciding()


@pytest.mark.parametrize("tries", [1, 2, 7, 1000])
def test_chances_in_some_tries_are_those_of_the_definition(tries):
    chances = np.array([1.0, 0.9, 0.5, 0.49, 0.1, 1e-3, 1e-9])
    found = np.exp2(log2_chance_in_tries(np.log2(chances), tries))
    assert found == pytest.approx(
        [-math.expm1(tries * math.log1p(-q)) if q < 1 else 1.0 for q in chances], rel=1e-12
    )
