"""The findings about defenses: claims that the audit contradicts, what lowers exposure and what is not shown to, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator

from coalmine.audits.defenses.records import BENCHES, Bench, DefenseRow
from coalmine.audits.defenses.report import lowers
from coalmine.evidence.budget import Decisions, Suspicion
from coalmine.evidence.findings import Catalog, Entry, Finding
from coalmine.evidence.run import Run
from coalmine.records.estimate import rounded_down

CATALOG = Catalog(
    {
        "CM801": Entry(
            "A defense does not keep its claimed epsilon",
            "The training is not as private as claimed. Look for the mistake in clipping, noise, sampling or accounting.",
            if_not_measured="Plant more canaries, once each, and withhold half of them: the power grows with their number.",
            if_clear="Nothing to do: the audit would probably have detected a training that leaks twice as much.",
        ),
        "CM802": Entry(
            "Defenses that lower exposure",
            "Choose among those on the frontier by the loss that you can afford, and audit the model that you train with it.",
            if_not_measured="Plant more canaries, more often each, or train more models per defense (--seeds), and compare again.",
        ),
        "CM803": Entry(
            "Defenses that are not shown to lower exposure",
            "Do not rely on these. Plant more canaries or train more models per defense (--seeds) where the interval is wide.",
        ),
        "CM804": Entry(
            "Parts of the comparison of defenses are missing",
            "Correct what the reasons name, and run the same `coalmine defend` again: what is there is not trained again.",
        ),
    }
)
finding = CATALOG.finding
_KIND = "defense claim"


def bench_suspicions(run: Run) -> Iterator[Suspicion]:
    """One test per defense that claims an epsilon."""
    for _, bench in run.all(BENCHES):
        for row in bench.rows:
            if row.claim_p_value is not None:
                yield Suspicion(_KIND, (row.defense.name,), row.claim_p_value)


def bench_findings(run: Run, decided: Decisions) -> Iterator[Finding]:
    """What is claimed, and whether the coins contradict it."""
    for _, bench in run.all(BENCHES):
        for row in bench.rows:
            if row.claimed_epsilon is not None and row.claim_p_value is not None:
                yield _claim(row, bench, decided.shown(_KIND, row.defense.name))


def _claim(row: DefenseRow, bench: Bench, shown: bool) -> Finding:
    verdicts = [
        one.verdict for one in bench.models if one.defense == row.defense.name and one.verdict is not None
    ]
    bound = "nothing" if not row.audited_epsilon else f"at least {rounded_down(row.audited_epsilon)}"
    evidence = (
        f"{row.defense.name} claims an epsilon of {row.claimed_epsilon:.3g} at delta {row.claimed_delta:.1g}; its audits prove {bound} "
        f"(p = {row.claim_p_value:.2g}, {len(verdicts)} models)."
    )
    subject = [row.defense.name]
    if shown:
        return finding("CM801", "critical", "found", evidence, subject=subject)
    if all(one.outcome == "consistent" for one in verdicts):
        title = "The claimed epsilon is consistent with the audit"
        return finding("CM801", "pass", "clear", evidence, subject=subject, title=title)
    title = "It is not shown whether the claimed epsilon is kept"
    return finding("CM801", "info", "not_measured", evidence, subject=subject, title=title)


def bench_remarks(run: Run) -> Iterator[Finding]:
    """What helps, what is not shown to, and what is missing: none of it accuses a model."""
    for _, bench in run.all(BENCHES):
        lower = [row for row in bench.rows[1:] if lowers(row, bench)]
        others = [row for row in bench.rows[1:] if row not in lower and row.difference is not None]
        if lower:
            yield _effects("CM802", lower)
        if others:
            yield _effects("CM803", others)
        yield from _missing(bench)


def _effects(code: str, rows: list[DefenseRow]) -> Finding:
    evidence = "; ".join(
        f"{row.defense.name}: {row.difference.estimate.statement} (adjusted {row.adjusted_p_value:.2g}; lower with "
        f"{row.lower_in} of {row.of_seeds} seeds), {_cost(row)}"
        for row in rows
        if row.difference is not None
    )
    return finding(
        code,
        "info",
        "found",
        f"{evidence}.",
        estimates=[row.difference.estimate for row in rows if row.difference is not None],
        subject=[row.defense.name for row in rows],
    )


def _cost(row: DefenseRow) -> str:
    if row.loss_difference is None:
        return "at a loss that is not known"
    return f"at a loss of {row.loss_difference:+.3f} bits per character"


def _missing(bench: Bench) -> Iterator[Finding]:
    reasons = [f"{row.defense.name}, {why}" for row in bench.rows for why in row.missing]
    if not bench.finished:
        wanted = len(bench.defenses) * bench.settings.seeds
        reasons.insert(0, f"{len(bench.models)} of {wanted} models are done")
    if reasons:
        yield finding("CM804", "info", "not_measured", f"{'; '.join(reasons)}.")
