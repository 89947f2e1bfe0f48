"""Commands that use an endpoint, with something else in the place of their files: exit 2 and one sentence, never 70."""

import pytest

from coalmine import serve
from models.switching import scripted


@pytest.fixture(scope="module")
def url():
    with serve(scripted(), port=0, name="m") as server:
        yield server.url


def a_directory(path):
    path.mkdir()


def a_link(path):
    path.symlink_to(path.with_name("elsewhere"))


def a_text(path):
    path.write_text("my own file, and not a short one " * 100)


def half_a_database(path):
    path.write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 8)


@pytest.mark.parametrize(
    "spoil", [a_directory, a_link, a_text, half_a_database], ids=lambda one: one.__name__
)
def test_answers_that_are_no_answers(fork_server, url, tmp_path, spoil):
    out = tmp_path / "out"
    out.mkdir()
    spoil(out / "answers.sqlite")
    run = fork_server.run(["extract", url, "-f", "my pin is {digits:1}", "--out", str(out)])
    assert run.code == 2
    assert run.err.startswith("coalmine: ")
    assert f"{out}/answers.sqlite is " in run.err
    assert run.err.count("\n") == 1
    assert not (out / "elsewhere").exists()


@pytest.mark.parametrize("content", ["", "url = [" + "[" * 50_000, "url = 'http://127.0.0.1:9/v1'\nx = 1\n"])
def test_a_description_that_describes_nothing(fork_server, tmp_path, content):
    (tmp_path / "e.toml").write_text(content)
    for command in (["extract", "e.toml", "-f", "{digits:1}"], ["serve", "e.toml"]):
        run = fork_server.run(
            [*command, *(["--out", "out"] if command[0] == "extract" else [])], cwd=tmp_path
        )
        assert run.code == 2
        assert run.err.startswith("coalmine: ")
        assert "Traceback" not in run.err
