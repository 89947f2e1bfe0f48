"""Every adapter keeps the promises of the model boundary, and the suite notices when one does not."""

import numpy as np
import pytest

from coalmine import ScriptedModel
from coalmine.errors import NotMeasurableError
from coalmine.models import (
    BoundedModel,
    ConformanceError,
    Context,
    Contexts,
    Generator,
    Lister,
    PartialScorer,
    RemoteModel,
    Scorer,
    SequenceScore,
    Stepper,
    TextScorer,
    WordTokenizer,
    check_model,
    from_transformers,
    text_sequence,
)
from models.random_networks import ARCHITECTURES, CHARACTERS, random_model
from models.tiny_transformers import byte_level, rough_llama

TEXTS = ["the random number is 281265017", "a", "00", "some other text", "0 zero first"]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_reference_networks_conform(architecture):
    assert check_model(random_model(architecture), TEXTS) == []


def test_word_model_conforms():
    words = WordTokenizer(["a", "number", "of", "the", "words"])
    assert check_model(random_model("lstm", words), ["the words", "a number of the words", "of"]) == []


def test_scripted_model_conforms():
    model = ScriptedModel(CHARACTERS, memory={TEXTS[0]: 0.25, "a": 0.125}, frequencies={"e": 3.0})
    assert check_model(model, TEXTS) == []


@pytest.mark.parametrize("protocol", [Scorer, Stepper, Generator, Lister])
def test_models_say_what_they_can_do(protocol):
    assert isinstance(random_model("lstm"), protocol)
    assert isinstance(ScriptedModel("ab"), protocol)


class TakesZeroForPadding(ScriptedModel):
    def score(self, sequences, *, ranks=False):
        stripped = [s._replace(target=tuple(t for t in s.target if t != 0)) for s in sequences]
        return super().score(stripped, ranks=ranks)


class SharesRows(ScriptedModel):
    """Marks every row of a batch with the first row's numbers."""

    def score(self, sequences, *, ranks=False):
        scores = super().score(sequences, ranks=ranks)
        return [
            SequenceScore(
                np.full_like(s.log2_probabilities, scores[0].log2_probabilities[0]), s.is_argmax, s.ranks
            )
            for s in scores
        ]


class SortsItsAnswers(ScriptedModel):
    def score(self, sequences, *, ranks=False):
        return sorted(super().score(sequences, ranks=ranks), key=lambda score: -score.log_perplexity_bits)


class AnswersInNats(ScriptedModel):
    def step(self, states, parents, tokens, *, columns=None):
        step = super().step(states, parents, tokens, columns=columns)
        return step._replace(log2_probabilities=step.log2_probabilities * np.log(2))


class LosesTheLastToken(ScriptedModel):
    def score(self, sequences, *, ranks=False):
        return super().score([s._replace(target=s.target[:-1]) for s in sequences], ranks=ranks)


class MixesDepthsUp(ScriptedModel):
    """Forgets the last tokens of states that are deeper than others in their batch."""

    def gather(self, parts):
        states = super().gather(parts)
        shallowest = min(len(state) for state in states)
        return [state[:shallowest] for state in states]


class ForgetsWhatItKept(ScriptedModel):
    """Writes states without their last token."""

    def states_to_arrays(self, states):
        return [np.array([state[:-1] for state in states])]

    def states_from_arrays(self, arrays):
        return [tuple(row.tolist()) for row in arrays[0]]


@pytest.mark.parametrize(
    "broken",
    [
        ForgetsWhatItKept,
        MixesDepthsUp,
        TakesZeroForPadding,
        SharesRows,
        SortsItsAnswers,
        AnswersInNats,
        LosesTheLastToken,
    ],
)
def test_the_suite_notices(broken):
    with pytest.raises(ConformanceError):
        check_model(broken(CHARACTERS, memory={TEXTS[0]: 0.25}), TEXTS)


class CutsOff(ScriptedModel):
    """Reads a beginning of a long text, and silently ignores the rest."""

    max_length = 40


class HasNoRoom(ScriptedModel):
    max_length = 1


class ChangesWithItsContext(ScriptedModel):
    """Gives another context than the one that it was asked for."""

    @property
    def contexts(self):
        return Contexts(Context("eot", self.context, "separator"), (Context("bos", (0,), "another token"),))

    def in_context(self, _):
        return self


class MiscountsWhatItDoesNotScore(ScriptedModel):
    def unscored(self, texts):
        return [len(text) + 1 for text in texts]


class ScoresTextsOtherwise(ScriptedModel):
    def score_text(self, texts):
        return self.score([text_sequence(self, text + "0") for text in texts])


class RestoresTheFirstOnly(ScriptedModel):
    def solves_masking(self, sequences, **_):
        return [place == 0 for place in range(len(sequences))]


class DescribesItselfInAnObject(ScriptedModel):
    def describe(self):
        return {"weights": object()}


class ChecksNothing(ScriptedModel):
    def checks(self):
        return [object()]


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (CutsOff, "more than max_length .40. tokens must raise a NotMeasurableError"),
        (HasNoRoom, "max_length must leave room"),
        (ChangesWithItsContext, "in_context must give a model with the context"),
        (MiscountsWhatItDoesNotScore, "unscored must give"),
        (ScoresTextsOtherwise, "by their text and by their tokens"),
        (RestoresTheFirstOnly, "alone and in a batch"),
        (DescribesItselfInAnObject, r"describe\(\) must give values that JSON can hold"),
        (ChecksNothing, r"checks\(\) must give"),
    ],
)
def test_optional_promises_are_checked_where_they_are_made(broken, promise):
    with pytest.raises(ConformanceError, match=promise):
        check_model(broken(CHARACTERS, memory={TEXTS[0]: 0.25}), TEXTS)


def test_a_model_that_keeps_its_optional_promises_conforms():
    class Bounded(ScriptedModel):
        max_length = 40

        def score(self, sequences, *, ranks=False):
            if any(len(one.context) + len(one.target) > self.max_length + 1 for one in sequences):
                raise NotMeasurableError("a text is too long")
            return super().score(sequences, ranks=ranks)

        def unscored(self, texts):
            return [0] * len(texts)

        def score_text(self, texts):
            return self.score([text_sequence(self, text) for text in texts])

        def checks(self):
            return {"answers": 0}

    model = Bounded(CHARACTERS, memory={TEXTS[0]: 0.25})
    for protocol in (BoundedModel, PartialScorer, TextScorer, RemoteModel):
        assert isinstance(model, protocol)
    assert check_model(model, TEXTS) == []


def test_equal_lengths_are_refused():
    with pytest.raises(ConformanceError, match="different length"):
        check_model(ScriptedModel("ab"), ["aa", "bb"])


REAL_TEXTS = ["the number is 281265017", "7", "some other text, and 12 more"]


@pytest.mark.parametrize("seed", range(3))
def test_a_llama_in_single_precision_conforms(seed):
    model = from_transformers(rough_llama(len(byte_level()), seed=seed), byte_level())
    assert check_model(model, REAL_TEXTS) == []


def altered(change):
    """A Llama whose walk or scores are changed a little."""
    model = from_transformers(rough_llama(len(byte_level())), byte_level())

    class Altered(type(model)):
        def step(self, states, parents, tokens, *, columns=None):
            step = super().step(states, parents, tokens, columns=columns)
            return step._replace(log2_probabilities=change(step.log2_probabilities))

    model.__class__ = Altered
    return model


@pytest.mark.parametrize("change", [lambda x: x * 1.0005, lambda x: x + 0.002, lambda x: x.round(1)])
def test_a_wrong_walk_of_a_llama_in_single_precision_is_noticed(change):
    with pytest.raises(ConformanceError):
        check_model(altered(change), REAL_TEXTS)


def test_a_resolution_beyond_the_precision_is_refused():
    class Coarse(ScriptedModel):
        resolution_bits = 2.0

    with pytest.raises(ConformanceError, match="resolution_bits must be from 0 to"):
        check_model(Coarse(CHARACTERS), TEXTS)
