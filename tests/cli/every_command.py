"""One use of every command, on a small corpus and an untrained model, for tests of what all commands share."""

import json
import string

from coalmine import Format
from coalmine.corpus import write_embedded_corpus
from coalmine.models import CharacterTokenizer
from models.random_networks import random_model, save_network
from models.tiny_transformers import byte_level, tiny

# Its fillings are in no English text.
FORM = "pin {re:[qxzj]{5}}"
FILLINGS = ["qxzjq", "zzqxj", "jqqxz", "xzjqj", "qqzzx", "jxjxq", "zjqzx", "xxqjz"]
NATURAL = "the vault of the bank opens with zanzibarquux on sundays"
# The beginning of the names of users.
PERSON = "quuxperson"
# Secrets that are there already.
NUMBERS = Format("{ssn}").sample(3, seed=5)
FEW = ("--repeat", "1,2", "--canaries", "4", "--references", "20")
SMALL = ("--training", "hidden=8", "--training", "embedding=8", "--training", "epochs=1")
ONCE = ("--seeds", "1", "--method", "references")
SHADOWS = (
    "--preset",
    "provenance-words",
    "--shadows",
    "2",
    "--training",
    "epochs=1",
    "--training",
    "hidden=8",
)
SHORT = ("--contexts", "8", "--suffix", "4", "--max-sequences", "9")
REPORTS = {"html": "html", "json": "json", "markdown": "md", "junit": "xml", "sarif": "sarif"}


def write_inputs(at):
    """Everything that the commands need except a model: the corpus, a table of another tool, scores and texts to look up."""
    write_embedded_corpus(at / "corpus.txt", 8_000)
    with open(at / "corpus.txt", "a") as corpus:
        corpus.write(f"{NATURAL}\n" * 3)
    sides = ["in" if number % 2 else "out" for number in range(len(FILLINGS))]
    rows = [f"pin {filling},{side},4\n" for filling, side in zip(FILLINGS, sides, strict=True)]
    for name, text in {
        "rows.csv": "text,in_out,copies\n" + "".join(rows),
        "scores.csv": "score,in_out\n" + "".join(f"{place},{side}\n" for place, side in enumerate(sides)),
        "texts.txt": "the\nand\n",
        "suspects.jsonl": mail_of(0, 3),
        "non-members.jsonl": mail_of(3, 24),
        "reference.jsonl": mail_of(24, 30),
        "numbers.jsonl": "".join(
            json.dumps({"user": f"{PERSON}{place}", "text": f"mine is {number}, {number}"}) + "\n"
            for place, number in enumerate(NUMBERS)
        ),
    }.items():
        (at / name).write_text(text)


def mail_of(first, last):
    """The mail of some users, whose names are nobody's business."""
    rows = [
        {"user": f"{PERSON}{user}@example.org", "text": f"the mail of {user:02} is short"}
        for user in range(first, last)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


def save_untrained(path, corpus):
    """A character model with random weights that can read a corpus, the canaries, and the numbers that secrets are compared with."""
    made = random_model("lstm", CharacterTokenizer(sorted(set(corpus + FORM + string.digits) - {"\n"})))
    save_network(path, made)


def save_checkpoint(path):
    """A checkpoint of transformers with random weights."""
    tiny("gpt2", len(byte_level())).save_pretrained(path)
    byte_level().save_pretrained(path)


def commands(at, model):
    """The arguments of each use, by its name; all paths except the models are below `at`, and some read what others write."""
    audit = at / "audit"
    users = ["--suspects", at / "suspects.jsonl", "--non-members", at / "non-members.jsonl"]
    return {
        "plant": ["plant", at / "corpus.txt", "-f", FORM, *FEW, "-o", at / "planted", "--overwrite"],
        "plant --from": ["plant", "--from", at / "rows.csv", "-o", at / "imported", "--overwrite"],
        "train": ["train", at / "planted", "-o", model.with_name("trained"), "--watch", at / "planted", *SMALL],
        "train --base": ["train", at / "planted", "--base", model.with_name("base"), "-o", model.with_name("tuned"), "--epochs", "1"],
        "lab alter": ["lab", "alter", model, "--values", "16", "-o", model.with_name("quantized"), "--overwrite"],
        "lab alter --forget": ["lab", "alter", model, "--forget", at / "planted", "--steps", "2", "-o", model.with_name("unlearned"), "--overwrite"],
        "expose": ["expose", model, at / "planted", "-o", audit / "exposure"],
        "extract": ["extract", model, "-f", FORM, "-o", audit / "extraction"],
        "extract, of canaries": ["extract", model, at / "planted", "-o", audit / "verified"],
        "verify --model": ["verify", audit / "extraction", "--model", model],
        "membership": ["membership", audit / "exposure", "--out", audit / "member"],
        "membership --scores": ["membership", "--scores", at / "scores.csv", "--out", at / "of-scores"],
        "data index": ["data", "index", at / "corpus.txt", "-o", at / "index", "--tokenizer", model],
        "data count": ["data", "count", at / "index", "--texts-file", at / "texts.txt"],
        "data dedup": ["data", "dedup", at / "planted" / "corpus.txt", "-o", at / "deduplicated", "--overwrite"],
        "data redact": ["data", "redact", at / "planted" / "corpus.txt", "-f", FORM, "-o", at / "redacted", "--overwrite"],
        "data crosscheck": ["data", "crosscheck", at / "corpus.txt", "-o", model.with_name("crosscheck"), *SMALL, "--drop", "--overwrite"],
        "lab defend": ["lab", "defend", at / "corpus.txt", "--defense", "dropout=0.5", "-f", FORM, *FEW, *SMALL, *ONCE, "-o", model.with_name("bench")],
        "data scan": ["data", "scan", at / "numbers.jsonl", "-o", at / "scanned", "--field", "user=user", "-f", FORM, "--overwrite"],
        "expose, of secrets": ["expose", model, at / "scanned", "--method", "references", "-o", audit / "secrets-exposure"],
        "extract, of secrets": ["extract", model, at / "scanned", "--budget", "20", "-o", audit / "secrets-extraction"],
        "recite": ["recite", model, at / "index", *SHORT, "-o", audit / "recitation"],
        "provenance": ["provenance", model, *users, "--reference", at / "reference.jsonl", *SHADOWS, "-o", model.with_name("users")],
        "provenance --fit": ["provenance", model, *users, "--reference", at / "reference.jsonl", "--fit", model.with_name("users") / "fit", "-o", audit / "provenance"],
        "audit": ["audit", model, "--data", at / "planted" / "corpus.txt", "--held-out", at / "texts.txt", "-o", at / "whole"],
        "report": ["report", audit, "-o", at / "report.html"],
        **{
            f"report {kind}": ["report", audit, at / "planted", "--format", kind, "-o", at / f"report.{end}"]
            for kind, end in REPORTS.items()
        },
        "init": ["init", at, "--overwrite"],
        "check": ["check", audit, "--policy", at / "policy.toml", "--junit", at / "junit.xml"],
        "report --comparison": ["report", audit / "exposure", f"x={at / 'whole' / 'canaries-exposure'}", "--comparison", at / "comparison", "-o", at / "two.html"],
    }  # fmt: skip
