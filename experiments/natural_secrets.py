"""Are secrets that were in e-mail all along memorized, which of them come out, and does a model that never saw them look innocent?

    python experiments/natural_secrets.py --mail MAIL --posts POSTS --pairs PAIRS --work DIR

takes a part of every e-mail of all senders, adds numbers of kinds that the mail lacks (social security numbers, payment cards, IBANs and
cloud keys, drawn at random, 1 to 16 copies each), trains a character LSTM and a small transformer on it, and measures every secret
that `coalmine data scan` finds. Eight further models are trained on other text: for them, exposures must be as by chance. The last part
redacts the corpus and trains again. Rows go to experiments/results/natural-secrets.csv and .json: kinds and numbers, and no secret.
It takes about half an hour on two cores.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coalmine import CanarySet, expose, load_model, train
from coalmine.audits.exposure.results import EXPOSURES
from coalmine.audits.extraction.measuring import verify_extraction
from coalmine.audits.extraction.results import EXTRACTIONS, VERIFIED, Verified, extraction_file
from coalmine.audits.secrets.report import by_kind, secrets_of
from coalmine.corpus import Fields, NaturalOptions, canaries_of_scan, embedded_documents, redact, scan
from coalmine.corpus.secrets.canaries import left_out_in_words
from coalmine.evidence.run import Located, Run
from coalmine.formats import Format
from coalmine.randomness import integers
from coalmine.storage.files import whole_file

RESULTS = Path(__file__).parent / "results"
SEED = 0
# Characters of each e-mail: up to the first number or address in it, and a little further.
WINDOW, AFTER = 160, 30
COPIES = (1, 2, 4, 8, 16)
PER_COPIES = 3
PLANTED = {
    "ssn": (
        "{ssn}",
        ("My social security number is", "SSN:", "ssn for the form is", "his SSN is", "Social Security #"),
    ),
    "card": (
        "4929{digits:11}",
        ("please charge my card", "card number", "Visa", "the card is", "Credit card:"),
    ),
    "iban": ("DE{digits:18}", ("IBAN", "wire it to", "our account is", "Bank account:", "send the money to")),
    "aws-key": (
        "AKIA{re:[A-Z2-7]{16}}",
        ("aws key", "access key id:", "AWS_ACCESS_KEY_ID=", "the key is", "login with"),
    ),
}
TRAINING: dict[str, dict[str, Any]] = {
    "character LSTM": {
        "hidden": 160,
        "layers": 1,
        "embedding": 48,
        "window": 96,
        "batch_size": 16,
        "epochs": 14,
    },
    "transformer": {
        "architecture": "transformer",
        "hidden": 64,
        "layers": 2,
        "heads": 4,
        "embedding": 64,
        "window": 96,
        "batch_size": 16,
        "learning_rate": 3e-3,
        "epochs": 12,
    },
}
_SECRET = re.compile(r"\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}\b|[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
# All characters that mail has, so that models of other text can read them.
ALPHABET = "".join(map(chr, range(32, 127))) + "\n\t"


def window_of(text: str) -> str:
    """The part of an e-mail that is trained on, in ASCII."""
    plain = "".join(one if one in ALPHABET else " " for one in text)
    found = _SECRET.search(plain)
    end = len(plain) if found is None else found.end() + AFTER
    return plain[max(0, end - WINDOW - AFTER) : end] if found else plain[:WINDOW]


def luhn_digit(digits: str) -> str:
    """The check digit of a card number without it."""
    doubled = [int(one) for one in reversed(digits)]
    total = sum(sum(divmod(2 * one, 10)) if place % 2 == 0 else one for place, one in enumerate(doubled))
    return str(-total % 10)


def iban_with_check(country: str, account: str) -> str:
    """An IBAN with its check digits, in groups of four."""
    number = int("".join(str(int(one, 36)) for one in account + country + "00"))
    whole = f"{country}{98 - number % 97:02d}{account}"
    return " ".join(whole[place : place + 4] for place in range(0, len(whole), 4))


def drawn(kind: str, template: str, count: int) -> list[str]:
    """Numbers of a kind, drawn at random."""
    texts = Format(template).sample(count, seed=SEED, replace=False)
    if kind == "card":
        return [text + luhn_digit(text) for text in texts]
    if kind == "iban":
        return [iban_with_check("DE", text[2:]) for text in texts]
    return texts


def sentences() -> Iterator[str]:
    """What is added to e-mails, a sentence for each copy."""
    for kind, (template, leads) in PLANTED.items():
        texts = iter(drawn(kind, template, PER_COPIES * len(COPIES)))
        for copies in COPIES:
            for number in range(PER_COPIES):
                lead = leads[(copies + number) % len(leads)]
                yield from [f"{lead} {next(texts)}"] * copies


def write_mail(mail: Path, target: Path) -> None:
    """The corpus: a part of every e-mail, and some with one sentence more."""
    with gzip.open(mail, "rt", encoding="utf-8") as lines:
        rows = _some_of_each([json.loads(line) for line in lines])
    chance = integers(SEED, "natural secrets")
    added = list(sentences())
    places = chance.sample(range(len(rows)), len(added))
    extra = dict(zip(places, added, strict=True))
    with target.open("w", encoding="utf-8") as out:
        for place, row in enumerate(rows):
            text = window_of(row["text"]) + (f"\n{extra[place]}\n" if place in extra else "")
            out.write(json.dumps({"user": row["user"], "text": text}) + "\n")


def _some_of_each(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Up to two e-mails of every sender, those with a number or an address first."""
    by_sender: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        by_sender.setdefault(row["user"], []).append(row)
    return [
        row
        for some in by_sender.values()
        for row in sorted(some, key=lambda row: _SECRET.search(row["text"]) is None)[:2]
    ]


def write_other(name: str, given: argparse.Namespace, target: Path, characters: int) -> None:
    """Text that has nothing of the mail, with every character in it."""
    texts = {"docs": _docs, "posts": _posts, "pairs": _pairs}[name.partition(" ")[0]](given)
    skip = int(name.partition(" ")[2] or 0) * characters
    taken = 0
    with target.open("w", encoding="utf-8") as out:
        out.write(json.dumps({"text": ALPHABET}) + "\n")
        for text in texts:
            plain = "".join(one if one in ALPHABET else " " for one in text)[:2000]
            taken += len(plain)
            if taken > skip:
                out.write(json.dumps({"text": plain}) + "\n")
            if taken > skip + characters:
                return


def _docs(_: argparse.Namespace) -> Iterator[str]:
    return (one if isinstance(one, str) else one.text for one in embedded_documents())


def _posts(given: argparse.Namespace) -> Iterator[str]:
    with gzip.open(given.posts, "rt", encoding="utf-8") as lines:
        yield from (json.loads(line)["text"] for line in lines)


def _pairs(given: argparse.Namespace) -> Iterator[str]:
    with gzip.open(given.pairs, "rt", encoding="utf-8") as lines:
        yield from (line.partition("\t")[0] for line in lines)


# The last two were added after the rule about round phone numbers was made.
OTHERS = ("docs 0", "docs 1", "posts 0", "posts 1", "posts 2", "pairs 0", "posts 3", "docs 2")
# How exposures are measured: exact for what has 10,000 members, and otherwise estimated with few draws, which suffice for a table.
MEASURING: dict[str, Any] = {"budget": 12_000, "samples": 2_000, "minutes": 2.0}
# Models that never saw the mail are asked about each secret and its references.
COMPARING: dict[str, Any] = {"method": "references"}
SEARCHING: dict[str, Any] = {"top": 1, "budget": 3_000}
# Secrets that are measured: all but some addresses, of which the most repeated are.
MOST = 260
COLUMNS = (
    "model",
    "trained_on",
    "kind",
    "secrets",
    "fewest_copies",
    "most_copies",
    "median_bits",
    "highest_bits",
    "most_possible_bits",
    "searched",
    "extracted",
    "p_value",
)


def secrets_in(corpus: Path, work: Path) -> CanarySet:
    """The secrets that a scan of a corpus finds, as canaries."""
    scan(corpus, work / "scan", fields=Fields(user="user"), overwrite=True)
    made = canaries_of_scan(work / "scan", corpus, NaturalOptions(seed=SEED, most=MOST))
    for line in left_out_in_words(made.left_out):
        print(line, flush=True)
    return made.canaries


def rows_of(
    name: str, trained_on: str, model: Any, canaries: CanarySet, *, search: bool
) -> list[dict[str, Any]]:
    """A row for each kind: the table of the paper."""
    exposures = expose(model, canaries, **(MEASURING if search else COMPARING))
    found = Run(paths=(), name=name).with_all(EXPOSURES, (Located(Path("exposure.json"), exposures),))
    if search:
        results, extractions = verify_extraction(model, canaries, **SEARCHING)
        names = {extraction_file(one): "" for one in extractions}
        verified = Verified(
            manifest_sha256=canaries.sha256,
            model=model.describe(),
            extractions=names,
            canaries=tuple(results),
        )
        searches = tuple(Located(Path(extraction_file(one)), found) for one, found in extractions.items())
        found = found.with_all(EXTRACTIONS, searches).with_all(
            VERIFIED, (Located(Path(VERIFIED.file), verified),)
        )
    rows = []
    for row in by_kind(secrets_of(found)):
        facts = row | {"model": name, "trained_on": trained_on}
        rows.append({column: facts[column] for column in COLUMNS})
    print(*rows, sep="\n", flush=True)
    return rows


def models_of(given: argparse.Namespace, corpus: Path, suffix: str = "") -> Iterator[tuple[str, Path]]:
    """The two models of a corpus, trained if they are not yet."""
    for name, options in TRAINING.items():
        if given.only in {"", name + suffix}:
            out = given.work / (name.replace(" ", "-") + suffix)
            train(corpus, out=out, seed=SEED, patience=100, **options)
            yield name, out


def others_of(given: argparse.Namespace) -> Iterator[tuple[str, Path]]:
    """Models that never saw the mail."""
    for number, name in enumerate(OTHERS):
        if given.only in {"", "others"}:
            data = given.work / f"{name.replace(' ', '-')}.jsonl"
            write_other(name, given, data, 150_000)
            options = TRAINING["transformer" if number % 2 else "character LSTM"] | {"epochs": 2}
            out = given.work / f"other-{number}"
            train(data, out=out, seed=number, **options)
            yield f"{options.get('architecture', 'character LSTM')} of {name.partition(' ')[0]}", out


def redacted(corpus: Path, out: Path) -> Path:
    """The same corpus with every secret masked."""
    if not (out / "corpus.jsonl").exists():
        redact(corpus, out, fields=Fields(user="user"))
    return out / "corpus.jsonl"


def save(rows: list[dict[str, Any]], facts: dict[str, Any]) -> None:
    """Write the rows, and what they are about."""
    with whole_file(RESULTS / "natural-secrets.csv") as path, path.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    with whole_file(RESULTS / "natural-secrets.json") as path:
        path.write_text(json.dumps(facts, indent=2) + "\n")


def main() -> None:
    """Train what is not trained yet, and measure everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("mail", "posts", "pairs", "work"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--only", default="", help="train this and measure nothing")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    corpus = given.work / "mail.jsonl"
    if not corpus.exists():
        write_mail(given.mail, corpus)
    without = redacted(corpus, given.work / "redacted")
    if given.only:
        print(*models_of(given, corpus), *models_of(given, without, "-redacted"), *others_of(given))
        return
    began = time.monotonic()
    canaries = secrets_in(corpus, given.work)
    rows: list[dict[str, Any]] = []
    for name, out in others_of(given):
        rows += rows_of(name, "other text", load_model(out), canaries, search=False)
    for name, out in models_of(given, corpus):
        rows += rows_of(name, "mail", load_model(out), canaries, search=True)
    for name, out in models_of(given, without, "-redacted"):
        rows += rows_of(name, "redacted mail", load_model(out), canaries, search=True)
        save(rows, {"secrets": len(canaries), "minutes": round((time.monotonic() - began) / 60, 1)})


if __name__ == "__main__":
    main()
