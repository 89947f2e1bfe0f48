"""`coalmine provenance`: was the text of these users used to train this model?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from typer.core import TyperGroup

from coalmine.audits.provenance.options import By, FitOptions, ProvenanceOptions
from coalmine.cli.options import TextFields, Where, out_option
from coalmine.cli.output import noted, placed
from coalmine.cli.runner import Session, command, group
from coalmine.cli.taking import Arguments, Part
from coalmine.engines.options import EngineOptions
from coalmine.errors import InputError
from coalmine.models.options import LoadOptions
from coalmine.records.options import Option

if TYPE_CHECKING:
    from coalmine.audits.provenance.data_checks import IndexedCorpus
    from coalmine.audits.provenance.fit import Fit
    from coalmine.audits.provenance.users import User
    from coalmine.corpus.files.documents import Fields

# Where `coalmine provenance MODEL` keeps its shadow models: below the directory of its results.
FIT_FOLDER = "fit"
_BOTH = "both"


class _ModelFirst(TyperGroup):
    """A group whose first word may also be a model: `coalmine provenance MODEL` is `coalmine provenance both MODEL`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, "--help"}:
            args = [_BOTH, *args]
        return super().parse_args(ctx, args)


app = group(
    "provenance",
    "Was the text of these users used to train this model? MODEL alone fits and audits.",
    _ModelFirst,
)


class UserFields(TextFields, frozen=True, kw_only=True):
    """Which fields of the corpora hold what."""

    user_field: Annotated[str, Option("Which field says whose text it is.")] = "user"
    date_field: Annotated[
        str | None, Option("Which field says when it was written: ISO 8601, or seconds since 1970.")
    ] = None

    def fields(self) -> Fields:
        """The fields, as Python takes them."""
        return msgspec.structs.replace(super().fields(), user=self.user_field, date=self.date_field)


class Trainings(Arguments, frozen=True, kw_only=True):
    """How shadow models are trained."""

    options: Annotated[FitOptions, Part(("shadows", "recipe", "vocabulary"))]
    preset: Annotated[
        str | None, Option("A preset of `coalmine train` for the shadow models; default: the paper's.")
    ] = None
    training: Annotated[
        list[str] | None,
        Option(
            "NAME=VALUE, an option of `coalmine train` for the shadows; with commas, for one after the other."
        ),
    ] = None
    train: Annotated[
        str | None,
        Option("python:module:function, which trains a shadow model on texts; it runs that function."),
    ] = None
    artificial_users: Annotated[
        int | None, Option("Cut reference text without users into this many artificial users.", least=4)
    ] = None

    def asked(self) -> dict[str, Any]:
        """The keywords of `fit_provenance`."""
        from coalmine.audits.provenance.shadows import changes_of

        return {"preset": self.preset, "training": changes_of(self.training or []), "train": self.train}


class Fitting(Arguments, frozen=True, kw_only=True):
    """What `coalmine provenance fit` takes."""

    reference: Annotated[
        Path,
        typer.Argument(
            help="A corpus of reference users: like those of the training data, and not suspects."
        ),
    ]
    out: Annotated[Path, out_option("Directory for the shadow models and provenance-fit.json.")]
    like: Annotated[
        Path | None,
        Option(
            "A model of `coalmine train`, usually the target: shadows are trained as it was, with its vocabulary."
        ),
    ] = None
    by: Annotated[By, Option("user, or document: each document is then a user of its own.")] = "user"
    trainings: Trainings
    counting: Annotated[FitOptions, Part(("top", "seed"))]
    columns: UserFields
    running: EngineOptions


@command("fit", app)
def fit(given: Fitting, session: Session) -> None:
    """Train shadow models on halves of the reference users, and the audit classifier on what they say of them.

    Nothing here asks the target. If it is stopped, run the same command again to resume; shadow models that are there are not trained
    again. Any number of audits can use the result.
    """
    from coalmine.storage.files import sha256_of_file

    session.into(given.out)
    users = _reference_users(given.reference, given.columns, given.trainings, given.counting.seed, given.by)
    record = _fitted(given.trainings, given.counting, users, given.out, given.like, session).record
    session.record(seed=given.counting.seed, reference_sha256=sha256_of_file(given.reference))
    session.say(
        f"{len(record.shadows)} shadow models on halves of {len(record.reference):,} reference users: {given.out}",
        f"Next: coalmine provenance audit MODEL --suspects SUSPECTS --non-members NON-MEMBERS --fit {given.out}",
    )
    session.document({"fit": str(given.out), "shadows": len(record.shadows), "users": len(record.reference)})


def _fitted(
    trainings: Trainings,
    counting: FitOptions,
    users: list[User],
    out: Path,
    like: Path | None,
    session: Session,
) -> Fit:
    from coalmine.audits.provenance.fit import fit_provenance

    of, asked = trainings.options, trainings.asked()
    options = msgspec.structs.replace(
        counting, shadows=of.shadows, recipe=of.recipe, vocabulary=of.vocabulary
    )
    return fit_provenance(
        users, out, options, like=like, engine=session.engine, progress=session.progress(), **asked
    )


def _reference_users(path: Path, columns: UserFields, trainings: Trainings, seed: int, by: By) -> list[User]:
    from coalmine.audits.provenance.users import artificial_users, read_texts, read_users

    if trainings.artificial_users is None:
        return read_users(path, columns.fields(), by=by, what="reference users")
    return artificial_users(read_texts(path, columns.fields()), trainings.artificial_users, seed)


class Audited(Arguments, frozen=True, kw_only=True):
    """Whom a target is asked about, and what it is compared with."""

    suspects: Annotated[
        Path,
        typer.Option(
            "--suspects", help="A corpus with the texts that may have been used, and whose they are."
        ),
    ]
    others: Annotated[
        Path | None,
        Option(
            "Further texts by suspects, to ask whether they took part at all, and by non-members to compare with."
        ),
    ] = None
    non_members: Annotated[
        Path | None,
        Option(
            "A corpus of users who are known not to be in the training data; without it there are no p-values."
        ),
    ] = None
    members: Annotated[
        Path | None,
        Option(
            "If the truth is known: a file with the names of suspects in the training data, one per line."
        ),
    ] = None
    reference_model: Annotated[
        str | None, Option("A model without the suspects' texts, such as the base of a fine-tuned one.")
    ] = None
    index: Annotated[
        Path | None, Option("An index of one of these corpora, to find texts inside those of other users.")
    ] = None
    options: ProvenanceOptions
    columns: UserFields
    thread_field: Annotated[
        str | None,
        Option("By person: which field says what belongs together, such as a thread; it counts as one text."),
    ] = None


class ProvenanceAudit(Arguments, frozen=True, kw_only=True):
    """What `coalmine provenance audit` takes."""

    model: Where
    audited: Audited
    fit: Annotated[Path | None, Option("What `coalmine provenance fit` wrote.")] = None
    reference: Annotated[
        Path | None, Option("The corpus that the fit was made with, for rmia and the rarity of words.")
    ] = None
    out: Annotated[Path | None, out_option("Directory for the results; default: MODEL-audit/provenance.")] = (
        None
    )
    loading: Annotated[
        LoadOptions, Part(("kind", "device", "device_map", "precision", "context", "context_text"))
    ]
    running: EngineOptions
    reveal: Annotated[bool, Option("Show the names of users; without it they are masked.")] = False


@command("audit", app)
def audit(given: ProvenanceAudit, session: Session) -> None:
    """Ask a model about the texts of suspects, and decide whose were used to train it.

    Writes provenance.json, readable by you only. With --non-members, each suspect gets a p-value, and the names that are found have the
    stated false-discovery rate. Run the same command again to resume a run that was stopped.
    """
    from coalmine.audits.provenance.fit import load_fit

    fitted = None if given.fit is None else load_fit(given.fit)
    _audit(given, fitted, _users(given.reference, given.audited, "reference users"), session)


class Both(ProvenanceAudit, frozen=True, kw_only=True):
    """What `coalmine provenance MODEL` takes."""

    trainings: Trainings


@command(_BOTH, app)
def both(given: Both, session: Session) -> None:
    """Fit, then audit: train shadow models on --reference if there is no --fit, and ask the model about the suspects.

    Shadow models are trained as MODEL was, if `coalmine train` wrote it, and kept in the directory of the results. Without --reference and
    --fit no shadow models are used.
    """
    from coalmine.audits.provenance.data_checks import refuse_reference_users
    from coalmine.audits.provenance.fit import load_fit
    from coalmine.audits.provenance.users import AuditedUsers
    from coalmine.evidence.directories import audit_directory

    fitted = None if given.fit is None else load_fit(given.fit)
    reference: list[User] = []
    options, trainings = given.audited.options, given.trainings
    if given.reference is not None:
        reference = _reference_users(
            given.reference, given.audited.columns, trainings, options.seed, options.by
        )
        if fitted is None:
            if options.by == "user" and not options.drop_shared:  # before hours of training
                suspects = _users(given.audited.suspects, given.audited, "suspects")
                refuse_reference_users(AuditedUsers(suspects, reference=reference))
            place = (given.out or audit_directory(given.model, "provenance")) / FIT_FOLDER
            counting = FitOptions(top=options.top, seed=options.seed)
            named = trainings.preset is not None or trainings.train is not None
            like = None if named else _trained_here(given.model)
            fitted = _fitted(trainings, counting, reference, place, like, session)
    _audit(given, fitted, reference, session)


def _trained_here(where: str) -> Path | None:
    """The directory of a model that `coalmine train` wrote; None for any other model."""
    from coalmine.training.record import RECORD_FILE

    return Path(where) if (Path(where) / RECORD_FILE).is_file() else None


def _audit(given: ProvenanceAudit, fitted: Fit | None, reference: list[User], session: Session) -> None:
    from coalmine.audits.provenance.measure import audit_provenance
    from coalmine.audits.provenance.records import RESULT_FILE
    from coalmine.audits.provenance.report import terminal
    from coalmine.audits.provenance.users import AuditedUsers
    from coalmine.storage.files import sha256_of_file

    asked = given.audited
    session.beside(given.model, "provenance", RESULT_FILE)
    corpora = {
        "suspects": asked.suspects,
        "others": asked.others,
        "non_members": asked.non_members,
        "reference": given.reference,
    }
    hashes = {role: sha256_of_file(path) for role, path in corpora.items() if path is not None}
    indexed = _indexed(asked.index, hashes)
    users = AuditedUsers(
        _users(asked.suspects, asked, "suspects"),
        _users(asked.others, asked, "other texts by suspects"),
        _users(asked.non_members, asked, "non-members"),
        reference,
        None if asked.members is None else _names(asked.members),
    )
    result = audit_provenance(
        session.model(given.model),
        users,
        asked.options,
        fit=fitted,
        reference_model=None if asked.reference_model is None else session.model(asked.reference_model),
        out=session.directory,
        engine=session.engine,
        progress=session.progress(),
        record=lambda made: session.record(
            seed=asked.options.seed, model=made.model, data_sha256=made.data_sha256
        ),
        data_sha256=hashes,
        indexed=indexed,
    )
    for question in result.questions:
        session.say(*terminal(result, question, reveal=given.reveal))
    session.say(*noted(result.warnings), placed("Results", session.directory))
    session.document(result if given.reveal else result.without_names())


def _users(path: Path | None, asked: Audited, what: str) -> list[User]:
    from coalmine.audits.provenance.users import read_users

    by, fields = asked.options.by, asked.columns.fields()
    if by == "person":
        fields = msgspec.structs.replace(fields, user=asked.thread_field)
    elif asked.thread_field is not None:
        raise InputError(
            f"--thread-field is for the texts of one person, and the question is by {by}; leave it out, or add --by person"
        )
    return [] if path is None else read_users(path, fields, by=by, what=what)


def _indexed(path: Path | None, hashes: dict[str, str]) -> IndexedCorpus | None:
    from coalmine.audits.provenance.data_checks import IndexedCorpus
    from coalmine.corpus.index.queries import CorpusIndex

    return None if path is None else IndexedCorpus.of(CorpusIndex.open(path), hashes)


def _names(path: Path) -> set[str]:
    from coalmine.storage.files import read_bytes

    try:
        lines = read_bytes(path, "the list of members").decode().splitlines()
    except UnicodeDecodeError as problem:
        raise InputError(
            f"the list of members {path} is not UTF-8 ({problem.reason} at byte {problem.start})"
        ) from None
    return {name for line in lines if (name := line.strip())}
