"""What removed copies: each cause by the stage at which they go, and never more copies than were lost."""

from hypothesis import given
from hypothesis import strategies as st

from coalmine.corpus.survival.causes import CAUSES, IN_WORDS, LossTally, Settings, Stages, in_words, removed

ASSISTANT, COMPLETION = Settings(assistant_only=True), Settings(completion_only=True)
BOTH = Settings(assistant_only=True, completion_only=True)


WHOLE, MASKED, GONE = LossTally(4), LossTally(0, 0, 4), LossTally()


def followed(uncut, cut, found, settings, *, collated=None, in_data=4, **more):
    """What removed copies of a canary that was planted four times."""
    stages = Stages(4, in_data=in_data, uncut=uncut, cut=cut, found=found, collated=collated or found, **more)
    return removed(stages, settings)


def test_each_cause_is_told_by_the_stage_at_which_copies_go():
    plain = Settings()
    assert followed(WHOLE, WHOLE, WHOLE, plain) == {}
    one = LossTally(1)
    assert followed(one, one, one, plain, in_data=1) == {"not_in_data": 3}
    assert followed(GONE, GONE, GONE, Settings(templated=True)) == {"template": 4}
    assert followed(GONE, GONE, GONE, plain) == {"preprocessing": 4}
    assert followed(WHOLE, GONE, GONE, Settings(cutting="packing")) == {"packing": 4}
    assert followed(WHOLE, WHOLE, GONE, plain) == {"not_given": 4}
    assert followed(WHOLE, WHOLE, WHOLE, plain, collated=GONE) == {"collator": 4}
    assert followed(MASKED, MASKED, MASKED, ASSISTANT) == {"assistant_only_loss": 4}
    assert followed(MASKED, MASKED, MASKED, COMPLETION) == {"completion_only_loss": 4}
    # Which of two settings it was is not guessed.
    assert followed(MASKED, MASKED, MASKED, BOTH) == {"labels": 4}
    # Rows that the trainer does not have were not masked by it.
    assert followed(MASKED, MASKED, GONE, ASSISTANT) == {"not_given": 4}


def test_rows_that_the_trainer_keeps_the_texts_of_come_first():
    three, two = LossTally(3), LossTally(2)
    # Three of four copies are in rows that it has, one of them was cut off, and the row of the fourth was dropped, or never there.
    assert followed(three, two, two, Settings(), kept=3, dropped=1) == {"truncation": 2}
    assert followed(three, two, two, Settings(), kept=3) == {"not_given": 1, "truncation": 1}
    assert followed(three, two, two, Settings(), kept=3, in_data=None) == {"truncation": 1, "unknown": 1}


def test_what_is_not_known_is_said_to_be_unknown():
    one = LossTally(1)
    assert followed(None, None, one, Settings(), in_data=None) == {"unknown": 3}
    assert followed(None, None, LossTally(0, 0, 1), Settings(), in_data=None) == {"labels": 1, "unknown": 3}
    assert followed(None, None, one, Settings()) == {"preprocessing": 3}
    # A trainer that prepares rows itself may have cut them off.
    assert followed(None, None, one, Settings(prepares=True)) == {"unknown": 3}


TALLIES = st.builds(LossTally, *[st.integers(0, 5)] * 3)
NUMBERS = st.integers(0, 8)
STAGES = st.builds(
    Stages, NUMBERS, st.none() | NUMBERS, st.none() | NUMBERS, NUMBERS, st.none() | TALLIES, st.none() | TALLIES,
    TALLIES, TALLIES,
)  # fmt: skip
SETTINGS = st.builds(
    Settings,
    st.booleans(),
    st.booleans(),
    st.sampled_from(["truncation", "packing", "packing_split"]),
    st.booleans(),
    st.booleans(),
)


@given(stages=STAGES, settings=SETTINGS)
def test_causes_always_add_up_to_the_copies_that_are_lost(stages, settings):
    found = removed(stages, settings)
    assert sum(found.values()) == max(0, stages.planted - stages.collated.reached)
    assert all(copies > 0 for copies in found.values())


def test_every_cause_has_words():
    assert set(IN_WORDS) == set(CAUSES)
    assert in_words(dict.fromkeys(CAUSES, 1)).count("1 ") == len(CAUSES)
