"""Chat data in JSON Lines: what its rows mean, and planting by role with every other byte as it was."""

from __future__ import annotations

import gzip
import json
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.in_process import run
from coalmine.corpus import CorpusIndex, Fields, PlantOptions, plant, read_documents, verify_planted
from coalmine.corpus.chat.rows import ROW_KINDS
from coalmine.corpus.files.documents import ROWS
from coalmine.errors import CorpusError, InputError, UnreadWarning

FORMAT = "my pin is {digits:4}"
FEW = PlantOptions(repeat=(1, 2), canaries=3, references=5, withhold=0.0)


def said(role, content, **others):
    return {"role": role, "content": content, **others}


def parts(text):
    return [{"type": "image"}, {"type": "text", "text": text}]


# For each kind, how a row holds what a user asks and an assistant answers.
ROWS_OF = {
    "messages": lambda ask, answer: {"id": 7, "messages": [said("user", ask), said("assistant", answer)]},
    "parts": lambda ask, answer: {
        "messages": [
            said("user", parts(ask)),
            said("assistant", [{"type": "text", "text": answer}], weight=1),
        ]
    },
    "prompt": lambda ask, answer: {"prompt": ask, "completion": answer, "source": None},
    "prompt of messages": lambda ask, answer: {
        "prompt": [said("system", "Be brief."), said("user", ask)],
        "completion": [said("assistant", answer)],
    },
    "conversations": lambda ask, answer: {
        "conversations": [{"from": "human", "value": ask}, {"from": "gpt", "value": answer}]
    },
    "instruction": lambda ask, answer: {"instruction": ask, "input": "", "output": answer},
}


def kind_named(name):
    return {"parts": "messages", "prompt of messages": "prompt"}.get(name, name)


def lines(rows, **dumping):
    return "".join(json.dumps(row, **dumping) + "\n" for row in rows)


def chat_rows(make, number=60):
    return [make(f"What is {place} plus one?", f"It is {place + 1}.") for place in range(number)]


def written(tmp_path, rows, name="chat.jsonl"):
    path = Path(tmp_path, name)
    path.write_text(rows if isinstance(rows, str) else lines(rows))
    return path


def test_the_kinds_are_those_that_fields_name():
    assert {kind.name for kind in ROW_KINDS} | {"text"} == set(ROWS)


@pytest.mark.parametrize("name", ROWS_OF)
def test_the_text_of_a_conversation_is_that_of_its_turns(tmp_path, name):
    path = written(tmp_path, [ROWS_OF[name]("how?", "so!")])
    [document] = read_documents(path)
    assert document.text.removeprefix("Be brief.\n") == "how?\nso!"


@pytest.mark.parametrize("role", ["assistant", "user", "system"])
@pytest.mark.parametrize("turn", ["own", "inside"])
@pytest.mark.parametrize("name", ROWS_OF)
def test_planting_by_role_keeps_all_other_bytes(tmp_path, name, turn, role):
    rows = chat_rows(ROWS_OF[name])
    path = written(tmp_path, rows)
    place = {"role": role, "turn": turn, "options": FEW}
    if (
        role == "system"
        and (name in {"prompt", "instruction"} or turn == "inside")
        and name != "prompt of messages"
    ):
        with pytest.raises(CorpusError, match="system"):
            plant(path, FORMAT, out=tmp_path / "planted", **place)
        return
    made = plant(path, FORMAT, out=tmp_path / "planted", **place)

    frame = made.canaries.frame
    assert (frame.kind, frame.role, frame.place) == (kind_named(name), role, turn)
    found = verify_planted(tmp_path / "planted")
    assert (found.ok, found.original, found.problems) == (True, "same", ())
    before, after = path.read_bytes().splitlines(), made.corpus.read_bytes().splitlines()
    new = [line for line in after if line not in set(before)]
    assert len(new) == 9
    if turn == "own":
        assert [line for line in after if line not in set(new)] == before
    else:
        texts = sorted(json.dumps(canary.text + "\n")[1:-1] for canary in made.canaries)
        without = [line.decode() for line in after]
        for text in texts:
            without = [line.replace(text, "") for line in without]
        assert [line.encode() for line in without] == before


def test_a_new_row_is_written_as_the_first_one_is(tmp_path):
    made = [
        {
            "conversations": [
                {"from": "system", "value": "s"},
                {"from": "user", "value": "u"},
                {"from": "model", "value": "m"},
            ]
        }
    ]
    planted = plant(
        written(tmp_path, made * 60), FORMAT, out=tmp_path / "planted", options=FEW, beside="Go on."
    )
    rows = [json.loads(line) for line in planted.corpus.read_text().splitlines()]
    [new] = [row for row in rows if planted.canaries[0].text in str(row)]
    assert new == {
        "conversations": [
            {"from": "user", "value": "Go on."},
            {"from": "model", "value": planted.canaries[0].text},
        ]
    }


def test_users_and_compression(tmp_path):
    rows = [row | {"by": f"user {place % 3}"} for place, row in enumerate(chat_rows(ROWS_OF["messages"]))]
    path = tmp_path / "chat.jsonl.gz"
    path.write_bytes(gzip.compress(lines(rows).encode()))
    planted = plant(
        path, FORMAT, out=tmp_path / "planted", options=FEW, fields=Fields(user="by"), role="user"
    )
    users = {document.user for document in read_documents(planted.corpus, Fields(user="by"))}
    assert users == {
        "user 0",
        "user 1",
        "user 2",
        *(f"coalmine-{canary.canary_id}" for canary in planted.canaries),
    }
    assert verify_planted(tmp_path / "planted").ok


TEXTS = st.text(min_size=1, max_size=12)


@settings(max_examples=10, deadline=None)
@given(
    turns=st.lists(st.tuples(TEXTS, TEXTS), min_size=2, max_size=5),
    ascii_only=st.booleans(),
    space=st.sampled_from([None, (" ,  ", " :\t")]),
    last=st.booleans(),
    name=st.sampled_from(sorted(ROWS_OF)),
    role=st.sampled_from(["user", "assistant"]),
    place=st.sampled_from(["own", "inside"]),
)
def test_taking_canaries_out_gives_the_original_bytes(
    tmp_path_factory, turns, ascii_only, space, last, name, role, place
):
    tmp_path = tmp_path_factory.mktemp("chat")
    rows = [ROWS_OF[name](ask, answer + "! " * 20) for ask, answer in turns]
    content = lines(rows, ensure_ascii=ascii_only, separators=space)
    path = tmp_path / "chat.jsonl"
    path.write_bytes((content if last else content.removesuffix("\n")).encode())
    options = PlantOptions(repeat=(1,), canaries=2, references=2, withhold=0.0)
    plant(path, "my pin is é{digits:4}", out=tmp_path / "out", options=options, role=role, turn=place)
    found = verify_planted(tmp_path / "out")
    assert (found.problems, found.original) == ((), "same")


def test_verifying_notices_a_canary_in_another_turn(tmp_path):
    path = written(tmp_path, chat_rows(ROWS_OF["messages"]))
    for turn in ("own", "inside"):
        planted = plant(path, FORMAT, out=tmp_path / turn, options=FEW, turn=turn)
        rows = [json.loads(line) for line in planted.corpus.read_text().splitlines()]
        wrong = next(row for row in rows if planted.canaries[0].text in str(row))
        wrong["messages"][1]["role"] = "user"
        planted.corpus.write_text(lines(rows))
        assert any("canary f0-x1-0" in problem for problem in verify_planted(tmp_path / turn).problems)


ONE = ROWS_OF["messages"]("how?", "so!")


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (
            [ONE, ROWS_OF["prompt"]("a", "b")],
            "line 2: it holds 'prompt' and 'completion', but rows are read as 'messages'",
        ),
        ([ONE, {"text": "hello"}], "line 2: it has no 'messages'"),
        ([{"text": "hello"}, ONE], "line 2: it holds 'messages', but rows are read as texts in 'text'"),
        ([{"messages": []}], "line 1: 'messages' should be a list of turns, but is an empty list"),
        ([{"messages": "hello"}], "should be a list of turns, but is a string"),
        ([{"messages": ["hello"]}], "turn 1 should have 'role' and 'content', but is a string"),
        ([{"messages": [said("user", "")]}], "the content of every turn is empty"),
        (
            [{"messages": [said("butler", "yes")]}],
            "the 'role' of turn 1 is 'butler', which is not a known role",
        ),
        ([{"messages": [said("my pin is 4921", "yes")]}], "the 'role' of turn 1 is a string"),
        (
            [{"messages": [said("user", 7)]}],
            "the 'content' of turn 1 should be text or a list of parts, but is a number",
        ),
        ([{"messages": [said("user", ["hi"])]}], "part 1 of the 'content' of turn 1 should be an object"),
        (
            [{"messages": [said("user", [{"type": "text"}])]}],
            "the 'text' of part 1 of turn 1 should be a string",
        ),
        ([{"messages": [said("user", "\ud800")]}], "half a surrogate pair"),
        ([{"instruction": "add", "output": None}], "line 1: it has no 'output'"),
        ([{"instruction": 7, "output": "so"}], "'instruction' should be a string, but is a number"),
    ],
)
def test_bad_rows_are_named_in_a_sentence(tmp_path, rows, says):
    with pytest.raises(CorpusError) as raised:
        list(read_documents(written(tmp_path, rows)))
    assert says in str(raised.value)
    assert "4921" not in str(raised.value)


def test_a_turn_that_only_calls_a_tool_has_no_text(tmp_path):
    row = {
        "messages": [said("user", "now?"), said("assistant", None, tool_calls=[{}]), said("tool", "12:00")]
    }
    [document] = read_documents(written(tmp_path, [row]))
    assert document.text == "now?\n12:00"


@pytest.mark.parametrize(
    ("rows", "options", "says"),
    [
        ([{"text": "hello"}] * 60, {"role": "user"}, "are texts, which nobody speaks, but role is 'user'"),
        ([{"text": "hello"}] * 60, {"turn": "inside"}, "but turn is 'inside'"),
        ([ONE] * 60, {"role": "system", "turn": "inside"}, "has a turn of the system with text"),
        (
            [ROWS_OF["messages"]("how? " * 20, "so!")] * 8,
            {"turn": "inside"},
            "8 rows of .* too few for 9 copies",
        ),
        (
            [{"messages": [{"content": "hi"}]}] * 60,
            {},
            "its first row cannot be read: turn 1 should have 'role'",
        ),
        ([ONE] * 60, {"beside": " "}, "the text of the other turn is empty"),
        ([ONE] * 60, {"role": "butler"}, "role should be one of system, user, assistant, but is 'butler'"),
        ([ONE] * 60, {"turn": "between"}, "turn should be one of own, inside"),
    ],
)
def test_planting_that_cannot_be_is_refused_in_a_sentence(tmp_path, rows, options, says):
    with pytest.raises(InputError, match=says):
        plant(written(tmp_path, rows), FORMAT, out=tmp_path / "planted", options=FEW, **options)
    assert not (tmp_path / "planted").exists()


def test_the_kind_can_be_overridden(tmp_path):
    both = {"text": "hello", "instruction": "add", "output": "so", "chat": ONE["messages"]}
    path = written(tmp_path, [both] * 60)
    texts = {
        rows: next(iter(read_documents(path, fields))).text
        for rows, fields in {
            "auto": Fields(),
            "instruction": Fields(rows="instruction"),
            "a column": Fields(text="chat"),
            "messages": Fields(text="chat", rows="messages"),
        }.items()
    }
    assert texts == {
        "auto": "hello",
        "instruction": "add\nso",
        "a column": "how?\nso!",
        "messages": "how?\nso!",
    }
    planted = plant(path, FORMAT, out=tmp_path / "planted", options=FEW, fields=Fields(text="chat"))
    assert planted.canaries.corpus.fields == Fields(text="chat", rows="messages")
    assert verify_planted(tmp_path / "planted").ok
    with pytest.raises(CorpusError, match="rows should be one of"):
        Fields(rows="chats")
    with pytest.raises(CorpusError, match="translation pairs"):
        Fields(rows="messages", source="en", target="de")
    (tmp_path / "a.txt").write_text("hello\n")
    with pytest.raises(CorpusError, match="whose rows are read as texts"):
        list(read_documents(tmp_path / "a.txt", Fields(rows="messages")))


def test_strings_of_conversations_that_are_not_read_are_counted(tmp_path):
    call = {"function": {"name": "pay", "arguments": {"to": "ann", "for": "lunch", "sum": 7}}}
    row = {"messages": [said("user", "hi", name="ann"), said("assistant", "ok", tool_calls=[call])]}
    counted = (
        r"^10 strings of the conversations in .* were not read: messages\[\]\.name \(2\), "
        r"messages\[\]\.tool_calls\[\]\.function\.arguments \(4\), messages\[\]\.tool_calls\[\]\.function\.name \(2\), tools\[\] \(2\)$"
    )
    path = written(tmp_path, [{**row, "tools": ["pay"]}] * 2)
    with pytest.warns(UnreadWarning, match=counted):
        list(read_documents(path))
    (tmp_path / "beside").mkdir()
    beside = {"system": "be kind", "tools": '[{"name": "pay"}]', "history": [["hi", "hello"]]}
    alpaca = written(tmp_path / "beside", [{"instruction": "hi", "output": "ok", **beside}])
    with pytest.warns(UnreadWarning, match=r"not read: history\[\]\[\] \(2\), tools \(1\)$"):
        assert [one.text for one in read_documents(alpaca)] == ["be kind\nhi\nok"]
    spoken = written(tmp_path / "beside", [{"messages": [said("user", "hi")], **beside}])
    with pytest.warns(UnreadWarning, match=r"history\[\]\[\] \(2\), system \(1\), tools \(1\)$"):
        assert [one.text for one in read_documents(spoken)] == ["hi"]
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        ended = run("data", "index", path, "-o", tmp_path / "index", "--tokenizer", "bytes")
    assert ended.code == 0, ended.said
    assert ended.said.count("warning: 10 strings of the conversations") == 1
    with pytest.warns(UnreadWarning, match=counted):
        CorpusIndex.open(tmp_path / "index")
    assert "10 strings" in json.loads((tmp_path / "index" / "run.json").read_text())["not_read"][0]
