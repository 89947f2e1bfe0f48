"""`coalmine membership`: whether what was trained on can be told from what was not, and what that says about epsilon."""

from __future__ import annotations

import csv
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from coalmine.cli.options import Json, Quiet, Seed
from coalmine.cli.output import Output
from coalmine.errors import InputError


class RunsChoice(StrEnum):
    """Whether all scores come from one training run, or each from a run of its own."""

    ONE = "one"
    MANY = "many"


def command(
    results: Annotated[
        Path | None,
        typer.Argument(
            help="What `coalmine expose` wrote: its directory, its exposure.json, or the model that it measured."
        ),
    ] = None,
    in_scores: Annotated[
        Path | None,
        typer.Option("--in", help="Instead of RESULTS: scores of what was trained on, higher for members."),
    ] = None,
    out_scores: Annotated[
        Path | None,
        typer.Option("--out", help="With --in: scores of what was drawn alike and not trained on."),
    ] = None,
    scores: Annotated[
        Path | None,
        typer.Option(
            "--scores",
            help="Instead of RESULTS: a CSV or JSON of scores with in and out, or a report of another tool.",
        ),
    ] = None,
    lower_is_member: Annotated[
        bool | None,
        typer.Option(
            "--lower-is-member/--higher-is-member",
            help="With --scores: which scores mean trained on; default: what the file or the column's name says.",
        ),
    ] = None,
    column: Annotated[
        str | None, typer.Option("--column", help="With --scores: the column that holds the scores.")
    ] = None,
    copies: Annotated[
        int, typer.Option("--copies", min=1, help="With --in: how often each was in the training data.")
    ] = 1,
    reference: Annotated[
        Path | None,
        typer.Option(
            "--reference", help="Results of a model without the canaries; its scores are subtracted."
        ),
    ] = None,
    canaries: Annotated[
        Path | None,
        typer.Option("--canaries", help="The canaries.json, which knows how withheld canaries were meant."),
    ] = None,
    delta: Annotated[float, typer.Option("--delta", help="The delta at which epsilon is bounded.")] = 1e-5,
    confidence: Annotated[float, typer.Option("--confidence", help="Level of intervals and bounds.")] = 0.95,
    claimed_epsilon: Annotated[
        float | None, typer.Option("--claimed-epsilon", help="A claim to judge, for one record.")
    ] = None,
    claimed_delta: Annotated[
        float | None, typer.Option("--claimed-delta", help="The delta of the claim; default: --delta.")
    ] = None,
    inclusion: Annotated[
        float | None,
        typer.Option(
            "--inclusion",
            help="Probability with which a canary was planted, by its coin; default: what RESULTS say, or 0.5 with --in.",
        ),
    ] = None,
    runs: Annotated[
        RunsChoice,
        typer.Option(
            "--runs",
            help="With --in: `many` if each score comes from a training run of its own, so that scores are independent.",
        ),
    ] = RunsChoice.ONE,
    gaussian: Annotated[
        bool,
        typer.Option(
            "--gaussian",
            help="Also the bounds `gaussian` and `f-dp`, for a claimed Gaussian mechanism; wrong for any other.",
        ),
    ] = False,
    all_bounds: Annotated[
        bool,
        typer.Option(
            "--all-bounds", help="Show every rate and every bound on epsilon, as membership.json has them."
        ),
    ] = False,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save", help="Directory for membership.json; default: beside RESULTS, in MODEL-audit, or here."
        ),
    ] = None,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Put exposure beside random guessing, membership inference and differential privacy.

    Writes membership.json, readable by you only. Each lower bound on epsilon is named, with what it assumes;
    docs/explanation/interpretation.md explains them. A CSV for --in and --out has one number per line, or a
    column named `score`.
    """
    with Output(json=json, quiet=quiet) as output:
        from coalmine.audits.membership.measuring import membership, membership_of_file, membership_of_scores
        from coalmine.audits.membership.results import RESULTS_FILE
        from coalmine.audits.membership.table import (
            epsilon_table,
            format_in_words,
            membership_in_plain_words,
            membership_notes,
            membership_table,
            membership_warnings,
            rates_table,
        )
        from coalmine.storage.files import check_places
        from coalmine.visible import visible

        options: dict[str, Any] = {
            "delta": delta,
            "confidence": confidence,
            "claimed_epsilon": claimed_epsilon,
            "claimed_delta": claimed_delta,
            "inclusion": inclusion,
            "gaussian": gaussian,
            "seed": seed,
        }
        directory = save or (Path() if results is None else _default_directory(results))
        check_places(directory, RESULTS_FILE)
        if results is not None and in_scores is None and out_scores is None and scores is None:
            if copies != 1:
                raise InputError("--copies belongs to --in and --out; RESULTS say how often each was planted")
            if runs is not RunsChoice.ONE:
                raise InputError("--runs belongs to --in and --out; RESULTS are those of one training run")
            found = membership(results, reference=reference, canaries=canaries, **options)
        elif results is None and scores is None and in_scores is not None and out_scores is not None:
            if reference is not None or canaries is not None:
                raise InputError("--reference and --canaries belong to RESULTS; subtract scores before --in")
            options["inclusion"] = 0.5 if inclusion is None else inclusion
            found = membership_of_scores(
                read_score_file(in_scores),
                read_score_file(out_scores),
                copies=copies,
                runs=runs.value,
                **options,
            )
        elif scores is not None and results is None and in_scores is None and out_scores is None:
            if reference is not None or canaries is not None or copies != 1:
                raise InputError(
                    "--reference, --canaries and --copies do not go with --scores; the file says it all"
                )
            found = membership_of_file(
                scores, lower_is_member=lower_is_member, column=column, runs=runs.value, **options
            )
        else:
            raise InputError(
                "membership needs either RESULTS, or both --in SCORES and --out SCORES, or --scores FILE"
            )
        path = found.save(directory)
        output.say(
            *format_in_words(found),
            membership_table(found),
            "",
            *membership_in_plain_words(found),
            *membership_warnings(found),
        )
        notes = membership_notes(found)
        if all_bounds:
            output.say("", rates_table(found), "", epsilon_table(found), "", *notes)
        elif notes:
            output.say(
                f"--all-bounds shows every bound, and {len(notes)} {'note' if len(notes) == 1 else 'notes'} on their limits."
            )
        output.say(f"Results: {visible(str(path))}")
        output.document(found)
    return 0


def _default_directory(results: Path) -> Path:
    """Beside the results of `expose`; for a model's directory, in the audit directory beside that."""
    from coalmine.audits.exposure.results import RESULTS_FILE
    from coalmine.evidence.directories import audit_directory, audited_model

    if not results.is_dir():
        return results.parent
    if (results / RESULTS_FILE).is_file():
        return results
    return (results if audited_model(results) is not None else audit_directory(results)) / "membership"


def read_score_file(path: Path) -> list[float]:
    """The scores of a CSV: one number per line, or the column `score` under a header."""
    from coalmine.storage.files import read_bytes

    try:
        text = read_bytes(path, "the file of scores").decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise InputError(f"{path} is not UTF-8 ({problem.reason} at byte {problem.start})") from None
    try:
        rows = [(number, row) for number, row in enumerate(csv.reader(text.splitlines()), 1) if row]
    except csv.Error as problem:
        raise InputError(f"{path} is not a CSV ({problem}); give one number per line") from None
    column, width = 0, 1
    if rows and not (len(rows[0][1]) == 1 and _is_number(rows[0][1][0])):
        header = [name.strip() for name in rows[0][1]]
        if "score" not in header:
            raise InputError(
                f"{path} must have one number per line or a column named score, and its first line is neither; correct it"
            )
        column, width, rows = header.index("score"), len(header), rows[1:]
    scores = []
    for number, row in rows:
        # A comma for the decimal point would otherwise cut a number in two, and half of it would count.
        if len(row) != width:
            raise InputError(f"line {number} of {path} has {len(row)} columns, where {width} should be")
        cell = row[column]
        if not _is_number(cell):
            raise InputError(
                f"line {number} of {path} has something else than a number where the score should be; correct it"
            )
        scores.append(float(cell))
    return scores


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
