"""`coalmine membership`: whether scores distinguish what was trained on from what was not, and what that says about epsilon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coalmine.audits.membership.options import MembershipOptions
from coalmine.cli.output import placed
from coalmine.cli.runner import Session
from coalmine.cli.taking import Arguments, Part
from coalmine.errors import InputError

if TYPE_CHECKING:
    from coalmine.audits.membership.records import Membership


class MembershipArguments(Arguments, frozen=True, kw_only=True):
    """What `coalmine membership` takes.

    Attributes:
        scores: Instead of RESULTS: a CSV or JSON of scores with in and out, or a report of another tool.
        reference: Results of a model without the canaries; its scores are subtracted.
        out: Directory for membership.json; default: beside RESULTS, in MODEL-audit, or here.
        results: What `coalmine expose` wrote: its directory, its exposure.json, or the model that it measured.
    """

    results: Annotated[Path | None, typer.Argument()] = None
    scores: Path | None = None
    lower_is_member: Annotated[
        bool | None,
        typer.Option(
            "--lower-is-member/--higher-is-member",
            help="With --scores: which scores mean trained on; default: what the file or the column's name says.",
        ),
    ] = None
    reference: Path | None = None
    options: Annotated[
        MembershipOptions, Part(("delta", "confidence", "claimed_epsilon", "seed"), title="What is bounded")
    ]
    out: Path | None = None


def membership(given: MembershipArguments, session: Session) -> None:
    """Put exposure beside random guessing, membership inference and differential privacy.

    Writes membership.json, readable by you only, with every rate and every bound; docs/explanation/interpretation.md explains them. A
    table for --scores has a column named `score`, one named `in` and, where they differ, one named `copies`.
    """
    from coalmine.audits.membership.records import RESULTS_FILE
    from coalmine.audits.membership.report import POPULATIONS, membership_in_plain_words
    from coalmine.visible import visible

    directory = given.out or (Path() if given.results is None else _default_directory(given.results))
    session.into(directory, RESULTS_FILE, recorded=False)
    found = _measured(given)
    path = found.save(directory)
    session.say(
        POPULATIONS.terminal(found.populations),
        "",
        *membership_in_plain_words(found),
        *(f"Warning: {visible(warning)}." for warning in found.warnings),
        placed("Results", path),
    )
    session.document(found)


def _measured(given: MembershipArguments) -> Membership:
    """Membership by whichever source of scores was named, of which there must be one."""
    from coalmine.audits.membership import measure

    if (given.results is None) == (given.scores is None):
        raise InputError("membership needs either RESULTS or --scores FILE")
    if given.results is not None:
        return measure.membership(given.results, given.options, reference=given.reference)
    if given.scores is None or given.reference is not None:
        raise InputError("--reference belongs to RESULTS; subtract its scores before --scores")
    return measure.membership_of_file(given.scores, given.options, lower_is_member=given.lower_is_member)


def _default_directory(results: Path) -> Path:
    """Beside the results of `expose`; for a model's directory, in the audit directory beside that."""
    from coalmine.audits.exposure.results import RESULTS_FILE
    from coalmine.evidence.directories import audit_directory, audited_model

    if not results.is_dir():
        return results.parent
    if (results / RESULTS_FILE).is_file():
        return results
    return (results if audited_model(results) is not None else audit_directory(results)) / "membership"
