"""A bench as people see it: one row per defense, its difference from none, exposure by the number of copies, and the frontier."""

from __future__ import annotations

from collections.abc import Iterator

from coalmine.audits.comparison.report import EXPOSURE, frontier, frontier_in_words
from coalmine.audits.defenses.records import BENCHES, Bench, DefenseRow
from coalmine.evidence.charts import Axis, Chart, Rows, rounded
from coalmine.evidence.measures import Audit, Measure
from coalmine.evidence.run import Run
from coalmine.evidence.tables import Column, Detail, Table
from coalmine.evidence.words import times_in_words
from coalmine.records.estimate import rounded_down
from coalmine.visible import visible

TITLES = {
    "defenses.claim": "The claimed epsilon",
    "defenses.lower": "Lowers exposure",
    "defenses.not_lower": "Not shown to lower exposure",
    "defenses.missing": "Missing",
}
_LOSS = "validation loss (bits per character)"
_NAME = Column[DefenseRow]("defense", lambda row: row.defense.name)


def _known(value: str | None) -> str:
    return "not known" if value is None else value


def _at_least(row: DefenseRow) -> str:
    return "not known" if row.audited_epsilon is None else f"≥ {rounded_down(row.audited_epsilon)}"


def _place(row: DefenseRow) -> str:
    """Where it is in the figure of loss against exposure."""
    if row.on_frontier is None:
        return "not placed"
    return "on it" if row.on_frontier else f"worse than {row.dominated_by[0]}"


DEFENSES_TABLE = Table[DefenseRow](
    (
        _NAME,
        Column("loss", lambda row: _known(None if row.loss is None else f"{row.loss.mean:.3f}")),
        Column("exposure", lambda row: row.exposure),
        Column(
            "extracted", lambda row: _known(f"{row.extracted} of {row.searched}" if row.searched else None)
        ),
        Column("recited", lambda row: row.recited and row.recited.mean, "%"),
        Column("claimed ε", lambda row: row.claimed_epsilon),
        Column("audited ε", _at_least),
        Column("seconds", lambda row: row.seconds and row.seconds.mean),
    )
)
DIFFERENCES_TABLE = Table[DefenseRow](
    (
        Column("against none", lambda row: row.defense.name),
        Column("exposure", lambda row: "not measured" if row.difference is None else row.difference.estimate),
        Column("adjusted p", lambda row: row.adjusted_p_value, "p"),
        Column("lower", lambda row: f"{row.lower_in}/{row.of_seeds}" if row.difference else None),
        Column("p over seeds", lambda row: row.over_trainings and row.over_trainings.p_value, "p"),
        Column(
            "loss", lambda row: "not known" if row.loss_difference is None else f"{row.loss_difference:+.3f}"
        ),
        Column("frontier", _place),
    )
)


def copies_table(bench: Bench) -> Table[DefenseRow]:
    """The median exposure of canaries that were planted this often, and the range of losses over seeds."""
    return Table(
        (
            _NAME,
            *(_of_copies(one) for one in sorted({one.copies for one in bench.canaries})),
            Column("loss over seeds", lambda row: row.loss and f"{row.loss.low:.3f} to {row.loss.high:.3f}"),
        )
    )


def _of_copies(copies: int) -> Column[DefenseRow]:
    return Column(times_in_words(copies), lambda row: row.by_copies[str(copies)])


def bench_details(run: Run, reveal: bool) -> Iterator[Detail]:
    """The tables of a bench."""
    del reveal
    for _, bench in run.all(BENCHES):
        for rows, table, title, caption in (
            (
                bench.rows,
                DEFENSES_TABLE,
                "",
                "The mean loss over seeds (bits per character), and the median exposure (bits) with its interval over canaries",
            ),
            (
                bench.rows[1:],
                DIFFERENCES_TABLE,
                "Against no defense",
                "Differences in exposure (bits), paired by canary, and in loss (bits per character)",
            ),
            (
                bench.rows,
                copies_table(bench),
                "By number of copies, and by seed",
                "The median exposure of canaries that were planted this often, and the range of losses over seeds",
            ),
        ):
            yield table.detail(rows, section="Defenses", title=title, caption=caption)


def in_plain_words(bench: Bench) -> list[str]:
    """What was planted and what it can show at most, and then what a report says of it."""
    said = [
        f"Canaries: {sum(bench.planted)} of {len(bench.canaries)} were planted, the others withheld",
        f"Models per defense: {bench.settings.seeds}; losses are in bits per character of the held-out documents",
        f"Exposure is {bench.most_bits:.1f} bits at most, and its median is 1 to 1.5 bits where nothing is memorized",
        *(f"{TITLES[one.key]}: {one.words}" for one in _of_bench(bench, 0)),
    ]
    return [f"{visible(one)}." for one in said]


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


def measures(run: Run) -> Iterator[Measure]:
    """What is claimed, and whether the coins contradict it; what helps, what is not shown to, and what is missing."""
    for number, (_, bench) in enumerate(run.all(BENCHES)):
        yield from _of_bench(bench, number)


def _of_bench(bench: Bench, number: int) -> Iterator[Measure]:
    for row in bench.rows:
        if row.claimed_epsilon is not None and row.claim_p_value is not None:
            yield _claim(row, bench, number)
    lower = [row for row in bench.rows[1:] if lowers(row, bench)]
    others = [row for row in bench.rows[1:] if row not in lower]
    for key, rows in (("defenses.lower", lower), ("defenses.not_lower", others)):
        names = ", ".join(row.defense.name for row in rows)
        for row in rows:
            if row.difference is not None:
                yield _effect(key, row, names)
    reasons = [f"{row.defense.name}, {why}" for row in bench.rows for why in row.missing]
    if not bench.finished:
        wanted = len(bench.defenses) * bench.settings.seeds
        reasons.insert(0, f"{len(bench.models)} of {wanted} models are done")
    if reasons:
        yield Measure(key="defenses.missing", status="not_measured", says="; ".join(reasons))


def _claim(row: DefenseRow, bench: Bench, number: int) -> Measure:
    verdicts = [one.verdict for one in bench.of(row.defense.name) if one.verdict is not None]
    proven = "nothing" if not row.audited_epsilon else f"at least {rounded_down(row.audited_epsilon)}"
    doubt = ""
    if violates(row, bench):
        doubt = "given everything that this report tests, it may be chance"
    elif any(one.outcome != "consistent" for one in verdicts):
        doubt = "the audits have too little power to judge it"
    return Measure(
        key="defenses.claim",
        name=row.defense.name,
        # A verdict at a higher confidence than that of a report accuses nobody by itself.
        p_value=row.claim_p_value if violates(row, bench) else 1.0,
        test=("defense claim", str(number), row.defense.name),
        about=(row.defense.name,),
        says=f"it claims an epsilon of {row.claimed_epsilon:.3g} at delta {row.claimed_delta:.1g}, and its audits prove {proven} "
        f"({len(verdicts)} models)",
        doubt=doubt,
        but=row.defense.name,
        size=float(violates(row, bench)),
    )


def _effect(key: str, row: DefenseRow, names: str) -> Measure:
    """What a defense does to exposure, and what it costs."""
    cost = "not known" if row.loss_difference is None else f"{row.loss_difference:+.3f} bits per character"
    statement = "" if row.difference is None else row.difference.estimate.statement
    chance = "" if row.adjusted_p_value is None else f"adjusted {row.adjusted_p_value:.2g}; "
    return Measure(
        key=key,
        name=row.defense.name,
        status="found",
        estimate=None if row.difference is None else row.difference.estimate,
        about=(row.defense.name,),
        says=f"{statement} ({chance}lower with {row.lower_in} of {row.of_seeds} seeds), at a loss of {cost}",
        but=names,
    )


def bench_figures(run: Run) -> Iterator[Chart | None]:
    """One for each bench."""
    for _, bench in run.all(BENCHES):
        yield frontier_figure(bench)


def frontier_figure(bench: Bench) -> Chart | None:
    """Loss against exposure, with the Pareto frontier of defenses; None where fewer than two defenses can be placed."""
    rows: Rows = [
        {
            "defense": row.defense.name,
            "name": row.defense.name,
            _LOSS: rounded(row.loss.mean),
            "utility_low": rounded(row.loss.low),
            "utility_high": rounded(row.loss.high),
            EXPOSURE: rounded(row.exposure.value),
            "low": rounded(row.exposure.low),
            "high": rounded(row.exposure.high),
            "models": row.trainings,
            "in_line": row.on_frontier,
            "order": row.loss.mean,
        }
        for row in bench.rows
        if row.loss is not None and row.on_frontier is not None
    ]
    if len(rows) < 2:
        return None
    return Chart(
        id="defenses-frontier",
        title="What defenses cost, and what they stop",
        caption="Lower is better on both axes. The dashed line is the Pareto frontier: no other defense is better in one and no worse in "
        f"the other. {frontier_in_words(rows, 'defense')} Vertical lines are intervals of the median over canaries, horizontal ones the "
        "range over seeds.",
        rows=rows,
        columns=("defense", _LOSS, "utility_low", "utility_high", EXPOSURE, "low", "high", "models"),
        x=Axis(column=_LOSS, grid=False),
        y=Axis(column=EXPOSURE),
        marks=frontier(rows, ("defense", _LOSS, EXPOSURE, "low", "high", "models")),
        color="name",
        height=300,
    )


DEFENSES = Audit(
    name="defenses",
    command="coalmine lab defend",
    # It is about ways of training, and not about one model: no report of a model misses it, nor it the audits of its models.
    is_missed=False,
    documents=(BENCHES,),
    measures=measures,
    stands_alone=lambda run: bool(run.all(BENCHES)) and run.model is None,
    figures=bench_figures,
    details=bench_details,
)
