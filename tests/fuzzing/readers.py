"""Every reader of a file that a user can hand to coalmine: how to make a valid file, and how a command reads it.

One table for all who fuzz: the Hypothesis tests beside it, and the coverage-guided fuzzer of `make fuzz`.
"""

import contextlib
import functools
import gzip
import hashlib
import json
import shutil
from pathlib import Path

from audits.defenses.benches import known_bench
from coalmine import (
    CanarySet,
    Format,
    check,
    membership,
    parse_policy,
    plant,
    read_policy,
    read_runs,
    verify_certificate,
    verify_run,
)
from coalmine.audits import Review, StepRecord, compare_runs, read_extraction
from coalmine.audits.membership.score_files import read_scores
from coalmine.cli.options import lines_of, words_from
from coalmine.corpus import (
    CorpusIndex,
    build_index,
    deduplicate,
    distinct_in,
    import_canaries,
    occurrences_in,
    repeated_sequences,
    scan,
    verify_planted,
)
from coalmine.corpus.files.reading import nonempty_blocks, open_corpus
from coalmine.engines.ledger import Ledger
from coalmine.engines.units import KEY_BYTES
from coalmine.errors import CoalmineError, InputError
from coalmine.integrations import read_watched
from coalmine.models.endpoints.connecting import read_endpoint
from coalmine.records.documents import sealed
from coalmine.reports import export
from coalmine.reports.conclusion import reported
from coalmine.reports.page.html import report_page
from coalmine.storage.directories import left_unfinished
from fuzzing.making import (
    LINES,
    SMALL,
    copy_of,
    foreign,
    make_extraction,
    make_kept,
    make_unfinished_index,
    make_units,
    parquet,
    small_model,
    whole_policy,
    written,
    zstandard,
)
from fuzzing.trials import Reader
from resealing import resealed

# A limit for every section, so that all rules are judged.
POLICY = parse_policy(
    'require = ["exposure", "extraction", "membership", "recitation", "provenance"]\n[exposure]\nat_most = 5\n'
    "[extraction]\nat_most_extracted = 0\n[membership]\nauc_at_most = 0.6\ntpr_at_fpr_1_percent_at_most = 0.1\nepsilon_at_most = 1.0\n"
    "[recitation]\nrate_at_most = 0.01\n[provenance]\nno_user_found = true\n"
)


REVIEW = Review(
    model={"name": "m"},
    minutes=5,
    steps=(
        StepRecord(name="a", title="A", audits=("recitation",), status="no_time", why="it did not fit"),
        StepRecord(name="b", title="B", audits=("provenance",), status="done", cut="it was cut", seconds=3.0),
    ),
)


def _read_manifest(path: Path) -> None:
    loaded = CanarySet.load(path)
    loaded.power()
    verify_planted(path.parent)


def _read_corpus(path: Path) -> None:
    with open_corpus(path, hashed=True) as corpus:
        for block in nonempty_blocks(corpus):
            documents = block.documents()
            assert len(documents) == block.count
            haystack = block.haystack()
            if haystack:
                block.number_at(len(haystack) - 1)
        corpus.sha256()


def _use_corpus(path: Path) -> None:
    """What reads a corpus in ways of its own: planting in it, indexing it, writing it again."""
    out = path.parent / "out"
    for use in (
        lambda: build_index(path, out / "index", overwrite=True),
        lambda: deduplicate(path, out / "new", exact=8, overwrite=True),
        lambda: scan(path, out / "scanned", formats=[SMALL], overwrite=True),
        lambda: plant(path, SMALL, repeat=[1], canaries=1, references=0, out=out / "planted", overwrite=True),
    ):
        try:
            use()
        except CoalmineError:
            shutil.rmtree(out, ignore_errors=True)
            raise


def _read_distinct(path: Path) -> None:
    """The secrets of a scan, and where they are."""
    for _ in distinct_in(path.parent):
        pass
    for _ in occurrences_in(path.parent):
        pass


def _read_run(path: Path) -> None:
    """What is found in it, in every form but the page, and whether it keeps a policy."""
    runs = read_runs(_top_of(path))
    told = reported(runs)
    export.as_json(told)
    export.as_markdown(told)
    export.as_junit(told)
    export.as_sarif(told)
    for run in runs:
        check(run, POLICY)


def _draw_run(path: Path) -> None:
    """The page, with its figures."""
    report_page(read_runs(_top_of(path)))


def _top_of(path: Path) -> Path:
    return next((folder for folder in path.parents if (folder / "canaries.json").is_file()), path.parent)


def _verify(path: Path) -> None:
    """Whether it is what was written, by the command that asks that of every file."""
    found = verify_run(path.parent)
    if not found.sound:
        raise InputError(f"{path} is not what was written: {found.files}")


def _compare(path: Path) -> None:
    """Membership by the scores, and the exposures beside those of another run."""
    membership(path.parent)
    compare_runs([path.parent, _top_of(path) / "exposure"], loss=[1.0, 2.0])


def _read_index(path: Path, *, verify_all: bool = True) -> None:
    index = CorpusIndex.open(path.parent, verify=verify_all)
    for text in ("document 1", "words", "zzz"):
        with contextlib.suppress(CoalmineError):
            index.encode(text)
        index.count([3, 4])
    index.locate([3], limit=5)
    index.longest_match([3, 4, 5, 6])
    for one in list(repeated_sequences(index, 8))[:5]:
        index.decode(one.tokens)
    list(index.document_lengths())


def _vouch_for_tokenizer(path: Path) -> None:
    with resealed(path.with_name("manifest.json")) as manifest:
        manifest["tokenizer"]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()


def _nothing(path: Path) -> None:
    del path


def _read_kept(path: Path) -> None:
    ledger = Ledger(path.parent)
    ledger.begin("mine")
    ledger.kept(bytes(KEY_BYTES))


def _read_units(path: Path) -> None:
    ledger = Ledger(path.parent)
    ledger.begin("mine")
    for number in range(3):
        ledger.result(bytes([number] * KEY_BYTES))


def _replay(path: Path) -> None:
    verify_certificate(small_model(), read_extraction(path))


def _read_words(path: Path) -> None:
    words = words_from(path)
    Format("{word:2}", words=words).sample(3, seed=0)


def _read_score_table(path: Path) -> None:
    read_scores(path)


def _resume_index(path: Path) -> None:
    before = path.read_bytes()
    build_index(path.parent.parent / "corpus.txt", path.parent, memory=6_000)
    (path.parent / "manifest.json").unlink()
    path.write_bytes(before)


CSV = "text,user\n" + "".join(f'"{line}, and more",ann\n' for line in LINES)
JSON_LINES = "".join(json.dumps({"text": line, "user": 7, "more": {"a": [1]}}) + "\n" for line in LINES)
CHAT = "".join(
    json.dumps(
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": line}]},
                {"role": "assistant", "content": line},
            ]
        }
    )
    + "\n"
    for line in LINES
)
PLAIN = "".join(f"{line}\r\n\r\n" for line in LINES)
ENDPOINT = 'url = "http://127.0.0.1:8000/v1"\nmodel = "m"\nconcurrency = 2\nmost_cost = 1.5\n[request_fields]\nrepeat_penalty = 1.0\n'
TABLE = "text,in_out,copies\n" + "".join(f"my pin is {n:02},{'in' if n % 2 else 'out'},4\n" for n in range(8))
SCORES = "score,in_out,copies\n" + "".join(
    f"{n}.5,{'in' if n % 2 else 'out'},{1 + n % 3}\n" for n in range(9)
)
NOTE = '{"schema": "coalmine.unfinished/1", "files": ["corpus.txt", "canaries.json"]}'
TABLE_ROWS = json.dumps([{"text": f"pin {n}", "member": n % 2, "copies": 2} for n in range(6)])

READERS = (
    Reader("canaries.json", copy_of("planted", "planted/canaries.json"), _read_manifest, json=True),
    Reader("corpus.txt", written("corpus.txt", PLAIN), _read_corpus),
    Reader("corpus.jsonl", written("corpus.jsonl", JSON_LINES), _read_corpus),
    Reader("conversations in corpus.jsonl", written("corpus.jsonl", CHAT), _read_corpus),
    Reader("corpus.csv", written("corpus.csv", CSV), _read_corpus),
    Reader("corpus.parquet", written("corpus.parquet", parquet({"text": LINES, "n": list(range(60))})), _read_corpus),
    Reader("corpus.txt.gz", written("corpus.txt.gz", lambda: gzip.compress(PLAIN.encode(), mtime=0)), _read_corpus),
    Reader("corpus.jsonl.zst", written("corpus.jsonl.zst", lambda: zstandard(JSON_LINES)), _read_corpus),
    Reader("use of corpus.txt", written("corpus.txt", PLAIN), _use_corpus, slow=True),
    Reader("use of corpus.jsonl", written("corpus.jsonl", JSON_LINES), _use_corpus, slow=True),
    Reader("use of corpus.csv", written("corpus.csv", CSV), _use_corpus, slow=True),
    Reader("use of corpus.parquet", written("corpus.parquet", parquet({"text": LINES, "n": list(range(60))})), _use_corpus, slow=True),
    Reader("table.csv", written("table.csv", TABLE), import_canaries),
    Reader("table.json", written("table.json", TABLE_ROWS), import_canaries, json=True),
    Reader("memaudit-manifest.json", foreign("memaudit-manifest.json"), import_canaries, json=True),
    Reader("tensorflow-privacy-secrets.json", foreign("tensorflow-privacy-secrets.json"), import_canaries, json=True),
    Reader("scores.csv", written("scores.csv", SCORES), _read_score_table),
    Reader("jax-privacy-scores.json", foreign("jax-privacy-scores.json"), _read_score_table, json=True),
    *(
        Reader(f"{name}{how}", copy_of("run", name), read, json=name.endswith(".json"), slow=read is not _read_run)
        for name in (
            "exposure/exposure.json", "references/exposure.json", "references/scores.parquet", "extraction/extraction-f0.json",
            "extraction/verified.json", "membership/membership.json", "recitation.json", "provenance.json", "training.json",
            "finetuning.json", "exposure-during-training.json", "run.json",
        )
        for how, read in (("", _read_run), (", drawn", _draw_run))
    ),
    Reader("review.json", written("review.json", lambda: sealed(REVIEW)), _read_run, json=True),
    Reader("defenses.json", written("defenses.json", lambda: sealed(known_bench())), _read_run, json=True),
    Reader("exposure.json, compared", copy_of("run", "references/exposure.json"), _compare, json=True, slow=True),
    Reader("scores.parquet, compared", copy_of("run", "references/scores.parquet"), _compare, slow=True),
    Reader("comparison.json, verified", copy_of("run", "comparison/comparison.json"), _verify, json=True, slow=True),
    Reader("dedup.json, verified", copy_of("planted", "deduplicated/dedup.json"), _verify, json=True, slow=True),
    Reader("redaction.json, verified", copy_of("planted", "redacted/redaction.json"), _verify, json=True, slow=True),
    Reader("quantization.json, verified", copy_of("quantized", "quantized/quantization.json"), _verify, json=True, slow=True),
    Reader("unlearning.json, verified", copy_of("quantized", "unlearned/unlearning.json"), _verify, json=True, slow=True),
    Reader("crosscheck.json, verified", copy_of("planted", "crosschecked/crosscheck.json"), _verify, json=True, slow=True),
    Reader("scan.json, verified", copy_of("planted", "scanned/scan.json"), _verify, json=True, slow=True),
    Reader("distinct.jsonl", copy_of("planted", "scanned/distinct.jsonl"), _read_distinct, after=_nothing),
    Reader("exposure.json, verified", copy_of("run", "references/exposure.json"), _verify, json=True, slow=True),
    Reader("extraction.json, replayed", make_extraction, _replay, json=True, called=("certificate", "no member of")),
    Reader("exposure-during-training.json, resumed", copy_of("run", "exposure-during-training.json"), read_watched, json=True),
    Reader("policy.toml", written("policy.toml", whole_policy), read_policy),
    Reader("endpoint.toml", written("endpoint.toml", ENDPOINT), read_endpoint),
    Reader("words.txt", written("words.txt", "apple\npear\nplum\n"), _read_words),
    Reader("texts.txt", written("texts.txt", "apple\r\npear\n\nplum"), lambda path: lines_of(path, "texts")),
    Reader("index manifest.json", copy_of("index", "index/manifest.json"), _read_index, json=True),
    Reader("index tokenizer.json", copy_of("index", "tokens/tokenizer.json"), _read_index, json=True, after=_vouch_for_tokenizer),
    *(
        Reader(
            f"index {part}, not verified",
            copy_of("index", f"index/shard-00000.{part}"),
            functools.partial(_read_index, verify_all=False),
            after=_nothing,
        )
        for part in ("symbols", "suffixes", "starts", "numbers")
    ),
    Reader("unfinished.json", written("unfinished.json", NOTE), lambda path: left_unfinished(path.parent), after=_nothing),
    Reader("unfinished index", make_unfinished_index, _resume_index, after=_nothing),
    Reader("unfinished unit", make_kept, _read_kept, after=_nothing),
    Reader("unfinished.units", make_units, _read_units, after=_nothing),
)  # fmt: skip
BY_NAME = {reader.name: reader for reader in READERS}
