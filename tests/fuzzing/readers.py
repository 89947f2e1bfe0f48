"""Every reader of a file that a user can hand to coalmine: how to make a valid file, and how a command reads it.

One table for all who fuzz: the Hypothesis tests beside it, and the coverage-guided fuzzer of `make fuzz`.
"""

import contextlib
import functools
import gzip
import hashlib
import json
import re
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.torch import save

from coalmine import CanarySet, Format, ScriptedModel, expose
from coalmine.audits.extraction import extract
from coalmine.audits.extraction_certificate import verify_certificate
from coalmine.audits.extraction_results import read_extraction
from coalmine.audits.membership import membership
from coalmine.audits.score_files import read_scores
from coalmine.cli.count import _lines
from coalmine.cli.membership import read_score_file
from coalmine.cli.options import words_from
from coalmine.corpus.deduplicating import deduplicate
from coalmine.corpus.importing import import_canaries
from coalmine.corpus.index.building import UNFINISHED_FILE, build_index
from coalmine.corpus.index.queries import CorpusIndex
from coalmine.corpus.index.sampling import repeated_sequences
from coalmine.corpus.planting import plant
from coalmine.corpus.reading import nonempty_blocks, open_corpus
from coalmine.corpus.verifying import verify
from coalmine.errors import CoalmineError, FormatError
from coalmine.guarded_files import write_guarded
from coalmine.integrations.exposure_log import Moment, Watched, read_watched
from coalmine.models.endpoints.description import _read as read_endpoint_file
from coalmine.reports import export
from coalmine.reports.comparison import compare_runs, given_utility
from coalmine.reports.gate.checking import check
from coalmine.reports.gate.policy import TEMPLATE, parse_policy, read_policy
from coalmine.reports.page.html import report_page, reported
from coalmine.reports.runs.reading import read_runs
from coalmine.sealing import is_sealed, write_sealed
from coalmine.search.resuming import ResumeFile
from coalmine.training.snapshot import SNAPSHOT_FILE, read_snapshot
from reports.report_runs import (
    CHARACTERS,
    canary_set,
    recitation,
    save_training,
    save_verified,
    scripted,
    watch_records,
)
from resealing import resealed, vouch_again

FOREIGN = Path(__file__).resolve().parents[1] / "foreign"
LINES = [f"document {number} with some words in it" for number in range(30)] * 2
SMALL = Format("my pin is {digits:2}")
# A limit for every section, so that all rules are judged.
POLICY = parse_policy(
    'require = ["exposure", "extraction", "membership", "recitation"]\n[exposure]\nat_most = 5\n[exposure.by_repetitions]\n1 = 3.0\n'
    "[extraction]\nat_most_extracted = 1\n[membership]\nauc_at_most = 0.6\nno_epsilon_shown_above = 2\n[recitation]\nrate_at_most = 0.1\n"
)
SECONDS = 20


class Reader(NamedTuple):
    """One kind of file."""

    name: str
    # Writes a valid file, and all that belongs to it, into an empty directory; gives its path.
    make: Callable[[Path], Path]
    # Reads it as a command does, as far as what is in it can matter.
    read: Callable[[Path], Any]
    # Whether its content is a JSON document, so that it can be changed as one.
    json: bool = False
    # What messages may call it, where whoever reads it knows which file it is.
    called: tuple[str, ...] = ()
    # Whether reading it once takes more than a hundredth of a second.
    slow: bool = False
    # What somebody would do who changed the file and all that vouches for it.
    after: Callable[[Path], None] = vouch_again


class Trial:
    """One reader with a valid file of its own, to be tried with other contents."""

    def __init__(self, reader: Reader, folder: Path) -> None:
        self.reader = reader
        self.path = reader.make(folder)
        self.valid = self.path.read_bytes()
        self._sealed = is_sealed(self.valid)
        if reader.json:
            self.document = json.loads(self.valid)
            if self._sealed:
                del self.document["checksum"]

    def try_content(self, content: bytes) -> bool:
        """Whether the reader takes the content; what is neither taken nor refused in a sentence is raised."""
        self.path.write_bytes(content)
        return self._read()

    def try_document(self, text: bytes) -> bool:
        """The same for a JSON text, which gets the checksum that it would have."""
        self.path.write_bytes(_with_checksum(text) if self._sealed else text)
        self.reader.after(self.path)
        return self._read()

    def _read(self) -> bool:
        try:
            with _time_limit():
                self.reader.read(self.path)
        except CoalmineError as refusal:
            lines = refusal.shown().split("\n")
            # Only a format that the user wrote is shown on lines of its own.
            most = 3 if isinstance(refusal, FormatError) else 1
            if len(lines) > most or not all(map(str.isprintable, lines)) or len(lines[0]) > 2_100:
                raise AssertionError(f"not one sentence: {refusal.shown()[:3_000]!r}") from refusal
            if most == 1 and not any(
                part in str(refusal) for part in (self.path.name, self.path.parent.name, *self.reader.called)
            ):
                raise AssertionError(f"it does not name the file: {refusal}") from refusal
            return False
        return True


def _with_checksum(text: bytes) -> bytes:
    if not text.endswith(b"\n}"):
        return text  # nothing that could have been sealed
    content = text.removesuffix(b"\n}") + b",\n"
    return content + f'  "checksum": "{hashlib.sha256(content).hexdigest()}"\n}}\n'.encode()


@contextlib.contextmanager
def _time_limit():
    def stop(*_):
        raise AssertionError(f"still reading after {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# How each file is made.


@functools.cache
def _template(kind: str) -> Path:
    """A directory with the files of one kind, made once in a process."""
    folder = Path(tempfile.mkdtemp(prefix="coalmine-fuzzing-"))
    if kind == "run":
        canaries = _save_audits(folder)
        recitation(baseline_hits=(1, 2, 3, 4)).save(folder)
        record = save_training(folder, watched=watch_records(canaries))
        moments = [Moment(step=one.step, epoch=1.0, when="step", seen=one.seen) for one in record.watched]
        watched = Watched(watch={"kind": "exposure", "method": "references"}, trainer="some", watched=moments)
        write_sealed(folder / "exposure-during-training.json", watched)
        run = {
            "schema": "coalmine.run/1",
            "command": ["coalmine", "expose"],
            "started_at": "",
            "elapsed_seconds": 1.0,
        }
        write_sealed(folder / "run.json", {**run, "versions": {"numpy": "2"}, "seed": 0})
    elif kind == "planted":
        (folder / "original.txt").write_text("\n".join(LINES * 20) + "\n")
        plant(folder / "original.txt", SMALL, repeat=[1, 2], canaries=3, references=5, out=folder / "planted")
    elif kind == "index":
        (folder / "corpus.txt").write_text("\n".join(LINES) + "\n")
        build_index(folder / "corpus.txt", folder / "index", memory=6_000)
        (folder / "tokens").mkdir()
        from coalmine.models.tokens import CharacterTokenizer

        build_index(folder / "corpus.txt", folder / "tokens", tokenizer=CharacterTokenizer("".join(LINES)))
    return folder


def _save_audits(folder: Path) -> CanarySet:
    """Few canaries, because each file is read thousands of times."""
    canaries = canary_set(each=2, withheld=3, references=12)
    model = scripted([canary for canary in canaries if canary.planted][2:])
    canaries.save(folder / "canaries.json")
    expose(model, canaries).save(folder / "exposure")
    expose(model, canaries, method="references").save(folder / "references")
    save_verified(folder / "extraction", model, canaries)
    membership(folder / "references", canaries=canaries, claimed_epsilon=1.0).save(folder / "membership")
    # What models on disk say of themselves beside what a scripted one does.
    facts = {
        "weights_sha256": "1" * 64,
        "trained_on_sha256": "0" * 64,
        "parameters": 5_000,
        "precision": "float32",
    }
    for path in [*folder.glob("*/e*.json"), *folder.glob("*/membership.json")]:
        with resealed(path) as document:
            document["model"] |= facts
    return canaries


def _copy_of(kind: str, name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        shutil.copytree(_template(kind), folder, dirs_exist_ok=True)
        return folder / name

    return make


def _written(name: str, content: bytes | str | Callable[[], bytes]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        found = content() if callable(content) else content
        (folder / name).write_bytes(found.encode() if isinstance(found, str) else found)
        return folder / name

    return make


def _foreign(name: str) -> Callable[[Path], Path]:
    return _written(name, (FOREIGN / name).read_bytes)


def _parquet(columns: dict[str, Any]) -> Callable[[], bytes]:
    def content() -> bytes:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(columns), sink, compression="none", row_group_size=17)
        return sink.getvalue().to_pybytes()

    return content


def _zstandard(text: str) -> bytes:
    return bytes(pa.Codec("zstd").compress(text.encode(), asbytes=True))


def _whole_policy() -> bytes:
    """The policy to start from, with every rule in it switched on."""
    return re.sub(r"(?m)^#(?=[a-z_0-9]+ = |\[)", "", TEMPLATE).encode()


def _make_extraction(folder: Path) -> Path:
    extract(_small_model(), SMALL, top=3).save(folder)
    return folder / "extraction.json"


def _make_resume(folder: Path) -> Path:
    kept = ResumeFile(folder / "unfinished-f0.npz", "mine")
    kept.save(lambda: {"counts": np.arange(30), "costs": np.linspace(0, 1, 20)}, now=True)
    return folder / "unfinished-f0.npz"


def _make_snapshot(folder: Path) -> Path:
    import torch

    facts = json.dumps({"fingerprint": "mine", "position": {}})
    write_guarded(folder / SNAPSHOT_FILE, save({"random": torch.arange(20)}, metadata={"facts": facts}))
    return folder / SNAPSHOT_FILE


def _make_unfinished_index(folder: Path) -> Path:
    (folder / "corpus.txt").write_text("\n".join(LINES) + "\n")
    from coalmine.corpus.index import building

    def stop(**_: Any) -> None:
        raise KeyboardInterrupt

    manifest, building.Manifest = building.Manifest, stop  # type: ignore[assignment,misc]
    try:
        with contextlib.suppress(KeyboardInterrupt):
            build_index(folder / "corpus.txt", folder / "index", memory=6_000)
    finally:
        building.Manifest = manifest  # type: ignore[misc]
    return folder / "index" / UNFINISHED_FILE


@functools.cache
def _small_model() -> ScriptedModel:
    return ScriptedModel(CHARACTERS, memory={"my pin is 42": 0.1}, frequencies={"1": 3, "7": 2})


# How each file is read.


def _read_manifest(path: Path) -> None:
    loaded = CanarySet.load(path)
    loaded.power()
    verify(path.parent)


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
        lambda: plant(path, SMALL, repeat=[1], canaries=1, references=0, out=out / "planted", overwrite=True),
    ):
        try:
            use()
        except CoalmineError:
            shutil.rmtree(out, ignore_errors=True)
            raise


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


def _compare(path: Path) -> None:
    """Membership by the scores, and the exposures beside those of another run."""
    membership(path.parent, canaries=_top_of(path) / "canaries.json")
    compare_runs([path.parent, _top_of(path) / "exposure"], utilities=["1", "2"])


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


def _replay(path: Path) -> None:
    verify_certificate(_small_model(), read_extraction(path))


def _read_words(path: Path) -> None:
    words = words_from(path)
    Format("{word:2}", words=words).sample(3, seed=0)


def _read_score_table(path: Path) -> None:
    read_scores(path).populations()


def _resume_index(path: Path) -> None:
    before = path.read_bytes()
    build_index(path.parent.parent / "corpus.txt", path.parent, memory=6_000)
    (path.parent / "manifest.json").unlink()
    path.write_bytes(before)


CSV = "text,user\n" + "".join(f'"{line}, and more",ann\n' for line in LINES)
JSON_LINES = "".join(json.dumps({"text": line, "user": 7, "more": {"a": [1]}}) + "\n" for line in LINES)
PLAIN = "".join(f"{line}\r\n\r\n" for line in LINES)
ENDPOINT = 'url = "http://127.0.0.1:8000/v1"\nmodel = "m"\nconcurrency = 2\nmost_cost = 1.5\n[request_fields]\nrepeat_penalty = 1.0\n'
TABLE = "text,in_out,copies\n" + "".join(f"my pin is {n:02},{'in' if n % 2 else 'out'},4\n" for n in range(8))
SCORES = "score,in_out,copies\n" + "".join(
    f"{n}.5,{'in' if n % 2 else 'out'},{1 + n % 3}\n" for n in range(9)
)
TABLE_ROWS = json.dumps([{"text": f"pin {n}", "member": n % 2, "copies": 2} for n in range(6)])

READERS = (
    Reader("canaries.json", _copy_of("planted", "planted/canaries.json"), _read_manifest, json=True),
    Reader("corpus.txt", _written("corpus.txt", PLAIN), _read_corpus),
    Reader("corpus.jsonl", _written("corpus.jsonl", JSON_LINES), _read_corpus),
    Reader("corpus.csv", _written("corpus.csv", CSV), _read_corpus),
    Reader("corpus.parquet", _written("corpus.parquet", _parquet({"text": LINES, "n": list(range(60))})), _read_corpus),
    Reader("corpus.txt.gz", _written("corpus.txt.gz", lambda: gzip.compress(PLAIN.encode(), mtime=0)), _read_corpus),
    Reader("corpus.jsonl.zst", _written("corpus.jsonl.zst", lambda: _zstandard(JSON_LINES)), _read_corpus),
    Reader("use of corpus.txt", _written("corpus.txt", PLAIN), _use_corpus, slow=True),
    Reader("use of corpus.jsonl", _written("corpus.jsonl", JSON_LINES), _use_corpus, slow=True),
    Reader("use of corpus.csv", _written("corpus.csv", CSV), _use_corpus, slow=True),
    Reader("use of corpus.parquet", _written("corpus.parquet", _parquet({"text": LINES, "n": list(range(60))})), _use_corpus, slow=True),
    Reader("table.csv", _written("table.csv", TABLE), import_canaries),
    Reader("table.json", _written("table.json", TABLE_ROWS), import_canaries, json=True),
    Reader("memaudit-manifest.json", _foreign("memaudit-manifest.json"), import_canaries, json=True),
    Reader("tensorflow-privacy-secrets.json", _foreign("tensorflow-privacy-secrets.json"), import_canaries, json=True),
    Reader("scores.csv", _written("scores.csv", SCORES), _read_score_table),
    Reader("memaudit-report.json", _foreign("memaudit-report.json"), _read_score_table, json=True),
    Reader("tensorflow-privacy-perplexities.json", _foreign("tensorflow-privacy-perplexities.json"), _read_score_table, json=True),
    Reader("jax-privacy-scores.json", _foreign("jax-privacy-scores.json"), _read_score_table, json=True),
    Reader("numbers.csv", _written("numbers.csv", "".join(f"{n}.25\n" for n in range(30))), read_score_file),
    *(
        Reader(f"{name}{how}", _copy_of("run", name), read, json=name.endswith(".json"), slow=read is not _read_run)
        for name in (
            "exposure/exposure.json", "references/exposure.json", "references/scores.parquet", "extraction/extraction-f0.json",
            "extraction/verified.json", "membership/membership.json", "recitation.json", "training.json",
            "exposure-during-training.json", "run.json",
        )
        for how, read in (("", _read_run), (", drawn", _draw_run))
    ),
    Reader("exposure.json, compared", _copy_of("run", "references/exposure.json"), _compare, json=True, slow=True),
    Reader("scores.parquet, compared", _copy_of("run", "references/scores.parquet"), _compare, slow=True),
    Reader("extraction.json, replayed", _make_extraction, _replay, json=True, called=("certificate", "no member of")),
    Reader("exposure-during-training.json, resumed", _copy_of("run", "exposure-during-training.json"), read_watched, json=True),
    Reader("policy.toml", _written("policy.toml", _whole_policy), read_policy),
    Reader("endpoint.toml", _written("endpoint.toml", ENDPOINT), read_endpoint_file),
    Reader("utilities", _written("utilities", "".join(f"{n}.5\n" for n in range(9))), lambda path: given_utility(str(path))),
    Reader("words.txt", _written("words.txt", "apple\npear\nplum\n"), _read_words),
    Reader("texts.txt", _written("texts.txt", "apple\r\npear\n\nplum"), _lines),
    Reader("index manifest.json", _copy_of("index", "index/manifest.json"), _read_index, json=True),
    Reader("index tokenizer.json", _copy_of("index", "tokens/tokenizer.json"), _read_index, json=True, after=_vouch_for_tokenizer),
    *(
        Reader(
            f"index {part}, not verified",
            _copy_of("index", f"index/shard-00000.{part}"),
            functools.partial(_read_index, verify_all=False),
            after=_nothing,
        )
        for part in ("symbols", "suffixes", "starts", "numbers")
    ),
    Reader("unfinished index", _make_unfinished_index, _resume_index, after=_nothing),
    Reader("unfinished training", _make_snapshot, lambda path: read_snapshot(path.parent), after=_nothing),
    Reader("unfinished search", _make_resume, lambda path: ResumeFile(path, "mine").load(), after=_nothing),
)  # fmt: skip
BY_NAME = {reader.name: reader for reader in READERS}
