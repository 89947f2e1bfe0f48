"""A symbolic link that leads in a circle, in place of a file or directory of ours: one sentence, and never a sound run."""

import shutil

import pytest

from cli.in_process import run
from coalmine import check, parse_policy, read_run, verify_run
from coalmine.errors import InputError
from coalmine.storage.files import is_circle, real_path

SENTENCE = (
    "is a symbolic link that leads in a circle, so it cannot be read; restore what was there, or remove it"
)


def looped(path):
    """Replace a file or a directory by a link to itself."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    path.symlink_to(path.name)


def everything(folder):
    return sorted(path for path in folder.rglob("*") if path.name != "corpus.txt" or path.parent != folder)


def test_what_is_a_circle(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "nowhere").symlink_to("missing")
    (tmp_path / "here").symlink_to("there")
    (tmp_path / "there").symlink_to("here")
    found = {path.name for path in tmp_path.iterdir() if is_circle(path)}
    assert found == {"here", "there"}
    assert real_path(tmp_path / "link") == real_path(tmp_path) / "file"
    assert real_path(tmp_path / "here").parent == real_path(tmp_path)


def test_verify_lists_it_as_unreadable(whole, made_once):
    for path in everything(whole):
        kept = made_once / path.relative_to(whole)
        looped(path)
        found = verify_run(whole)
        states = {row.path: row.state for row in found.files}
        assert (states[str(path)], found.exit_code) == ("unreadable", 2), path
        path.unlink()
        shutil.copytree(kept, path) if kept.is_dir() else shutil.copy2(kept, path)
    assert verify_run(whole).sound


def test_reports_and_the_gate_refuse_it(whole, made_once):
    shadows = whole / "fit" / "shadows"  # models that no report is about, and that it does not look into
    for path in everything(whole):
        if shadows in path.parents:
            continue
        kept = made_once / path.relative_to(whole)
        looped(path)
        with pytest.raises(InputError) as refused:
            read_run(whole)
        assert str(refused.value) == f"{path} {SENTENCE}"
        path.unlink()
        shutil.copytree(kept, path) if kept.is_dir() else shutil.copy2(kept, path)
    policy = parse_policy("[exposure]\nat_most = 9.9")
    assert check(read_run(whole / "model", whole / "planted"), policy).outcome == "holds"


@pytest.mark.parametrize("name", ["model", "model/training.json", "model/model.safetensors"])
def test_the_model_of_a_named_audit_directory(whole, name):
    looped(whole / name)
    with pytest.raises(InputError, match="leads in a circle"):
        read_run(whole / "model-audit")
    found = verify_run(whole / "model-audit")
    assert {row.path: row.state for row in found.files}[str(whole / name)] == "unreadable"


def test_the_audit_directory_of_a_named_model(whole):
    looped(whole / "model-audit")
    with pytest.raises(InputError, match="leads in a circle"):
        read_run(whole / "model")
    found = verify_run(whole / "model")
    assert {row.path: row.state for row in found.files}[str(whole / "model-audit")] == "unreadable"


@pytest.mark.parametrize(
    "name", ["exposure/exposure.json", "exposure/run.json", "membership/membership.json"]
)
def test_the_commands(whole, name, tmp_path):
    (tmp_path / "policy.toml").write_text("[exposure]\nat_most = 9.9")
    path = whole / "model-audit" / name
    looped(path)
    for command in (
        ("check", whole / "model", "--policy", tmp_path / "policy.toml"),
        ("report", whole / "model", "-o", tmp_path / "report.html"),
        ("report", path, "-o", tmp_path / "report.html"),
        ("verify", path),
    ):
        ended = run(*command)
        assert (ended.code, ended.err.decode()) == (2, f"coalmine: {path} {SENTENCE}\n"), command
    assert not (tmp_path / "report.html").exists()
    ended = run("verify", whole)
    assert ended.code == 2
    assert "files are NOT what was written" in ended.said
