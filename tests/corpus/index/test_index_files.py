"""An index on disk: whole or refused, private, the same bytes each time, and a stopped build resumes."""

import json
import os
import signal
import stat
import subprocess
import sys
import time

import pytest

from coalmine.corpus import CorpusIndex, Fields, build_index, write_embedded_corpus
from coalmine.engines.processes import Processes
from coalmine.errors import AlteredError, CorpusError, InputError
from resealing import resealed


@pytest.fixture
def corpus(tmp_path):
    return write_embedded_corpus(tmp_path / "corpus.txt", 60_000)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_files_are_private_and_the_same_each_time(corpus, tmp_path):
    first = build_index(corpus, tmp_path / "first", memory=100_000)
    second = build_index(corpus, tmp_path / "second", memory=100_000)
    assert len(first.shards) == 4
    assert contents(first.path) == contents(second.path)
    assert {stat.S_IMODE(path.stat().st_mode) for path in first.path.iterdir()} == {0o600}
    parts = ("numbers", "starts", "suffixes", "symbols")
    assert sorted(contents(first.path)) == [
        "manifest.json",
        *(f"shard-{number:05d}.{part}" for number in range(4) for part in parts),
        "tokenizer.json",
    ]


@pytest.mark.parametrize("part", ["numbers", "starts", "suffixes", "symbols"])
@pytest.mark.parametrize("damage", ["flip", "cut", "longer", "gone"])
def test_a_damaged_shard_is_refused_and_named(corpus, tmp_path, part, damage):
    index = build_index(corpus, tmp_path / "index", memory=100_000)
    path = index.path / f"shard-00002.{part}"
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
    elif damage == "cut":
        del content[-1]
    else:
        content.append(0)
    path.write_bytes(content)
    if damage == "gone":
        path.unlink()
    with pytest.raises(CorpusError, match=rf"damaged in shard 2: shard-00002\.{part}"):
        CorpusIndex.open(index.path)
    if damage != "flip":
        with pytest.raises(CorpusError, match="damaged in shard 2"):
            CorpusIndex.open(index.path, verify=False)


def test_a_damaged_manifest_or_tokenizer_is_refused(corpus, tmp_path):
    index = build_index(corpus, tmp_path / "index")
    manifest = index.path / "manifest.json"
    whole = manifest.read_text()
    for damaged, problem in [
        (whole.replace('"tokens": ', '"tokens": 1'), "its checksum does not match"),
        (whole.replace("corpus.txt", "corpus.txx"), "its checksum does not match"),
        (whole[:-20], "does not end with a checksum"),
    ]:
        manifest.write_text(damaged)
        with pytest.raises(AlteredError, match=problem):
            CorpusIndex.open(index.path)
    manifest.write_text(whole)
    with resealed(manifest) as document:
        document["schema"] = "coalmine.index/9"
    with pytest.raises(InputError, match=r"make the index again"):
        CorpusIndex.open(index.path)
    manifest.write_text(whole)
    (index.path / "tokenizer.json").write_text('{"kind":  "bytes"}')
    with pytest.raises(CorpusError, match=r"tokenizer\.json does not match"):
        CorpusIndex.open(index.path)
    with pytest.raises(CorpusError, match="is not an index"):
        CorpusIndex.open(tmp_path)


def test_the_same_again_is_done_already_and_another_is_refused(corpus, tmp_path):
    build_index(corpus, tmp_path / "index")
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "index").iterdir()}
    assert build_index(corpus, tmp_path / "index").count("the") > 100
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "index").iterdir()} == before
    (tmp_path / "other.txt").write_text("something else\n")
    with pytest.raises(InputError, match="another corpus"):
        build_index(tmp_path / "other.txt", tmp_path / "index")
    assert build_index(tmp_path / "other.txt", tmp_path / "index", overwrite=True).count("some") == 1
    assert CorpusIndex.open(tmp_path / "index").documents == 1


def test_a_damaged_index_says_how_to_build_it_again_and_that_does(corpus, tmp_path):
    index = build_index(corpus, tmp_path / "index")
    (index.path / "shard-00000.symbols").write_bytes(b"")
    with pytest.raises(CorpusError, match="with overwrite"):
        build_index(corpus, tmp_path / "index")
    assert build_index(corpus, tmp_path / "index", overwrite=True).count("the") > 100


def test_a_model_that_is_in_the_way_is_not_overwritten(corpus, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match="another directory"):
        build_index(corpus, tmp_path / "model")
    assert contents(tmp_path / "model") == {"tokenizer.json": b"{}"}


def test_a_directory_is_no_corpus(tmp_path):
    with pytest.raises(CorpusError, match="is a directory"):
        build_index(tmp_path, tmp_path / "index")


def test_a_build_that_fails_leaves_nothing_and_starts_over_with_a_mended_corpus(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [json.dumps({"text": f"document {number}"}) for number in range(50)]
    path.write_text("\n".join([*rows, "{broken"]))
    with pytest.raises(CorpusError, match="line 51"):
        build_index(path, tmp_path / "index", memory=600)
    # Mended, it is another corpus, so that no finished shard is of use.
    assert not (tmp_path / "index").exists()
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "notes").write_text("of the user")
    with pytest.raises(CorpusError, match="line 51"):
        build_index(path, tmp_path / "index", memory=600)
    assert list(contents(tmp_path / "index")) == ["notes"]
    path.write_text("\n".join(rows))
    assert build_index(path, tmp_path / "index", memory=600).count("document") == 50
    assert not list((tmp_path / "index").glob(".*"))


CHILD = """
import sys, time
from coalmine.corpus.index import building
real = building.sorted_suffixes
def slow(*arguments):
    print("sorting", flush=True)
    time.sleep(0.3)
    return real(*arguments)
building.sorted_suffixes = slow
building.build_index(sys.argv[1], sys.argv[2], memory=100_000)
"""


def killed_in_the_third_shard(corpus, out):
    """A real build, killed; returns its process."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, corpus, out], stdout=subprocess.PIPE, text=True
    ) as process:
        for _ in range(3):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait()
    return process


def test_a_killed_build_resumes_after_its_last_shard_and_ends_with_the_same_bytes(corpus, tmp_path):
    whole = build_index(corpus, tmp_path / "whole", memory=100_000)
    killed = tmp_path / "killed"
    process = killed_in_the_third_shard(corpus, killed)
    with pytest.raises(CorpusError, match="was not finished"):
        CorpusIndex.open(killed)
    first = (killed / "shard-00000.suffixes").stat()
    (killed / f".work.{0:016x}-{process.pid}.part").write_bytes(b"half of a file")
    time.sleep(0.01)
    build_index(corpus, killed, memory=100_000)
    assert (killed / "shard-00000.suffixes").stat().st_mtime_ns == first.st_mtime_ns
    assert contents(killed) == contents(whole.path)


@pytest.mark.parametrize("gone", [False, True])
def test_a_shard_that_was_damaged_while_a_build_was_stopped_is_built_again(corpus, tmp_path, gone):
    whole = build_index(corpus, tmp_path / "whole", memory=100_000)
    killed_in_the_third_shard(corpus, tmp_path / "killed")
    shard = tmp_path / "killed" / "shard-00001.symbols"
    if gone:
        shard.unlink()
    else:
        shard.write_bytes(bytes(shard.stat().st_size))
    build_index(corpus, tmp_path / "killed", memory=100_000)
    assert contents(tmp_path / "killed") == contents(whole.path)


def test_a_corpus_that_changed_is_begun_anew(corpus, tmp_path):
    killed_in_the_third_shard(corpus, tmp_path / "index")
    found = corpus.stat()
    with open(corpus, "a") as out:
        out.write("one more document\n")
    os.utime(corpus, ns=(found.st_atime_ns, found.st_mtime_ns))
    index = build_index(corpus, tmp_path / "index", memory=100_000)
    assert index.count("one more document") == 1
    assert index.tokens == sum(len(line) for line in corpus.read_bytes().splitlines())


def test_every_engine_gives_the_same_bytes_and_resumes_what_another_left(corpus, tmp_path):
    whole = build_index(corpus, tmp_path / "whole", memory=100_000)
    assert len(whole.manifest.shards) > 3
    with Processes(2) as engine:
        build_index(corpus, tmp_path / "parallel", memory=100_000, engine=engine)
        killed_in_the_third_shard(corpus, tmp_path / "killed")
        build_index(corpus, tmp_path / "killed", memory=100_000, engine=engine)
    assert contents(tmp_path / "parallel") == contents(tmp_path / "killed") == contents(whole.path)


def test_fields_and_pairs(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"en": "a house", "fr": "une maison"}\n')
    index = build_index(tmp_path / "a.jsonl", tmp_path / "index", fields=Fields(source="en", target="fr"))
    assert (index.count("maison"), index.count("house")) == (1, 0)


def test_without_a_place_or_a_corpus(tmp_path):
    with pytest.raises(CorpusError, match="not found"):
        build_index(tmp_path / "no.txt", tmp_path / "index")
    assert not (tmp_path / "index").exists()
    (tmp_path / "a.txt").write_text("a\n")
    with pytest.raises(InputError, match="memory"):
        build_index(tmp_path / "a.txt", tmp_path / "index", memory=0)
    with pytest.raises(InputError, match="not a directory"):
        build_index(tmp_path / "a.txt", tmp_path / "index", tokenizer=tmp_path / "nothing")
