"""Every reader on damaged files: a valid result or a refusal in one sentence; never another exception, never a hang."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzzing.mutations import damaged, restructured
from fuzzing.readers import READERS
from fuzzing.trials import Trial

# The same numbers are drawn each time: what is new is found by `make fuzz`, and what was found stays found.
ALIKE = settings(derandomize=True, database=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_a_damaged_file_is_read_or_refused(reader, tmp_path):
    trial = Trial(reader, tmp_path)
    assert trial.try_content(trial.valid)

    @settings(ALIKE, max_examples=4 if reader.slow else 25)
    @given(st.data())
    def damage(data):
        trial.try_content(damaged(trial.valid, lambda most: data.draw(st.integers(0, most - 1))))

    damage()


@pytest.mark.parametrize("reader", [one for one in READERS if one.json], ids=lambda reader: reader.name)
def test_a_document_with_other_values_is_read_or_refused(reader, tmp_path):
    trial = Trial(reader, tmp_path)

    @settings(ALIKE, max_examples=6 if reader.slow else 40)
    @given(st.data())
    def restructure(data):
        trial.try_document(restructured(trial.document, lambda most: data.draw(st.integers(0, most - 1))))

    restructure()


NO_DOCUMENTS = (
    b"",
    b"\0",
    b"[",
    b"null",
    b"{}",
    b"[]",
    b"\xff",
    b"7",
    b'"text"',
    b"[" * 100_000,
    b"9" * 10_000,
)


# A run.json may be of any other program, and is then none of ours to judge.
@pytest.mark.parametrize(
    "reader",
    [one for one in READERS if one.json and "run.json" not in one.name],
    ids=lambda reader: reader.name,
)
def test_what_is_no_document_is_refused(reader, tmp_path):
    trial = Trial(reader, tmp_path)
    for content in NO_DOCUMENTS:
        assert not trial.try_content(content), content
