"""Provenance audits of models behind endpoints: with log-probabilities, with the likeliest tokens only, and with a single one."""

import pytest

from audits.provenance.small_users import SMALL, small_users
from coalmine import audit_provenance, fit_provenance, load_model
from coalmine.audits import AuditedUsers
from coalmine.training.trainer import train_documents
from endpoints.fault_proxy import FaultProxy
from models.endpoint_servers import connect, serving_process

EVERYONE = small_users(44, texts=4)
MEMBERS, NON_MEMBERS, REFERENCE = EVERYONE[:5], EVERYONE[5:25], EVERYONE[25:]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    texts = [text.text for user in MEMBERS for text in user.texts]
    # Every word is known to the model, as every text is to the tokenizer of a large one.
    texts += [" ".join(f"w{number}" for number in range(30))]
    train_documents(texts, out=folder / "model", preset="provenance-words", **{**SMALL, "epochs": 60})
    fit = fit_provenance(REFERENCE, folder / "fit", like=folder / "model", shadows=2)
    with serving_process(folder / "model") as url:
        yield load_model(folder / "model"), fit, url


USERS = AuditedUsers(MEMBERS, (), NON_MEMBERS, REFERENCE, [user.name for user in MEMBERS])


@pytest.mark.parametrize(("liar", "top"), [("no_echo", 20), ("text_only", 1)])
def test_a_server_that_lists_tokens_only(made, liar, top):
    _, fit, url = made
    with FaultProxy(url, liar=liar) as proxy, connect(proxy.url, probe_texts=["w1 w2 w3"]) as model:
        found = audit_provenance(model, USERS, fit=fit, bins=10)
    assert (found.top, found.probabilities, found.ranked) == (top, False, None)
    [question] = found.questions
    assert question.deciding.name == "rank-histogram"
    assert question.deciding.calibrated == "non-members"
    assert sum(row.adjusted_p_value <= 0.05 for row in question.rows) >= 3
    assert all(row.p_value is not None for row in question.rows)
    # What it lists is enough to say something without shadow models.
    assert all(0 <= row.scores["listed-share"] <= 1 for row in question.rows)
