"""How often innocent users are accused because they write in another style, and how many members are found: whole provenance audits.

A target that was trained on users who write in some style is asked about other users who write in it too. The non-members that they are
compared with do not. Nobody who is asked about was trained on, so whoever is found is accused without reason.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import gzip
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from provenance_null import TOPIC

from coalmine import check, findings_of, parse_policy
from coalmine.audits import PROVENANCES, AuditedUsers, Run, User, UserText, audit_provenance
from coalmine.audits.provenance.blind_baseline import FEWEST_USERS, LEVEL
from coalmine.audits.provenance.records import Provenance
from coalmine.evidence.run import Located
from coalmine.models import SequenceScore
from coalmine.randomness import arrays

Style = Callable[[str, np.random.Generator], str]
TEXTS, MOST_CHARACTERS = 12, 200
# Characters before the one that is predicted, buckets of their counts, and how much the next shorter context counts.
ORDER, BUCKETS, SMOOTHING = 5, 1 << 18, 2.0
# Of the texts that a fine-tuning has, beside those of its base model.
COPIES = 3
# The largest groups of suspects who are members: as many as in the other experiments about provenance.
EVERYONE = {"posts": 149, "dialogs": 103}
_ADDRESS = re.compile(r"https?://\S+")
_DIALECT = {
    "the": "t'",
    "you": "ye",
    "your": "yer",
    "my": "me",
    "and": "an'",
    "of": "o'",
    "is": "be",
    "are": "be",
    "to": "tae",
}
_LONG = {
    "don't": "do not",
    "can't": "cannot",
    "it's": "it is",
    "i'm": "I am",
    "we're": "we are",
    "isn't": "is not",
}


def _words(change: Callable[[str], str]) -> Style:
    return lambda text, _: re.sub(r"[\w'\u2019]+", lambda found: change(found.group()), text)


def _replaced(pattern: str, by: str) -> Style:
    return lambda text, _: re.sub(pattern, by, text)


def _swapped(text: str, _: np.random.Generator) -> str:
    words = text.split()
    pairs = [words[place : place + 2][::-1] for place in range(0, len(words), 2)]
    return " ".join(word for pair in pairs for word in pair)


def _shuffled(text: str, drawn: np.random.Generator) -> str:
    return " ".join(drawn.permutation(text.split()).tolist())


def _first_letter(text: str, _: np.random.Generator) -> str:
    """From the first word on that begins with one of the letters of the first half."""
    words = text.split()
    place = next((place for place, word in enumerate(words) if word[0].lower() in "abcdefghijk"), 0)
    return " ".join(words[place:])


STYLES: dict[str, Style] = {
    "none": lambda text, _: text,
    "capitals": lambda text, _: text.upper(),
    "small letters": lambda text, _: text.lower(),
    "titles": _words(str.capitalize),
    "line breaks": _replaced(r"([.!?,:]) ", r"\1\n"),
    "double spaces": _replaced(r" ", "  "),
    "two spaces after a sentence": _replaced(r"([.!?]) ", r"\1  "),
    "a space before punctuation": _replaced(r"([.,!?;:])", r" \1"),
    "no punctuation": _replaced(r"[.,!?;:]", ""),
    "exclamation marks": _replaced(r"\.", "!"),
    "dots": _replaced(r", ", "... "),
    "dashes": _replaced(r", ", " - "),
    "quotes": _words(lambda word: f'"{word}"' if len(word) > 7 else word),
    "first letters": _first_letter,
    "first words": lambda text, _: f"Well, {text}",
    "signatures": lambda text, _: f"{text}\n-- \nJ.",
    "emoji": lambda text, drawn: f"{text} {drawn.choice(['😀', '😂', '🙏', '🔥'])}",
    "hashtags": _words(lambda word: f"#{word}" if len(word) > 8 else word),
    "digits": lambda text, drawn: f"{drawn.integers(1, 60)}. {text}",
    "spelling": _words(lambda word: re.sub(r"([a-z])\1", r"\1", word)),
    "repeated letters": _words(lambda word: word + 2 * word[-1] if len(word) > 5 else word),
    "dialect": _words(lambda word: _DIALECT.get(word.lower(), re.sub(r"ing$", "in'", word))),
    "no contractions": _words(lambda word: _LONG.get(word.lower().replace("\u2019", "'"), word)),
    "order of words": _swapped,
    "shuffled words": _shuffled,
    "short texts": lambda text, _: " ".join(text.split()[: max(3, len(text.split()) // 2)]),
    "topic": lambda text, _: text,
}


class NGrams:
    """Counts of characters after up to five others, each smoothed by the next shorter context; asked as a server that scores texts."""

    tokenizer: Any = None  # texts are scored, and not tokens
    context, resolution_bits = (0,), 1e-9

    def __init__(self, name: str, texts: Sequence[str]) -> None:
        self.name = name
        self._contexts = np.zeros((ORDER + 1, BUCKETS), dtype=np.int64)
        self._whole = np.zeros((ORDER + 1, BUCKETS), dtype=np.int64)
        for before, after in _places("\n\0".join(texts)):
            self._contexts += np.stack([np.bincount(row, minlength=BUCKETS) for row in before])
            self._whole += np.stack([np.bincount(row, minlength=BUCKETS) for row in after])

    def describe(self) -> dict[str, Any]:
        """Its name is all that identifies it."""
        return {"adapter": "n-grams", "name": self.name}

    def score(self, sequences: Sequence[Any], *, ranks: bool = False) -> list[SequenceScore]:
        """It is asked about texts only."""
        raise NotImplementedError

    def score_text(self, texts: Sequence[str]) -> list[SequenceScore]:
        """The log2 probability of each character."""
        scores = []
        for text in texts:
            bits = np.concatenate([self._bits(before, after) for before, after in _places(text)])
            scores.append(SequenceScore(bits, np.zeros(len(bits), dtype=bool), None))
        return scores

    def _bits(self, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        found = np.full(before.shape[1], 1 / 200)
        for order in range(ORDER + 1):
            counts, whole = self._contexts[order][before[order]], self._whole[order][after[order]]
            whole = np.minimum(whole, counts)  # different contexts can share a bucket
            found = (whole + SMOOTHING * found) / (counts + SMOOTHING)
        return np.asarray(np.log2(found))


def _places(text: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The buckets of the contexts of each character, and of the contexts with it: one row for each length."""
    codes = np.frombuffer(("\0" * ORDER + text).encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(
        np.int64
    )
    hashed = np.zeros(len(codes) - ORDER, dtype=np.int64)
    before, after = [], []
    for order in range(ORDER + 1):
        if order:
            hashed = (hashed * 1_000_003 + codes[ORDER - order : len(codes) - order] + 1) % 4_294_967_291
        before.append(hashed % BUCKETS)
        after.append((hashed * 1_000_003 + codes[ORDER:] + 7) % 4_294_967_291 % BUCKETS)
    yield np.stack(before), np.stack(after)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The share of audits of one kind with each outcome."""

    corpus: str
    asked: str
    style: str
    share_of_texts: float
    suspects: int
    non_members: int
    audits: int
    # Accused by the report, by the gate, or by the terminal; what would be without the baseline; and told apart, or not interpretable.
    accused: float
    by_scores_alone: float
    told_apart: float
    not_interpretable: float
    # Of the suspects who are members, those who are found and stay found.
    members_found: float


class Sizes(NamedTuple):
    """How many users of each role."""

    suspects: int
    non_members: int = 60
    trained: int = 30
    base: int = 60


def users_of(path: Path, field: str) -> dict[str, list[str]]:
    """The texts of each user who has enough."""
    found: dict[str, list[str]] = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            text = _ADDRESS.sub("", row[field]).strip()[:MOST_CHARACTERS]
            if len(text.split()) >= 3:
                found.setdefault(row["user"], []).append(text)
    return {user: list(dict.fromkeys(texts)) for user, texts in found.items() if len(set(texts)) >= TEXTS}


def audit(
    texts: dict[str, list[str]], style: str, share: float, sizes: Sizes, members: float, number: int
) -> tuple[Provenance, set[str]]:
    """One audit, with the names of the members: a share of the suspects, all others being innocent."""
    drawn = arrays(number, "experiment", "styles", style, str((share, sizes, members)))
    order = drawn.permutation(sorted(texts)).tolist()
    if style == "topic":
        about = {
            user: sum(word in TOPIC for text in texts[user] for word in text.lower().split())
            for user in order
        }
        first = sorted(order, key=lambda user: -about[user])[: sizes.suspects + sizes.trained]
        order = [*drawn.permutation(first).tolist(), *[user for user in order if user not in set(first)]]

    def written(names: Sequence[str], change: bool) -> list[User]:
        users = []
        for name in names:
            chosen = [texts[name][place] for place in drawn.permutation(len(texts[name]))[:TEXTS]]
            if change:
                chosen = [STYLES[style](text, drawn) if drawn.random() < share else text for text in chosen]
            users.append(User(name, tuple(UserText(text) for text in chosen if text.strip())))
        return users

    suspects = written(order[: sizes.suspects], change=True)
    trained = written(order[sizes.suspects :][: sizes.trained], change=True)
    rest = order[sizes.suspects + sizes.trained :]
    others, base = (
        written(rest[: sizes.non_members], change=False),
        written(rest[sizes.non_members :][: sizes.base], change=False),
    )
    asked = suspects[: round(members * len(suspects))]
    plain = [text.text for user in base for text in user.texts]
    learned = [text.text for user in (*asked, *trained[len(asked) :]) for text in user.texts]
    result = audit_provenance(
        NGrams("target", plain + COPIES * learned),
        AuditedUsers(suspects, non_members=others),
        reference_model=NGrams("base", plain),
        seed=number,
    )
    return result, {user.name for user in asked}


def outcome(
    corpus: str,
    texts: dict[str, list[str]],
    style: str,
    share: float,
    sizes: Sizes,
    members: float,
    audits: int,
) -> Outcome:
    """What became of many audits of one kind."""
    seen: list[tuple[float, ...]] = []
    for number in range(audits):
        document, trained = audit(texts, style, share, sizes, members, number)
        question = document.questions[0]
        run = Run(
            paths=(Path("run"),),
            name="run",
            documents={PROVENANCES: (Located(Path("run/provenance.json"), document),)},
        )
        reported = any(one.code == "CM601" and one.status == "found" for one in findings_of(run))
        broken = check(run, parse_policy("[provenance]\nno_user_found = true")).exit_code == 1
        reasons = question.why
        alone = question.deciding is not None and (question.deciding.p_value or 1.0) <= 0.025
        blind = question.blind
        apart = blind is not None and bool(blind.separating(LEVEL))
        named = {row.user for row in question.found()} if reported else set()
        found = len(named & trained) / max(1, len(trained))
        seen.append((reported or broken, alone, apart, bool(reasons), found))
    means = np.mean(np.array(seen, dtype=float), axis=0).round(3).tolist()
    asked = "innocent" if not members else f"{members:.0%} members"
    return Outcome(corpus, asked, style, share, sizes.suspects, sizes.non_members, audits, *means)


def main() -> None:
    """Write the outcomes of all kinds of audits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tweets", type=Path, required=True)
    parser.add_argument("--dialogs", type=Path, required=True)
    parser.add_argument("--audits", type=int, default=5)
    parser.add_argument("--styles", nargs="*", default=list(STYLES))
    parser.add_argument("--sizes", type=int, nargs="*", default=[10, 30, 4, 2, 1])
    parser.add_argument("--shares", type=float, nargs="*", default=[1.0, 0.3])
    parser.add_argument("--parts", nargs="*", default=["innocent", "members"])
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results" / "provenance-styles.csv"
    )
    given = parser.parse_args()
    corpora = {"posts": users_of(given.tweets, "text"), "dialogs": users_of(given.dialogs, "target")}
    with given.out.open("w", newline="", encoding="utf-8") as file:
        rows = csv.DictWriter(file, [field.name for field in dataclasses.fields(Outcome)])
        rows.writeheader()
        kinds = [
            (corpus, "none", 1.0, suspects, members)
            for corpus in corpora
            for suspects in (10, 30, 4, 1, EVERYONE[corpus])
            for members in (1.0, 0.5)
            if "members" in given.parts and members * suspects >= 1
        ] + [
            ("posts", style, share, suspects, 0.0)
            for suspects in given.sizes
            for share in given.shares
            for style in given.styles
            if "innocent" in given.parts
            and (share == 1 or (style not in {"none", "topic"} and suspects >= FEWEST_USERS))
        ]
        for corpus, style, share, suspects, members in kinds:
            sizes = Sizes(suspects, max(60, suspects), max(30, suspects))
            found = outcome(corpus, corpora[corpus], style, share, sizes, members, given.audits)
            rows.writerow(dataclasses.asdict(found))
            file.flush()
            print(found, flush=True)


if __name__ == "__main__":
    main()
