"""The part of a text that two models are compared on, and what is refused or said where nothing can be compared."""

import math

import numpy as np
import pytest

from coalmine import ScriptedModel, audit_provenance
from coalmine.audits import AuditedUsers, User, UserText
from coalmine.audits.provenance.scores import UserWork, ask_users
from coalmine.audits.provenance.views import _unless_refused
from coalmine.engines.engine import open_engine
from coalmine.engines.ledger import Ledger
from coalmine.errors import InputError
from coalmine.models import text_sequence
from coalmine.models.endpoints.http import EndpointRefusedError
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


@pytest.mark.parametrize(
    ("users", "options", "why"),
    [
        (AuditedUsers([ANN], [BOB]), {}, "neither suspects nor non-members"),
        (AuditedUsers([ANN], (), [BOB]), {"reference_model": TARGET}, "the same weights as the target"),
        (AuditedUsers([ANN]), {"by": "person"}, "give them as non-members"),
        (AuditedUsers([ANN], (), [ANN]), {"by": "person"}, "1 threads have texts on both sides"),
    ],
)
def test_users_that_nothing_follows_about_are_refused(users, options, why):
    with pytest.raises(InputError, match=why):
        audit_provenance(TARGET, users, **options)


def test_a_text_that_a_server_refuses_is_left_out_and_the_others_are_read():
    def ask(texts, status=400):
        if any("x" in text for text in texts):
            raise EndpointRefusedError("too long", status)
        return [len(text) for text in texts]

    assert _unless_refused(ask, ["a", "bx", "c", "dd", "x"]) == [1, None, 1, 2, None]
    with pytest.raises(EndpointRefusedError):
        _unless_refused(ask, ["x", "xx"])
    with pytest.raises(EndpointRefusedError):
        _unless_refused(lambda texts: ask(texts, 401), ["a", "x"])
