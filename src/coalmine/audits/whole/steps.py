"""The table of steps: what an audit does, in the order in which it does it. A further step is a row."""

from __future__ import annotations

from coalmine.audits.exposure.results import EXPOSURES
from coalmine.audits.extraction.results import VERIFIED
from coalmine.audits.membership.records import MEMBERSHIPS
from coalmine.audits.provenance.records import PROVENANCES
from coalmine.audits.recitation.records import RECITATIONS
from coalmine.audits.whole import canaries, comparing, recitation
from coalmine.audits.whole.step import AuditStep
from coalmine.corpus.secrets.results import SCANS

STEPS = (
    # First, since the secrets are planned by what it finds.
    AuditStep(
        name=canaries.SCAN_FOLDER,
        title="Scan for secrets",
        audits=(),
        share=0.5,
        files=(SCANS.file,),
        plan=canaries.plan_scan,
        run=canaries.run_scan,
        asked=canaries.scanned,
    ),
    AuditStep(
        name="secrets",
        title="Secrets in the training data",
        audits=("secrets",),
        share=4.0,
        files=(f"exposure/{EXPOSURES.file}", f"extraction/{VERIFIED.file}"),
        obstacles=(canaries.no_secrets, canaries.no_probabilities),
        plan=canaries.plan_secrets,
        run=canaries.run_secrets,
    ),
    AuditStep(
        name="recitation",
        title="Recitation of training text",
        audits=("recitation",),
        share=3.0,
        files=(RECITATIONS.file,),
        obstacles=(recitation.no_sequences,),
        plan=recitation.plan,
        run=recitation.run,
        asked=recitation.asked,
    ),
    AuditStep(
        name="documents",
        title="Membership of training documents",
        audits=("provenance",),
        share=2.0,
        files=(PROVENANCES.file,),
        obstacles=(comparing.no_held_out, comparing.no_view),
        plan=lambda subject, seconds: comparing.plan(subject, "document", seconds),
        run=lambda subject, *asked: comparing.run(subject, "document", *asked),
    ),
    AuditStep(
        name="users",
        title="Provenance of users",
        audits=("provenance",),
        share=2.0,
        files=(PROVENANCES.file,),
        obstacles=(comparing.no_users, comparing.no_view),
        plan=lambda subject, seconds: comparing.plan(subject, "user", seconds),
        run=lambda subject, *asked: comparing.run(subject, "user", *asked),
    ),
    AuditStep(
        name=canaries.EXPOSURE_FOLDER,
        title="Exposure of canaries",
        audits=("exposure",),
        share=3.0,
        files=(EXPOSURES.file,),
        obstacles=(canaries.no_canaries, canaries.no_probabilities, canaries.no_frame),
        plan=lambda subject, seconds: canaries.exposing(subject, canaries.planted(subject), seconds),
        run=lambda subject, *asked: canaries.expose_these(subject, canaries.planted(subject), *asked),
    ),
    AuditStep(
        name="canaries-extraction",
        title="Extraction of canaries",
        audits=("extraction",),
        share=2.0,
        files=(VERIFIED.file,),
        obstacles=(canaries.no_canaries, canaries.no_search),
        plan=lambda subject, seconds: canaries.searching(subject, canaries.planted(subject), seconds),
        run=lambda subject, *asked: canaries.search_these(subject, canaries.planted(subject), *asked),
    ),
    AuditStep(
        name="canaries-membership",
        title="Membership of canaries",
        audits=("membership",),
        share=0.1,
        files=(MEMBERSHIPS.file,),
        obstacles=(canaries.no_canaries, canaries.no_probabilities),
        plan=canaries.plan_membership,
        run=canaries.run_membership,
    ),
)
