"""Whatever is changed in a directory that coalmine wrote, `verify` notices it, and says what it is."""

import json
import random
import shutil

import pytest

from cli.in_process import run
from coalmine import check, findings_of, parse_policy, read_run, verify_run
from coalmine.errors import InputError
from coalmine.models.reference.checkpoint import save_model
from models.random_networks import random_model
from resealing import resealed

NOT_OURS = {"corpus.txt", "report.html"}


def files_of_ours(folder):
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and (path.name not in NOT_OURS or path.parent.name in {"planted", "deduplicated"})
    )


def flipped(content, place, by=1):
    return content[:place] + bytes([content[place] ^ by]) + content[place + 1 :]


def changes_of(content, number):
    """The content with single bytes changed, at the end and somewhere else; cut short; and empty."""
    chance = random.Random(number)
    for place in (chance.randrange(len(content)), len(content) - 1):
        yield flipped(content, place, 1 << chance.randrange(8))
    yield from (content[: len(content) // 2], b"")


def states(folder):
    return {row.path.removeprefix(f"{folder}/"): row.state for row in verify_run(folder).files}


def state_of(folder, name):
    (state,) = [state for path, state in states(folder).items() if path.endswith(name)]
    return state


def test_what_was_written_is_sound(whole):
    found = verify_run(whole)
    assert [row for row in found.files if row.state != "as written"] == []
    assert (found.sound, found.exit_code) == (True, 0)
    assert {row.path for row in found.files} == {str(path) for path in files_of_ours(whole)}
    assert found.ignored == 2  # the corpus that was given, and the report


def test_every_change_of_every_file_is_noticed(whole):
    """Also by whoever reads the file: a report and the gate refuse it, or say that it is another."""
    read = set(files_of_ours(whole / "model-audit")) | {
        whole / "model" / name for name in ("training.json", "run.json", "model.safetensors")
    }
    read |= {whole / "planted" / name for name in ("canaries.json", "run.json")}
    policy = parse_policy("[exposure]\nat_most = 9.9")
    assert check(read_run(whole / "model", whole / "planted"), policy).outcome == "holds"
    for number, path in enumerate(files_of_ours(whole)):
        content = path.read_bytes()
        directory = whole / path.relative_to(whole).parts[0]
        for step, changed in enumerate(changes_of(content, number)):
            path.write_bytes(changed)
            found = verify_run(directory if step else whole)  # each alone is sound too, and takes less time
            assert not found.sound, (path, step)
            found_as = {row.path: row.state for row in found.files}
            assert found_as[str(path)] != "as written", (path, step)
            if path in read and step in {0, 2}:
                assert_readers_notice(whole, path)
        path.write_bytes(content)
    assert verify_run(whole).sound


def assert_readers_notice(whole, path):
    try:
        run_there = read_run(whole / "model", whole / "planted")
    except InputError as refused:
        said = str(refused)
    else:
        said = ""
    if said:
        assert path.name in said
        return
    found = {one.code for one in findings_of(run_there) if one.severity == "high" and one.status == "found"}
    assert found & {"CM501"}, path
    (rule,) = check(run_there, parse_policy("[exposure]\nat_most = 9.9")).rules
    assert rule.evidence.startswith("the results are of other"), path


@pytest.mark.parametrize("place", ["model", "model-audit", "planted", "index", "deduplicated", "compared"])
def test_each_directory_can_be_verified_alone(made_once, place):
    assert verify_run(made_once / place).sound


def test_weights_that_were_trained_again(whole):
    model = random_model("lstm")
    save_model(whole / "model", model._network, model.tokenizer)
    found = states(whole)
    assert found["model/model.safetensors"] == "altered"  # it is not what training.json tells of
    (whole / "model/training.json").unlink()
    found = states(whole)
    assert found["model/model.safetensors"] == "as written"
    for name in (
        "exposure/exposure",
        "extraction/verified",
        "membership/membership",
        "recitation/recitation",
        "provenance/provenance",
    ):
        assert found[f"model-audit/{name}.json"] == "of something else"


def test_weights_of_others_are_those_that_were_measured(whole, tmp_path):
    """A checkpoint in several files, of a library that writes no checksum."""
    weights = tmp_path / "gpt"
    weights.mkdir()
    (weights / "config.json").write_text('{"model_type": "gpt2"}')
    for number in (1, 2):
        (weights / f"model-{number}.safetensors").write_bytes(bytes([number]))
    shutil.copytree(whole / "model-audit" / "found", tmp_path / "gpt-audit" / "found")
    from coalmine.storage.files import sha256_of_file

    digests = [sha256_of_file(path) for path in sorted(weights.glob("*.safetensors"))]
    for name in ("extraction.json", "run.json"):
        with resealed(tmp_path / "gpt-audit" / "found" / name) as document:
            document["model"]["weights_sha256"] = digests
    found = verify_run(weights)
    assert found.sound
    assert sum(row.what == "weights" for row in found.files) == 2
    (weights / "model-2.safetensors").write_bytes(b"3")
    assert state_of(weights, "extraction.json") == "of something else"


def test_a_manifest_that_was_edited(whole):
    path = whole / "planted" / "canaries.json"
    path.write_bytes(path.read_bytes() + b" ")
    found = states(whole)
    assert found["planted/canaries.json"] == "of something else"  # run.json beside it tells of another one
    assert found["model-audit/exposure/exposure.json"] == "of something else"


def test_what_a_document_names_is_looked_for_beside_it_and_nowhere_else(whole, tmp_path):
    """A file that somebody made up can name any path, and say anything of the weights and of the manifest."""
    outside = tmp_path / "outside"
    outside.write_text("not ours")
    policy = tmp_path / "policy.toml"
    policy.write_text("[extraction]\nat_most_extracted = 0")
    for name in (str(outside), "../../outside", "..", "", "a\0b", "x" * 300):
        with resealed(whole / "deduplicated/dedup.json") as document:
            document["corpus"] = name
        with resealed(whole / "model-audit/extraction/verified.json") as document:
            document["extractions"] = {name: "0" * 64}
        assert not verify_run(whole).sound
        assert run("report", whole / "model", "-o", tmp_path / "report.html").code in {0, 2}
        assert run("check", whole / "model", "--policy", policy).code == 2
    for weights in ([1], {"a": 1}, 7):
        with resealed(whole / "model-audit/found/extraction.json") as document:
            document["model"] = {"weights_sha256": weights}
        with resealed(whole / "planted/run.json") as document:
            document["manifest_sha256"] = weights
        assert not verify_run(whole).sound
        assert run("report", whole / "model", "-o", tmp_path / "report.html").code in {0, 2}


def test_a_missing_file_is_named(whole):
    for name in ("model-audit/exposure/scores.parquet", "index/shard-00000.starts", "planted/corpus.txt"):
        (whole / name).unlink()
        assert state_of(whole, name) == "unreadable"
    (whole / "model/model.safetensors").unlink()
    rows = {row.path: row for row in verify_run(whole).files}
    assert rows[str(whole / "model/model.safetensors")].why.startswith("it is missing: ")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("model-audit/exposure/exposure.json", lambda it: it["results"][0].update(rank=1001)),
        ("compared/comparison.json", lambda it: it["pairs"][0]["exposure"].update(p_value=2.0)),
        ("model/training.json", lambda it: it["watched"][0]["seen"][0].update(low=-1.0)),
        ("model-audit/extraction/verified.json", lambda it: it["canaries"][0].update(repetitions=77)),
    ],
)
def test_numbers_that_cannot_be_true(whole, name, change):
    with resealed(whole / name) as document:
        change(document)
    assert state_of(whole, name) == "altered"


def test_work_that_was_stopped_is_kept_beside_a_result_and_unfinished_without_one(whole):
    (whole / "fresh").mkdir()
    names = ("unfinished.units", "unfinished-00112233445566778899aabbccddeeff.npz", "unfinished.json")
    for folder in ("fresh", "model-audit/found"):
        for name in names:
            (whole / folder / name).write_bytes(b"something")
    found = states(whole)
    assert {found[f"fresh/{name}"] for name in names} == {"unfinished"}
    kept = [found[f"model-audit/found/{name}"] for name in names]
    assert kept == ["as written", "as written", "unfinished"]


def test_files_of_others_are_ignored(whole):
    """Also beside a result of ours: their run.json, config.json and training.json are their own."""
    (whole / "theirs").mkdir()
    for name in ("config.json", "run.json", "training.json", "manifest.json", "comparison.json"):
        (whole / "theirs" / name).write_text(json.dumps({"job": 1}))
    for name in ("exposure.json", "scores.parquet"):
        shutil.copy(whole / "model-audit/exposure" / name, whole / "theirs" / name)
    found = verify_run(whole)
    assert found.sound
    assert found.ignored == 7


def test_what_cannot_be_read_is_one_row(whole):
    """A link that leads in a circle, in place of a result: a report refuses it by name, and no run with it is sound."""
    path = whole / "model-audit/exposure/exposure.json"
    path.unlink()
    path.symlink_to(path)
    assert state_of(whole, "model-audit/exposure/exposure.json") == "unreadable"
    with pytest.raises(InputError, match=r"exposure\.json"):
        read_run(whole / "model")


def test_the_command(whole, tmp_path, monkeypatch):
    monkeypatch.chdir(whole)
    ended = run("verify", "model")
    assert ended.code == 0
    assert "files are what was written." in ended.said
    (whole / "model-audit/exposure/scores.parquet").write_bytes(b"PAR1")
    ended = run("verify", "model", "--json")
    assert ended.code == 2
    document = json.loads(ended.out)
    assert (document["sound"], document["exit_code"]) == (False, 2)
    rows = {one["path"]: one["state"] for one in document["files"]}
    assert rows["model-audit/exposure/scores.parquet"] == "altered"
    said = " ".join(run("verify", "model-audit").said.split())
    assert "scores.parquet is altered: its SHA-256 is not the one in" in said
    assert "files are NOT what was written" in said
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="nothing that coalmine wrote was found below"):
        verify_run(tmp_path / "empty")
