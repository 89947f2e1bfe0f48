"""Prints the tables of docs/explanation/provenance.md from the results of `provenance.py`, beside the paper's numbers.

python experiments/provenance_tables.py
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from provenance_figures import PAPER_OUTPUTS, STATISTICS, TASKS, TOPS

RESULTS = Path(__file__).parent / "results"
DATA_OF_TASK = {"words": "Reddit", "dialogs": "Dialogs", "translation": "SATED"}
# Table 1: accuracy on training and test texts, perplexity on both.
PAPER_PERFORMANCE = {
    "words": (0.184, 0.206, 102.22, 113.14),
    "translation": (0.587, 0.535, 6.36, 10.28),
    "dialogs": (0.283, 0.264, 45.57, 61.11),
}
Row = dict[str, str]


def rows_of(name: str, part: str | None = None) -> list[Row]:
    """The rows of a file of results, or of one part of it; none where it is not there."""
    path = RESULTS / f"provenance-{name}.csv"
    if not path.is_file():
        return []
    with open(path, encoding="utf-8", newline="") as stream:
        return [row for row in csv.DictReader(stream) if part is None or row["part"] == part]


def facts_of(name: str) -> dict[str, Any]:
    """What else was found; empty where it is not there."""
    path = RESULTS / f"provenance-{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def table(titles: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """A Markdown table."""
    body = [f"| {' | '.join(map(str, line))} |" for line in lines]
    return "\n".join([f"| {' | '.join(titles)} |", f"|{' --- |' * len(titles)}", *body, ""])


def number(text: str | float | None, digits: int = 3) -> str:
    """A number with some digits; a dash for nothing."""
    return "-" if text in {None, ""} else f"{float(text):.{digits}f}"  # type: ignore[arg-type]


def performance() -> Iterator[Sequence[Any]]:
    """Table 1."""
    for task in TASKS:
        facts = facts_of(task).get("performance")
        if facts is None:
            continue
        train, test = facts["train"], facts["test"]
        own = (train["accuracy"], test["accuracy"], train["perplexity"], test["perplexity"])
        shown = [f"{number(one, digits)} ({paper})" for one, paper, digits in zip(own, PAPER_PERFORMANCE[task], (3, 3, 1, 1), strict=True)]
        yield task, *shown, f"{test['unknown_share']:.1%}"


def detections(rows: Iterable[Row], *, setting: bool) -> Iterator[Sequence[Any]]:
    """A line per row, with all that was measured."""
    for row in rows:
        names = (row["setting"],) if setting else (row["task"],)
        interval = f"{number(row['auc_low'])} to {number(row['auc_high'])}"
        yield (
            *names,
            row["statistic"],
            number(row["auc"]),
            interval,
            number(row["accuracy"]),
            number(row["precision"]),
            number(row["recall"]),
            number(row["recall_at_5"], 2),
            number(row["recall_at_fdr"], 2),
        )


def by_statistic(rows: Sequence[Row]) -> Iterator[Sequence[Any]]:
    """A line per setting, with the AUC of every statistic."""
    for setting in dict.fromkeys(row["setting"] for row in rows):
        own = {row["statistic"]: row for row in rows if row["setting"] == setting}
        first = next(iter(own.values()))
        yield (
            setting,
            number(first["tokens_per_text"], 1),
            *(number(own[name]["auc"]) if name in own else "-" for name in STATISTICS),
        )


def outputs() -> Iterator[Sequence[Any]]:
    """Table 3: here, and in the paper."""
    for task in TASKS:
        for kind in ("same", "cross"):
            own = rows_of(task, f"outputs, {kind} domain")
            for row, top, paper in zip(own, TOPS, PAPER_OUTPUTS.get((task, kind), ()), strict=bool(own)):
                yield (
                    f"{task}, {kind}",
                    top,
                    number(row["auc"]),
                    paper,
                    number(row["accuracy"]),
                    number(row["precision"]),
                    number(row["recall"]),
                )


def null() -> Iterator[Sequence[Any]]:
    """What was simulated."""
    for row in rows_of("null"):
        yield (
            row["setting"],
            row["statistic"],
            f"{row['members']} of {row['suspects']}",
            row["quantity"],
            row["audits"],
            f"{number(row['mean'])} ± {number(row['standard_error'])}",
        )


def main() -> None:
    full = ("", "statistic", "AUC", "95% interval", "accuracy", "precision", "recall", "recall at p ≤ 5%", "recall at FDR 5%")
    auc = ("", "words per text", *STATISTICS)
    print(table(("task", "train accuracy", "test accuracy", "train perplexity", "test perplexity", "unknown"), performance()))
    for task in TASKS:
        print(table(full, detections(rows_of(task, "headline"), setting=False)))
    print(table(full, detections([*rows_of("mismatched"), *rows_of("words", "cross domain")], setting=False)))
    print(table(full, detections(rows_of("users"), setting=True)))
    print(table(("task", "words listed", "AUC", "paper", "accuracy", "precision", "recall"), outputs()))
    for task in TASKS:
        for part in ("queries", "noise"):
            print(f"{task}, {part}\n\n{table(auc, by_statistic(rows_of(task, part)))}")
    for part in ("noise", "obfuscation", "features"):
        print(f"{part}\n\n{table(full, detections(rows_of('words', part), setting=True))}")
    print(table(("setting", "statistic", "members", "quantity", "audits", "mean"), null()))


if __name__ == "__main__":
    main()
