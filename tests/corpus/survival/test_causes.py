"""What removed copies: each cause by the stage at which they go, and never more copies than were lost."""

from hypothesis import given
from hypothesis import strategies as st

from coalmine.corpus.survival.causes import CAUSES, IN_WORDS, LossTally, Settings, Stages, in_words, removed

ASSISTANT, COMPLETION = Settings(assistant_only=True), Settings(completion_only=True)
BOTH = Settings(assistant_only=True, completion_only=True)


def test_each_cause_is_told_by_the_stage_at_which_copies_go():
    whole, masked, gone = LossTally(4), LossTally(0, 0, 4), LossTally()
    assert removed(Stages(4, 4, whole, whole, None, whole, whole), Settings()) == {}
    assert removed(
        Stages(4, 1, LossTally(1), LossTally(1), None, LossTally(1), LossTally(1)), Settings()
    ) == {"not_in_data": 3}
    assert removed(Stages(4, 4, gone, gone, None, gone, gone), Settings(templated=True)) == {"template": 4}
    assert removed(Stages(4, 4, gone, gone, None, gone, gone), Settings()) == {"preprocessing": 4}
    assert removed(Stages(4, 4, whole, gone, None, gone, gone), Settings(cutting="packing")) == {"packing": 4}
    assert removed(Stages(4, 4, whole, whole, None, gone, gone), Settings()) == {"not_given": 4}
    assert removed(Stages(4, 4, whole, whole, None, whole, gone), Settings()) == {"collator": 4}
    assert removed(Stages(4, 4, masked, masked, None, masked, masked), ASSISTANT) == {
        "assistant_only_loss": 4
    }
    assert removed(Stages(4, 4, masked, masked, None, masked, masked), COMPLETION) == {
        "completion_only_loss": 4
    }
    assert removed(Stages(4, 4, masked, masked, 1, masked, masked), BOTH) == {
        "assistant_only_loss": 1,
        "completion_only_loss": 3,
    }
    # Which of two settings it was is not guessed.
    assert removed(Stages(4, 4, masked, masked, None, masked, masked), BOTH) == {"unknown": 4}
    # Rows that the trainer does not have were not masked by it.
    assert removed(Stages(4, 4, masked, masked, None, gone, gone), ASSISTANT) == {"not_given": 4}


def test_what_is_not_known_is_said_to_be_unknown():
    assert removed(Stages(4, found=LossTally(1), collated=LossTally(1)), Settings()) == {"unknown": 3}
    assert removed(Stages(4, found=LossTally(0, 0, 1)), Settings()) == {"labels": 1, "unknown": 3}
    assert removed(Stages(4, 4, found=LossTally(1), collated=LossTally(1)), Settings()) == {
        "preprocessing": 3
    }
    # A trainer that prepares rows itself may have cut them off.
    assert removed(Stages(4, 4, found=LossTally(1), collated=LossTally(1)), Settings(prepares=True)) == {
        "unknown": 3
    }


TALLIES = st.builds(LossTally, *[st.integers(0, 5)] * 3)
MAYBE = st.none() | TALLIES


@given(
    planted=st.integers(0, 8),
    in_data=st.none() | st.integers(0, 8),
    stages=st.tuples(MAYBE, MAYBE, st.none() | st.integers(0, 5), TALLIES, TALLIES),
    settings=st.builds(
        Settings,
        st.booleans(),
        st.booleans(),
        st.sampled_from(["truncation", "packing", "packing_split"]),
        st.booleans(),
        st.booleans(),
    ),
)
def test_causes_always_add_up_to_the_copies_that_are_lost(planted, in_data, stages, settings):
    found = removed(Stages(planted, in_data, *stages), settings)
    assert sum(found.values()) == max(0, planted - stages[-1].reached)
    assert all(copies > 0 for copies in found.values())


def test_every_cause_has_words():
    assert set(IN_WORDS) == set(CAUSES)
    assert in_words(dict.fromkeys(CAUSES, 1)).count("1 ") == len(CAUSES)
