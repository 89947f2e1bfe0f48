"""Provenance audits: was the text of these users used to train this model?

Auditing Data Provenance in Text-Generation Models (Song and Shmatikov, 2019, arXiv:1811.00513), with statistics that came later, and with
p-values from known non-members.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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
    Side,
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
_TRAIN_SHADOWS = "train shadow models on --reference with `coalmine provenance --only-fit`"
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
        running = {"engine": opened, "ledger": ledger, "progress": progress or Silent()}
        result = _asked(work, asked, there, users, given, fit, left_out, **running)
    result = msgspec.structs.replace(
        result,
        reference_model=None if reference_model is None else reference_model.describe(),
        data_sha256=data_sha256 or {},
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
        frequencies=frequency_ranks([counts[token] for token in range(model.tokenizer.size)])
        if known
        else None,
    )
    if fit is None:
        absent["classifier"] = f"there is no audit classifier; {_TRAIN_SHADOWS}"
    elif any(one.histogram.width != work.histogram.width for one in _shadow_works(fit, work)):
        absent["classifier"] = (
            "the shadow models rank fewer tokens than the target lists, or than there are bins"
        )
    there = Available(absent, None, of_users)
    missing = {one.name: one.missing(there) for one in STATISTICS}
    wanted = options.statistic
    if wanted is not None and missing[wanted] is not None:
        raise NotMeasurableError(
            f"{wanted} cannot be computed: {missing[wanted]}; or choose another statistic"
        )
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
        absent["list"] = (
            "the target ranks every token, so that all are listed; look at the likeliest few with --top"
        )
    if fit is None:
        absent["shadows"] = f"there are no shadow models; {_TRAIN_SHADOWS}"
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
    work: UserWork,
    asked: Mapping[str, Sequence[User]],
    there: Available,
    users: AuditedUsers,
    options: ProvenanceOptions,
    fit: Fit | None,
    left_out: str,
    **running: Any,
) -> Provenance:
    """Ask about everyone, and decide."""

    def ask(role: str, work: UserWork) -> Arrays | None:
        some = asked[role]
        return (
            ask_users(work, some, task=f"Asking about {role.replace('_', ' ')}", **running) if some else None
        )

    found = {role: ask(role, work) for role in _ROLES if role != "reference"}
    if "rmia" in work.statistics:
        compared = ask("reference", replace(work, statistics=("rmia",), frequencies=None)) or {}
        there = there._replace(ratios=compared["rmia"])
    if fit is not None and "rank-histogram" in work.statistics:
        features, labels = [], []
        for shadow, trained_on in zip(_shadow_works(fit, work), fit.trained_on.T, strict=True):
            histograms = (ask("reference", shadow) or {})["rank-histogram"]
            read = ~np.isnan(histograms).any(axis=1)
            features.append(histograms[read])
            labels.append(trained_on[read])
        classifier = fit_classifier(np.concatenate(features), np.concatenate(labels))
        there = there._replace(classifier=classifier)
    checks = check_data(users, found if work.view.reads_unknown else None, options)
    if left_out:
        noted = DataCheck(about="shared", effect="none", says=left_out)
        checks["texts"] = (*checks["texts"], noted)
    beside = "other_non_members" if found["other_non_members"] is not None else "non_members"
    sides: dict[Asks, tuple[str, str]] = {
        "texts": ("suspects", "non_members"),
        "user": ("other_suspects", beside),
    }
    questions = []
    for asks, (own, other) in sides.items():
        columns, others = found[own], found[other]
        if columns is not None:
            groups = getattr(users, own), getattr(users, other)
            raw = question_of(asks, groups, columns, others, there, options, checks[asks])
            questions.append(decide(raw, options, users.members))
    both: dict[Side, Arrays | None] = {"suspects": found["suspects"], "non-members": found["non_members"]}
    words = list(word_points(both, options.confidence))
    if work.frequencies is not None and work.view.top is None and options.ablation_texts:
        groups = asked["suspects"], asked["non_members"]
        most, seed = options.ablation_texts, options.seed
        words += ablation_curves(work.target, work.frequencies, *groups, most=most, seed=seed)
    return Provenance(
        model=work.target.describe(),
        fit_sha256=None if fit is None else fit.sha256,
        shadows=0 if fit is None else len(fit.record.shadows),
        settings=options,
        ranked=work.view.ranked,
        top=work.view.top,
        probabilities=work.view.probabilities,
        questions=tuple(questions),
        words=tuple(words),
        warnings=tuple(_warnings([some for some in found.values() if some is not None])),
    )


def _shadow_works(fit: Fit, work: UserWork) -> list[UserWork]:
    """What to ask each shadow model about the reference users: the ranks that the target shows."""
    top, bins, scaling = work.view.top, work.bins, work.scaling
    return [
        UserWork(shadow, statistics=("rank-histogram",), top=top, bins=bins, scaling=scaling)
        for shadow in fit.shadows
    ]


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
