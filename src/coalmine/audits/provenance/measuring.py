"""Provenance audits: was the text of these users used to train this model?

Auditing Data Provenance in Text-Generation Models (Song and Shmatikov, 2019, arXiv:1811.00513), with statistics that came later, and with
p-values from known non-members.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from coalmine.audits.provenance.ablation import AblationWork, ablation_of_groups
from coalmine.audits.provenance.asking import FrequencyRanks, Numbers, UserWork, ask_users
from coalmine.audits.provenance.blind_baseline import BlindBaseline, blind_baseline
from coalmine.audits.provenance.classifier import AuditClassifier
from coalmine.audits.provenance.data_checks import DataChecks, check_data
from coalmine.audits.provenance.deciding import decided
from coalmine.audits.provenance.fit import Fit
from coalmine.audits.provenance.interpretation import interpreted
from coalmine.audits.provenance.options import ProvenanceOptions
from coalmine.audits.provenance.overlaps import Group, Groups
from coalmine.audits.provenance.population import ReferencePopulation, ShadowSets
from coalmine.audits.provenance.queries import Cut, FrequencyTable, Queries, choose_queries
from coalmine.audits.provenance.repetition import IndexedCorpus
from coalmine.audits.provenance.results import AblationPoint, Asks, Provenance, Question
from coalmine.audits.provenance.sharing import without_shared
from coalmine.audits.provenance.statistics import Available, statistic_named
from coalmine.audits.provenance.user_checks import NO_SUSPECTS, check_reference_model, check_users
from coalmine.audits.provenance.users import User
from coalmine.audits.provenance.views import View, encoded, view_of
from coalmine.audits.provenance.words import log_histogram, word_groups
from coalmine.engines.engine import Engine, open_engine
from coalmine.engines.ledger import Ledger
from coalmine.errors import InputError, NotMeasurableError
from coalmine.models.protocols import Model, OpenTokenizer
from coalmine.progress import Progress, Silent
from coalmine.storage.files import make_directory, together
from coalmine.visible import visible

_ROLES = ("suspects", "others", "non_members", "other_non_members", "reference")


class AuditedUsers(NamedTuple):
    """The users of an audit, by their role.

    Attributes:
        suspects: users who are asked about, with the texts that may have been used for training.
        others: further texts by suspects, for the question whether they took part at all; empty where there are none. Those by non-members
            are what they are compared with, and where there are none of these, the first texts of non-members are.
        non_members: users who are known not to be in the training data, to compare with; empty where there are none.
        reference: users whose texts the shadows were trained on, to compare likelihood ratios with; empty where they are not at hand.
        members: the names of the suspects who are in the training data, where the truth is known.

    >>> from coalmine.audits import User, UserText
    >>> AuditedUsers([User("ann", (UserText("hello"),))], non_members=[User("bob", (UserText("hi"),))]).suspects[0].name
    'ann'
    """

    suspects: Sequence[User]
    others: Sequence[User] = ()
    non_members: Sequence[User] = ()
    reference: Sequence[User] = ()
    members: Collection[str] | None = None


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
        groups = Groups(users.suspects, users.others, users.non_members, users.reference)
        groups, left_out = without_shared(groups, None if users.reference else fit, by=given.by)
        users = users._replace(suspects=groups.suspects, others=groups.others, non_members=groups.non_members)
    if given.by == "person":
        users = users._replace(suspects=_undated(users.suspects), non_members=_undated(users.non_members))
    check_users(users, fit, given.by)
    check_reference_model(model, reference_model)
    audit = _Audit(model, users, given, fit, reference_model, indexed)
    audit.check()
    folder = None if out is None else Path(out)
    ledger = Ledger(folder)
    ledger.begin(audit.fingerprint())
    if folder is not None:
        make_directory(folder)
    with open_engine(engine) as opened:
        result = audit.run(opened, ledger, progress or Silent())
    result = msgspec.structs.replace(result, data_sha256=data_sha256 or {}, left_out=left_out)
    if folder is not None:
        with together():
            result.save(folder)
            if record is not None:
                record(result)
        ledger.forget()
    return result


class _Audit:
    """An audit, with the texts that are asked about."""

    def __init__(
        self,
        model: Model,
        users: AuditedUsers,
        options: ProvenanceOptions,
        fit: Fit | None,
        reference: Model | None,
        indexed: IndexedCorpus | None,
    ) -> None:
        self._indexed = indexed
        asked = {user.name for user in users.suspects}
        self._others = [user for user in users.others if user.name in asked]
        self._other_non_members = [user for user in users.others if user.name not in asked]
        self._model, self._users, self._options, self._fit, self._reference = (
            model,
            users,
            options,
            fit,
            reference,
        )
        view = view_of(model, options.top)
        known = view.tokens_sha256 is not None
        counted = users.reference or [*users.suspects, *users.non_members]
        cut = _counted_tokens(model) if known else str.split
        table = FrequencyTable((text.text for user in counted for text in user.texts), cut)
        self._queries = {
            role: [_chosen(user, cut, table, options) for user in group]
            for role, group in self._groups().items()
        }
        shadows = fit.shadows if fit is not None and view.probabilities else ()
        alike = bool(shadows) and _same_tokens(view, view_of(shadows[0]))
        compared = users.reference if alike else ()
        self._sets = ShadowSets.of(np.empty((0, 0), bool) if fit is None else fit.trained_on(compared))
        self._work = UserWork(
            model,
            reference,
            shadows if alike else (),
            self._sets.sets,
            top=options.top,
            bins=options.bins,
            scaling=options.scaling,
            min_share=options.min_share,
            frequencies=FrequencyRanks.of(table.token_counts(model.tokenizer.size)) if known else None,
        )

    def _groups(self) -> dict[str, Sequence[User]]:
        users = self._users
        return dict(
            zip(
                _ROLES,
                (users.suspects, self._others, users.non_members, self._other_non_members, users.reference),
                strict=True,
            )
        )

    def check(self) -> None:
        """Refuse a statistic that was asked for and cannot be computed, before any model is asked."""
        wanted = self._options.statistic
        if wanted is None:
            return
        # What reference users will say is not known yet, but whether there are any is.
        there = np.flatnonzero(self._sets.of_users >= 0)
        someone = ReferencePopulation(np.zeros(len(there)), self._sets.of_users[there])
        why = statistic_named(wanted).missing(self._available(someone))
        if why is not None:
            raise NotMeasurableError(f"{wanted} cannot be computed: {why}; or choose another statistic")

    def fingerprint(self) -> str:
        """What a run that was stopped has in common with the one that resumes it."""
        texts = [
            [(one.user.name, [text[:2] for text in one.user.texts]) for one in self._queries[role]]
            for role in _ROLES
        ]
        models = [
            None if one is None else (one.describe(), one.name) for one in (self._model, self._reference)
        ]
        fitted = None if self._fit is None else self._fit.sha256
        facts = [models, fitted, texts, self._options.deciding()]
        return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()

    def run(self, engine: Engine, ledger: Ledger, progress: Progress) -> Provenance:
        """Ask about everyone, and decide."""

        def ask(role: str) -> Numbers | None:
            group = [one.user for one in self._queries[role]]
            if not group:
                return None
            task = f"Asking about {role.replace('_', '-')}"
            return ask_users(self._work, group, engine=engine, ledger=ledger, progress=progress, task=task)

        suspects, others, non_members = ask("suspects"), ask("others"), ask("non_members")
        other_non_members = ask("other_non_members")
        if suspects is None:
            raise InputError(NO_SUSPECTS)
        asked = ask("reference") if self._sets.sets else None
        there = self._available(
            ReferencePopulation.of_nobody()
            if asked is None
            else ReferencePopulation.of(asked.rmia_bits, self._sets)
        )
        result = self._result(suspects, others, non_members, other_non_members, there)
        return msgspec.structs.replace(result, ablation=self._ablation(engine, ledger, progress))

    def _ablation(self, engine: Engine, ledger: Ledger, progress: Progress) -> tuple[AblationPoint, ...]:
        """The curves of a target whose units are not hidden behind a list of the likeliest tokens."""
        frequencies, most = self._work.frequencies, self._options.ablation_texts
        if frequencies is None or self._work.view.top is not None or not most:
            return ()
        work = AblationWork(self._model, frequencies, seed=self._options.seed)
        suspects, others = ([one.user for one in self._queries[role]] for role in ("suspects", "non_members"))
        return ablation_of_groups(
            work, suspects, others, most, engine=engine, ledger=ledger, progress=progress
        )

    def _result(
        self,
        suspects: Numbers,
        others: Numbers | None,
        non_members: Numbers | None,
        other_non_members: Numbers | None,
        there: Available,
    ) -> Provenance:
        beside = non_members if other_non_members is None else other_non_members
        questions = [self._question("texts", "suspects", suspects, non_members, there)]
        if others is not None:
            questions.append(self._question("user", "others", others, beside, there))
        view, users, options = there.view, self._users, self._options
        blind = _blind(questions[0], users.suspects, users.non_members, (suspects, non_members), options.seed)
        others_blind = None
        if others is not None:
            others_blind = _blind(
                questions[1],
                self._others,
                self._other_non_members or users.non_members,
                (others, beside),
                options.seed,
            )
        result = Provenance(
            model=self._model.describe(),
            reference_model=None if self._reference is None else self._reference.describe(),
            fit_sha256=None if self._fit is None else self._fit.sha256,
            shadows=0 if self._fit is None else len(self._fit.record.shadows),
            settings=options,
            ranked=view.ranked,
            top=view.top,
            probabilities=view.probabilities,
            questions=tuple(questions),
            blind_baseline=blind,
            others_blind_baseline=others_blind,
            checks=self._checks(suspects, non_members),
            words=word_groups(suspects, non_members, options.confidence),
            log_probabilities=log_histogram(suspects, non_members),
            warnings=tuple(self._warnings(suspects, others, non_members, other_non_members)),
        )
        return interpreted(result)

    def _checks(self, suspects: Numbers, non_members: Numbers | None) -> DataChecks:
        users, options = self._users, self._options
        asked: dict[Group, Numbers | None] = {"suspects": suspects, "non-members": non_members}
        unknown = {
            group: (numbers.unknown, numbers.unknown + numbers.tokens)
            for group, numbers in asked.items()
            if numbers is not None
        }
        return check_data(
            Groups(users.suspects, self._others, users.non_members, users.reference, self._other_non_members),
            None if users.reference else self._fit,
            unknown if self._work.view.reads_unknown else None,
            fdr=options.fdr,
            by=options.by,
            indexed=self._indexed,
            confidence=options.confidence,
            seed=options.seed,
        )

    def _question(
        self, asks: Asks, role: str, numbers: Numbers, non_members: Numbers | None, there: Available
    ) -> Question:
        names = [one.user.name for one in self._queries[role]]
        return decided(asks, names, numbers, non_members, there, self._users.members)

    def _available(self, population: ReferencePopulation) -> Available:
        classifier, why = self._classifier
        view = self._work.view
        return Available(
            view=view,
            options=self._options,
            classifier=classifier,
            no_classifier=why,
            no_reference=self._no_reference(view),
            not_aligned=self._not_aligned(view),
            no_shadows=self._no_shadows(),
            population=population,
        )

    @cached_property
    def _classifier(self) -> tuple[AuditClassifier | None, str]:
        """The audit classifier for what the target shows, fitted to as many texts of each reference user as suspects are asked about."""
        if self._fit is None:
            return None, "there is no audit classifier; train shadow models with `coalmine provenance fit`"
        if self._options.queries is None:
            return self._fit.classifier_for(self._work.histogram)
        if not self._users.reference:
            return (
                None,
                "a classifier for some texts per user is fitted to as many of each reference user; give --reference",
            )
        return self._fit.classifier_for(
            self._work.histogram, [one.places for one in self._queries["reference"]]
        )

    def _no_shadows(self) -> str | None:
        if self._fit is None:
            return "there are no shadow models; train them with `coalmine provenance fit`"
        if self._work.shadows:
            return None
        return self._fit.no_shadows or "the shadow models do not cut texts into the target's tokens"

    def _no_reference(self, view: View) -> str | None:
        if self._reference is None:
            if self._work.shadows:
                return None
            return "there is no model to compare with; name one with --reference-model, or fit shadow models"
        other = view_of(self._reference)
        if not other.probabilities:
            return f"the reference model {visible(self._reference.name)} gives no log-probabilities"
        if _same_tokens(view, other) or not (view.reads_unknown or other.reads_unknown):
            return None
        return f"the reference model {visible(self._reference.name)} counts other words than the target"

    def _not_aligned(self, view: View) -> str | None:
        if self._reference is None or _same_tokens(view, view_of(self._reference)):
            return None
        return f"the reference model {visible(self._reference.name)} cuts texts into other tokens than the target"

    def _warnings(self, *asked: Numbers | None) -> list[str]:
        found = (
            []
            if self._fit is None
            else [f"a shadow model is left out: {one}" for one in self._fit.record.left_out]
        )
        unread = sum(int(one.unread.sum()) for one in asked if one is not None)
        cut = sum(int(one.cut.sum()) for one in asked if one is not None)
        failed = sum(int(one.failed.sum()) for one in asked if one is not None)
        if failed:
            first = next(
                reason for one in asked if one is not None for reason in one.reason.tolist() if reason
            )
            found.append(f"{failed:,} texts have no number by the model, and were left out ({first})")
        if unread:
            found.append(
                f"{unread:,} texts were left out, because the model refuses them or can predict none of their tokens"
            )
        if cut:
            found.append(
                f"{cut:,} tokens at the ends of texts are beyond what the model can read, and were left out"
            )
        uncompared = sum(int(one.uncompared.sum()) for one in asked if one is not None)
        if uncompared:
            found.append(
                f"{uncompared:,} texts are left out of ratios, because they are longer than one of the models can read, or the model that "
                "is compared with cannot read them"
            )
        return found


def _counted_tokens(model: Model) -> Cut:
    """What divides a text into the tokens that count: those that are known."""
    tokenizer = model.tokenizer
    unknown = tokenizer.unknown if isinstance(tokenizer, OpenTokenizer) else None
    return lambda text: [token for token in encoded(tokenizer, text) or [] if token != unknown]


def _chosen(user: User, cut: Cut, table: FrequencyTable, options: ProvenanceOptions) -> Queries:
    """The texts that a model is asked about; those without a token that counts are not chosen where there are others."""
    known = [place for place, text in enumerate(user.texts) if cut(text.text)] or list(range(len(user.texts)))
    readable = User(user.name, tuple(user.texts[place] for place in known))
    found = choose_queries(readable, options.selection, options.queries, frequencies=table, seed=options.seed)
    return found._replace(places=tuple(known[place] for place in found.places))


def _undated(users: Sequence[User]) -> list[User]:
    """The same texts without dates, by which those of one person may have been divided, so that they tell the sides apart."""
    return [User(user.name, tuple(text._replace(date=None) for text in user.texts)) for user in users]


def _same_tokens(one: View, other: View) -> bool:
    return one.tokens_sha256 is not None and one.tokens_sha256 == other.tokens_sha256


def _blind(
    question: Question,
    asked: Sequence[User],
    non_members: Sequence[User],
    numbers: tuple[Numbers, Numbers | None],
    seed: int,
) -> BlindBaseline | None:
    """Whether the users of a question can be told from non-members without the target; None without non-members."""
    own, calibration = numbers
    if calibration is None:
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
    known = not (np.isnan(own.beside_bits).all() or np.isnan(calibration.beside_bits).all())
    bits = (own.beside_bits, calibration.beside_bits) if known else None
    return blind_baseline(asked, non_members, scores=scores, model_bits=bits, seed=seed)
