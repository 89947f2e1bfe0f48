"""The part of a text that two models are compared on, and what is refused or said where nothing can be compared."""

import math

import numpy as np
import pytest

from coalmine import ScriptedModel
from coalmine.audits import User, UserText
from coalmine.audits.provenance.scores import UserWork, ask_users
from coalmine.engines.engine import open_engine
from coalmine.engines.ledger import Ledger
from coalmine.models import text_sequence
from coalmine.progress import Silent

TEXTS = ("abcdabcd", "ddcb")


class Short(ScriptedModel):
    """Reads four tokens besides the separator."""

    max_length = 5


class WithoutContext(ScriptedModel):
    """Is given the first token of a text."""

    context = ()


TARGET = ScriptedModel("abcd", {"abcdabcd": 0.25}, {"a": 3})
FREQUENCIES = {"a": 1, "b": 4}


def bits(model, text):
    return model.score([text_sequence(ScriptedModel("".join(model.tokenizer.characters)), text)])[
        0
    ].log2_probabilities


def asked(target, *others, texts=TEXTS, **how):
    work = UserWork(target, shadows=others, **{"statistics": ("likelihood-ratio",), **how})
    users = [User("ann", tuple(map(UserText, texts)))]
    with open_engine("here") as engine:
        return ask_users(work, users, engine=engine, ledger=Ledger(None), progress=Silent())


@pytest.mark.parametrize(
    ("target", "reference", "first", "last"),
    [
        (TARGET, Short("abcd", None, FREQUENCIES), 0, 4),
        (Short("abcd", {"abcdabcd": 0.25}, {"a": 3}), ScriptedModel("abcd", None, FREQUENCIES), 0, 4),
        (TARGET, WithoutContext("abcd", None, FREQUENCIES), 1, 8),
    ],
)
def test_tokens_are_compared_that_both_predict(target, reference, first, last):
    differences = [bits(target, text)[first:last] - bits(reference, text)[first:last] for text in TEXTS]
    found = asked(target, reference, statistics=("likelihood-ratio", "windowed-ratio"))
    assert math.isclose(found["likelihood-ratio"][0], np.concatenate(differences).mean(), abs_tol=1e-9)
    assert not np.isnan(found["windowed-ratio"][0])
    assert found["uncompared"][0] == 0


def test_other_tokens_are_compared_over_whole_texts_only():
    reference = Short("abcde", None, FREQUENCIES)
    found = asked(TARGET, reference, alike=False)
    assert math.isclose(found["likelihood-ratio"][0], (bits(TARGET, "ddcb") - bits(reference, "ddcb")).mean())
    assert found["uncompared"][0] == 1
    assert np.isnan(asked(TARGET, reference, texts=TEXTS[:1], alike=False)["likelihood-ratio"][0])


ANN, BOB = (User(name, (UserText("abcd"),)) for name in ("ann", "bob"))
