"""The commands that are stopped at every moment, and the small corpus, canaries, model and index that they read."""

import json
from pathlib import Path

from coalmine import CanarySet
from coalmine.corpus import write_embedded_corpus
from faults.kill_runs import Case

PIN, CODE = "my pin is {digits:3}", "the code: {digits:3}"
_TRAINING = ("hidden=12", "embedding=8", "batch_size=24", "window=32", "epochs=2")
SMALL = tuple(part for one in _TRAINING for part in ("--training", one))
PLANTING = ("--repeat", "1,8", "--canaries", "2", "--references", "20", "--withhold", "0.3")


def make_inputs(server, folder):
    """Everything that a command reads; none of it is written to again."""
    corpus = folder / "corpus.txt"
    write_embedded_corpus(corpus, 4_000)
    with open(corpus, "a", encoding="utf-8") as lines:
        lines.write("0123456789: the code\n" * 3)
        repeated = "a line that is there more than once, long enough to be cut out of its second copy and of its third"
        lines.write(f"{repeated}\n" * 3)
    notes = [f"the line {number} of some notes, about nothing at all" for number in range(30)]
    (folder / "notes.txt").write_text(
        "".join(f"{one}\n" for one in [*notes, *["the number is 713 853 4921"] * 3])
    )
    with open(folder / "pairs.jsonl", "w", encoding="utf-8") as rows:
        for number in range(40):
            digits = f"{(number * 7919) % 10_000:04d}"
            rows.write(json.dumps({"en": f"number {digits}", "fr": f"nombre {digits}"}) + "\n")

    def make(*argv):
        ended = server.run([*argv, "--quiet"], cwd=folder)
        assert ended.code == 0, ended.err

    make("plant", "corpus.txt", "-f", PIN, "-f", CODE, *PLANTING, "-o", "planted")
    pins = [canary for canary in CanarySet.load(folder / "planted") if canary.format_id == "f0"]
    rows = (f"{canary.text},{'in' if canary.planted else 'out'},{canary.repetitions}\n" for canary in pins)
    (folder / "theirs.csv").write_text("".join(["text,in_out,copies\n", *rows]))
    make("train", "planted", "-o", "model", *SMALL)
    make("data", "index", "planted/corpus.txt", "--tokenizer", "model", "-o", "index")
    make("expose", "model", "planted", "--method", "references", "-o", "exposure")
    make("plant", "--from", "theirs.csv", "-f", PIN, "-o", "imported")
    return folder


def cases(inputs):
    """By name; each writes to `out` in the directory where it runs."""
    model, planted, out = inputs / "model", inputs / "planted", ("-o", "out", "--quiet")
    pairs = ("--field", "source=en", "--field", "target=fr", "--preset", "translation-attention")
    expose = ("expose", model, planted, *out, "--method")
    plant = ("plant", inputs / "corpus.txt", "-f", PIN, *PLANTING, *out)

    def planted_before(folder):
        """As an earlier run with another kind of corpus leaves it."""
        (folder / "out").mkdir()
        for name in ("corpus.txt", "canaries.json", "run.json"):
            (folder / "out" / name).write_bytes((planted / name).read_bytes())

    def indexed_before(folder):
        """As an earlier run with more shards leaves it, of another corpus."""
        (folder / "out").mkdir()
        for path in (inputs / "index").iterdir():
            (folder / "out" / path.name).write_bytes(path.read_bytes())
        for part in ("symbols", "suffixes", "starts", "numbers"):
            (folder / "out" / f"shard-00009.{part}").write_bytes(b"old")

    return {
        "train": Case(("train", planted, *SMALL, "--watch", planted, "--watch-every", "5", *out)),
        "train pairs": Case(
            ("train", inputs / "pairs.jsonl", *pairs, "--training", "hidden=8", "--training", "embedding=8", "--batch-size", "10", "--epochs", "3", *out)
        ),
        "train family": Case(("train", planted, *SMALL, "--preset", "gru", "--preset", "cnn", "--seed", "3", *out)),
        "expose exact": Case((*expose, "exact"), ("small batches", "small units")),
        "expose bounded": Case((*expose, "bounded"), ("small batches",)),
        "expose splitting": Case(
            ("expose", model, inputs / "imported", *out, "--method", "splitting", "--samples", "16"), ("small batches",)
        ),
        "extract": Case(("extract", model, "-f", PIN, *out), ("small batches",)),
        "extract, budget spent": Case(("extract", model, "-f", PIN, "--budget", "12", *out), ("small batches",)),
        "extract --verify": Case(("extract", model, planted, *out), ("small batches",)),
        "recite": Case(
            ("recite", model, inputs / "index", "--contexts", "8", "--suffix", "4", "--set", "per_bucket=20", *out),
            ("no figures", "small questions"),
        ),
        "audit": Case(
            ("audit", model, "--data", inputs / "notes.txt", "--minutes", "1", *out),
            ("still clock", "no figures", "small questions"),
        ),
        "index": Case(("data", "index", inputs / "corpus.txt", *out), ("small shards",)),
        "index --overwrite": Case(
            ("data", "index", inputs / "corpus.txt", "--overwrite", *out), ("small shards",), indexed_before
        ),
        "dedup": Case(("data", "dedup", planted / "corpus.txt", *out), resumes=False),
        "scan": Case(("data", "scan", inputs / "corpus.txt", "-f", PIN, *out), resumes=False),
        "plant": Case(plant, resumes=False),
        "plant --overwrite": Case((*plant, "--seed", "1", "--overwrite"), prepare=planted_before, resumes=False),
    }  # fmt: skip


def short_cases(inputs):
    """Commands of a moment, which start over."""
    exposure = inputs / "exposure"
    return {
        "membership": Case(("membership", exposure, "--out", "out", "--quiet"), resumes=False),
        "report": Case(("report", exposure, "-o", "report.html", "--quiet"), resumes=False),
    }


LONG, SHORT = tuple(cases(Path())), tuple(short_cases(Path()))
