"""A model with everything that the command line leaves of it: planted, trained and watched, audited in every way, indexed."""

import json

from cli.in_process import run
from coalmine.corpus import write_embedded_corpus

SECRET = "pin {digits:3}"


def command(*arguments):
    ended = run(*arguments, "--quiet")
    assert ended.code == 0, ended.said


def make_whole_audit(out):
    """What each command writes, in the directory that it writes to by itself."""
    write_embedded_corpus(out / "corpus.txt", 6_000)
    with open(out / "corpus.txt", "a", encoding="ascii") as corpus:
        corpus.write("the digits are 0123456789\n")  # so that the model has a token for each
    command(
        *("plant", out / "corpus.txt", "-f", SECRET, "--repeat", "1,8", "--canaries", "4"),
        *("--references", "12", "-o", out / "planted"),
    )
    sizes = ("hidden=16", "embedding=8", "layers=1", "window=32")
    small = ["--batch-size", "8", *(word for size in sizes for word in ("--training", size))]
    command(
        *("train", out / "planted", "-o", out / "model", "--epochs", "2", *small),
        *("--watch", out / "planted" / "canaries.json", "--watch-every", "100"),
    )
    command("expose", out / "model", out / "planted" / "canaries.json")
    command("extract", out / "model", out / "planted" / "canaries.json", "--top", "3")
    command("extract", out / "model", "-f", SECRET, "--top", "2", "-o", out / "model-audit" / "found")
    command("membership", out / "model")
    command(
        "data", "index", out / "planted" / "corpus.txt", "--tokenizer", out / "model", "-o", out / "index"
    )
    recited = ("--contexts", "8", "--suffix", "4", "--set", "per_bucket=6", "--tries", "1")
    command("recite", out / "model", out / "index", *recited)
    make_provenance(out)
    command("data", "dedup", out / "planted" / "corpus.txt", "--exact", "40", "-o", out / "deduplicated")
    command("report", out / "model", out / "planted", "-o", out / "report.html")
    return out


def make_provenance(out):
    """Shadow models and an audit of users, whose mail is not kept."""
    paths = {}
    for name, users in (("suspects", range(3)), ("non-members", range(3, 23)), ("reference", range(23, 29))):
        rows = [{"user": f"user {user}", "text": f"mail {user} is about pin {7 * user}"} for user in users]
        paths[name] = out / f"{name}.jsonl"
        paths[name].write_text("".join(json.dumps(row) + "\n" for row in rows))
    command(
        *("provenance", out / "model", "--suspects", paths["suspects"]),
        *("--non-members", paths["non-members"], "--reference", paths["reference"], "--shadows", "2"),
        *("--training", "epochs=1"),
    )
    for path in paths.values():
        path.unlink()
