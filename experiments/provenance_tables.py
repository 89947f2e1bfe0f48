"""Prints the tables of docs/explanation/provenance.md from the results of `provenance_paper.py`, beside the paper's numbers.

python experiments/provenance_tables.py [--into docs/explanation/provenance.md]

With `--into`, each table of a page that comes after a comment with its name is replaced by the current one.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

RESULTS = Path(__file__).parent / "results"
STATISTICS = ("rank-histogram", "likelihood-ratio", "rmia", "windowed-ratio", "min-k++")
# Those of targets that list a few words.
LISTING = ("rank-histogram", "listed-share")
# Our tasks, and the data of the paper that each stands for.
TASKS = {"words": "Reddit", "dialogs": "Dialogs", "translation": "SATED"}
# Table 1 of the paper: accuracy on training and on test texts, and perplexity on both.
PAPER_PERFORMANCE = {
    "words": (0.184, 0.206, 102.22, 113.14),
    "translation": (0.587, 0.535, 6.36, 10.28),
    "dialogs": (0.283, 0.264, 45.57, 61.11),
}
# Table 3 of the paper: AUC by the number of words that the model lists, with shadow models of the same and of another domain.
TOPS = (1, 5, 10, 50, 100, 500, 1000)
PAPER_OUTPUTS = {
    ("words", "same"): (0.549, 0.572, 0.602, 0.648, 0.788, 0.998, 0.999),
    ("words", "cross"): (0.589, 0.525, 0.552, 0.659, 0.714, 0.992, 0.999),
    ("dialogs", "same"): (0.618, 0.642, 0.645, 0.660, 0.714, 0.975, 0.995),
    ("translation", "same"): (0.785, 0.838, 0.880, 0.973, 0.981, 0.988, 0.984),
}
LEVELS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75)
SIGN = ("accuracy", "precision", "recall")
Row = dict[str, str]
Lines = Iterator[Sequence[Any]]


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
    return "-" if text is None or text == "" else f"{float(text):.{digits}f}"


def _areas(rows: Sequence[Row]) -> list[str]:
    """The AUC of each statistic, in their order."""
    own = {row["statistic"]: row["auc"] for row in rows}
    return [number(own.get(name)) for name in STATISTICS]


def _signs(rows: Sequence[Row], names: Sequence[str] = SIGN) -> list[str]:
    """What the sign of the classifier decides."""
    return [number(row[name]) for row in rows if row["statistic"] == STATISTICS[0] for name in names]


def _by_setting(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    for setting in dict.fromkeys(row["setting"] for row in rows):
        yield setting, [row for row in rows if row["setting"] == setting]


def performance() -> Lines:
    """Table 1."""
    for task, data in TASKS.items():
        facts = facts_of(task).get("performance")
        if facts is not None:
            own = [facts[side][what] for what in ("accuracy", "perplexity") for side in ("train", "test")]
            shown = zip(own, PAPER_PERFORMANCE[task], (3, 3, 1, 1), strict=True)
            yield f"{task} ({data})", *(f"{number(one, digits)} ({paper})" for one, paper, digits in shown)


def headline() -> Lines:
    """Accuracy, AUC, precision and recall with all texts and all ranks."""
    for task in TASKS:
        for row in rows_of(task, "headline"):
            yield (
                task,
                row["statistic"],
                f"{number(row['auc'])} ({number(row['auc_low'])} to {number(row['auc_high'])})",
                *(number(row[name]) for name in SIGN),
                f"{float(row['recall_at_5']):.0%}",
                f"{float(row['recall_at_fdr']):.0%}",
            )


def shadows() -> Lines:
    """Table 2, and what else shadow models may have in common with the target."""
    for what, rows in (
        ("as the target", rows_of("words", "headline")),
        ("other recipe", rows_of("mismatched")),
        ("other domain", rows_of("words", "cross domain")),
    ):
        if rows:
            yield what, *_areas(rows), *_signs(rows)


def vocabulary() -> Lines:
    """What the vocabulary alone gives away: targets that are trained and untrained, with the vocabulary of members and of others."""
    for name, whose in (("words", "members"), ("public", "reference users")):
        for part, what in (("headline", "trained"), ("untrained", "untrained")):
            rows = rows_of(name, part)
            if rows:
                yield whose, what, rows[0]["members"], *_areas(rows)


def outputs() -> tuple[list[str], list[Sequence[Any]]]:
    """Table 3: the AUC here by the two statistics that need no probabilities, and in the paper by the first of them."""
    kinds = [(task, kind) for task, kind in PAPER_OUTPUTS if rows_of(task, f"outputs, {kind} domain")]
    lines: list[Sequence[Any]] = []
    for place, top in enumerate(TOPS):
        line: list[Any] = [top]
        for task, kind in kinds:
            rows = rows_of(task, f"outputs, {kind} domain")
            own = {row["statistic"]: row["auc"] for row in rows if row["setting"] == f"top {top}"}
            line.append(f"{number(own[LISTING[0]])} ({PAPER_OUTPUTS[task, kind][place]:.3f})")
            # What is listed does not depend on shadow models, nor on their domain.
            line += [number(own.get(LISTING[1]))] if kind == "same" else []
        lines.append(line)
    titles = ["words listed"]
    for task, kind in kinds:
        titles += [task, f"{task}, {LISTING[1]}"] if kind == "same" else [f"{task}, other domain"]
    return titles, lines


def users() -> Lines:
    """Figure 2."""
    for setting, rows in _by_setting([*rows_of("users")]):
        yield setting, *_areas(rows), *_signs(rows)
    if rows_of("words", "headline"):
        yield "149 users", *_areas(rows_of("words", "headline")), *_signs(rows_of("words", "headline"))


def queries(task: str) -> Lines:
    """Figure 3."""
    for setting, rows in _by_setting(rows_of(task, "queries")):
        yield *setting.split(), number(rows[0]["tokens_per_text"], 1), *_areas(rows)


def noise(task: str) -> Lines:
    """Figure 4."""
    for setting, rows in _by_setting(rows_of(task, "noise")):
        yield f"{float(setting.split()[1]):.0%}", *_areas(rows), *_signs(rows, ("precision", "recall"))


def obfuscation() -> Lines:
    """Table 5."""
    for setting, rows in _by_setting(rows_of("words", "obfuscation")):
        way, share = setting.split()
        what = "left out" if way == "dropped" else "swapped"
        yield f"{float(share):.0%} of words {what}", *_areas(rows), *_signs(rows)


def features() -> Lines:
    """Other histograms."""
    for row in rows_of("words", "features"):
        yield row["setting"], number(row["auc"]), *(number(row[name]) for name in SIGN)


def ablation() -> tuple[list[str], list[Sequence[Any]]]:
    """Figure 7."""
    curves = {task: facts_of(task).get("ablation") for task in TASKS}
    known = {task: curve for task, curve in curves.items() if curve}
    sides = [(task, side) for task in known for side in ("frequent", "rare")]
    lines: list[Sequence[Any]] = [
        [f"{first['ablated']:.0%}", *(number(known[task][place][side]) for task, side in sides)]
        for place, first in enumerate(next(iter(known.values()), []))
    ]
    return ["silenced", *(f"{task}, {side}" for task, side in sides)], lines


def unseen() -> Lines:
    """The p-values of a model that saw nobody."""
    rows = rows_of("null", "unseen")
    for suspects in dict.fromkeys(row["suspects"] for row in rows):
        for name in STATISTICS:
            own = {
                r["quantity"]: r["mean"] for r in rows if (r["statistic"], r["suspects"]) == (name, suspects)
            }
            if own:
                shares = [number(own[f"p-values of at most {level:g}"]) for level in LEVELS]
                yield suspects, name, *shares, number(own["audits that find anyone at 5%"])


def mixed() -> tuple[list[str], list[Sequence[Any]]]:
    """The false-discovery rate, and the share of members that are found."""
    rows = rows_of("null", "mixed")
    numbers = list(dict.fromkeys(row["members"] for row in rows))
    lines: list[Sequence[Any]] = []
    for name in STATISTICS:
        line = [name]
        for members in numbers:
            own = {
                r["quantity"]: r["mean"] for r in rows if (r["statistic"], r["members"]) == (name, members)
            }
            found = own.get("members found")
            line.append(
                number(own["false-discovery rate"]) + ("" if found is None else f" ({float(found):.0%})")
            )
        lines.append(line)
    return ["statistic", *(f"{members} members" for members in numbers)], lines


def _private() -> dict[tuple[str, str], list[tuple[Any, list[Row]]]]:
    """The facts and the rows of each target of `private_users.py` and each kind of shadow models, one pair for each seed."""
    facts, rows = facts_of("private"), rows_of("private")
    found: dict[tuple[str, str], list[tuple[Any, list[Row]]]] = {}
    for target in facts.get("targets", {}):
        for shadows in dict.fromkeys(["plain", target]):
            for seed in range(10):
                known = facts.get(f"{target.replace(' ', '-')}-{seed} by {shadows}")
                setting = f"shadows {shadows}, seed {seed}"
                own = [row for row in rows if (row["part"], row["setting"]) == (target, setting)]
                if known is not None:
                    found.setdefault((target, shadows), []).append((known, own))
    return found


def private_models() -> Lines:
    """What targets of private training predict, as means over seeds."""
    baseline = facts_of("private").get("frequencies")
    for (target, shadows), seeds in _private().items():
        if shadows == "plain":
            known = [facts for facts, _ in seeds]
            claim = known[0]["claim"]
            epsilon = "-" if claim is None or not claim["epsilon"] else f"{claim['epsilon']:,.5g}"
            ranks = [fmean(one["ranks"][side]["rare"] for one in known) for side in ("train", "test")]
            bits = [
                fmean(one["performance"][side]["perplexity"] for one in known) for side in ("train", "test")
            ]
            yield target, epsilon, len(known), *(f"{one:,.0f}" for one in (*bits, *ranks))
    if baseline:
        yield "frequencies of words alone", "-", "-", "-", f"{baseline['perplexity']:.0f}", "-", "-"


def private_audits() -> Lines:
    """How well members of targets of private training are recognized, by auditors who know the recipe or do not, as means over seeds."""
    for (target, shadows), seeds in _private().items():
        line: list[str] = []
        for name in STATISTICS[:2]:
            rows = [row for _, own in seeds for row in own if row["statistic"] == name]
            low, high = (
                pick(float(row[f"auc_{side}"]) for row in rows)
                for pick, side in ((min, "low"), (max, "high"))
            )
            line.append(f"{fmean(float(row['auc']) for row in rows):.3f} ({low:.2f} to {high:.2f})")
            line.append(f"{fmean(float(row['recall_at_5']) for row in rows):.0%}")
            if name == STATISTICS[0]:
                line.append(f"{fmean(float(row['accuracy']) for row in rows):.3f}")
        yield target, "as the target" if shadows == target else shadows, *line


def deciding() -> Lines:
    """How many members each statistic finds, on average over all settings that all of them were measured in, and how often the most."""
    settings: dict[tuple[str, ...], dict[str, float]] = {}
    for name in (*TASKS, "public", "mismatched", "users", "private"):
        for row in rows_of(name):
            if row["recall_at_fdr"] and row["part"] != "untrained":
                own = settings.setdefault((name, row["part"], row["setting"]), {})
                own[row["statistic"]] = float(row["recall_at_fdr"])
    whole = [own for own in settings.values() if own.keys() >= set(STATISTICS)]
    for name in STATISTICS:
        most = sum(own[name] == max(own[one] for one in STATISTICS) > 0 for own in whole)
        yield name, len(whole), f"{fmean(own[name] for own in whole):.0%}", most


def styles() -> Lines:
    """How often innocents are accused because they write in another style: means over styles, and the worst of them."""
    rows = [row for row in rows_of("styles") if row["asked"] == "innocent"]
    for suspects in dict.fromkeys(row["suspects"] for row in rows):
        for share in dict.fromkeys(row["share_of_texts"] for row in rows):
            same = [row for row in rows if (row["suspects"], row["share_of_texts"]) == (suspects, share)]
            if same:
                worst = max(same, key=lambda row: float(row["accused"]))
                columns = ("by_scores_alone", "told_apart", "not_interpretable", "accused")
                means = (f"{fmean(float(row[name]) for row in same):.1%}" for name in columns)
                audits = sum(int(row["audits"]) for row in same)
                most = f"{float(worst['accused']):.0%}"
                yield suspects, f"{float(share):.0%}", len(same), audits, *means, most


def style_members() -> Lines:
    """How many members are found where nobody writes in another style."""
    for row in rows_of("styles"):
        if row["asked"] != "innocent":
            shares = (f"{float(row[name]):.0%}" for name in ("not_interpretable", "accused", "members_found"))
            yield row["corpus"], row["suspects"], row["asked"], row["audits"], *shares


def blind() -> Lines:
    """How often the blind baseline fires."""
    for row in rows_of("null", "blind baseline"):
        yield row["setting"], row["audits"], f"{float(row['mean']):.1%}"


def tables() -> dict[str, str]:
    """All of them, by their names."""
    beside = (*STATISTICS, *SIGN)
    sides = tuple(f"{side} {what}" for what in ("accuracy", "perplexity") for side in ("train", "test"))
    whole = ("task", "statistic", "AUC (95% interval)", *SIGN, "found at p ≤ 5%", "found at FDR 5%")
    shares = (f"p ≤ {level:g}" for level in LEVELS)
    return {
        "performance": table(("task (in the paper)", *sides), performance()),
        "headline": table(whole, headline()),
        "shadows": table(("shadow models", *beside), shadows()),
        "vocabulary": table(("vocabulary of", "target", "members", *STATISTICS), vocabulary()),
        "outputs": table(*outputs()),
        "users": table(("trained on", *beside), users()),
        **{
            f"queries {task}": table(("chosen by", "texts", "words per text", *STATISTICS), queries(task))
            for task in (*TASKS, "public")
        },
        **{
            f"noise {task}": table(("not trained on", *STATISTICS, "precision", "recall"), noise(task))
            for task in TASKS
        },
        "obfuscation": table(("texts", *beside), obfuscation()),
        "features": table(("histogram", "AUC", *SIGN), features()),
        "ablation": table(*ablation()),
        "unseen": table(("suspects", "statistic", *shares, "audits that find anyone"), unseen()),
        "mixed": table(*mixed()),
        "private models": table(
            (
                "target",
                "epsilon",
                "seeds",
                "train perplexity",
                "test perplexity",
                "rank, train",
                "rank, test",
            ),
            private_models(),
        ),
        "private audits": table(
            ("target", "shadow models", "rank-histogram", "found", "accuracy", "likelihood-ratio", "found"),
            private_audits(),
        ),
        "deciding": table(("statistic", "settings", "members found at FDR 5%", "finds most in"), deciding()),
        "styles": table(
            (
                "suspects",
                "changed texts",
                "styles",
                "audits",
                "accused by scores alone",
                "told apart",
                "cannot be interpreted",
                "accused",
                "the worst style",
            ),
            styles(),
        ),
        "style members": table(
            ("texts", "suspects", "of them", "audits", "cannot be interpreted", "accused", "members found"),
            style_members(),
        ),
        "blind": table(("suspects and non-members", "audits", "fires at 1%"), blind()),
    }


def put_into(page: Path, found: dict[str, str]) -> None:
    """Replace the tables of a page; each comes after a line `<!-- table: NAME -->`, up to the next empty line."""

    def current(match: re.Match[str]) -> str:
        return f"{match[1]}\n{found[match[2]].rstrip()}\n\n"

    text = page.read_text(encoding="utf-8")
    page.write_text(re.sub(r"(<!-- table: (.+?) -->\n)\n(?:\|.*\n)*\n?", current, text), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--into", type=Path, help="a page whose tables are replaced")
    given = parser.parse_args()
    if given.into is not None:
        put_into(given.into, tables())
    else:
        for name, text in tables().items():
            print(f"{name}\n\n{text}")
