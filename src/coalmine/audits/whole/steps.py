"""The table of steps: what an audit does, in the order in which it does it. A further step is a row."""

from __future__ import annotations

from coalmine.audits.exposure.results import EXPOSURES
from coalmine.audits.extraction.results import VERIFIED
from coalmine.audits.membership.results import MEMBERSHIPS
from coalmine.audits.provenance.results import PROVENANCES
from coalmine.audits.recitation.results import RECITATIONS
from coalmine.audits.whole import canaries, comparing, recitation, secrets
from coalmine.audits.whole.step import Step
from coalmine.corpus.secrets.results import SCANS

STEPS = (
    # First, since the secrets are planned by what it finds.
    Step(
        name=secrets.SCAN_FOLDER,
        title="Scan for secrets",
        audits=(),
        share=0.5,
        files=(SCANS.file,),
        plan=secrets.plan_scan,
        run=secrets.run_scan,
        asked=secrets.scanned,
    ),
    Step(
        name="secrets",
        title="Secrets in the training data",
        audits=("secrets",),
        share=4.0,
        files=(f"exposure/{EXPOSURES.file}", f"extraction/{VERIFIED.file}"),
        obstacles=(secrets.no_secrets, canaries.no_probabilities),
        plan=secrets.plan_secrets,
        run=secrets.run_secrets,
    ),
    Step(
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
    Step(
        name="documents",
        title="Membership of training documents",
        audits=("provenance",),
        share=2.0,
        files=(PROVENANCES.file,),
        obstacles=(comparing.no_held_out, comparing.no_view),
        plan=comparing.plan_by("document"),
        run=comparing.run_by("document"),
    ),
    Step(
        name="users",
        title="Provenance of users",
        audits=("provenance",),
        share=2.0,
        files=(PROVENANCES.file,),
        obstacles=(comparing.no_users, comparing.no_view),
        plan=comparing.plan_by("user"),
        run=comparing.run_by("user"),
    ),
    Step(
        name=canaries.EXPOSURE_FOLDER,
        title="Exposure of canaries",
        audits=("exposure",),
        share=3.0,
        files=(EXPOSURES.file,),
        obstacles=(canaries.no_canaries, canaries.no_probabilities, canaries.no_frame),
        plan=canaries.plan_exposure,
        run=canaries.run_exposure,
    ),
    Step(
        name="canaries-extraction",
        title="Extraction of canaries",
        audits=("extraction",),
        share=2.0,
        files=(VERIFIED.file,),
        obstacles=(canaries.no_canaries, canaries.no_search),
        plan=canaries.plan_extraction,
        run=canaries.run_extraction,
    ),
    Step(
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
