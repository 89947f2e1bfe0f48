"""Conversations are written as the tokenizer's chat template writes them, and what a template refuses is said in one sentence."""

import datetime as dt
import traceback

import pytest

from coalmine.corpus.chat.framing import frame_of
from coalmine.corpus.survival.headers import turn_header
from coalmine.errors import InputError, ModelError
from coalmine.models.transformers.chat import ChatTemplate, rendered_chat, template_sha256, written_facts
from coalmine.models.transformers.slow_tokenizers import read_tokenizer
from coalmine.models.transformers.subwords import subword_tokenizer
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
        ("{{ raise_exception('System role not supported') }}", r"turns of user, assistant \(TemplateError\)"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ({"other": "x"}, "cannot be read"),
    ],
)
def test_what_a_template_refuses_is_one_sentence(template, reason):
    with pytest.raises(ModelError, match=reason) as problem:
        rendered_chat(_with(template), ANSWERED)
    assert "\n" not in problem.value.shown()


@pytest.mark.parametrize(
    "disguised",
    [
        "raise_exception('bad: ' + said)",
        "raise_exception(said | upper)",
        "raise_exception(said[3:])",
        "raise_exception(said | list | join('-'))",
        "raise_exception(said | reverse)",
        "raise_exception(said.split(' ') | string)",
        "{}[said].missing",
    ],
)
def test_nothing_that_a_template_says_is_shown(disguised):
    template = f"{{% set said = messages[-1]['content'].upper() %}}{{{{ {disguised} }}}}"
    with pytest.raises(ModelError, match="for a reason that is left out") as problem:
        rendered_chat(_with(template), ANSWERED)
    shown = "".join(traceback.format_exception(problem.value)) + problem.value.shown()
    assert not [part for part in ("PIN", "NIP", "P-I-N", "492", "129", "4-9") if part in shown]


CLOCK = CHATML.replace("{% for", "{{ strftime_now('%d %b %Y') }}\n{% for", 1)


def test_a_template_with_a_clock_writes_the_same_text_on_every_day():
    assert rendered_chat(_with(CLOCK), ASKED).startswith("26 Jul 2024\n")
    assert rendered_chat(_with(CLOCK), ASKED, day=dt.date(2025, 1, 2)).startswith("02 Jan 2025\n")
    spaced = chatml(
        "  {% if true %}\n\nB{% endif %}{{ strftime_now('%-d/%-m %H:%M') if strftime_now is defined }}"
    )
    assert rendered_chat(spaced, ASKED) == "\nB26/7 00:00"
    frame, tokens = frame_of("messages", "user"), read_tokenizer(_with(CLOCK)).backend
    subwords = subword_tokenizer(tokens, size=len(_with(CLOCK)), separator=0)
    facts = written_facts(ChatTemplate(_with(CLOCK)).context(frame, subwords))
    assert facts["chat_template_day"] == "2024-07-26"
    assert "chat_template_day" not in written_facts(ChatTemplate(chatml()).context(frame, subwords))
    # A training on another day had the same header but for the date.
    header = turn_header(frame, _with(CLOCK), subwords)
    assert subwords.decode(header.tokens).endswith("<|im_start|>user\n")
    assert "Jul" not in subwords.decode(header.tokens)


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
