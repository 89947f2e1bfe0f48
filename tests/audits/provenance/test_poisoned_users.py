"""Users about whom a model gives no number: they are not measured, with the reason, and all others are decided as without them."""

from audits.poisoned_model import PoisonedModel
from coalmine import ScriptedModel, audit_provenance
from coalmine.audits import AuditedUsers, User, UserText

CHARACTERS = "abcdefgh "


def user(name, *texts):
    return User(name, tuple(UserText(text) for text in texts))


SUSPECTS = [
    user("ann", "abba abba", "cab"),
    user("bob", "hag", "bad"),
    user("cid", "hag had"),
    user("dee", "fed egg"),
]
OTHERS = [
    user(f"n{number}", text) for number, text in enumerate(("beg", "bag a", "cage", "face", "dab", "ebb"))
]
USERS = AuditedUsers(SUSPECTS, non_members=OTHERS)
REFERENCE = ScriptedModel(CHARACTERS, name="reference")
WHOLE = ScriptedModel(CHARACTERS, memory={"abba abba": 0.25})


def rows(found):
    return {row.user: row for row in found.questions[0].rows}


def test_a_user_without_a_number_does_not_stop_the_others():
    model = PoisonedModel(CHARACTERS, "hag", memory={"abba abba": 0.25})
    found, whole = (audit_provenance(one, USERS, reference_model=REFERENCE) for one in (model, WHOLE))
    assert rows(found)["cid"].decision == "not measured"
    assert rows(found)["cid"].why.startswith(
        "the model 'scripted' gave log-probabilities that are not numbers"
    )
    assert rows(found)["cid"].score is None
    assert rows(found)["bob"].texts == 1  # of two, without the one that has no number
    assert rows(found)["bob"].score is not None
    for name in ("ann", "dee"):
        assert rows(found)[name].scores == rows(whole)[name].scores
    assert any(one.startswith("2 texts have no number by the model") for one in found.warnings)
