"""Targets trained privately by user: audited with shadow models that are trained in the same way, or plainly."""

import pytest

from audits.provenance.small_users import SMALL, small_users
from coalmine import audit_provenance, fit_provenance, load_model
from coalmine.audits import AuditedUsers, load_fit
from coalmine.training.record import read_training
from coalmine.training.trainer import train_documents

MEMBERS, OTHERS, REFERENCE = (small_users(30)[first : first + 10] for first in (0, 10, 20))
PRIVATE = {"dp_noise": 0.5, "dp_unit": "user", "dp_delta": 1e-4, "batch_size": 10, "epochs": 4}


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """A private one, whose vocabulary is not the members'."""
    out = tmp_path_factory.mktemp("private") / "target"
    texts = [(user.name, text.text) for user in MEMBERS for text in user.texts]
    names, documents = zip(*texts, strict=True)
    options = {**SMALL, **PRIVATE, "dp_seed": 5}
    return train_documents(documents, users=names, out=out, preset="provenance-words", **options)


def test_shadows_of_a_private_target_are_as_private_and_the_audit_runs(target, tmp_path):
    fit = fit_provenance(REFERENCE, tmp_path / "fit", like=target.path, shadows=2)
    for shadow in fit.record.shadows:
        claim = read_training(tmp_path / "fit" / shadow.location).privacy
        assert (claim.unit, claim.units, claim.noise_multiplier, claim.steps) == ("user", 5, 0.5, 4)
    assert target.record.privacy.units == 10
    checks = {one.options.private.seed_check for one in fit.record.shadows}
    assert len(checks | {target.record.options.private.seed_check}) == 3  # each has noise of its own
    found = audit_provenance(
        load_model(target.path), AuditedUsers(MEMBERS, non_members=OTHERS, reference=REFERENCE), fit=fit
    )
    [question] = found.questions
    assert len(question.rows) == 10
    assert {"rank-histogram", "likelihood-ratio", "rmia"} <= set(question.rows[0].scores)
    # The noise follows from the seed, so the same fit elsewhere is the same.
    fit_provenance(REFERENCE, tmp_path / "again", like=target.path, shadows=2)
    again = load_fit(tmp_path / "again").record.shadows
    assert [one.weights_sha256 for one in again] == [one.weights_sha256 for one in fit.record.shadows]
