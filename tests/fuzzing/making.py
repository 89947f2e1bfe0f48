"""How a valid file of each kind is made."""

import contextlib
import functools
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coalmine import CanarySet, Format, ScriptedModel, expose, extract, membership, plant, quantize, unlearn
from coalmine.audits import compare_runs, crosscheck
from coalmine.audits.comparison.records import COMPARISONS
from coalmine.audits.watching.records import WatchedTraining as Watched
from coalmine.corpus import build_index, deduplicate, redact, scan
from coalmine.engines.ledger import UNITS_FILE, Ledger
from coalmine.engines.units import KEY_BYTES
from coalmine.records.documents import write_sealed
from coalmine.records.watching import Moment
from coalmine.reports.gate import template
from models.random_networks import random_model, save_network
from reports.provenance_runs import provenance
from reports.report_runs import (
    CHARACTERS,
    canary_set,
    recitation,
    save_finetuning,
    save_training,
    save_verified,
    scripted,
    watch_records,
)
from resealing import resealed

FOREIGN = Path(__file__).resolve().parents[1] / "foreign"
LINES = [f"document {number} with some words in it" for number in range(30)] * 2
SMALL = Format("my pin is {digits:2}")


@functools.cache
def _template(kind: str) -> Path:
    """A directory with the files of one kind, made once in a process."""
    folder = Path(tempfile.mkdtemp(prefix="coalmine-fuzzing-"))
    if kind == "run":
        canaries = _save_audits(folder)
        recitation(baseline_hits=(1, 2, 3, 4)).save(folder)
        provenance(others=(1.9, 0.5, 0.1, None), members=["person1@example.org"]).save(folder)
        save_finetuning(folder)
        record = save_training(folder, watched=watch_records(canaries))
        moments = [Moment(step=one.step, epoch=1.0, when="step", seen=one.seen) for one in record.watched]
        watched = Watched(watch={"kind": "exposure", "method": "references"}, trainer="some", watched=moments)
        write_sealed(folder / "exposure-during-training.json", watched)
        both = compare_runs([folder / "references", folder / "exposure"], loss=[1.0, 2.0])
        COMPARISONS.save(folder / "comparison", both)
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
        deduplicate(folder / "planted" / "corpus.txt", folder / "deduplicated", exact=60)
        redact(folder / "planted" / "corpus.txt", folder / "redacted", formats=(SMALL.template,))
        tiny = {"hidden": 8, "embedding": 8, "layers": 1, "epochs": 1}
        crosscheck(folder / "planted" / "corpus.txt", folder / "crosschecked", training=tiny, drop=True)
        scan(folder / "planted" / "corpus.txt", folder / "scanned", kinds=["ssn"], formats=[SMALL])
    elif kind == "index":
        (folder / "corpus.txt").write_text("\n".join(LINES) + "\n")
        build_index(folder / "corpus.txt", folder / "index", memory=6_000)
        (folder / "tokens").mkdir()
        from coalmine.models import CharacterTokenizer

        build_index(folder / "corpus.txt", folder / "tokens", tokenizer=CharacterTokenizer("".join(LINES)))
    elif kind == "quantized":
        save_network(folder / "model", random_model("gru"))
        quantize(folder / "model", folder / "quantized", values=4)
        (folder / "texts.txt").write_text("some text 1\nmore of it 2\n")
        unlearn(
            folder / "model",
            folder / "texts.txt",
            folder / "unlearned",
            keep=folder / "texts.txt",
            until=99,
            steps=2,
        )
    return folder


def _save_audits(folder: Path) -> CanarySet:
    """Few canaries, because each file is read thousands of times."""
    canaries = canary_set(each=2, withheld=3, references=12)
    model = scripted([canary for canary in canaries if canary.planted][2:])
    canaries.save(folder / "canaries.json")
    expose(model, canaries).save(folder / "exposure")
    expose(model, canaries, method="references").save(folder / "references")
    save_verified(folder / "extraction", model, canaries)
    membership(folder / "references", claimed_epsilon=1.0).save(folder / "membership")
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


def copy_of(kind: str, name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        shutil.copytree(_template(kind), folder, dirs_exist_ok=True)
        return folder / name

    return make


def written(name: str, content: bytes | str | Callable[[], bytes]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        found = content() if callable(content) else content
        (folder / name).write_bytes(found.encode() if isinstance(found, str) else found)
        return folder / name

    return make


def foreign(name: str) -> Callable[[Path], Path]:
    return written(name, (FOREIGN / name).read_bytes)


def parquet(columns: dict[str, Any]) -> Callable[[], bytes]:
    def content() -> bytes:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(columns), sink, compression="none", row_group_size=17)
        return sink.getvalue().to_pybytes()

    return content


def zstandard(text: str) -> bytes:
    return bytes(pa.Codec("zstd").compress(text.encode(), asbytes=True))


def whole_policy() -> bytes:
    """The policy to start from, with every rule in it switched on."""
    return re.sub(r"(?m)^#(?=[a-z_0-9]+ = |\[)", "", template()).encode()


def make_extraction(folder: Path) -> Path:
    extract(small_model(), SMALL, top=3).save(folder)
    return folder / "extraction.json"


def make_kept(folder: Path) -> Path:
    """What a unit that was stopped kept."""
    ledger = Ledger(folder)
    ledger.begin("mine")
    ledger.keep(bytes(KEY_BYTES), {"weights/a": np.arange(30), "position": np.arange(20, dtype=np.uint8)})
    return folder / f"unfinished-{bytes(KEY_BYTES).hex()}.npz"


def make_units(folder: Path) -> Path:
    """The results of units that are over."""
    ledger = Ledger(folder)
    ledger.begin("mine")
    for number in range(3):
        ledger.add(bytes([number] * KEY_BYTES), {"weights": np.arange(20 * number)})
    return folder / UNITS_FILE


def make_unfinished_index(folder: Path) -> Path:
    (folder / "corpus.txt").write_text("\n".join(LINES) + "\n")
    from coalmine.corpus.index import building

    def stop(**_: Any) -> None:
        raise KeyboardInterrupt

    manifest, building.IndexManifest = building.IndexManifest, stop  # type: ignore[assignment,misc]
    try:
        with contextlib.suppress(KeyboardInterrupt):
            build_index(folder / "corpus.txt", folder / "index", memory=6_000)
    finally:
        building.IndexManifest = manifest  # type: ignore[misc]
    return folder / "index" / UNITS_FILE


@functools.cache
def small_model() -> ScriptedModel:
    return ScriptedModel(CHARACTERS, memory={"my pin is 42": 0.1}, frequencies={"1": 3, "7": 2})
