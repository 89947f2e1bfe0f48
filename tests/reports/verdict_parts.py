"""Records made by hand, of which every number is known: what the tests of single rules and findings are given."""

import math
from pathlib import Path

import msgspec

from coalmine import Canary, CanarySet, Estimate, ExposureResult, Extraction, Format
from coalmine.audits import (
    EXPOSURES,
    EXTRACTIONS,
    MEMBERSHIPS,
    RECITATIONS,
    VERIFIED,
    Exposures,
    Membership,
    MembershipOptions,
    Recitation,
    RecitationOptions,
    Run,
)
from coalmine.audits.exposure.results import FormatFacts
from coalmine.audits.extraction.results import CanaryExtraction, Extracted, Verified
from coalmine.audits.membership.records import EpsilonBound, Population
from coalmine.audits.recitation.records import Group, ModelFacts
from coalmine.corpus.planting.manifest import MANIFESTS
from coalmine.corpus.survival.results import SURVIVALS
from coalmine.evidence.run import Located
from coalmine.search.walks.shortest_path import Certificate
from coalmine.statistics import RateEstimate, Verdict
from coalmine.training.record import TRAININGS

MANIFEST = "ab" * 32
# What tests call the kinds of documents of a run.
KINDS = {
    "exposures": EXPOSURES,
    "extractions": EXTRACTIONS,
    "verifications": VERIFIED,
    "memberships": MEMBERSHIPS,
    "recitations": RECITATIONS,
    "trainings": TRAININGS,
    "survivals": SURVIVALS,
    "manifests": MANIFESTS,
}


def interval(value, low, high, *, confidence=0.95, method="guided", n=400, statement="as made", **parts):
    """An estimate with these numbers; without a value it is a bound from below."""
    return Estimate(
        method=method,
        status="lower_bound" if value is None else "measured",
        value=value,
        low=low,
        high=high,
        confidence=confidence,
        n=n,
        statement=statement,
        **parts,
    )


def unknown(method="guided", reason="there is no number"):
    return Estimate.not_measured(method, reason)


def result(canary_id, estimate, *, times=4, planted=True, format_id="f0", planned=None, most=20.0):
    return ExposureResult(
        canary_id=canary_id,
        format_id=format_id,
        repetitions=times,
        planted=planted,
        planned_repetitions=planned,
        method=estimate.method,
        known_log_perplexity_bits=10.0,
        rank=None,
        most_possible_bits=most,
        estimate=estimate,
    )


def document(
    results, *, bits=20, size=None, formats=("f0",), manifest=MANIFEST, model=None, method="exact", **parts
):
    """Exposures in formats of 2^bits members each, or of `size`."""
    size = 2**bits if size is None else size
    return Exposures(
        seed=0,
        confidence=0.95,
        manifest_sha256=manifest,
        model={"adapter": "scripted"} if model is None else model,
        formats=tuple(
            FormatFacts(
                format_id=name,
                template=f"{name} is {{digits:6}}",
                size=str(size),
                size_bits=math.log2(size),
                method=method,
                why="asked for",
            )
            for name in formats
        ),
        expansions=0,
        tail_fits={},
        results=tuple(results),
        **parts,
    )


def came(canary_id, place=None, *, proven=True, times=4, format_id="f0", expansions=None):
    return CanaryExtraction(
        canary_id=canary_id,
        repetitions=times,
        extracted=place is not None,
        place=place,
        expansions=expansions,
        proven=proven,
        format_id=format_id,
    )


def search(found=10, size=1000):
    """A search that found so many members."""
    return Extraction(
        format_template="f0 is {digits:3}",
        size=str(size),
        given="",
        method="search",
        found=tuple(
            Extracted(place=place, text=f"member {place}", log_perplexity_bits=5.0, expansions=place)
            for place in range(1, found + 1)
        ),
        certificate=Certificate(proven=True, expansions=50, best_open_bits=9.0, gap_bits=0.0),
        model={"adapter": "scripted"},
    )


def verified(canaries):
    """What is said of canaries, by the search of each of their formats."""
    formats = dict.fromkeys(one.format_id for one in canaries if one.format_id is not None)
    return Verified(
        manifest_sha256=MANIFEST,
        model={"adapter": "scripted"},
        extractions={f"extraction-{format_id}.json": "0" * 64 for format_id in formats},
        canaries=tuple(canaries),
    )


def area(value=0.55, low=0.5, high=0.59):
    return interval(value, low, high, method="AUC", statement=f"the AUC is {value}")


def rate(value, low, high, *, at="1%", measured=True):
    method = f"TPR at FPR {at}"
    estimate = (
        interval(value, low, high, method=method, statement=f"{method}: {value}")
        if measured
        else unknown(method, f"{method}: too few references")
    )
    return RateEstimate(**msgspec.structs.asdict(estimate))


def population(
    name="planted once",
    *,
    copies=1,
    pooled=False,
    auc=None,
    p_value=0.5,
    rates=(),
    rate_p_values=(),
    epsilon=(0.0, 0.0),
    ceiling=3.0,
    epsilon_p_value=None,
):
    """Scores of canaries against as many others; `epsilon` has the bounds for a canary and for one copy, None where there is none."""
    whole, one_copy = (
        None
        if low is None
        else interval(None, low, None, method="coins", statement=f"epsilon is at least {low}")
        for low in epsilon
    )
    best = EpsilonBound(canary=whole, one_copy=one_copy)
    return Population(
        name=name,
        format_id="f0",
        copies=copies,
        pooled=pooled,
        in_count=40,
        out_count=100,
        withheld_count=0,
        exposure=interval(1.0, 0.5, 1.5, method="median"),
        guessing_p_value=p_value,
        auc=area() if auc is None else auc,
        tpr_at_fpr=tuple(rates),
        tpr_p_values=tuple(rate_p_values),
        epsilon=(best,),
        best=best,
        epsilon_ceiling=ceiling,
        one_copy_ceiling=ceiling / copies,
        epsilon_p_value=epsilon_p_value,
        template=None,
    )


def memberships(*populations, verdict=None):
    return Membership(
        score="exposure",
        settings=MembershipOptions(delta=1e-5, inclusion=0.5),
        populations=tuple(populations),
        verdict=verdict,
        manifest_sha256=None,
    )


def verdict(outcome, *, p_value=0.5, power=0.9):
    return Verdict(
        outcome=outcome,
        words=outcome,
        claimed_epsilon=1.0,
        claimed_delta=1e-5,
        copies=1,
        confidence=0.95,
        p_value=p_value,
        power=power,
        alternative_epsilon=2.0,
        statement=f"the claimed epsilon 1 is {outcome}",
    )


def group(recited, *, model="asked", context=50, bucket=None):
    return Group(
        model=model,
        context=context,
        bucket=bucket,
        copies=(1, 1000),
        mean_copies=20.0,
        recited=recited,
    )


def recitations(*groups, baseline=False, trends=(), sample="normalized", names=("asked",), hidden_share=0.15):
    models = [ModelFacts(name=name, role="asked", parameters=1000, description={}) for name in names]
    if baseline:
        models.append(ModelFacts(name="other", role="baseline", parameters=1000, description={}))
    return Recitation(
        index={},
        models=tuple(models),
        settings=RecitationOptions(contexts=(50,), sample=sample, tries=(), hidden_share=hidden_share),
        sequences=100,
        questions=100,
        groups=tuple(groups),
        trends=tuple(trends),
        exclusive={},
        examples=(),
        revealed=False,
    )


FORMS = {"f0": Format("f0 is {digits:6}"), "f1": Format("f1 is {digits:6}")}


def manifest_of(*rows, corpus=None):
    """A manifest of (id, format, repetitions, planted, copies that are left or None) each."""
    texts = {name: iter(form.sample(60, seed=1, replace=False)) for name, form in FORMS.items()}
    listed = []
    for canary_id, format_id, times, planted, counted in rows:
        parts = {} if counted is None else {"counted": counted}
        listed.append(
            Canary(
                canary_id=canary_id,
                format_id=format_id,
                text=next(texts[format_id]),
                repetitions=times,
                planted=planted,
                **parts,
            )
        )
    return CanarySet(listed, FORMS, corpus=corpus)


def run_of(*exposures, place=Path("run"), **parts):
    """A run of these documents, each in a file of its own; `searches` maps a folder to its extractions by format and its verified."""
    located = {
        name: tuple(
            Located(place / f"{name}-{number}" / f"{name}.json", one) for number, one in enumerate(these)
        )
        for name, these in {"exposures": exposures, **parts}.items()
        if name != "searches"
    }
    for folder, (extractions, looked_for) in parts.get("searches", {}).items():
        located["extractions"] = (
            *located.get("extractions", ()),
            *(Located(place / folder / f"extraction-{name}.json", one) for name, one in extractions.items()),
        )
        if looked_for is not None:
            located["verifications"] = (
                *located.get("verifications", ()),
                Located(place / folder / "verified.json", looked_for),
            )
    return Run(paths=(place,), name="run", documents={KINDS[name]: these for name, these in located.items()})
