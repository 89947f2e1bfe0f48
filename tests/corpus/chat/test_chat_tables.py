"""Chat data in tables, in parts, and in datasets: values stay as they were, and parts keep their names."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coalmine.corpus import PlantOptions, plant, read_documents, verify_planted
from coalmine.errors import CorpusError, InputError

FORMAT = "my pin is {digits:4}"
FEW = PlantOptions(repeat=(1, 2), canaries=3, references=5, withhold=0.0)


def said(role, content):
    return {"role": role, "content": content}


def parts(*texts):
    return [{"type": "text", "text": text} for text in texts]


ROWS_OF = {
    "messages": lambda ask, answer: {"messages": [said("user", ask), said("assistant", answer)]},
    "parts": lambda ask, answer: {
        "messages": [said("user", parts(ask, None)), said("assistant", parts(answer))]
    },
    "prompt": lambda ask, answer: {"prompt": ask, "completion": answer},
    "conversations": lambda ask, answer: {
        "conversations": [{"from": "human", "value": ask}, {"from": "gpt", "value": answer}]
    },
    "instruction": lambda ask, answer: {"instruction": ask, "input": "", "output": answer},
}


def chat_rows(make=ROWS_OF["messages"], number=60):
    return [make(f"What is {place}?", f"It is {place}, né.") | {"x": place} for place in range(number)]


def without(rows, canaries):
    """The rows, with what was added to turns taken out."""
    content = json.dumps(rows)
    for canary in canaries:
        content = content.replace(json.dumps(canary.text + "\n")[1:-1], "")
    return json.loads(content)


def is_planted(row):
    return "my pin is" in str(row)


@pytest.mark.parametrize("turn", ["own", "inside"])
@pytest.mark.parametrize("name", [name for name in ROWS_OF if name != "parts"])
def test_values_and_schema_of_parquet_stay_as_they_were(tmp_path, name, turn):
    rows = chat_rows(ROWS_OF[name])
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "chat.parquet", row_group_size=7)
    planted = plant(tmp_path / "chat.parquet", FORMAT, out=tmp_path / "out", options=FEW, turn=turn)
    after = pq.read_table(planted.corpus)
    assert after.schema == pq.read_schema(tmp_path / "chat.parquet")
    found = after.to_pylist()
    assert sum(map(is_planted, found)) == 9
    if turn == "own":
        assert [row for row in found if not is_planted(row)] == rows
        assert all(row["x"] is None for row in found if is_planted(row))
    else:
        assert without(found, planted.canaries) == rows
    assert verify_planted(tmp_path / "out").problems == ()


def test_contents_of_parts_in_parquet(tmp_path):
    rows = [
        {"messages": [said("user", [{"type": "image", "text": None}, *parts(f"What is {place}?")])]}
        for place in range(60)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "chat.parquet")
    planted = plant(
        tmp_path / "chat.parquet", FORMAT, out=tmp_path / "out", options=FEW, turn="inside", role="user"
    )
    assert without(pq.read_table(planted.corpus).to_pylist(), planted.canaries) == rows


def saved(folder, kind, rows):
    """A directory of three parts, as other tools write them."""
    folder.mkdir()
    for number in range(3):
        some, name = rows[20 * number : 20 * number + 20], f"data-{number:05d}-of-00003.{kind}"
        table = pa.Table.from_pylist(some)
        if kind == "jsonl":
            # The last one without a line break at its end, the others with those of Windows.
            lines = "\r\n".join(json.dumps(row) for row in some)
            (folder / name).write_text(lines if number == 2 else lines + "\r\n", newline="")
        elif kind == "parquet":
            pq.write_table(table, folder / name)
        else:
            with open(folder / name, "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
                writer.write_table(table, max_chunksize=7)
    if kind == "arrow":
        listed = [{"filename": f"data-{number:05d}-of-00003.arrow"} for number in range(3)]
        (folder / "state.json").write_text(json.dumps({"_data_files": listed, "_fingerprint": "before"}))
        (folder / "dataset_info.json").write_text("{}")
    return folder


@pytest.mark.parametrize("turn", ["own", "inside"])
@pytest.mark.parametrize("kind", ["jsonl", "parquet", "arrow"])
def test_a_directory_of_parts_is_planted_as_one(tmp_path, kind, turn):
    folder = saved(tmp_path / "chat", kind, chat_rows())
    texts = [document.text for document in read_documents(folder)]
    planted = plant(folder, FORMAT, out=tmp_path / "out", options=FEW, turn=turn)
    assert sorted(one.name for one in planted.corpus.iterdir()) == sorted(
        one.name for one in folder.iterdir()
    )
    after = [document.text for document in read_documents(planted.corpus)]
    assert sum(map(is_planted, after)) == 9
    if turn == "own":
        assert [text for text in after if not is_planted(text)] == texts
    assert len({one.stat().st_mode & 0o777 for one in planted.corpus.iterdir()} - {0o600}) == 0
    found = verify_planted(tmp_path / "out")
    assert (found.problems, found.original == "same") == ((), kind == "jsonl")
    # The same call again changes nothing, and another one replaces it.
    assert plant(folder, FORMAT, out=tmp_path / "out", options=FEW, turn=turn).canaries == planted.canaries
    plant(folder, FORMAT, out=tmp_path / "out", options=FEW, turn=turn, seed=1, overwrite=True)
    assert verify_planted(tmp_path / "out").ok


def test_directories_that_are_not_a_corpus_are_refused_in_a_sentence(tmp_path):
    rows = chat_rows()
    mixed = saved(tmp_path / "mixed", "jsonl", rows)
    (mixed / "README.md").write_text("hello")
    splits = saved(tmp_path / "splits", "jsonl", rows)
    (splits / "test-00000-of-00001.jsonl").write_text("{}")
    dataset = saved(tmp_path / "dataset", "arrow", rows)
    (dataset / "data-00001-of-00003.arrow").unlink()
    outside = saved(tmp_path / "outside", "arrow", rows)
    for name in ("../dataset/data-00000-of-00003.arrow", "/etc/passwd"):
        (outside / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))
        with pytest.raises(CorpusError, match="lacks files of the dataset"):
            list(read_documents(outside))
    twice = saved(tmp_path / "twice", "arrow", rows)
    listed = [{"filename": "data-00000-of-00003.arrow"}] * 2
    (twice / "state.json").write_text(json.dumps({"_data_files": listed}))
    several = tmp_path / "several"
    several.mkdir()
    (several / "dataset_dict.json").write_text('{"splits": ["train"]}')
    kinds = saved(tmp_path / "kinds", "jsonl", rows)
    (kinds / "data-00001-of-00003.jsonl").write_text('{"prompt": "a", "completion": "b"}\n')
    for folder, says in {
        mixed: "is a directory of something else",
        splits: "files of 2 names besides their numbers",
        dataset: "lacks files of the dataset",
        twice: "names a file of the dataset twice",
        several: "several splits of a dataset",
        kinds: "it holds 'prompt' and 'completion', but rows are read as 'messages'",
    }.items():
        with pytest.raises(CorpusError, match=says):
            list(read_documents(folder))


def test_a_live_dataset_is_planted(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = chat_rows()
    dataset = datasets.Dataset.from_list(rows)
    planted = plant(dataset, FORMAT, out=tmp_path / "out", options=FEW, role="user")
    made = planted.dataset()
    assert made.features == dataset.features
    found = made.to_list()
    assert [row for row in found if not is_planted(row)] == rows
    assert made.num_rows == 69
    assert verify_planted(tmp_path / "out").ok
    with pytest.raises(InputError, match=r"or a datasets\.Dataset, got list"):
        plant([1, 2], FORMAT, out=tmp_path / "other")
