"""`coalmine membership`: whether scores distinguish what was trained on from what was not, and what that says about epsilon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coalmine.audits.membership.options import MembershipOptions
from coalmine.cli.options import out_option
from coalmine.cli.output import placed
from coalmine.cli.runner import Session, command
from coalmine.cli.taking import Arguments
from coalmine.errors import InputError
from coalmine.records.options import Option

if TYPE_CHECKING:
    from coalmine.audits.membership.results import Membership


class MembershipArguments(Arguments, frozen=True, kw_only=True):
    """What `coalmine membership` takes."""

    results: Annotated[
        Path | None,
        typer.Argument(
            help="What `coalmine expose` wrote: its directory, its exposure.json, or the model that it measured."
        ),
    ] = None
    in_scores: Annotated[
        Path | None, Option("Instead of RESULTS: scores of what was trained on, higher for members.")
    ] = None
    out_scores: Annotated[
        Path | None,
        Option("With --in-scores: scores of what was drawn in the same way and not trained on."),
    ] = None
    scores: Annotated[
        Path | None,
        Option("Instead of RESULTS: a CSV or JSON of scores with in and out, or a report of another tool."),
    ] = None
    lower_is_member: Annotated[
        bool | None,
        typer.Option(
            "--lower-is-member/--higher-is-member",
            help="With --scores: which scores mean trained on; default: what the file or the column's name says.",
        ),
    ] = None
    column: Annotated[str | None, Option("With --scores: the column that holds the scores.")] = None
    copies: Annotated[int, Option("With --in-scores: how often each was in the training data.", least=1)] = 1
    reference: Annotated[
        Path | None, Option("Results of a model without the canaries; its scores are subtracted.")
    ] = None
    canaries: Annotated[
        Path | None,
        Option(
            "The canaries.json, which has the number of copies that withheld canaries were meant to have."
        ),
    ] = None
    options: MembershipOptions
    all_bounds: Annotated[
        bool, Option("Show every rate and every bound on epsilon, as membership.json has them.")
    ] = False
    out: Annotated[
        Path | None,
        out_option("Directory for membership.json; default: beside RESULTS, in MODEL-audit, or here."),
    ] = None


@command("membership")
def membership(given: MembershipArguments, session: Session) -> None:
    """Put exposure beside random guessing, membership inference and differential privacy.

    Writes membership.json, readable by you only. Each lower bound on epsilon is named, with what it assumes;
    docs/explanation/interpretation.md explains them. A CSV for --in-scores and --out-scores has one number per line,
    or a column named `score`.
    """
    from coalmine.audits.membership import table as tables
    from coalmine.audits.membership.results import RESULTS_FILE

    directory = given.out or (Path() if given.results is None else _default_directory(given.results))
    session.into(directory, RESULTS_FILE, recorded=False)
    found = _measured(given)
    path = found.save(directory)
    session.say(
        *tables.format_in_words(found),
        tables.membership_table(found),
        "",
        *tables.membership_in_plain_words(found),
        *tables.membership_warnings(found),
    )
    notes = tables.membership_notes(found)
    if given.all_bounds:
        session.say("", tables.rates_table(found), "", tables.epsilon_table(found), "", *notes)
    elif notes:
        session.say(
            f"--all-bounds shows every bound, and {len(notes)} {'note' if len(notes) == 1 else 'notes'} on their limits."
        )
    session.say(placed("Results", path))
    session.document(found)


def _measured(given: MembershipArguments) -> Membership:
    """Membership by whichever source of scores was named, of which there must be one."""
    beside = given.reference is not None or given.canaries is not None
    from coalmine.audits.membership import measuring
    from coalmine.audits.membership.score_files import read_score_file

    match (given.results, given.in_scores, given.out_scores, given.scores):
        case (Path() as results, None, None, None):
            if given.copies != 1:
                raise InputError("--copies belongs to --in-scores; RESULTS say how often each was planted")
            return measuring.membership(
                results, given.options, reference=given.reference, canaries=given.canaries
            )
        case (None, Path() as in_scores, Path() as out_scores, None):
            if beside:
                raise InputError(
                    "--reference and --canaries belong to RESULTS; subtract scores before --in-scores"
                )
            ins, outs = read_score_file(in_scores), read_score_file(out_scores)
            return measuring.membership_of_scores(ins, outs, given.options, copies=given.copies)
        case (None, None, None, Path() as scores):
            if beside or given.copies != 1:
                raise InputError(
                    "--reference, --canaries and --copies do not go with --scores; the file says it all"
                )
            return measuring.membership_of_file(
                scores, given.options, lower_is_member=given.lower_is_member, column=given.column
            )
    raise InputError(
        "membership needs either RESULTS, or both --in-scores FILE and --out-scores FILE, or --scores FILE"
    )


def _default_directory(results: Path) -> Path:
    """Beside the results of `expose`; for a model's directory, in the audit directory beside that."""
    from coalmine.audits.exposure.results import RESULTS_FILE
    from coalmine.evidence.directories import audit_directory, audited_model

    if not results.is_dir():
        return results.parent
    if (results / RESULTS_FILE).is_file():
        return results
    return (results if audited_model(results) is not None else audit_directory(results)) / "membership"
