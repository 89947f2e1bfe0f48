"""Provenance audits: was the text of these users used to train this model?

Auditing Data Provenance in Text-Generation Models (Song and Shmatikov, 2019, arXiv:1811.00513), with statistics that came later, and with
p-values from known non-members.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from coalmine.audits.provenance.data_checks import (
    Asks,
    DataCheck,
    check_data,
    check_reference_model,
    check_users,
    without_shared,
)
from coalmine.audits.provenance.deciding import decide, question_of
from coalmine.audits.provenance.fit import Fit, fit_classifier
from coalmine.audits.provenance.options import ProvenanceOptions
from coalmine.audits.provenance.records import Provenance
from coalmine.audits.provenance.scores import (
    STATISTICS,
    Available,
    Need,
    UserWork,
    ask_users,
    shadow_sets,
)
from coalmine.audits.provenance.users import AuditedUsers, User
from coalmine.audits.provenance.views import View, known_tokens, view_of
from coalmine.audits.provenance.words import (
    Cut,
    ablation_curves,
    frequency_ranks,
    weights_of,
    with_chosen_texts,
    word_points,
)
from coalmine.engines.engine import Engine, open_engine
from coalmine.engines.ledger import Ledger
from coalmine.engines.units import Arrays
from coalmine.errors import NotMeasurableError
from coalmine.models.protocols import Model
from coalmine.progress import Progress, Silent
from coalmine.storage.files import make_directory, together
from coalmine.visible import visible

_ROLES = ("suspects", "other_suspects", "non_members", "other_non_members", "reference")
_TRAIN_SHADOWS = "train shadow models with `coalmine provenance --reference`"
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
        changes: fields of `ProvenanceOptions`.
    """
    given = ProvenanceOptions.of(options, changes)
    given.check()
    left_out = ""
    if given.drop_shared:
        users, left_out = without_shared(users, given.by)
    if given.by == "person":
        users = users._replace(suspects=_undated(users.suspects), non_members=_undated(users.non_members))
    check_users(users, fit, given.by)
    check_reference_model(model, reference_model)
    work, asked, there = _planned(model, users, given, fit, reference_model)
    folder = None if out is None else Path(out)
    ledger = Ledger(folder)
    facts = [work.name, given.deciding(), None if fit is None else fit.sha256, asked]
    models = [(one.describe(), one.name) for one in work.models]
    ledger.begin(hashlib.sha256(msgspec.json.encode([facts, models])).hexdigest())
    if folder is not None:
        make_directory(folder)
    with open_engine(engine) as opened:

        def ask(role: str, work: UserWork) -> Arrays | None:
            task, shown = f"Asking about {role.replace('_', ' ')}", progress or Silent()
            some = asked[role]
            return (
                ask_users(work, some, engine=opened, ledger=ledger, progress=shown, task=task)
                if some
                else None
            )

        found = {role: ask(role, work) for role in _ROLES if role != "reference"}
        if fit is not None and not {"rmia", "rank-histogram"}.isdisjoint(work.statistics):
            there = _learned(there, fit, ask("reference", _shadow_work(work, fit)) or {})
    checks = check_data(users, found if work.view.reads_unknown else None, given)
    if left_out:
        checks["texts"] += (DataCheck(about="shared", effect="none", says=left_out),)
    beside = "other_non_members" if found["other_non_members"] is not None else "non_members"
    sides: dict[Asks, tuple[str, str]] = {
        "texts": ("suspects", "non_members"),
        "user": ("other_suspects", beside),
    }
    questions = []
    for asks, (own, other) in sides.items():
        columns = found[own]
        if columns is not None:
            groups = getattr(users, own), getattr(users, other)
            raw = question_of(asks, groups, columns, found[other], there, given, checks[asks])
            questions.append(decide(raw, given, users.members))
    words = list(
        word_points({"suspects": found["suspects"], "non-members": found["non_members"]}, given.confidence)
    )
    if work.frequencies is not None and work.view.top is None and given.ablation_texts:
        texts = asked["suspects"], asked["non_members"]
        words += ablation_curves(model, work.frequencies, *texts, most=given.ablation_texts, seed=given.seed)
    result = Provenance(
        model=model.describe(),
        reference_model=None if reference_model is None else reference_model.describe(),
        fit_sha256=None if fit is None else fit.sha256,
        shadows=0 if fit is None else len(fit.record.shadows),
        settings=given,
        ranked=work.view.ranked,
        top=work.view.top,
        probabilities=work.view.probabilities,
        questions=tuple(questions),
        words=tuple(words),
        data_sha256=data_sha256 or {},
        warnings=tuple(_warnings([some for some in found.values() if some is not None])),
    )
    if folder is not None:
        with together():
            result.save(folder)
            if record is not None:
                record(result)
        ledger.forget()
    return result


def _planned(
    model: Model, users: AuditedUsers, options: ProvenanceOptions, fit: Fit | None, reference: Model | None
) -> tuple[UserWork, dict[str, list[User]], Available]:
    """What can be computed, of whom with which texts, and what scores are made with.

    A statistic that was asked for and cannot be computed is refused before any model is asked.
    """
    view = view_of(model, options.top)
    known = view.tokens_sha256 is not None
    cut: Cut = partial(known_tokens, model.tokenizer) if known else str.split
    common = users.reference or [*users.suspects, *users.non_members]
    counts = Counter(word for user in common for text in user.texts for word in cut(text.text))
    ranks = frequency_ranks([counts[token] for token in range(model.tokenizer.size)]) if known else None
    weight = weights_of(counts, options.selection)
    asked = {
        role: [with_chosen_texts(user, options, cut, weight) for user in getattr(users, role)]
        for role in _ROLES
    }
    shadows = fit.shadows if fit is not None and view.probabilities else ()
    if not all(view.cuts_alike(view_of(shadow)) for shadow in shadows):
        shadows = ()
    absent = _absent(view, fit, reference, shadows)
    sets, of_users = shadow_sets(fit.trained_on if fit is not None and shadows else np.empty((0, 0), bool))
    work = UserWork(
        model,
        reference,
        shadows,
        alike="alignment" not in absent,
        shadow_sets=sets,
        top=options.top,
        bins=options.bins,
        scaling=options.scaling,
        frequencies=ranks,
    )
    if fit is None:
        absent["classifier"] = f"there is no audit classifier; {_TRAIN_SHADOWS}"
    elif len({work.ranking(one).width for one in (model, *fit.shadows)}) > 1:
        absent["classifier"] = "shadow models rank fewer tokens than the target lists or than there are bins"
    there, wanted = Available(absent, None, of_users), options.statistic
    missing = {one.name: one.missing(there) for one in STATISTICS}
    if wanted is not None and missing[wanted] is not None:
        raise NotMeasurableError(f"{wanted} cannot be computed: {missing[wanted]}; choose another statistic")
    computed = tuple(name for name, why in missing.items() if why is None)
    return replace(work, statistics=computed), asked, there


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
        absent["list"] = "the target ranks every token; look at the likeliest few with --set top=K"
    if fit is None:
        absent["shadows"] = f"there are no shadow models; {_TRAIN_SHADOWS}"
    elif not shadows:
        absent["shadows"] = "the shadow models do not cut texts into the target's tokens"
    if reference is not None:
        other, named = view_of(reference), f"the reference model {visible(reference.name)}"
        alike = view.cuts_alike(other)
        if not alike:
            absent["alignment"] = f"{named} cuts texts into other tokens than the target"
        if not other.probabilities:
            absent["comparison"] = f"{named} gives no log-probabilities"
        elif not alike and (view.reads_unknown or other.reads_unknown):
            absent["comparison"] = f"{named} counts other words than the target"
    elif not shadows:
        absent["comparison"] = (
            "there is no other model; name one with --reference-model, or fit shadow models"
        )
    return absent


def _shadow_work(work: UserWork, fit: Fit) -> UserWork:
    """What to ask about the reference users: all shadow models, and the target only where its likelihoods are compared."""
    by_rmia = "rmia" in work.statistics
    return replace(
        work,
        target=work.target if by_rmia else fit.shadows[0],
        reference=None,
        shadows=fit.shadows,
        statistics=("rmia",) if by_rmia else (),
        top=work.top if by_rmia else work.view.top,
        frequencies=None,
        of_shadows="rank-histogram" in work.statistics,
    )


def _learned(there: Available, fit: Fit, compared: Arrays) -> Available:
    """What follows from the answers about the reference users: their likelihood ratios, and the audit classifier."""
    if "rmia" in compared:
        there = there._replace(ratios=compared["rmia"])
    if "histograms" in compared:
        features, labels = compared["histograms"].swapaxes(0, 1), fit.trained_on.T
        read = ~np.isnan(features).any(axis=2)
        there = there._replace(classifier=fit_classifier(features[read], labels[read]))
    return there


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
