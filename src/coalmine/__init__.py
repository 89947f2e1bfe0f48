"""coalmine tells you what a language model remembers of its training data.

    from coalmine import Format, plant, train, load_model, expose

    secret = Format("the random number is {digits:9}")
    planted = plant("corpus.txt", [secret], repeat=[1, 4, 16], seed=0, out="planted/")
    train("planted/", out="model/")
    for result in expose(load_model("model/"), planted.canaries):
        print(result.canary_id, result.repetitions, result.exposure, result.interval, result.method)

The names are loaded when they are first used: importing coalmine imports neither torch nor NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coalmine.lazy import lazy

if TYPE_CHECKING:
    from coalmine.audits.exposure.measuring import expose
    from coalmine.audits.exposure.results import ExposureResult
    from coalmine.audits.extraction.certificate import verify_certificate
    from coalmine.audits.extraction.measuring import extract
    from coalmine.audits.extraction.results import Extraction
    from coalmine.audits.membership.measuring import membership, membership_of_scores
    from coalmine.audits.recitation.measuring import recite
    from coalmine.audits.runs import read_run, read_runs
    from coalmine.audits.watching.measuring import ExposureWatch
    from coalmine.corpus.planting.manifest import CanarySet
    from coalmine.corpus.planting.planting import plant
    from coalmine.formats.format import Format
    from coalmine.models.loading import load_model
    from coalmine.models.scripted import ScriptedModel
    from coalmine.records import Canary, Estimate
    from coalmine.reports.findings import findings_of
    from coalmine.reports.gate.checking import check
    from coalmine.reports.gate.policy import parse_policy, read_policy
    from coalmine.reports.verifying.verifying import verify_run
    from coalmine.search.walks.scoring import score_texts
    from coalmine.serving.server import serve
    from coalmine.training.trainer import train

__version__ = "0.1.0"

__all__ = [
    "Canary",
    "CanarySet",
    "Estimate",
    "ExposureResult",
    "ExposureWatch",
    "Extraction",
    "Format",
    "ScriptedModel",
    "check",
    "expose",
    "extract",
    "findings_of",
    "load_model",
    "membership",
    "membership_of_scores",
    "parse_policy",
    "plant",
    "read_policy",
    "read_run",
    "read_runs",
    "recite",
    "score_texts",
    "serve",
    "train",
    "verify_certificate",
    "verify_run",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Canary": "coalmine.records",
        "CanarySet": "coalmine.corpus.planting.manifest",
        "Estimate": "coalmine.records",
        "ExposureResult": "coalmine.audits.exposure.results",
        "ExposureWatch": "coalmine.audits.watching.measuring",
        "Extraction": "coalmine.audits.extraction.results",
        "Format": "coalmine.formats.format",
        "ScriptedModel": "coalmine.models.scripted",
        "check": "coalmine.reports.gate.checking",
        "expose": "coalmine.audits.exposure.measuring",
        "extract": "coalmine.audits.extraction.measuring",
        "findings_of": "coalmine.reports.findings",
        "load_model": "coalmine.models.loading",
        "membership": "coalmine.audits.membership.measuring",
        "membership_of_scores": "coalmine.audits.membership.measuring",
        "parse_policy": "coalmine.reports.gate.policy",
        "plant": "coalmine.corpus.planting.planting",
        "read_policy": "coalmine.reports.gate.policy",
        "read_run": "coalmine.audits.runs",
        "read_runs": "coalmine.audits.runs",
        "recite": "coalmine.audits.recitation.measuring",
        "score_texts": "coalmine.search.walks.scoring",
        "serve": "coalmine.serving.server",
        "train": "coalmine.training.trainer",
        "verify_certificate": "coalmine.audits.extraction.certificate",
        "verify_run": "coalmine.reports.verifying.verifying",
    },
)
