"""The conformance suite notices when a distribution, a list of next tokens or an open tokenizer is not what it promises."""

import numpy as np
import pytest

from coalmine import ScriptedModel
from coalmine.errors import InputError, ModelError
from coalmine.models import (
    AblatedScorer,
    CharacterTokenizer,
    ConformanceError,
    DistributionScorer,
    OpenTokenizer,
    RankedTextScorer,
    TextRanker,
    WordTokenizer,
    check_model,
    open_sequence,
    text_sequence,
)
from coalmine.models.protocols import check_listed
from models.random_networks import CHARACTERS, random_model

TEXTS = ["the random number is 281265017", "a", "00", "some other text", "0 zero first"]


def script(kind=ScriptedModel):
    return kind(CHARACTERS, memory={TEXTS[0]: 0.25, "a": 0.125}, frequencies={"e": 3.0})


def changed(**changes):
    """A class whose distributions differ from the right ones in some fields."""

    class Changed(ScriptedModel):
        def score_distribution(self, sequences):
            return [
                score._replace(**{name: change(getattr(score, name)) for name, change in changes.items()})
                for score in super().score_distribution(sequences)
            ]

    return Changed


class DependsOnTheBatch(ScriptedModel):
    def score_distribution(self, sequences):
        scores = super().score_distribution(sequences)
        return [score._replace(mean_bits=score.mean_bits - 0.01 * (len(scores) > 1)) for score in scores]


class ForgetsOne(ScriptedModel):
    def score_distribution(self, sequences):
        return super().score_distribution(sequences)[:-1]


class AnswersNothing(ScriptedModel):
    def score_distribution(self, sequences):
        return super().score_distribution(sequences) or None


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (ForgetsOne, "5 sequences gave 4 distributions"),
        (AnswersNothing, "no sequences must give no distributions"),
        (DependsOnTheBatch, "alone and in a batch, as means"),
        (changed(log2_probabilities=lambda bits: bits * 0.999), "with their distribution and without"),
        (changed(mean_bits=lambda bits: bits[:-1]), "one of each number per target token"),
        (changed(mean_bits=lambda bits: -bits), "minus the entropy"),
        (changed(mean_bits=lambda bits: bits - 6), "minus the entropy"),
        (changed(mean_bits=lambda bits: bits * np.log(2)), "as means of the distribution and of the steps"),
        (changed(deviation_bits=lambda bits: -bits), "deviation_bits must be 0 at least"),
        (changed(deviation_bits=lambda bits: bits * np.nan), "deviation_bits must be 0 at least"),
        (changed(deviation_bits=lambda bits: bits**2), "as deviations of the distribution and of the steps"),
        (changed(ranks=lambda ranks: ranks - 1), "ranks must be from 1"),
        (changed(ranks=lambda ranks: ranks + len(CHARACTERS) + 1), "ranks must be from 1"),
        (changed(ranks=lambda ranks: np.where(ranks > 1, ranks + 1, ranks)), "tokens that are more likely"),
        (changed(is_argmax=np.ones_like), "argmax must have rank 1, in a distribution"),
    ],
)
def test_a_distribution_that_is_wrong_is_noticed(broken, promise):
    with pytest.raises(ConformanceError, match=promise):
        check_model(script(broken), TEXTS)


def test_a_scripted_model_has_distributions_that_conform():
    model = script()
    assert isinstance(model, DistributionScorer)
    assert check_model(model, TEXTS) == []


class Ablates(ScriptedModel):
    """Two hidden units, without which it writes its first character."""

    hidden_units = 2

    def predicts_without(self, sequences, units):
        own = [score.is_argmax for score in self.score(sequences)]
        first = [np.array(sequence.target) == 0 for sequence in sequences]
        return [
            np.array([first[place] if len(some) == 2 else own[place] for some in units])
            for place in range(len(sequences))
        ]


class AblatesNothing(Ablates):
    def predicts_without(self, sequences, units):
        return [
            np.repeat(found[:1], len(units), axis=0) for found in super().predicts_without(sequences, units)
        ]


class AblatesAlways(Ablates):
    def predicts_without(self, sequences, units):
        return super().predicts_without(sequences, [units[-1]] * len(units))


class AblatesOnce(Ablates):
    def predicts_without(self, sequences, units):
        return [found[:1] for found in super().predicts_without(sequences, units)]


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (AblatesNothing, "with all units at zero, one token is predicted everywhere"),
        (
            AblatesAlways,
            "with no unit at zero, the tokens that are predicted must be those that are the argmax",
        ),
        (AblatesOnce, "a row for each set of units"),
    ],
)
def test_ablations_that_are_wrong_are_noticed(broken, promise):
    assert isinstance(script(Ablates), AblatedScorer)
    assert check_model(script(Ablates), TEXTS) == []
    with pytest.raises(ConformanceError, match=promise):
        check_model(script(broken), TEXTS)


class Lists(ScriptedModel):
    """Asked in text, with the characters that are likeliest next."""

    most_listed = 3

    def next_texts(self, prompts, *, k):
        check_listed(k, self.most_listed)
        sequences = [text_sequence(self, prompt + "a") for prompt in prompts]
        listed = [one[-1] for one in self.likeliest(sequences, k=k)]
        return [[self.tokenizer.decode([token]) for token, _ in one] for one in listed]


class ListsNothing(Lists):
    most_listed = 0


class ListsTooMany(Lists):
    def next_texts(self, prompts, *, k):
        return [[*one, "x"] for one in super().next_texts(prompts, k=k)]


class ListsTheLast(Lists):
    def next_texts(self, prompts, *, k):
        return [one if k > 1 else ["\ue000"] for one in super().next_texts(prompts, k=k)]


class ListsForTheFirst(Lists):
    def next_texts(self, prompts, *, k):
        found = super().next_texts(prompts, k=k)
        return [["z", "y", "x"][:k]] * len(found) if len(found) > 1 else found


class ListsAnyNumber(Lists):
    def next_texts(self, prompts, *, k):
        return super().next_texts(prompts, k=min(max(1, k), self.most_listed))


class ListsForNobody(Lists):
    def next_texts(self, prompts, *, k):
        return super().next_texts(prompts, k=k) or [[]]


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (ListsNothing, "most_listed must be at least 1"),
        (ListsTooMany, "asked for 3 next tokens"),
        (ListsTheLast, "must be among the 3 likeliest"),
        (ListsForTheFirst, "depend on their own prompt only"),
        (ListsAnyNumber, "must raise an InputError for k = 0"),
        (ListsForNobody, "no prompts must give no lists"),
    ],
)
def test_lists_of_next_texts_that_are_wrong_are_noticed(broken, promise):
    assert isinstance(script(broken), TextRanker)
    with pytest.raises(ConformanceError, match=promise):
        check_model(script(broken), TEXTS)


def test_a_number_of_listed_tokens_is_checked():
    assert check_model(script(Lists), TEXTS) == []
    with pytest.raises(InputError, match="from 1 to 3, the most that the model lists, got 4"):
        script(Lists).next_texts(["a"], k=4)


class RanksTexts(ScriptedModel):
    most_listed = 4

    def score_text(self, texts):
        return self.score([text_sequence(self, text) for text in texts])

    def rank_text(self, texts, *, k):
        check_listed(k, self.most_listed)
        scores = self.score([text_sequence(self, text) for text in texts], ranks=True)
        # As endpoints do: of equals, only the first is at the top.
        return [
            np.where(score.is_argmax == (score.ranks == 1), score.ranks * (score.ranks <= k), 0)
            for score in scores
        ]


def reranked(change):
    class Reranked(RanksTexts):
        def rank_text(self, texts, *, k):
            return [change(ranks, texts, k) for ranks in super().rank_text(texts, k=k)]

    return Reranked


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (reranked(lambda ranks, *_: ranks[1:]), "one rank per token that is scored"),
        (reranked(lambda ranks, _, k: ranks + k * (ranks > 0)), "ranks must be from 0 to 4"),
        (reranked(lambda ranks, *_: np.where(ranks == 1, 2, ranks)), "exactly those that are the argmax"),
        (reranked(lambda ranks, texts, _: ranks * (len(texts) > 1)), "same alone and in a batch"),
    ],
)
def test_ranks_of_texts_that_are_wrong_are_noticed(broken, promise):
    assert isinstance(script(broken), RankedTextScorer)
    assert check_model(script(RanksTexts), TEXTS) == []
    with pytest.raises(ConformanceError, match=promise):
        check_model(script(broken), TEXTS)


WORDS = ["a", "number", "of", "the", "words"]
SENTENCES = ["the words", "a number of the words", "of"]


class RefusesWords(WordTokenizer):
    def encode_open(self, text):
        return self.encode(text)


class ReadsOtherwise(WordTokenizer):
    def encode_open(self, text):
        return super().encode_open(text)[::-1]


class DropsWords(WordTokenizer):
    def encode_open(self, text):
        return [token for token in super().encode_open(text) if token != self.unknown]


class NamesNoToken(WordTokenizer):
    def __init__(self, words):
        super().__init__(words)
        self.unknown = self.size


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (RefusesWords, "encode_open must read any text"),
        (ReadsOtherwise, "in the same way"),
        (DropsWords, "as the unknown token"),
        (NamesNoToken, "unknown must be the id of a token without text"),
    ],
)
def test_an_open_tokenizer_that_is_wrong_is_noticed(broken, promise):
    with pytest.raises(ConformanceError, match=promise):
        check_model(random_model("lstm", broken(WORDS)), SENTENCES)


def test_words_that_are_not_in_the_vocabulary_are_the_unknown_token():
    tokens = WordTokenizer(WORDS)
    assert isinstance(tokens, OpenTokenizer)
    assert tokens.encode_open(" the\tcat \n of  words ") == [3, tokens.unknown, 2, 4]
    assert tokens.encode_open("") == []
    assert tokens.encode_document("the cat").tolist() == tokens.encode_open("the cat")
    for refused in ("the cat", "the  words", " the"):
        with pytest.raises(ModelError, match="cannot be scored"):
            tokens.encode(refused)
    model = random_model("lstm", tokens)
    sequence = open_sequence(model, "the cat")
    assert sequence == (model.context, (3, tokens.unknown), ())
    assert len(model.score([sequence])[0].log2_probabilities) == 2


def test_a_character_without_a_token_is_refused_by_every_way_to_read():
    tokens = CharacterTokenizer("ab")
    assert not isinstance(tokens, OpenTokenizer)
    with pytest.raises(ModelError, match="no token for character 3"):
        open_sequence(random_model("lstm", tokens), "abc")
