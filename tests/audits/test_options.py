"""The records of options: one name on the command line and in Python, what decides whether a stopped run resumes, and what is refused."""

import math
import re
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from coalmine import CanarySet, ExposureWatch, Format, ScriptedModel, expose, extract, membership_of_scores
from coalmine.audits import ExposureOptions, ExtractionOptions, MembershipOptions, RecitationOptions
from coalmine.audits.recitation.questions import plan_sizes
from coalmine.audits.recitation.shares import log2_chance_in_tries
from coalmine.cli.main import every_command
from coalmine.cli.taking import Arguments, taken
from coalmine.errors import CoalmineError
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
SET = CanarySet.of(FORM, ["pin 47", "pin 08"], references=8, seed=1)


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


def exposed(**options):
    return expose(MODEL, SET, **{"method": "sampled", "samples": 5, **options})


def recited(**options):
    RecitationOptions(suffix=6, **options).check()


def reader(longest):
    """A model of which only matters how many tokens it can read."""
    return SimpleNamespace(
        max_length=longest, context=(0,), name="reads", tokenizer=None, resolution_bits=0.0, describe=dict
    )


def sizes(*longest, contexts=None, lengths=None):
    return plan_sizes(
        [reader(one) for one in longest], RecitationOptions(contexts=contexts, lengths=lengths, suffix=4)
    )


REFUSED = {
    "half a sample": (lambda: exposed(samples=2.5), "samples"),
    "no budget": (lambda: exposed(budget=0), "budget"),
    "minutes that are no number": (lambda: exposed(minutes=math.nan), "got nan"),
    "all confidence": (lambda: exposed(confidence=1.0), "got 1.0"),
    "another method": (lambda: exposed(method="guess"), "guess"),
    "the best none": (lambda: extract(MODEL, FORM, top=0), "top and budget must be at least 1"),
    "a watch of none": (lambda: ExposureWatch(SET, every=0), "got 0"),
    "neither one run nor many": (lambda: membership_of_scores([1.0], [0.0], runs="two"), '"one" or "many"'),
    "a coin that always says in": (lambda: membership_of_scores([1.0], [0.0], inclusion=1.0), "1.0"),
    "no try": (lambda: recited(tries=[5, 0]), "from 1 to"),
    "certainty": (lambda: recited(chance=1.0), "got 1.0"),
    "more context than is read": (lambda: sizes(20, 10, contexts=[2, 7]), "contexts of up to 6"),
    "a context that does not fit": (lambda: sizes(contexts=[2, 7], lengths=[5, 10]), "sequences of 5, 10 tokens"),
    "a probability above 1": (lambda: log2_chance_in_tries([-1.0, 0.01], 2), "at most 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_refused_and_named(name):
    call, words = REFUSED[name]
    with pytest.raises(CoalmineError, match=words):
        call()


def test_usual_contexts_that_a_model_cannot_read_are_left_out():
    # The last token of a suffix is predicted and not read, and the separator comes before the prompt.
    assert sizes(10, 12, lengths=[6, 10, 11]) == ((6, 10), (2, 6))
    assert sizes(20, 10, contexts=[2, 6])[1] == (2, 6)  # as much as is read


@pytest.mark.parametrize("tries", [1, 2, 7, 1000])
def test_chances_in_some_tries_are_those_of_the_definition(tries):
    chances = np.array([1.0, 0.9, 0.5, 0.49, 0.1, 1e-3, 1e-9])
    found = np.exp2(log2_chance_in_tries(np.log2(chances), tries))
    assert found == pytest.approx(
        [-math.expm1(tries * math.log1p(-q)) if q < 1 else 1.0 for q in chances], rel=1e-12
    )
