from coalmine.audits.defenses.measure import defend as defend
from coalmine.audits.exposure.measuring import expose as expose
from coalmine.audits.exposure.results import ExposureResult as ExposureResult
from coalmine.audits.extraction.certificate import verify_certificate as verify_certificate
from coalmine.audits.extraction.measuring import extract as extract
from coalmine.audits.extraction.results import Extraction as Extraction
from coalmine.audits.membership.measure import (
    membership as membership,
    membership_of_scores as membership_of_scores,
)
from coalmine.audits.provenance.fit import fit_provenance as fit_provenance
from coalmine.audits.provenance.measure import audit_provenance as audit_provenance
from coalmine.audits.recitation.measure import recite as recite
from coalmine.audits.registry import read_run as read_run, read_runs as read_runs
from coalmine.audits.watching.records import ExposureWatch as ExposureWatch
from coalmine.corpus.planting.manifest import CanarySet as CanarySet
from coalmine.corpus.planting.planting import plant as plant
from coalmine.corpus.secrets.scanning import scan as scan
from coalmine.formats.format import Format as Format
from coalmine.models.loading import load_model as load_model
from coalmine.models.scripted import ScriptedModel as ScriptedModel
from coalmine.records import Canary as Canary, Estimate as Estimate
from coalmine.reports.findings import findings_of as findings_of
from coalmine.reports.gate import check as check, parse_policy as parse_policy, read_policy as read_policy
from coalmine.reports.verifying import verify_run as verify_run
from coalmine.audits.whole.auditing import audit as audit
from coalmine.audits.whole.records import ReviewOptions as ReviewOptions
from coalmine.search.walks.scoring import score_texts as score_texts
from coalmine.serving.server import serve as serve
from coalmine.training.quantizing.options import QuantizeOptions as QuantizeOptions
from coalmine.training.quantizing.quantizing import quantize as quantize
from coalmine.training.quantizing.record import Quantization as Quantization
from coalmine.training.finetuning.tuner import finetune as finetune
from coalmine.training.trainer import train as train, train_family as train_family
from coalmine.training.unlearning.options import UnlearnOptions as UnlearnOptions
from coalmine.training.unlearning.record import Unlearning as Unlearning
from coalmine.training.unlearning.unlearning import unlearn as unlearn

__version__: str
