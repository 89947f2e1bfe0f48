"""The adapter of the guide: it conforms, and the command line audits it by name."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import numpy_adapter
from coalmine import plant, score_texts
from coalmine.cli.main import app
from coalmine.models import check_model

ROOT = Path(__file__).parents[2]
WHERE = "python:numpy_adapter:model"
PIN = "my pin is {digits:4}"


@pytest.fixture(scope="module")
def elman():
    return numpy_adapter.model()


def run(*arguments):
    assert not app([str(argument) for argument in arguments], standalone_mode=False)


def test_it_conforms(elman):
    assert check_model(elman, ["my pin is 4921", "it is", "0 past 7"]) == []


def test_it_scores_texts_as_a_walk_by_hand_does(elman):
    text = "my pie"
    tokens = elman.tokenizer.encode(text)
    states = elman.states_along([*elman.context, *tokens])
    bits = -sum(elman.expect(states[[place]])[0, token] for place, token in enumerate(tokens))
    np.testing.assert_allclose(score_texts(elman, [text, "my"])[0], bits)


def test_the_command_line_extracts_what_it_was_fitted_to(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("extract", WHERE, "--format", PIN, "--top", 3)
    found = json.loads(Path("numpy_adapter-model-audit/extraction/extraction.json").read_text())
    assert found["found"][0]["text"] == "my pin is 4921"
    assert found["certificate"]["proven"]


def test_the_command_line_exposes_it(tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("the kettle is on\n" * 30)
    planted = plant(
        corpus,
        ["my pin is {digits:3}"],
        repeat=[1],
        references=0,
        seed=0,
        canaries=1,
        withhold=0.0,
        out=tmp_path / "planted",
    )
    run("expose", f"{WHERE}:24", tmp_path / "planted", "--method", "exact", "--out", tmp_path / "out")
    [row] = json.loads((tmp_path / "out" / "exposure.json").read_text())["results"]
    members = [f"my pin is {number:03}" for number in range(1000)]
    bits = score_texts(numpy_adapter.model("24"), members)
    [canary] = planted.canaries
    assert row["rank"] == int((bits <= bits[members.index(canary.text)]).sum())


def test_the_guide_shows_the_example_as_it_is_and_all_of_it_runs(tmp_path, monkeypatch):
    guide = (ROOT / "docs" / "guides" / "adapters.md").read_text("utf-8")
    example = (ROOT / "examples" / "numpy_adapter.py").read_text("utf-8")
    assert example[example.index("class Elman:") :].strip() in guide
    monkeypatch.chdir(tmp_path)
    names = {}
    for language, content in re.findall(r"^```(\w+)\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL):
        if language == "python":
            exec(compile(content, "adapters.md", "exec"), names)
        elif language == "sh":
            for line in content.splitlines():
                program, *arguments = shlex.split(line)
                if program == "coalmine":
                    run(*arguments)
    assert names["bits"].round(1).tolist() == [2.6, 44.8]
    [row] = json.loads(Path("numpy_adapter-model-audit/exposure/exposure.json").read_text())["results"]
    assert row["rank"] == 1
