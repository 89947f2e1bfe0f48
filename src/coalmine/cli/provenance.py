"""`coalmine provenance`: was the text of these users used to train this model?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from coalmine.audits.provenance.options import FitOptions, ProvenanceOptions
from coalmine.cli.options import CorpusFields, LoadedModel, Reveal, Running, Training, Where
from coalmine.cli.output import noted, placed
from coalmine.cli.runner import Session
from coalmine.cli.taking import Arguments, Part
from coalmine.errors import InputError

if TYPE_CHECKING:
    from coalmine.audits.provenance.fit import Fit
    from coalmine.audits.provenance.users import User

# Where shadow models are kept that were trained for one audit: below the directory of its results.
FIT_FOLDER = "fit"


class Shadows(Arguments, frozen=True, kw_only=True):
    """The shadow models that the audit classifier is trained with.

    Attributes:
        reference: A corpus of users like those of the training data, and not suspects, on halves of whom shadow models are trained.
        fit: Shadow models of an earlier run on the same --reference, which are used instead.
        only_fit: Train shadow models into --out, and ask MODEL nothing.
        preset: A preset of `coalmine train` for the shadow models; default: as MODEL, or the paper's.
        train: python:module:function, which trains a shadow model on texts; it runs that function.
    """

    reference: Path | None = None
    fit: Path | None = None
    only_fit: bool = False
    options: Annotated[FitOptions, Part(("shadows", "recipe"))]
    preset: str | None = None
    training: Training = None
    train: str | None = None


class ProvenanceArguments(Arguments, frozen=True, kw_only=True):
    """What `coalmine provenance` takes.

    Attributes:
        suspects: A corpus with the texts that may have been used, and whose they are.
        non_members: A corpus of users who are known not to be in the training data; without it there are no p-values.
        others: Further texts by suspects, to ask whether they took part at all, and by non-members to compare with.
        reference_model: A model without the suspects' texts, such as the base of a fine-tuned one.
        out: Directory for the results; default: MODEL-audit/provenance.
    """

    model: Where
    suspects: Path | None = None
    non_members: Path | None = None
    others: Path | None = None
    reference_model: str | None = None
    out: Path | None = None
    reveal: Reveal = False
    columns: CorpusFields
    options: Annotated[ProvenanceOptions, Part(("by", "statistic", "fdr", "seed"), title="What is asked")]
    shadows: Annotated[Shadows, Part(title="Shadow models")]
    loading: LoadedModel
    running: Running


def provenance(given: ProvenanceArguments, session: Session) -> None:
    """Ask a model about the texts of suspects, and decide whose were used to train it.

    With --reference, shadow models are first trained on halves of its users, as MODEL was if `coalmine train` wrote it, and kept in the
    directory of the results, or with --only-fit in --out, for any number of audits with --fit. Without both, no shadow models are used.

    Writes provenance.json, readable by you only. With --non-members, each suspect gets a p-value, and the names that are found have the
    stated false-discovery rate. The field of users is `user` unless --field names another, and --field thread=NAME says with --by person
    which texts belong together. Run the same command again to resume a run that was stopped.
    """
    from coalmine.audits.provenance.data_checks import refuse_reference_users
    from coalmine.audits.provenance.fit import load_fit
    from coalmine.audits.provenance.users import AuditedUsers
    from coalmine.evidence.directories import audit_directory

    shadows, suspects = given.shadows, given.suspects
    if (suspects is None) != shadows.only_fit:
        raise InputError(
            "provenance needs --suspects, or --only-fit with --reference and --out; give one of the two"
        )
    reference = _users(shadows.reference, given, "reference users")
    fitted = None if shadows.fit is None else load_fit(shadows.fit)
    if suspects is None:
        if shadows.reference is None or given.out is None:
            raise InputError("--only-fit trains shadow models; give their users with --reference, and --out")
        session.into(given.out)
        _only_fit(given, reference, given.out, session)
        return
    if fitted is None and shadows.reference is not None:
        if given.options.by == "user" and not given.options.drop_shared:  # before hours of training
            users = AuditedUsers(_users(suspects, given, "suspects"), reference=reference)
            refuse_reference_users(users)
        out = given.out or audit_directory(given.model, "provenance")
        fitted = _fitted(given, reference, out / FIT_FOLDER, session)
    _audit(given, suspects, fitted, reference, session)


def _only_fit(given: ProvenanceArguments, users: list[User], out: Path, session: Session) -> None:
    from coalmine.storage.files import sha256_of_file

    record = _fitted(given, users, out, session).record
    corpus = given.shadows.reference
    session.record(
        seed=given.options.seed, reference_sha256=None if corpus is None else sha256_of_file(corpus)
    )
    session.say(
        f"{len(record.shadows)} shadow models on halves of {record.users:,} reference users.",
        placed("Use them with --fit", out),
    )
    session.document({"fit": str(out), "shadows": len(record.shadows), "users": record.users})


def _fitted(given: ProvenanceArguments, users: list[User], out: Path, session: Session) -> Fit:
    from coalmine.audits.provenance.fit import fit_provenance
    from coalmine.records.options import named_values
    from coalmine.training.record import RECORD_FILE

    shadows, target = given.shadows, Path(given.model)
    # Only a model of `coalmine train` says how it was trained.
    alike = shadows.preset is None and shadows.train is None and (target / RECORD_FILE).is_file()
    return fit_provenance(
        users,
        out,
        msgspec.structs.replace(shadows.options, seed=given.options.seed),
        like=target if alike else None,
        preset=shadows.preset,
        training=named_values(shadows.training or []),
        train=shadows.train,
        engine=session.engine,
        progress=session.progress(),
    )


def _audit(
    given: ProvenanceArguments, suspects: Path, fitted: Fit | None, reference: list[User], session: Session
) -> None:
    from coalmine.audits.provenance.measure import audit_provenance
    from coalmine.audits.provenance.records import RESULT_FILE
    from coalmine.audits.provenance.report import terminal
    from coalmine.audits.provenance.users import AuditedUsers
    from coalmine.storage.files import sha256_of_file

    session.beside(given.model, "provenance", RESULT_FILE)
    corpora = {
        "suspects": suspects,
        "others": given.others,
        "non_members": given.non_members,
        "reference": given.shadows.reference,
    }
    hashes = {role: sha256_of_file(path) for role, path in corpora.items() if path is not None}
    users = AuditedUsers(
        _users(suspects, given, "suspects"),
        _users(given.others, given, "other texts by suspects"),
        _users(given.non_members, given, "non-members"),
        reference,
    )
    result = audit_provenance(
        session.model(given.model),
        users,
        given.options,
        fit=fitted,
        reference_model=None if given.reference_model is None else session.model(given.reference_model),
        out=session.directory,
        engine=session.engine,
        progress=session.progress(),
        record=lambda made: session.record(
            seed=given.options.seed, model=made.model, data_sha256=made.data_sha256
        ),
        data_sha256=hashes,
    )
    for question in result.questions:
        session.say(*terminal(result, question, reveal=given.reveal))
    session.say(*noted(result.warnings), placed("Results", session.directory))
    session.document(result if given.reveal else result.without_names())


def _users(path: Path | None, given: ProvenanceArguments, what: str) -> list[User]:
    from coalmine.audits.provenance.users import read_users

    by, named = given.options.by, given.columns.named("thread")
    if by != "person" and "thread" in named:
        raise InputError(
            f"--field thread is for the texts of one person, and the question is by {by}; leave it out, or add --by person"
        )
    fields = given.columns.fields(user="user")
    if by == "person":
        fields = msgspec.structs.replace(fields, user=named.get("thread"))
    return [] if path is None else read_users(path, fields, by=by, what=what)
