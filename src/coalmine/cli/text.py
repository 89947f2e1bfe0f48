"""`coalmine recite` and `coalmine provenance`: what a model recites of its training text, and whose text it was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from coalmine.audits.provenance.data_checks import refuse_reference_users
from coalmine.audits.provenance.fit import Fit, fit_provenance, load_fit
from coalmine.audits.provenance.measure import audit_provenance
from coalmine.audits.provenance.options import FitOptions, ProvenanceOptions
from coalmine.audits.provenance.records import RESULT_FILE as PROVENANCE_FILE
from coalmine.audits.provenance.report import terminal
from coalmine.audits.provenance.users import AuditedUsers, User, read_users
from coalmine.audits.recitation import measure as reciting
from coalmine.audits.recitation import report
from coalmine.audits.recitation.records import RECITATIONS, SEQUENCES_FILE, RecitationOptions
from coalmine.cli.options import CorpusFields, LoadedModel, Reveal, Running, Source, Training, Where
from coalmine.cli.output import noted, placed
from coalmine.cli.runner import Session
from coalmine.cli.taking import Argument, Arguments, Part
from coalmine.corpus.index.queries import CorpusIndex
from coalmine.errors import InputError
from coalmine.evidence.directories import audit_directory
from coalmine.records.options import named_values
from coalmine.storage.files import sha256_of_file
from coalmine.training.record import RECORD_FILE

# Where shadow models are kept that were trained for one audit: below the directory of its results.
FIT_FOLDER = "fit"


class Recite(Arguments, frozen=True, kw_only=True):
    """What `coalmine recite` takes.

    Attributes:
        baseline: A model that was not trained on this corpus.
        out: Directory for the results; default: MODEL-audit/recitation, of the first MODEL.
        models_and_index: A model, or several of growing size, and last the index that `coalmine data index --tokenizer MODEL` wrote.
    """

    models_and_index: Annotated[list[str], Argument("MODEL... INDEX")]
    baseline: str | None = None
    out: Path | None = None
    reveal: Reveal = False
    options: Annotated[
        RecitationOptions,
        Part(
            ("suffix", "contexts", "lengths", "max_sequences", "tries", "beam", "seed"),
            title="What is asked",
        ),
    ]
    source: Source = None
    loading: LoadedModel
    running: Running


def recite(given: Recite, session: Session) -> None:
    """Measure which share of sequences of the training data a model completes word for word.

    Writes recitation.json and sequences.parquet, readable by you only; `coalmine report` draws the figures. Run the same command again
    to resume a run that was stopped.
    """
    *names, index = given.models_and_index
    if not names:
        raise InputError("recite needs a model and an index; give both, the index last")
    session.beside(names[0], "recitation", RECITATIONS.file, SEQUENCES_FILE)
    opened = CorpusIndex.open(index, progress=session.progress())
    result = reciting.recite(
        [session.model(name) for name in names],
        opened,
        given.options,
        baseline=None if given.baseline is None else session.model(given.baseline),
        reveal=given.reveal,
        out=session.directory,
        **session.work,
        record=lambda made: session.record(
            seed=given.options.seed,
            models=[facts.description for facts in made.models],
            index=made.index,
            questions=made.questions,
        ),
    )
    for table in report.terminal_tables(result):
        session.say(table, "")
    session.say(
        report.in_plain_words(result),
        *noted((*result.not_measured, *result.warnings)),
        placed("Results", session.directory),
    )
    session.document(result)


class Shadows(Arguments, frozen=True, kw_only=True):
    """The shadow models that the audit classifier is trained with.

    Attributes:
        reference: A corpus of users like those of the training data, and not suspects, on halves of whom shadow models are trained.
        fit: Shadow models of an earlier run on the same --reference, its directory `fit`, which are used instead.
        preset: A preset of `coalmine train` for the shadow models; default: as MODEL, or the paper's.
        train: python:module:function, which trains a shadow model on texts; it runs that function.
    """

    reference: Path | None = None
    fit: Path | None = None
    options: Annotated[FitOptions, Part(("shadows", "recipe"), title="Shadow models")]
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
    suspects: Path
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
    directory of the results, for any number of audits with --fit. Without both, no shadow models are used.

    Writes provenance.json, readable by you only. With --non-members, each suspect gets a p-value, and the names that are found have the
    stated false-discovery rate. The field of users is `user` unless --field names another; with --by person, --field user=NAME says which
    texts belong together. Run the same command again to resume a run that was stopped.
    """
    shadows = given.shadows
    corpora = {
        "suspects": given.suspects,
        "others": given.others,
        "non_members": given.non_members,
        "reference": shadows.reference,
    }
    usual = {} if given.options.by == "person" else {"user": "user"}
    fields, read = given.columns.fields(**usual), dict[str, Any]()
    for role, path in corpora.items():
        if path is not None:
            read[role] = read_users(path, fields, by=given.options.by, what=role.replace("_", "-"))
    users = AuditedUsers(**read)
    fit = None if shadows.fit is None else load_fit(shadows.fit)
    if fit is None and shadows.reference is not None:
        if given.options.by == "user" and not given.options.drop_shared:  # before hours of training
            refuse_reference_users(users)
        out = given.out or audit_directory(given.model, "provenance")
        fit = _fitted(given, users.reference, out / FIT_FOLDER, session)
    session.beside(given.model, "provenance", PROVENANCE_FILE)
    hashes = {role: sha256_of_file(path) for role, path in corpora.items() if path is not None}
    result = audit_provenance(
        session.model(given.model),
        users,
        given.options,
        fit=fit,
        reference_model=None if given.reference_model is None else session.model(given.reference_model),
        out=session.directory,
        **session.work,
        record=lambda made: session.record(
            seed=given.options.seed, model=made.model, data_sha256=made.data_sha256
        ),
        data_sha256=hashes,
    )
    for question in result.questions:
        session.say(*terminal(result, question, reveal=given.reveal))
    session.say(*noted(result.warnings), placed("Results", session.directory))
    session.document(result if given.reveal else result.without_names())


def _fitted(given: ProvenanceArguments, users: Sequence[User], out: Path, session: Session) -> Fit:
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
        **session.work,
    )
