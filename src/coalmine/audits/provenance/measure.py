"""Provenance audits: was the text of these users used to train this model?

Auditing Data Provenance in Text-Generation Models (Song and Shmatikov, 2019, arXiv:1811.00513), with statistics that came later, and with
p-values from known non-members.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from coalmine.audits.provenance.blind_baseline import BlindBaseline, blind_baseline
from coalmine.audits.provenance.data_checks import (
    IndexedCorpus,
    check_data,
    check_reference_model,
    check_users,
    without_shared,
)
from coalmine.audits.provenance.deciding import decided, interpreted
from coalmine.audits.provenance.fit import Fit
from coalmine.audits.provenance.options import ProvenanceOptions
from coalmine.audits.provenance.records import AblationPoint, Provenance, Question
from coalmine.audits.provenance.scores import (
    STATISTICS,
    Available,
    Need,
    ReferencePopulation,
    UserWork,
    ask_users,
    shadow_sets,
)
from coalmine.audits.provenance.users import AuditedUsers, Group, User
from coalmine.audits.provenance.views import View, known_tokens, view_of
from coalmine.audits.provenance.words import (
    Cut,
    ablation_curves,
    chosen_places,
    frequency_ranks,
    log_histogram,
    weights_of,
    word_groups,
)
from coalmine.engines.engine import Engine, open_engine
from coalmine.engines.ledger import Ledger
from coalmine.engines.units import Arrays
from coalmine.errors import NotMeasurableError
from coalmine.models.protocols import IntArray, Model
from coalmine.progress import Progress, Silent
from coalmine.storage.files import make_directory, together
from coalmine.visible import visible

_ROLES = ("suspects", "other_suspects", "non_members", "other_non_members", "reference")
_LEFT_OUT = {
    "unread": "{:,} texts were left out, because the model refuses them or can predict none of their tokens",
    "cut": "{:,} tokens at the ends of texts are beyond what the model can read, and were left out",
    "uncompared": "{:,} texts are left out of ratios, because they are longer than one of the models can read, or the model that is "
    "compared with cannot read them",
}


def audit_provenance(
    model: Model,
    users: AuditedUsers,
    options: ProvenanceOptions | None = None,
    *,
    fit: Fit | None = None,
    reference_model: Model | None = None,
    out: str | os.PathLike[str] | None = None,
    engine: Engine | str | None = None,
    progress: Progress | None = None,
    record: Callable[[Provenance], None] | None = None,
    data_sha256: dict[str, str] | None = None,
    indexed: IndexedCorpus | None = None,
    **changes: Any,
) -> Provenance:
    """Ask a model about the texts of users, and decide for each suspect whether they were used to train it.

    The fields of `ProvenanceOptions` can be given as keywords, such as `queries=8`, instead of a record or on top of one.

    >>> users = AuditedUsers(suspects, non_members=others)  # doctest: +SKIP
    >>> audit_provenance(load_model("model/"), users, reference_model=load_model("base/"))  # doctest: +SKIP

    Args:
        model: the target: any model that scores texts or lists the likeliest next tokens.
        users: suspects, and those that they are compared with.
        options: how many texts are asked about, which statistic decides, and at which false-discovery rate.
        fit: shadow models and audit classifier, from `fit_provenance` or `load_fit`.
        reference_model: a model that did not see the suspects' texts, such as the base of a fine-tuned one.
        out: a directory for provenance.json; a run that is stopped resumes there.
        engine: where the models are asked, such as "processes:4"; without it, in this process.
        progress: is advanced by texts.
        record: is called with the result when it is written to `out`, and before what was kept to resume is removed.
        data_sha256: hashes of the corpora that the users come from, by role, for the record.
        indexed: an index of the corpus that one of the groups was read from, which finds texts inside those of other users too.
        changes: fields of `ProvenanceOptions`.
    """
    given = ProvenanceOptions.of(options, changes)
    given.check()
    left_out = None
    if given.drop_shared:
        users, left_out = without_shared(users, fit, by=given.by)
    if given.by == "person":
        users = users._replace(suspects=_undated(users.suspects), non_members=_undated(users.non_members))
    check_users(users, fit, given.by)
    check_reference_model(model, reference_model)
    plan = _planned(model, users, given, fit, reference_model)
    folder = None if out is None else Path(out)
    ledger = Ledger(folder)
    texts = {
        role: [(user.name, [text[:2] for text in user.texts]) for user in some]
        for role, some in plan.asked.items()
    }
    facts = [plan.work.name, given.deciding(), None if fit is None else fit.sha256, texts]
    models = [(one.describe(), one.name) for one in (model, *plan.work.others)]
    ledger.begin(hashlib.sha256(msgspec.json.encode([facts, models])).hexdigest())
    if folder is not None:
        make_directory(folder)
    with open_engine(engine) as opened:
        result = _asked(plan, users, given, fit, indexed, opened, ledger, progress or Silent())
    result = msgspec.structs.replace(
        result,
        reference_model=None if reference_model is None else reference_model.describe(),
        data_sha256=data_sha256 or {},
        left_out=left_out,
    )
    if folder is not None:
        with together():
            result.save(folder)
            if record is not None:
                record(result)
        ledger.forget()
    return result


class _AuditPlan(NamedTuple):
    """What is asked of whom.

    Attributes:
        work: the models, and the statistics that can be computed.
        asked: the users of each role, with the texts that are asked about.
        there: what scores are made with; reference users are compared with once they were asked about.
        sets: the set of shadows that each reference user is compared with.
    """

    work: UserWork
    asked: Mapping[str, Sequence[User]]
    there: Available
    sets: IntArray


def _planned(
    model: Model, users: AuditedUsers, options: ProvenanceOptions, fit: Fit | None, reference: Model | None
) -> _AuditPlan:
    """Choose texts and statistics; a statistic that was asked for and cannot be computed is refused before any model is asked."""
    view = view_of(model, options.top)
    known = view.tokens_sha256 is not None
    cut: Cut = partial(known_tokens, model.tokenizer) if known else str.split
    common = users.reference or [*users.suspects, *users.non_members]
    counts = Counter(word for user in common for text in user.texts for word in cut(text.text))
    weight = weights_of(counts, options.selection)
    places = {
        role: [chosen_places(user, options, cut, weight) for user in getattr(users, role)] for role in _ROLES
    }
    asked = {
        role: [
            User(user.name, tuple(user.texts[place] for place in some))
            for user, some in zip(getattr(users, role), chosen, strict=True)
        ]
        for role, chosen in places.items()
    }
    shadows = fit.shadows if fit is not None and view.probabilities else ()
    if not all(view.cuts_alike(view_of(shadow)) for shadow in shadows):
        shadows = ()
    absent = _absent(view, fit, reference, shadows)
    compared = fit is not None and shadows and users.reference
    sets, of_users = shadow_sets(fit.trained_on if fit is not None and compared else np.empty((0, 0), bool))
    first = 0 if reference is None else 1
    work = UserWork(
        model,
        shadows if reference is None else (reference, *shadows),
        () if {"probabilities", "comparison"} & set(absent) else tuple(range(first or len(shadows))),
        tuple(range(first, first + len(shadows))),
        alike="alignment" not in absent,
        shadow_sets=sets,
        top=options.top,
        bins=options.bins,
        scaling=options.scaling,
        frequencies=frequency_ranks([counts[token] for token in range(model.tokenizer.size)])
        if known
        else None,
    )
    classifier, why = (
        None,
        "there is no audit classifier; train shadow models with `coalmine provenance --only-fit`",
    )
    if fit is not None and options.queries is None:
        classifier, why = fit.classifier_for(work.histogram)
    elif (
        fit is not None and users.reference
    ):  # fitted to as many texts of each reference user as suspects are asked about
        classifier, why = fit.classifier_for(work.histogram, places["reference"])
    elif fit is not None:
        why = "a classifier for some texts per user is fitted to as many of each reference user; give --reference"
    if classifier is None:
        absent["classifier"] = why
    if not sets:
        absent["population"] = "no reference users were given to compare ratios with"
    there = Available(absent, classifier)
    missing = {one.name: one.missing(there) for one in STATISTICS}
    wanted = options.statistic
    if wanted is not None and missing[wanted] is not None:
        raise NotMeasurableError(
            f"{wanted} cannot be computed: {missing[wanted]}; or choose another statistic"
        )
    computed = tuple(name for name, why in missing.items() if why is None)
    return _AuditPlan(replace(work, statistics=computed), asked, there, of_users)


def _absent(
    view: View, fit: Fit | None, reference: Model | None, shadows: Sequence[Model]
) -> dict[Need, str]:
    """Why some of what statistics need is not there: of the target, of a reference model and of shadow models."""
    absent: dict[Need, str] = {}
    if not view.probabilities:
        absent["probabilities"] = "the target gives no log-probabilities, only the likeliest tokens"
    if not view.moments:
        absent["moments"] = "the target does not give the whole distribution over its vocabulary"
    if view.top is None:
        absent["list"] = (
            "the target ranks every token, so that all are listed; look at the likeliest few with --top"
        )
    if fit is None:
        absent["shadows"] = "there are no shadow models; train them with `coalmine provenance --only-fit`"
    elif not shadows:
        absent["shadows"] = "the shadow models do not cut texts into the target's tokens"
    if reference is None and not shadows:
        absent["comparison"] = (
            "there is no model to compare with; name one with --reference-model, or fit shadow models"
        )
    elif reference is not None:
        other, named = view_of(reference), f"the reference model {visible(reference.name)}"
        alike = view.cuts_alike(other)
        if not alike:
            absent["alignment"] = f"{named} cuts texts into other tokens than the target"
        if not other.probabilities:
            absent["comparison"] = f"{named} gives no log-probabilities"
        elif not alike and (view.reads_unknown or other.reads_unknown):
            absent["comparison"] = f"{named} counts other words than the target"
    return absent


def _asked(
    plan: _AuditPlan,
    users: AuditedUsers,
    options: ProvenanceOptions,
    fit: Fit | None,
    indexed: IndexedCorpus | None,
    engine: Engine,
    ledger: Ledger,
    progress: Progress,
) -> Provenance:
    """Ask about everyone, and decide."""
    work, there = plan.work, plan.there

    def ask(role: str, work: UserWork) -> Arrays | None:
        task = f"Asking about {role.replace('_', ' ')}"
        some = plan.asked[role]
        return (
            ask_users(work, some, engine=engine, ledger=ledger, progress=progress, task=task)
            if some
            else None
        )

    found = {role: ask(role, work) for role in _ROLES if role != "reference"}
    if "rmia" in work.statistics:
        compared = ask("reference", replace(work, statistics=("rmia",), beside=(), frequencies=None))
        population = ReferencePopulation.of((compared or {})["rmia"], plan.sets)
        there = there._replace(population=population)
        if not len(population.ratios):
            there = there._replace(
                absent={**there.absent, "population": "no reference user could be compared with"}
            )
    suspects, non_members = found["suspects"] or {}, found["non_members"]
    questions = [
        decided("texts", _names(plan, "suspects"), suspects, non_members, there, options, users.members)
    ]
    blind = _blind(questions[0], users.suspects, users.non_members, suspects, non_members, options.seed)
    others, others_blind = found["other_suspects"], None
    if others is not None:
        beside, who = found["other_non_members"], users.other_non_members
        beside, who = (non_members, list(users.non_members)) if beside is None else (beside, who)
        second = decided(
            "user", _names(plan, "other_suspects"), others, beside, there, options, users.members
        )
        questions.append(second)
        others_blind = _blind(second, users.other_suspects, who, others, beside, options.seed)
    counts: dict[Group, Arrays | None] = {"suspects": suspects, "non-members": non_members}
    unknown = {
        group: (some["unknown"], some["unknown"] + some["tokens"]) for group, some in counts.items() if some
    }
    ablation: tuple[AblationPoint, ...] = ()
    if work.frequencies is not None and work.view.top is None and options.ablation_texts:
        sides = plan.asked["suspects"], plan.asked["non_members"]
        ablation = ablation_curves(
            work.target, work.frequencies, *sides, most=options.ablation_texts, seed=options.seed
        )
    result = Provenance(
        model=work.target.describe(),
        fit_sha256=None if fit is None else fit.sha256,
        shadows=0 if fit is None else len(fit.record.shadows),
        settings=options,
        ranked=work.view.ranked,
        top=work.view.top,
        probabilities=work.view.probabilities,
        questions=tuple(questions),
        blind_baseline=blind,
        others_blind_baseline=others_blind,
        checks=check_data(
            users,
            fit,
            unknown if work.view.reads_unknown else None,
            by=options.by,
            indexed=indexed,
            confidence=options.confidence,
            seed=options.seed,
        ),
        words=word_groups(suspects, non_members, options.confidence),
        log_probabilities=log_histogram(suspects, non_members),
        ablation=ablation,
        warnings=tuple(_warnings([some for some in found.values() if some is not None])),
    )
    return interpreted(result)


def _names(plan: _AuditPlan, role: str) -> list[str]:
    return [user.name for user in plan.asked[role]]


def _blind(
    question: Question,
    asked: Sequence[User],
    non_members: Sequence[User],
    own: Arrays,
    others: Arrays | None,
    seed: int,
) -> BlindBaseline | None:
    """Whether the users of a question can be told from non-members without the target; None without non-members."""
    if others is None:
        return None
    deciding, scores = question.deciding, None
    if deciding is not None and deciding.calibrated == "non-members":
        own_scores = deciding.own_scores or [
            math.nan if row.score is None else row.score for row in question.rows
        ]
        first, second = (
            [*some, *[math.nan] * (len(users) - len(some))]
            for users, some in ((asked, own_scores), (non_members, deciding.non_member_scores))
        )
        scores = (first, second)
    bits = (own["beside_bits"], others["beside_bits"])
    known = not any(np.isnan(side).all() for side in bits)
    return blind_baseline(asked, non_members, scores=scores, model_bits=bits if known else None, seed=seed)


def _warnings(asked: Sequence[Arrays]) -> list[str]:
    found = []
    failed = sum(int(one["failed"].sum()) for one in asked)
    if failed:
        first = next(reason for one in asked for reason in one["reason"].tolist() if reason)
        found.append(f"{failed:,} texts have no number by the model, and were left out ({first})")
    totals = {name: sum(int(one[name].sum()) for one in asked) for name in _LEFT_OUT}
    return found + [_LEFT_OUT[name].format(total) for name, total in totals.items() if total]


def _undated(users: Sequence[User]) -> list[User]:
    """The same texts without dates, by which those of one person may have been divided, so that they tell the sides apart."""
    return [User(user.name, tuple(text._replace(date=None) for text in user.texts)) for user in users]
