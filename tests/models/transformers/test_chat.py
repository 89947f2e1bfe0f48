"""Conversations are written as the tokenizer's chat template writes them, and what a template refuses is said in one sentence."""

import pytest

from coalmine.errors import InputError, ModelError
from coalmine.models.transformers.chat import rendered_chat, template_sha256
from coalmine.records.chat import Turn
from models.tiny_chat import CHATML, chatml, inst

ASKED = (Turn("user", "Is there a note?"),)
ANSWERED = (*ASKED, Turn("assistant", "my pin is 4921"))


@pytest.mark.parametrize("tokenizer", [chatml(), inst()])
def test_a_conversation_is_what_transformers_writes(tokenizer):
    messages = [{"role": turn.role, "content": turn.content} for turn in ANSWERED]

    def theirs(conversation, **options):
        return tokenizer.apply_chat_template(conversation, tokenize=False, **options)

    assert rendered_chat(tokenizer, ANSWERED) == theirs(messages)
    assert rendered_chat(tokenizer, ASKED, generation_prompt=True) == theirs(
        messages[:1], add_generation_prompt=True
    )
    assert rendered_chat(tokenizer, ANSWERED, continue_final=True) == theirs(
        messages, continue_final_message=True
    )


def test_templates_have_their_own_hash():
    assert template_sha256(chatml()) != template_sha256(inst())
    assert template_sha256(_with({"default": CHATML, "tool_use": "-"})) == template_sha256(chatml())


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (None, "has no chat template"),
        ("{% for", "refuses a conversation"),
        ("{{ raise_exception('System role not supported') }}", "System role not supported"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ({"other": "x"}, "cannot be read"),
    ],
)
def test_what_a_template_refuses_is_one_sentence(template, reason):
    with pytest.raises(ModelError, match=reason) as problem:
        rendered_chat(_with(template), ANSWERED)
    assert "\n" not in problem.value.shown()


def test_a_reason_that_quotes_a_turn_is_left_out():
    with pytest.raises(ModelError, match="its reason is left out") as problem:
        rendered_chat(_with("{{ raise_exception('bad: ' + messages[-1]['content']) }}"), ANSWERED)
    assert "4921" not in str(problem.value)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ messages[0]['content'] }}", "drops assistant turns"),
        ("{{ messages[-1]['content'] | upper }}", "changes the content"),
        ("{{ messages[-1]['content'] * 2 }}", "2 times"),
    ],
)
def test_a_turn_that_is_not_written_once_cannot_be_continued(template, reason):
    with pytest.raises(ModelError, match=reason):
        rendered_chat(_with(template), ANSWERED, continue_final=True)


def test_a_conversation_has_turns_and_one_end():
    with pytest.raises(InputError, match="without turns"):
        rendered_chat(chatml(), [])
    with pytest.raises(InputError, match="choose one"):
        rendered_chat(chatml(), ANSWERED, generation_prompt=True, continue_final=True)


def _with(template):
    return chatml(template) if not isinstance(template, dict) else _several(template)


def _several(templates):
    import copy

    tokenizer = copy.deepcopy(chatml())
    tokenizer.chat_template = templates
    return tokenizer
