"""The commands that write, small, each with results of an earlier run that differ from its own."""

import contextlib
import csv
import json
import os
import signal
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from waiting import wait_until

PIN = "my pin is {digits:3}"
PLANT = ("-f", PIN, "--repeat", "1,4", "--canaries", "2", "--references", "10", "--withhold", "0.3")
_TRAINING = ("hidden=8", "embedding=4", "batch_size=32", "window=64", "epochs=1")
SMALL = tuple(part for one in _TRAINING for part in ("--training", one))
# Stays only where it cannot be removed.
NOTE = ("unfinished.json",)
KINDS = (".txt", ".csv", ".parquet", ".jsonl.zst")


class Case(NamedTuple):
    """A command that writes to `out`, below the directory of inputs, which is its working directory."""

    name: str
    argv: tuple
    # The command whose results are in `out` before; None where nothing is.
    earlier: tuple | None = None
    # Patterns of files that only tell a stopped run where it was; after a failure they may be there or not.
    unfinished: tuple = ()
    # Files that tell of another: never one beside another than it tells of.
    pairs: tuple = ()
    # How it ends where nothing fails.
    code: int = 0
    # Whether its answer is what it prints, and not a file.
    prints: bool = False
    # Packages that it has to do without, because what it does with them takes long.
    without: tuple = ()
    # What else is not as usual, see `moments.CHANGES`.
    changes: tuple = ()
    # How many faults are tried where there is no time for all.
    most: int = 22


def make_inputs(server, folder):
    """Everything that the commands read."""
    # Here, because each process that tries faults imports this module, and few of their commands need transformers.
    from models.tiny_transformers import byte_level, tiny

    folder.mkdir(parents=True)
    _write_corpora(folder)

    def run(*argv):
        ended = server.run([*argv, "--quiet"], cwd=folder)
        assert ended.code == 0, ended

    run("plant", "corpus.txt", *PLANT, "-o", "planted")
    for seed in ("0", "1"):
        run("train", "planted", "-o", f"model-{seed}", "--seed", seed, *SMALL)
        run("expose", f"model-{seed}", "planted", "--method", "exact")
    run("extract", "model-0", "planted")
    run("data", "index", "planted/corpus.txt", "-o", "index")
    run("data", "index", "planted/corpus.txt", "--tokenizer", "model-0", "-o", "tokens")
    run("init")
    tiny("gpt2", len(byte_level())).save_pretrained(folder / "base")
    byte_level().save_pretrained(folder / "base")


@contextlib.contextmanager
def serving(server, folder):
    """A server of a model, as endpoint.toml describes it."""
    child = server.start(["serve", "model-0", "--port", "0", "--batch", "1", "--json"], cwd=folder)
    try:
        wait_until(lambda: child.out.read_text().endswith("\n"), child.err.read_text)
        url = json.loads(child.out.read_text())["url"]
        (folder / "endpoint.toml").write_text(f'url = "{url}"\n')
        yield
    finally:
        os.kill(child.pid, signal.SIGTERM)
        server.wait(child)


def _write_corpora(folder):
    texts = [
        f"document number {one} of a small corpus, about {one * 7919 % 1000:03d} things" for one in range(120)
    ]
    texts[60:60] = [
        "a text that is there twice, and that is long enough to be taken out of its second place"
    ] * 2
    rows = [{"text": text, "by": f"user {number % 3}"} for number, text in enumerate(texts)]
    lines = "".join(f"{text}\n" for text in texts).encode()
    in_rows = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (folder / "corpus.txt").write_bytes(lines)
    notes = [*texts[:20], *["document number 713 853 4921"] * 3]
    (folder / "notes.txt").write_text("".join(f"{text}\n" for text in notes))
    (folder / "corpus.jsonl").write_bytes(in_rows)
    with pa.CompressedOutputStream(str(folder / "corpus.jsonl.zst"), "zstd") as stream:
        stream.write(in_rows)
    with open(folder / "corpus.csv", "w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, ["text", "by"])
        writer.writeheader()
        writer.writerows(rows)
    pq.write_table(pa.Table.from_pylist(rows), folder / "corpus.parquet", row_group_size=50)


def cases():
    """All of them but those that ask a server."""
    return [*_corpora(), *_audits(), *_reports()]


def endpoint_cases():
    """Those that ask the server of `endpoint.toml`, and keep its answers."""
    expose = ("--method", "references", "-o", "out")
    yield Case(
        "expose an endpoint",
        ("expose", "endpoint.toml", "planted", *expose),
        unfinished=("answers.sqlite*", "unfinished*"),
        pairs=(("exposure.json", "scores.parquet"),),
        most=16,
    )


def reading_cases():
    """Those that only read; their answer is what they print."""
    yield Case("count texts", ("data", "count", "index", "document number 1"), prints=True)
    yield Case("verify", ("verify", "model-0", "planted", "index"), prints=True)
    yield Case("verify --model", ("verify", "model-0", "--model", "model-0"), prints=True)


def case_named(name):
    """One of them."""
    return next(case for case in (*cases(), *endpoint_cases(), *reading_cases()) if case.name == name)


def _corpora():
    for kind in KINDS:
        plant = ("plant", f"corpus{kind}", *PLANT, "--overwrite", "-o", "out")
        yield Case(
            f"plant {kind}",
            (*plant, "--seed", "2"),
            (*plant, "--seed", "1"),
            unfinished=NOTE,
            pairs=(("canaries.json", f"corpus{kind}"),),
            most=30 if kind == ".txt" else 15,
        )
    # Of another kind than before, and of a corpus that is planted already: a corpus goes, and a second manifest comes.
    yield Case(
        "plant again",
        ("plant", "planted/corpus.txt", "-f", "{digits:5}!", "--canaries", "1", "--overwrite", "-o", "out"),
        ("plant", "corpus.csv", *PLANT, "-o", "out"),
        unfinished=NOTE,
        pairs=(("canaries.json", "corpus.txt"), ("earlier-canaries.json", "corpus.txt")),
    )
    yield Case(
        "index",
        ("data", "index", "planted/corpus.txt", "--overwrite", "-o", "out"),
        ("data", "index", "corpus.jsonl", "-o", "out"),
        unfinished=("unfinished*", "tokenizer.json", "shard-*"),
        pairs=tuple(("manifest.json", f"shard-0000{one}.suffixes") for one in "01"),
        most=30,
    )
    yield Case(
        "dedup",
        ("data", "dedup", "planted/corpus.txt", "--exact", "60", "--overwrite", "-o", "out"),
        ("data", "dedup", "corpus.txt", "--no-near", "-o", "out"),
        unfinished=NOTE,
        pairs=(
            ("canaries.json", "corpus.txt"),
            ("dedup.json", "corpus.txt"),
            ("dedup.json", "removed.jsonl"),
        ),
        most=30,
    )
    yield Case(
        "scan",
        (
            "data",
            "scan",
            "corpus.jsonl",
            "--field",
            "user=by",
            "-f",
            "number {digits:2}",
            "--overwrite",
            "-o",
            "out",
        ),
        ("data", "scan", "corpus.txt", "-f", "number {digits:2}", "-o", "out"),
        unfinished=NOTE,
        pairs=(
            ("scan.json", "occurrences.jsonl"),
            ("scan.json", "distinct.jsonl"),
        ),
        most=20,
    )
    yield Case(
        "quantize",
        ("lab", "alter", "model-0", "--overwrite", "-o", "out"),
        ("lab", "alter", "model-1", "--int8", "-o", "out"),
        unfinished=NOTE,
        pairs=(("quantization.json", "model.safetensors"), ("config.json", "model.safetensors")),
        most=12,
    )
    yield Case(
        "train",
        ("train", "planted", "-o", "out", *SMALL),
        unfinished=("unfinished*",),
        pairs=(("training.json", "model.safetensors"), ("config.json", "model.safetensors")),
    )
    yield Case(
        "finetune",
        ("train", "planted", "--base", "base", "-o", "out", "--epochs", "1"),
        unfinished=("unfinished*",),
        pairs=(("finetuning.json", "model.safetensors"), ("finetuning.json", "tokenizer.json")),
        most=6,
    )


def _audits():
    unfinished = ("unfinished*",)
    for method, most in {"exact": 45, "bounded": 15, "splitting": 4, "references": 15}.items():
        yield Case(
            f"expose {method}",
            ("expose", "model-1", "planted", "--method", method, "--samples", "16", "-o", "out"),
            ("expose", "model-0", "planted", "--method", "exact", "-o", "out"),
            unfinished=unfinished,
            pairs=(("exposure.json", "scores.parquet"),),
            most=most,
        )
    yield Case(
        "extract",
        ("extract", "model-1", "-f", PIN, "-o", "out"),
        ("extract", "model-0", "-f", PIN, "-o", "out"),
        unfinished=unfinished,
    )
    yield Case(
        "extract --verify",
        ("extract", "model-1", "planted", "-o", "out"),
        ("extract", "model-0", "planted", "-o", "out"),
        unfinished=unfinished,
        pairs=(("verified.json", "extraction-f0.json"),),
    )
    yield Case(
        "membership",
        ("membership", "model-1-audit/exposure", "--out", "out"),
        ("membership", "model-0-audit/exposure", "--out", "out"),
        most=20,
    )
    recite = (
        "tokens",
        "--contexts",
        "8",
        "--suffix",
        "4",
        "--set",
        "per_bucket=10",
        "--max-sequences",
        "20",
        "-o",
        "out",
    )
    yield Case(
        "recite",
        ("recite", "model-1", *recite),
        ("recite", "model-0", *recite),
        unfinished=("unfinished*",),
        pairs=(("recitation.json", "sequences.parquet"),),
        without=("vl_convert",),
    )
    yield Case(
        "audit",
        ("audit", "model-1", "--data", "notes.txt", "--minutes", "1", "-o", "out"),
        # The plan is written before and after each step.
        unfinished=("unfinished*", "review.json", "tokenizer.json", "shard-*"),
        pairs=(("secrets-exposure/exposure.json", "secrets-exposure/scores.parquet"),),
        without=("vl_convert",),
        changes=("still clock",),
        most=8,
    )


def _reports():
    report = ("--format", "html", "-o", "out/report")
    yield Case("report html", ("report", "model-1", *report), ("report", "model-0", *report), most=15)
    check = ("--policy", "policy.toml", "--junit", "out/junit.xml")
    yield Case("check", ("check", "model-1", *check), ("check", "model-0", *check), code=2, most=20)
    compare = (
        "report",
        "model-0",
        "model-1",
        "--comparison",
        "out",
        "-o",
        "out/report.json",
        "--format",
        "json",
    )
    yield Case("compare", (*compare, "--loss", "1.5", "--loss", "1.6"), compare, most=20)
