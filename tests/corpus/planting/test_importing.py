"""Canaries of other tools, from files that these tools wrote, and tables by hand."""

import json
import stat
from pathlib import Path

import pytest

from coalmine import CanarySet, ScriptedModel, expose, membership
from coalmine.audits import verify_extraction
from coalmine.corpus import check_survival, import_canaries
from coalmine.errors import InputError, ManifestError, NotMeasurableError
from models.tiny_transformers import byte_level

FOREIGN = Path(__file__).parents[2] / "foreign"
PINS = ["my pin is 0001", "my pin is 0002", "my pin is 0003", "my pin is 0004"]


@pytest.fixture
def written(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


def test_a_manifest_of_memaudit(tmp_path):
    source = json.loads((FOREIGN / "memaudit-manifest.json").read_text())
    imported = import_canaries(FOREIGN / "memaudit-manifest.json")
    canaries = imported.canaries
    assert imported.tool == "memaudit"
    candidates = [entry for entry in source["canaries"] if entry["role"] == "candidate"]
    assert [(c.canary_id, c.repetitions, c.planted) for c in canaries] == [
        (entry["id"], entry["repetitions"], entry["included"]) for entry in candidates
    ]
    # What was left out keeps the copies that it was meant to have.
    assert {c.repetitions for c in canaries if not c.planted} == {1, 4}
    assert all(
        c.text == "MEMAUDIT RECOVERY PHRASE: " + e["secret"]
        for c, e in zip(canaries, candidates, strict=True)
    )
    assert len(canaries.references["f0"]) == 12
    assert canaries.withhold == 0.5
    path = canaries.save(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert CanarySet.load(path) == canaries
    assert CanarySet.load(path).listed == {"f0"}


def test_texts_without_a_format_can_be_compared_and_nothing_else():
    canaries = import_canaries(FOREIGN / "memaudit-manifest.json").canaries
    letters = sorted({character for _, _, text in canaries.named_texts() for character in text})
    remembered = {canary.text: 1e-4 for canary in canaries if canary.planted}
    model = ScriptedModel("".join(letters), memory=remembered)
    results = expose(model, canaries)
    assert {result.method for result in results} == {"references"}
    assert all((result.rank == 1) == result.planted for result in results if result.rank is not None)
    found = membership(results)
    assert {one.name for one in found.populations} >= {"pooled"}
    assert all(one.auc.value == 1.0 for one in found.populations)
    with pytest.raises(NotMeasurableError, match="a list of texts without one"):
        verify_extraction(model, canaries)
    refused = expose(model, canaries, method="exact")
    assert {result.estimate.status for result in refused} == {"not_measured"}
    assert "a list of texts without one" in refused[0].estimate.statement
    # Which part of them is the secret is known all the same.
    tokenizer = byte_level()
    rows = [
        {"input_ids": tokenizer.encode(c.text), "labels": tokenizer.encode(c.text)}
        for c in canaries
        if c.planted
        for _ in range(c.repetitions)
    ]
    for row in rows:
        row["labels"][:5] = [-100] * 5
    assert check_survival(canaries, rows, tokenizer).ok


def test_a_secrets_set_of_tensorflow_privacy_brings_its_format():
    source = json.loads((FOREIGN / "tensorflow-privacy-secrets.json").read_text())
    imported = import_canaries(FOREIGN / "tensorflow-privacy-secrets.json")
    canaries = imported.canaries
    assert imported.tool == "TensorFlow Privacy"
    assert canaries.formats["f0"].size == 10_000
    assert not canaries.listed
    assert {c.text: c.times_trained_on for c in canaries} == {
        text: int(copies) for copies, texts in source["secrets"].items() for text in texts
    }
    assert list(canaries.references["f0"]) == source["references"]
    assert canaries.withhold is None
    assert any("does not say that a coin decided" in note for note in imported.notes)


def test_a_list_of_secrets_sets_is_taken_apart(written):
    one = json.loads((FOREIGN / "tensorflow-privacy-secrets.json").read_text())
    single = import_canaries(written("one.json", [one])).canaries
    assert single == import_canaries(FOREIGN / "tensorflow-privacy-secrets.json").canaries
    with pytest.raises(InputError, match="has 2 sets of secrets; put each into a file of its own"):
        import_canaries(written("two.json", [one, one]))


@pytest.mark.parametrize("kind", ["csv", "json", "jsonl"])
def test_a_table_with_in_and_out(written, kind):
    labels = ["in", "Non-Member", "1", "control"]
    copies = [4, 4, 1, 1]
    rows = [
        {"Text": text, "In Out": label, "copies": number}
        for text, label, number in zip(PINS, labels, copies, strict=True)
    ]
    content = {
        "csv": "Text,In Out,copies\n" + "".join(f'"{r["Text"]}",{r["In Out"]},{r["copies"]}\n' for r in rows),
        "json": rows,
        "jsonl": "".join(json.dumps(row) + "\n" for row in rows),
    }[kind]
    path = written(f"canaries.{kind}", content)
    canaries = import_canaries(path, format="my pin is {digits:4}", withhold=0.5).canaries
    assert [(c.text, c.repetitions, c.times_trained_on) for c in canaries] == [
        (PINS[0], 4, 4),
        (PINS[1], 4, 0),
        (PINS[2], 1, 1),
    ]
    assert canaries.references["f0"] == (PINS[3],)
    assert canaries.withhold == 0.5
    assert not canaries.listed


def test_texts_of_several_lines_stay_whole(written):
    texts = ["one\ntwo", "one\u2028three", 'one "four", five']
    rows = [{"text": text, "member": number} for number, text in zip((1, 0, 0), texts, strict=True)]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    quoted = "".join('"{}",{}\n'.format(row["text"].replace('"', '""'), row["member"]) for row in rows)
    for path in (written("a.jsonl", lines), written("a.csv", "text,member\n" + quoted)):
        assert [canary.text for canary in import_canaries(path).canaries] == texts


def test_a_list_keeps_what_its_texts_begin_with_apart(written):
    path = written("a.csv", "text,member\nabc,1\nabcd,0\nab{x},0\n")
    canaries = import_canaries(path).canaries
    assert canaries.formats["f0"].prefix == "ab"
    assert canaries.formats["f0"].size == 3
    nested = written("b.csv", "text,member\nabc,1\nabcd,0\n")
    assert import_canaries(nested).canaries.formats["f0"].size == 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "", "is empty"),
        ("a.csv", "text,member\n", "has no rows"),
        ("a.csv", "text,member\na,1,2\n", "row 2 of .* has 3 columns instead of 2"),
        (
            "a.csv",
            "words,member\na,1\n",
            "none of the 2 columns of .* has a name for the texts; name one text",
        ),
        ("a.csv", "text,score\na,1\n", "has a name for what was trained on"),
        ("a.csv", "text,member,label\na,1,1\n", "several columns that may hold what was trained on"),
        (
            "a.csv",
            "text,member\na,perhaps\nb,1\n",
            "row 2 .* has something other than in or out in the column member",
        ),
        (
            "a.csv",
            "text,member,copies\na,1,0\nb,1,1\n",
            "something other than a whole number of copies of at least 1 in the column copies",
        ),
        ("a.csv", "text,member\n,1\n", "has no text in the column text"),
        ("a.csv", "text,member\na,1\n", "has 1 different texts, too few to be compared"),
        ("a.json", "{", "is not JSON"),
        ("a.json", {"a": 1}, "neither a manifest of memaudit"),
        ("a.json", {"schema": "coalmine.canaries/1"}, "a file of coalmine itself"),
        ("a.json", [1], "entry 0 of .* is not an object"),
        (
            "a.json",
            {"include_prob": 0.5, "fmt": "text", "canaries": [{"id": 1}]},
            "is not a manifest of memaudit .expected `str`, got `int` - at `.\\.canaries.0..id`",
        ),
        (
            "a.json",
            {"include_prob": 0.5, "fmt": "new", "canaries": []},
            "records of a kind that is not known",
        ),
        (
            "a.jsonl",
            '{"text": "a", "in": 1}\n{"text": "b"}\n',
            "line 2 .* different columns from the first row",
        ),
    ],
)
def test_what_cannot_be_read_is_said(written, name, content, message):
    with pytest.raises(InputError, match=message):
        import_canaries(written(name, content))


def test_what_contradicts_the_file_is_refused(written):
    with pytest.raises(InputError, match=r"withheld with probability 0\.5, and 0\.25 was given"):
        import_canaries(FOREIGN / "memaudit-manifest.json", withhold=0.25)
    with pytest.raises(ManifestError, match="is not a member of its format"):
        import_canaries(written("a.csv", "text,member\nabc,1\nabd,0\n"), format="my pin is {digits:4}")
    path = written("b.csv", "")
    path.write_bytes(b"text,member\n\xff,1\n")
    with pytest.raises(InputError, match="is not UTF-8"):
        import_canaries(path)
