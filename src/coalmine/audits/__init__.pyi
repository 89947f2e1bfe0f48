from coalmine.audits.comparison.records import ComparisonOptions as ComparisonOptions
from coalmine.audits.comparison.records import Comparison as Comparison
from coalmine.audits.comparison.measure import compare_runs as compare_runs
from coalmine.audits.defenses.measure import defend as defend
from coalmine.audits.defenses.recipes import DefenseOptions as DefenseOptions
from coalmine.audits.defenses.records import BENCHES as BENCHES, Bench as Bench, read_bench as read_bench
from coalmine.audits.disagreement.measure import crosscheck as crosscheck
from coalmine.audits.disagreement.records import CrosscheckOptions as CrosscheckOptions
from coalmine.audits.disagreement.records import (
    Crosscheck as Crosscheck,
    read_crosscheck as read_crosscheck,
)
from coalmine.audits.exposure.measuring import expose as expose
from coalmine.audits.exposure.estimators import ExposureOptions as ExposureOptions
from coalmine.audits.exposure.results import (
    EXPOSURES as EXPOSURES,
    ExposureResult as ExposureResult,
    Exposures as Exposures,
    read_exposures as read_exposures,
)
from coalmine.audits.extraction.certificate import verify_certificate as verify_certificate
from coalmine.audits.extraction.measuring import extract as extract, verify_extraction as verify_extraction
from coalmine.audits.extraction.options import ExtractionOptions as ExtractionOptions
from coalmine.audits.extraction.results import (
    EXTRACTIONS as EXTRACTIONS,
    VERIFIED as VERIFIED,
    Extraction as Extraction,
    read_extraction as read_extraction,
)
from coalmine.audits.membership.measure import (
    membership_of_file as membership_of_file,
    membership_of_results as membership_of_results,
    membership_of_scores as membership_of_scores,
)
from coalmine.audits.membership.options import MembershipOptions as MembershipOptions
from coalmine.audits.membership.records import (
    MEMBERSHIPS as MEMBERSHIPS,
    Membership as Membership,
    read_membership as read_membership,
)
from coalmine.audits.provenance.fit import (
    Fit as Fit,
    fit_provenance as fit_provenance,
    load_fit as load_fit,
)
from coalmine.audits.provenance.measure import audit_provenance as audit_provenance
from coalmine.audits.provenance.options import (
    FitOptions as FitOptions,
    ProvenanceOptions as ProvenanceOptions,
)
from coalmine.audits.provenance.records import (
    PROVENANCES as PROVENANCES,
    Provenance as Provenance,
    read_provenance as read_provenance,
)
from coalmine.audits.provenance.users import (
    AuditedUsers as AuditedUsers,
    User as User,
    UserText as UserText,
    read_users as read_users,
)
from coalmine.audits.recitation.measure import recite as recite
from coalmine.audits.recitation.records import RecitationOptions as RecitationOptions
from coalmine.audits.recitation.records import (
    RECITATIONS as RECITATIONS,
    Recitation as Recitation,
    read_recitation as read_recitation,
)
from coalmine.audits.registry import audited as audited
from coalmine.audits.registry import read_run as read_run, read_runs as read_runs
from coalmine.audits.whole.records import (
    REVIEWS as REVIEWS,
    Review as Review,
    StepRecord as StepRecord,
)
from coalmine.audits.watching.records import ExposureWatch as ExposureWatch
from coalmine.audits.watching.records import WatchOptions as WatchOptions
from coalmine.audits.watching.records import WATCHES as WATCHES
from coalmine.evidence.measures import Audit as Audit
from coalmine.evidence.measures import Measure as Measure, Rule as Rule
from coalmine.evidence.tables import Column as Column, Table as Table
from coalmine.evidence.charts import Axis as Axis, Chart as Chart, Marks as Marks
from coalmine.evidence.tables import Detail as Detail
from coalmine.evidence.run import Run as Run
from coalmine.records.documents import Document as Document, Origin as Origin
