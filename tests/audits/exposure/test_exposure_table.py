"""What people read: exact text, and hostile text that does nothing."""

import io

import pytest

from coalmine import Canary, CanarySet, Format, ScriptedModel, expose
from coalmine.audits.exposure.display import (
    exposure_in_plain_words,
    exposure_table,
)
from coalmine.cli.output import make_console

DIGITS = "0123456789"


def printed(*shown, width=100):
    stream = io.StringIO()
    console = make_console(stream, width)
    for one in shown:
        console.print(one)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


@pytest.fixture
def canaries():
    form = Format("pin {digits:3}")
    drawn = form.sample(3, seed=5, replace=False)
    listed = [
        Canary(canary_id=name, format_id="f0", text=text, repetitions=times, planted=planted)
        for name, text, times, planted in zip(
            ["never", "often", "once"], drawn, [16, 16, 1], [False, True, True], strict=True
        )
    ]
    return CanarySet(listed, {"f0": form}, references={"f0": form.sample(40, seed=6, replace=False)})


def test_a_table_of_exposures_and_what_it_means(canaries):
    model = ScriptedModel("pin " + DIGITS, memory={canaries[1].text: 0.5}, frequencies={"1": 9})
    results = expose(model, canaries)
    title, *rows = printed(exposure_table(results)).splitlines()
    assert title == "Format: pin {digits:3}"
    assert [line.split()[0] for line in rows] == ["canary", "often", "once", "never"]
    assert ["often", "16", "9.97", "9.97", "1", "exact"] in [line.split() for line in rows]
    bounds = expose(model, canaries, method="sampled", samples=50)
    assert "at least 3.81" in printed(exposure_table(bounds))
    often = [line for line in exposure_in_plain_words(bounds) if "16 times" in line]
    assert (
        "median exposure at least 3.8 bits, so guessing with the model takes 7 times fewer tries" in often[0]
    )
