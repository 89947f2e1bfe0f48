"""How often one person is accused without reason, and how often their texts are found: whole audits by person on real posts and mail.

A person's texts are divided in the middle of their order, which is that of time, or at random. The target was trained on texts of other
people beside those of its base model, and, where the person is a member, on the first side. In the division by time, the texts of others
that it was trained on are from the first half of theirs, so that it knows the topics of that time, and an innocent person's first side
gains from that.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import gzip
import json
from pathlib import Path

import numpy as np
from provenance_styles import STYLES, NGrams

from coalmine import check, findings_of, parse_policy
from coalmine.audits import PROVENANCES, AuditedUsers, Run, User, UserText, audit_provenance
from coalmine.audits.provenance.blind_baseline import LEVEL
from coalmine.audits.provenance.records import Provenance
from coalmine.evidence.run import Located
from coalmine.randomness import arrays

MOST_CHARACTERS = 400
# Texts of each other person, and how many others the target and its base are trained on.
OTHERS, TRAINED, BASE = 20, 30, 60
# In the name of a style that a part of the texts has.
PARTLY, PART = " (30%)", 0.3


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The share of audits of one kind with each outcome."""

    corpus: str
    person: str  # innocent or member
    division: str
    style: str
    texts: int
    copies: int
    audits: int
    # Accused, or found, by the report or the gate; by the scores alone; told apart without a model, and not interpretable.
    found: float
    by_scores_alone: float
    told_apart: float
    not_interpretable: float


def texts_of(path: Path) -> dict[str, list[str]]:
    """The texts of each user in the order of the file, without those that occur twice."""
    found: dict[str, dict[str, None]] = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            text = row["text"].strip()[:MOST_CHARACTERS]
            if len(text.split()) >= 3:
                found.setdefault(row["user"], {})[text] = None
    return {user: list(texts) for user, texts in found.items()}


def styled(texts: list[str], style: str, drawn: np.random.Generator) -> list[str]:
    """Texts in a style, or, of one whose name ends with PARTLY, some of them."""
    change, share = STYLES[style.removesuffix(PARTLY)], PART if style.endswith(PARTLY) else 1.0
    return [change(text, drawn) if share == 1 or drawn.random() < share else text for text in texts]


def audit(
    texts: dict[str, list[str]], person: str, kind: tuple[str, str, str, int, int], number: int
) -> Provenance:
    """One audit of a person, who is a member or innocent."""
    membership, division, style, size, copies = kind
    drawn = arrays(number, "experiment", "people", person, str(kind))
    own = texts[person]
    begin = int(drawn.integers(0, len(own) - size + 1))
    own = own[begin : begin + size]
    if division == "random":
        own = drawn.permutation(own).tolist()
    asked, other_side = own[: size // 2], own[size // 2 :]
    asked = styled(asked, style, drawn)
    rest = [user for user in drawn.permutation(sorted(texts)).tolist() if user != person]

    def written(users: list[str], *, first: bool) -> list[str]:
        found = []
        for user in users:
            all_of_them = texts[user]
            some = all_of_them[: max(1, len(all_of_them) // 2)] if first else all_of_them
            found += [some[place] for place in drawn.permutation(len(some))[:OTHERS]]
        return found

    base = written(rest[:BASE], first=False)
    trained = styled(written(rest[BASE:][:TRAINED], first=division == "time"), style, drawn)
    learned = [*trained, *(asked if membership == "member" else [])]
    sides = [
        [User(f"{side} {place}", (UserText(text),)) for place, text in enumerate(some) if text.strip()]
        for side, some in (("asked", asked), ("other", other_side))
    ]
    return audit_provenance(
        NGrams("target", base + copies * learned),
        AuditedUsers(sides[0], non_members=sides[1]),
        reference_model=NGrams("base", base),
        by="person",
        seed=number,
    )


def outcome(
    corpus: str, texts: dict[str, list[str]], kind: tuple[str, str, str, int, int], audits: int
) -> Outcome:
    """What became of the audits of so many people."""
    enough = sorted(user for user, some in texts.items() if len(some) >= kind[3])
    people = arrays(0, "experiment", "people", corpus, kind[3]).permutation(enough).tolist()
    seen = []
    for number in range(audits):
        document = audit(texts, people[number % len(people)], kind, number)
        located = Located(Path("run/provenance.json"), document)
        run = Run(paths=(Path("run"),), name="run", documents={PROVENANCES: (located,)})
        reported = any(one.code == "CM601" and one.status == "found" for one in findings_of(run))
        broken = check(run, parse_policy("[provenance]\nno_user_found = true")).exit_code == 1
        question = document.questions[0]
        blind = question.blind
        alone = question.deciding is not None and (question.deciding.p_value or 1.0) <= 0.025
        apart = blind is not None and bool(blind.separating(LEVEL))
        unsaid = bool(question.why)
        seen.append((reported or broken, alone, apart, unsaid))
    means = np.mean(np.array(seen, dtype=float), axis=0).round(3).tolist()
    return Outcome(corpus, *kind, audits, *means)


def main() -> None:
    """Write the outcomes of all kinds of audits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tweets", type=Path, required=True)
    parser.add_argument("--mail", type=Path, required=True)
    parser.add_argument("--audits", type=int, default=40)
    parser.add_argument("--parts", nargs="*", default=["people", "styles"])
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results" / "provenance-people.csv"
    )
    given = parser.parse_args()
    corpora = {
        "mail": (texts_of(given.mail), (20, 50)),
        "posts": (texts_of(given.tweets), (20, 40, 100, 250)),
    }
    kinds = [
        (
            corpus,
            (membership, division, "none", size, copies),
            given.audits // (1 if membership == "innocent" else 2),
        )
        for corpus, (_, sizes) in corpora.items()
        for size in sizes
        for division in ("time", "random")
        for membership, copies in (("innocent", 3), ("member", 1), ("member", 3))
        if "people" in given.parts
    ]
    kinds += [
        ("posts", ("innocent", "random", style + part, 100, 3), max(2, given.audits // 20))
        for part in ("", PARTLY)
        for style in STYLES
        if style not in {"none", "topic"} and "styles" in given.parts
    ]
    with given.out.open("w", newline="", encoding="utf-8") as file:
        rows = csv.DictWriter(file, [field.name for field in dataclasses.fields(Outcome)])
        rows.writeheader()
        for corpus, kind, audits in kinds:
            found = outcome(corpus, corpora[corpus][0], kind, audits)
            rows.writerow(dataclasses.asdict(found))
            file.flush()
            print(found, flush=True)


if __name__ == "__main__":
    main()
