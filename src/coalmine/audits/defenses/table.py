"""Tables and sentences about a bench: one row per defense, its difference from none, and exposure by the number of copies."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from coalmine.audits.defenses.results import Bench, DefenseRow
from coalmine.evidence.tables import plain_table, rights
from coalmine.evidence.words import times_in_words
from coalmine.records import Estimate
from coalmine.records.estimate import rounded_down, rounded_up
from coalmine.visible import visible

if TYPE_CHECKING:
    from rich.table import Table

MAIN_COLUMNS = (
    "loss",
    "exposure",
    "interval",
    "extracted",
    "recited",
    "claimed ε",
    "audited ε",
    "seconds",
)
DIFFERENCE_COLUMNS = ("exposure", "interval", "adjusted p", "lower", "p over seeds", "loss")


def defense_table(bench: Bench) -> Table:
    """One row per defense: what it costs, and what it leaves."""
    table = plain_table("defense", *rights(*MAIN_COLUMNS))
    for row in bench.rows:
        table.add_row(*map(visible, main_cells(row)))
    return table


def main_cells(row: DefenseRow) -> tuple[str, ...]:
    """A row of the main table, as text."""
    return (
        row.defense.name,
        "not known" if row.loss is None else f"{row.loss.mean:.3f}",
        _middle(row.exposure),
        _limits(row.exposure),
        f"{row.extracted} of {row.searched}" if row.searched else "not known",
        "not known" if row.recited is None else f"{100 * row.recited.mean:.1f}%",
        "" if row.claimed_epsilon is None else f"{row.claimed_epsilon:.3g}",
        epsilon_words(row),
        "" if row.seconds is None else f"{row.seconds.mean:.3g}",
    )


def difference_table(bench: Bench) -> Table | None:
    """What each defense changes, compared with none; None where nothing can be compared."""
    rows = [row for row in bench.rows[1:] if row.trainings]
    if not rows:
        return None
    table = plain_table("against none", *rights(*DIFFERENCE_COLUMNS), "frontier")
    for row in rows:
        table.add_row(*map(visible, difference_cells(row)))
    return table


def difference_cells(row: DefenseRow) -> tuple[str, ...]:
    """A row of the table of differences, as text."""
    cost = "not known" if row.loss_difference is None else f"{row.loss_difference:+.3f}"
    losses = (cost, place_words(row))
    found = row.difference
    if found is None:
        return (row.defense.name, "not measured", "", "", "", "", *losses)
    over = row.over_trainings
    return (
        row.defense.name,
        f"{found.estimate.value or 0.0:+.2f}",
        _limits(found.estimate),
        "" if row.adjusted_p_value is None else f"{row.adjusted_p_value:.2g}",
        f"{row.lower_in}/{row.of_seeds}",
        "" if over is None else f"{over.p_value:.2g}",
        *losses,
    )


def copies_table(bench: Bench) -> Table:
    """The range of losses over seeds, and the median exposure by the number of copies."""
    table = plain_table("exposure by copies", *rights(*copies_columns(bench)))
    for row in bench.rows:
        table.add_row(*map(visible, copies_cells(row, bench)))
    return table


def copies_columns(bench: Bench) -> tuple[str, ...]:
    """The columns of that table after the first."""
    return (*(times_in_words(int(number)) for number in copies_of(bench)), "loss over seeds")


def copies_cells(row: DefenseRow, bench: Bench) -> tuple[str, ...]:
    """A row of that table, as text."""
    spread = "not known" if row.loss is None else f"{row.loss.low:.3f} to {row.loss.high:.3f}"
    return (row.defense.name, *(exposure_words(row.by_copies[one]) for one in copies_of(bench)), spread)


def copies_of(bench: Bench) -> list[str]:
    """The numbers of copies that canaries have, from few to many."""
    return [str(number) for number in sorted({one.copies for one in bench.canaries})]


def in_plain_words(bench: Bench) -> list[str]:
    """What the tables amount to, one sentence each."""
    planted = sum(one.planted for one in bench.canaries)
    lower = [row for row in bench.rows if lowers(row, bench)]
    said = [
        f"Canaries: {planted} of {len(bench.canaries)} were planted, the others withheld. Models per defense: {bench.settings.seeds}.",
        "Losses are in bits per character of the held-out documents.",
        f"Exposure is {bench.most_bits:.1f} bits at most, and its median is 1 to 1.5 bits where nothing is memorized.",
        *(
            f"{visible(row.defense.name)}: {row.difference.estimate.statement}, lower with {row.lower_in} of {row.of_seeds} seeds."
            for row in lower
            if row.difference is not None
        ),
    ]
    others = [row.defense.name for row in bench.rows[1:] if row not in lower]
    if others:
        said.append(f"Not shown to lower exposure: {', '.join(map(visible, others))}.")
    frontier = [row.defense.name for row in bench.rows if row.on_frontier]
    if frontier:
        said.append(f"On the frontier of loss and exposure: {', '.join(map(visible, frontier))}.")
    for row in bench.rows:
        if violates(row, bench):
            said.append(
                f"WARNING: {visible(row.defense.name)} claims an epsilon of {row.claimed_epsilon:.3g}, and the audit proves at least "
                f"{rounded_down(row.audited_epsilon or 0.0)} (p = {row.claim_p_value:.2g})."
            )
        said += [f"Note: {visible(row.defense.name)}, {visible(one)}." for one in row.missing]
    return [*said, *(f"Note: {visible(warning)}." for warning in bench.warnings)]


def lowers(row: DefenseRow, bench: Bench) -> bool:
    """Whether a defense is shown to lower exposure: over canaries, given how many defenses were compared, and with every seed."""
    return (
        row.difference is not None
        and row.lower_in == row.of_seeds
        and (row.difference.estimate.value or 0.0) < 0
        and row.adjusted_p_value is not None
        and row.adjusted_p_value <= 1.0 - bench.settings.confidence
    )


def violates(row: DefenseRow, bench: Bench) -> bool:
    """Whether the audit contradicts what a training claims."""
    return row.claim_p_value is not None and row.claim_p_value <= 1.0 - bench.settings.confidence


def exposure_words(estimate: Estimate) -> str:
    """An exposure with its interval, rounded outwards."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return _middle(estimate)
    low, high = math.floor(10 * estimate.low) / 10, math.ceil(10 * estimate.high) / 10
    return f"{estimate.value:.1f} ({low:.1f} to {high:.1f})"


def epsilon_words(row: DefenseRow) -> str:
    """The audited lower bound on epsilon."""
    return "not known" if row.audited_epsilon is None else f"≥ {rounded_down(row.audited_epsilon)}"


def place_words(row: DefenseRow) -> str:
    """Where it is in the figure of loss against exposure."""
    if row.on_frontier is None:
        return "not placed"
    return "on it" if row.on_frontier else f"worse than {row.dominated_by[0]}"


def _middle(estimate: Estimate) -> str:
    if estimate.status == "not_measured":
        return "not measured"
    return f"{estimate.value:.2f}" if estimate.value is not None else f"at least {estimate.low or 0.0:.2f}"


def _limits(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    return f"{rounded_down(estimate.low)} to {rounded_up(estimate.high)}"
