"""One person's texts: those that may have been used against those that cannot have been, one answer, the same wherever it is read."""

import json

import pytest

from audits.provenance.small_users import COMMON, SMALL
from cli.in_process import run
from coalmine import check, findings_of, load_model, parse_policy, read_runs
from coalmine.audits import read_provenance
from coalmine.randomness import arrays
from coalmine.training.trainer import train_documents

POLICY = parse_policy("[provenance]\nno_user_found = true")


def written(seed, number=40):
    """What one person writes: the same words in any order."""
    drawn = arrays(seed, "test", "person")
    return [" ".join(drawn.choice(COMMON, 10).tolist()) for _ in range(number)]


USED, LATER, NEVER = written(1), written(2), written(3)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A model that was trained on texts of the person, and one that was not."""
    folder = tmp_path_factory.mktemp("person")
    options = {**SMALL, "hidden": 48, "epochs": 30}
    others = written(5)
    train_documents([*others, *USED], out=folder / "model", preset="provenance-words", **options)
    words = load_model(folder / "model").tokenizer
    train_documents(others, out=folder / "base", preset="provenance-words", tokenizer=words, **options)
    return folder


def asked(models, name, texts, *more):
    """The terminal, the file, the finding and the rule for texts of the person against later ones."""
    folder = models / name
    folder.mkdir(exist_ok=True)
    for side, some in (("before", texts), ("after", LATER)):
        rows = [
            json.dumps({"text": text, "thread": f"{side} {place // 2}"}) for place, text in enumerate(some)
        ]
        (folder / f"{side}.jsonl").write_text("\n".join(rows))
    done = run(
        "provenance", models / "model", "--by", "person", "--suspects", folder / "before.jsonl",
        "--non-members", folder / "after.jsonl", "--reference-model", models / "base", "--out", folder / "out", *more,
    )  # fmt: skip
    assert done.code == 0, done.said
    (found,) = read_runs(folder / "out")
    (finding,) = [one for one in findings_of(found) if one.key == "provenance.users"]
    assert run("verify", folder / "out", "--quiet").code == 0
    return " ".join(done.out.decode().split()), read_provenance(folder / "out"), finding, check(found, POLICY)


def test_texts_that_were_used_are_found(models):
    said, document, finding, gate = asked(models, "used", USED, "--field", "user=thread")
    [row] = document.questions[0].rows
    assert row.decision == "found"
    assert "20 threads that may have been used were compared with 20 of the same" in said
    assert "So texts of this person were used to train the model" in said
    assert (finding.status, finding.severity) == ("found", "high")
    assert gate.exit_code == 1


def test_texts_that_were_not_used_are_not_found_and_not_cleared(models):
    said, document, finding, gate = asked(models, "never", NEVER)
    assert document.questions[0].rows[0].decision == "not found"
    sentence = "That does not show that texts of this person were used, nor that none was."
    assert sentence in said
    assert (finding.status, finding.severity) == ("not_measured", "info")
    assert gate.exit_code == 0
