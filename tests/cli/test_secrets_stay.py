"""Secrets are only in the files that are there to hold them: not on any stream, and not in any other file."""

import copy
import functools
import gzip
import json
import shutil
import stat

import pytest

from cli.every_command import (
    FILLINGS,
    NATURAL,
    NUMBERS,
    PERSON,
    commands,
    save_checkpoint,
    save_untrained,
    write_inputs,
)
from cli.in_process import run
from coalmine import CanarySet, load_model, serve
from coalmine.errors import CoalmineError
from resealing import resealed
from serving.serving_client import Client

# Every file that may hold a secret in words; all are readable by their owner only, and the guides say so.
MAY_HOLD = {
    "corpus.txt": "what was planted or deduplicated",
    "training.txt": "what canaries are planted in",
    "canaries.json": "the manifest",
    "extraction.json": "what came out",
    "extraction-f0.json": "what came out",
    "provenance.json": "the names of users",
    "occurrences.jsonl": "where secrets are",
    "distinct.jsonl": "the secrets that were found",
    "secrets.json": "the secrets that can be measured",
    "users.jsonl": "the names of users who have one",
    "revealed.html": "a report that was asked to reveal",
}
# Whose secret it is, and nothing of the secret.
NAMES_A_USER = "secrets-exposure/exposure.json"


def needles(planted):
    """What must stay hidden: the secrets of canaries, references, extractions, another tool's canaries, and one of the corpus."""
    texts = [text for _, _, text in CanarySet.load(planted).named_texts()]
    out = json.loads((planted.parent / "audit" / "extraction" / "extraction.json").read_bytes())["found"]
    return [
        *(text.removeprefix("pin ") for text in [*texts, *(one["text"] for one in out)]),
        *FILLINGS,
        *NUMBERS,
        *(number.replace("-", "") for number in NUMBERS),
        "zanzibar",
        PERSON,
    ]


def written_below(at):
    return {path for path in at.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    at = tmp_path_factory.mktemp("secrets")
    write_inputs(at)
    save_checkpoint(at / "base")
    before = written_below(at)
    save_untrained(at / "model", (at / "corpus.txt").read_text())
    ended = {name: (run(*given), run(*given, "--json")) for name, given in commands(at, at / "model").items()}
    run("report", at / "audit", at / "planted", "--reveal", "-o", at / "revealed.html")
    return at, ended, written_below(at) - before


def test_no_command_shows_a_secret(world):
    at, ended, _ = world
    hidden = needles(at / "planted")
    assert len(hidden) > 30
    for name, both in ended.items():
        for one in both:
            assert not [needle for needle in hidden if needle in one.said], (name, one.said)


def test_secrets_are_only_in_files_that_are_there_to_hold_them(world):
    at, _, written = world
    hidden = [needle.encode() for needle in needles(at / "planted")]
    found = set()
    for path in written:
        inside = [needle for needle in hidden if needle in path.read_bytes()]
        if path.as_posix().endswith(NAMES_A_USER):
            assert inside == [PERSON.encode()]
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        elif inside:
            assert path.name in MAY_HOLD, path
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
            found.add(path.name)
    assert found == set(MAY_HOLD), "a file that holds none is no longer on the list"


def test_what_anybody_may_read_is_little(world):
    _, _, written = world
    public = {path.name for path in written if stat.S_IMODE(path.stat().st_mode) != 0o600}
    assert public <= {
        "training.json", "finetuning.json", "verified.json", "comparison.json", "policy.toml", "coalmine.yml", "junit.xml", "two.html",
        "report.html", "report.json", "report.md", "report.xml", "report.sarif",
    }  # fmt: skip


def changed(document, value, every=1):
    """The document with each of its values in turn replaced, renamed or left out; ids are names, and are kept."""
    for *way, last in list(places(document))[::every]:
        for put in (
            lambda node, key: node.__setitem__(key, value),
            lambda node, key: node.__setitem__(key, [value]),
            lambda node, key: node.__setitem__(key, None),
            lambda node, key: node.__setitem__(key, 7),
            lambda node, key: node.__delitem__(key),
            lambda node, key: (
                node.update({value: node[key]}) if isinstance(node, dict) else node.append(value)
            ),
        ):
            new = copy.deepcopy(document)
            put(functools.reduce(lambda node, key: node[key], way, new), last)
            yield new


def places(node):
    """The path of keys to each value of a document."""
    entries = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, inner in entries:
        if key not in {"canary_id", "format_id", "id"}:
            yield [key]
            yield from ([key, *rest] for rest in places(inner))


def test_no_manifest_however_broken_is_quoted(world, tmp_path):
    at, _, _ = world
    whole = json.loads((at / "planted" / "canaries.json").read_bytes())
    whole["canaries"], whole["references"][0]["texts"] = (
        whole["canaries"][:2],
        whole["references"][0]["texts"][:1],
    )
    secret = whole["canaries"][0]["text"]
    hidden = [one["text"].removeprefix("pin ") for one in whole["canaries"]]
    said = []
    for document in changed(whole, secret):
        (tmp_path / "canaries.json").write_text(json.dumps(document))
        try:
            CanarySet.load(tmp_path)
        except CoalmineError as error:
            said.append(str(error))
    assert len(said) > 150
    assert not [one for one in said if any(needle in one for needle in hidden) or "\n" in one]


SECRET = "my code is zzqxjzz"
BROKEN_CORPORA = {
    "no-header.csv": f"{SECRET},7\nand a second line,8\n".encode(),
    "quote.csv": f'text\n"{SECRET}\nand it goes on\n'.encode(),
    "bytes.jsonl": f'{{"text": "{SECRET} \xff"}}\n'.encode("latin-1"),
    "cut.jsonl": f'{{"text": "{SECRET}'.encode(),
    "kind.jsonl": json.dumps({"text": [SECRET]}).encode(),
    "half.jsonl": json.dumps({"text": SECRET + "\ud800"}).encode(),
    "cut.txt.gz": gzip.compress(SECRET.encode())[:-9],
    "plain.parquet": b"PAR1" + SECRET.encode() * 40 + b"PAR1",
}


@pytest.mark.parametrize("name", BROKEN_CORPORA)
def test_no_corpus_however_broken_is_quoted(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(BROKEN_CORPORA[name])
    for arguments in (
        ["plant", path, "-f", "{digits:9}", "-o", tmp_path / "planted"],
        ["data", "scan", path, "-o", tmp_path / "scanned"],
        ["train", path, "-o", tmp_path / "trained"],
    ):
        ended = run(*arguments)
        assert ended.code == 2, ended.said
        assert path.name in ended.said
        assert "zzqxj" not in ended.said, ended.said


ROWS = [{"text": "pin a", "in_out": "in", "copies": 1}, {"text": "pin b", "in_out": "out", "copies": 1}]
CANARY = {"secret": "a", "role": "canary", "included": True, "id": "1", "repetitions": 1}
MEMAUDIT = {"include_prob": 0.5, "fmt": "text", "canaries": [CANARY]}
REPORTED = {"scores": {"headline_score": 1.0}, "included": True, "role": "canary", "repetitions": 1}
FOREIGN = {
    "rows.json": ROWS,
    "memaudit.json": MEMAUDIT,
    "lists.json": {"in": [1.0, 2.0], "out": [0.0, 1.5]},
    "report.json": {"per_canary": [REPORTED], "membership": {"score_orientation": "higher"}, "audit_scope": {}},
}  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
def test_no_file_of_another_tool_however_broken_is_quoted(name, tmp_path):
    path = tmp_path / name
    for document in changed(FOREIGN[name], SECRET):
        path.write_text(json.dumps(document))
        for arguments in (
            ["plant", "--from", path, "-o", tmp_path / "imported", "--overwrite"],
            ["membership", "--scores", path, "--out", tmp_path],
        ):
            ended = run(*arguments, "--quiet")
            assert ended.code in {0, 2}, ended.said
            assert "zzqxj" not in ended.said, ended.said


def test_no_result_however_broken_is_quoted(world, tmp_path):
    at, _, _ = world
    hidden = needles(at / "planted")
    shutil.copytree(at / "audit", tmp_path / "audit")
    for path in sorted((tmp_path / "audit").rglob("*.json")):
        content = path.read_bytes()
        for document in changed(json.loads(content), f"pin {FILLINGS[0]}", every=149):
            document.pop("checksum", None)
            with resealed(path) as sealed:
                sealed.clear()
                sealed.update(document)
            ended = run("check", tmp_path / "audit", "--policy", at / "policy.toml")
            assert not [needle for needle in hidden if needle in ended.said], ended.said
            path.write_bytes(content)


def test_the_log_of_a_server_holds_nothing_that_was_asked(world):
    at, _, _ = world
    lines = []
    with serve(load_model(at / "model"), port=0, log=lines.append) as server, Client(server.url) as client:
        for body in ({"prompt": NATURAL}, {"prompt": NATURAL, "n": NATURAL}, {NATURAL: 1}, NATURAL.encode()):
            client.ask("/completions", body)
        client.ask(f"/{NATURAL.replace(' ', '-')}")
    assert len(lines) == 5
    assert "zanzibarquux" not in " ".join(lines)
