"""Whatever is changed in a directory that coalmine wrote, `verify` notices it, and says what it is."""

import json
import random

import pytest

from cli.in_process import run
from coalmine import read_run, verify_run
from coalmine.errors import InputError
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
    for number, path in enumerate(files_of_ours(whole)):
        content = path.read_bytes()
        directory = whole / path.relative_to(whole).parts[0]
        for step, changed in enumerate(changes_of(content, number)):
            path.write_bytes(changed)
            found = verify_run(directory if step else whole)  # each alone is sound too, and takes less time
            assert not found.sound, (path, step)
            found_as = {row.path: row.state for row in found.files}
            assert found_as[str(path)] != "as written", (path, step)
        path.write_bytes(content)
    assert verify_run(whole).sound


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
    for name in (str(outside), "../../outside", "a\0b"):
        with resealed(whole / "deduplicated/dedup.json") as document:
            document["corpus"] = name
        with resealed(whole / "model-audit/extraction/verified.json") as document:
            document["extractions"] = {name: "0" * 64}
        assert not verify_run(whole).sound
        assert run("report", whole / "model", "-o", tmp_path / "report.html").code in {0, 2}
        assert run("check", whole / "model", "--policy", policy).code == 2


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
        ("model/training.json", lambda it: it["watched"][0]["seen"][0].update(low=-1.0)),
    ],
)
def test_numbers_that_cannot_be_true(whole, name, change):
    with resealed(whole / name) as document:
        change(document)
    assert state_of(whole, name) == "altered"


def test_what_cannot_be_read_is_one_row(whole):
    """A link that leads in a circle, in place of a result: a report refuses it by name, and no run with it is sound."""
    path = whole / "model-audit/exposure/exposure.json"
    path.unlink()
    path.symlink_to(path)
    assert state_of(whole, "model-audit/exposure/exposure.json") == "unreadable"
    with pytest.raises(InputError, match=r"exposure\.json"):
        read_run(whole / "model")


def test_the_command(whole, tmp_path):
    (whole / "model-audit/exposure/scores.parquet").write_bytes(b"PAR1")
    ended = run("verify", whole / "model", "--json")
    assert ended.code == 2
    document = json.loads(ended.out)
    assert (document["sound"], document["exit_code"]) == (False, 2)
    (altered,) = [one["path"] for one in document["files"] if one["state"] == "altered"]
    assert altered.endswith("scores.parquet")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="nothing that coalmine wrote was found below"):
        verify_run(tmp_path / "empty")
