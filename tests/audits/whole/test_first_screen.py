"""What the first screen says about steps that were left out, or cut down to fit into the time."""

import pytest

from coalmine.audits.whole.audit import CATALOG, STEPS

LEFT_OUT = CATALOG.finding("CM900", "info", "not_tested", "2 of 8 steps were not run. Recitation: no time.")
CUT = CATALOG.finding("CM920", "info", "found", "Secrets: the 5 most repeated of 61 secrets were taken.")


@pytest.mark.parametrize(
    ("findings", "answer", "detail"),
    [
        ([LEFT_OUT], "2 of 8 steps", "Recitation: no time."),
        (
            [LEFT_OUT, CUT],
            "2 of 8 steps",
            "Recitation: no time. In part: Secrets: the 5 most repeated of 61 secrets were taken.",
        ),
        ([CUT], "Parts of some steps", "Secrets: the 5 most repeated of 61 secrets were taken."),
    ],
)
def test_what_was_tested_in_part_is_not_hidden(findings, answer, detail):
    (reply,) = STEPS.replies(findings)
    assert (reply.answer, reply.detail, reply.tone) == (answer, detail, "open")


def test_nothing_is_said_where_everything_was_tested():
    assert list(STEPS.replies([])) == []
