"""A bench as people see it: one row per defense, and its difference from none."""

from __future__ import annotations

from collections.abc import Iterator

from coalmine.audits.defenses.records import BENCHES, Bench, DefenseRow
from coalmine.evidence.measures import Audit, Measure
from coalmine.evidence.run import Run
from coalmine.evidence.tables import Column, Detail, Table
from coalmine.evidence.words import times_in_words
from coalmine.records.estimate import rounded_down
from coalmine.records.privacy import DescribedClaim

DIFFERENCES_TABLE = Table[DefenseRow](
    (
        Column("against none", lambda row: row.defense.name),
        Column("exposure", lambda row: "not measured" if row.difference is None else row.difference.estimate),
        Column("adjusted p", lambda row: row.adjusted_p_value, "p"),
        Column("lower", lambda row: f"{row.lower_in}/{row.of_seeds}" if row.difference else None),
    )
)


def defenses_table(bench: Bench) -> Table[DefenseRow]:
    """What was measured with each defense; exposures also of the canaries that were planted equally often."""
    copies = sorted({one.copies for one in bench.canaries})
    return Table(
        (
            Column("defense", lambda row: row.defense.name),
            Column("loss", lambda row: row.loss),
            Column("exposure", lambda row: row.exposure),
            *(_of_copies(one) for one in copies if len(copies) > 1),
            Column("extracted", lambda row: f"{row.extracted} of {row.searched}" if row.searched else None),
            Column("claimed ε", lambda row: row.claim and row.claim.epsilon),
            Column("audited ε", _at_least),
        )
    )


def _of_copies(copies: int) -> Column[DefenseRow]:
    return Column(times_in_words(copies), lambda row: row.by_copies[str(copies)])


def _at_least(row: DefenseRow) -> str:
    return "not known" if row.audited_epsilon is None else f"≥ {rounded_down(row.audited_epsilon)}"


def bench_details(run: Run, _reveal: bool) -> Iterator[Detail]:
    """The tables of a bench."""
    for _, bench in run.all(BENCHES):
        yield defenses_table(bench).detail(
            bench.rows,
            section="Defenses",
            title="",
            caption="The mean loss over seeds (bits per character), and the median exposure (bits) with its interval over canaries",
        )
        yield DIFFERENCES_TABLE.detail(
            bench.rows[1:],
            section="Defenses",
            title="Against no defense",
            caption="Differences in exposure (bits), paired by canary",
        )


def lowers(row: DefenseRow, bench: Bench) -> bool:
    """Whether a defense is shown to lower exposure: over canaries, given how many defenses were compared, and with every seed."""
    return (
        row.difference is not None
        and row.lower_in == row.of_seeds
        and (row.difference.estimate.value or 0.0) < 0
        and row.adjusted_p_value is not None
        and row.adjusted_p_value <= 1.0 - bench.settings.confidence
    )


def measures(run: Run) -> Iterator[Measure]:
    """What is claimed, and whether the coins contradict it; what helps, what is not shown to, and what is missing."""
    for number, (_, bench) in enumerate(run.all(BENCHES)):
        yield from _of_bench(bench, number)


def _of_bench(bench: Bench, number: int) -> Iterator[Measure]:
    for row in bench.rows:
        if row.claim is not None and row.claim_p_value is not None:
            yield _claim(row, row.claim, row.claim_p_value, bench, number)
    lower = [row for row in bench.rows[1:] if lowers(row, bench)]
    others = [row for row in bench.rows[1:] if row not in lower]
    for key, rows in (("defenses.lower", lower), ("defenses.not_lower", others)):
        names = ", ".join(row.defense.name for row in rows)
        for row in rows:
            if row.difference is not None and row.loss is not None:
                yield Measure(
                    key=key,
                    name=row.defense.name,
                    status="found",
                    estimate=row.difference.estimate,
                    about=(row.defense.name,),
                    says=f"{row.difference.estimate.statement} (adjusted {row.adjusted_p_value:.2g}; lower with {row.lower_in} of "
                    f"{row.of_seeds} seeds), at a loss of {row.loss:.3f} bits per character",
                    but=names,
                )
    reasons = list(bench.failed)
    if not bench.finished:
        wanted = len(bench.defenses) * bench.settings.seeds
        reasons.insert(0, f"{len(bench.models)} of {wanted} models are done")
    if reasons:
        yield Measure(key="defenses.missing", status="not_measured", says="; ".join(reasons))


def _claim(row: DefenseRow, claim: DescribedClaim, p_value: float, bench: Bench, number: int) -> Measure:
    verdicts = [one.verdict for one in bench.of(row.defense.name) if one.verdict is not None]
    violated = p_value <= 1.0 - bench.settings.confidence
    doubt = "given everything that this report tests, it may be chance" if violated else ""
    if not violated and any(one.outcome != "consistent" for one in verdicts):
        doubt = "the audits have too little power to judge it"
    return Measure(
        key="defenses.claim",
        name=row.defense.name,
        # A verdict at a higher confidence than that of a report accuses nobody by itself.
        p_value=p_value if violated else 1.0,
        test=("defense claim", str(number), row.defense.name),
        about=(row.defense.name,),
        says=f"it claims an epsilon of {claim.epsilon:.3g} at delta {claim.delta:.1g}, and {len(verdicts)} audits prove {_at_least(row)}",
        doubt=doubt,
        but=row.defense.name,
        size=float(violated),
    )


DEFENSES = Audit(
    name="defenses",
    command="coalmine lab defend",
    # It is about ways of training, and not about one model: no report of a model misses it, nor it the audits of its models.
    is_missed=False,
    documents=(BENCHES,),
    measures=measures,
    stands_alone=lambda run: bool(run.all(BENCHES)) and run.model is None,
    details=bench_details,
)
