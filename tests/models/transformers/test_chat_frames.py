"""Canaries of chat data are scored as the turns that they are, with the numbers of a plain loop over transformers."""

import json
import math
import pickle

import msgspec
import pytest
import torch
from peft import LoraConfig, get_peft_model

from coalmine import (
    CanarySet,
    ExposureWatch,
    Format,
    expose,
    load_model,
    plant,
    recite,
    score_texts,
    verify_certificate,
)
from coalmine.audits import verify_extraction
from coalmine.corpus import build_index
from coalmine.errors import InputError, ModelError, NotMeasurableError
from coalmine.integrations import read_watched
from coalmine.integrations.exposure_log import ExposureLog
from coalmine.models import ScriptedModel, from_transformers
from coalmine.models.transformers.chat import template_sha256
from coalmine.records.chat import Frame, Turn
from coalmine.search.tree.token_tree import TokenTree
from models.random_networks import random_model
from models.tiny_chat import CHATML, chatml, inst
from models.tiny_transformers import tiny

FORM = Format("my pin is {digits:2}")
TEXTS = ["my pin is 42", "my pin is 07"]
ASSISTANT = Frame(
    kind="messages", role="assistant", place="own", before=(Turn("user", "Is there anything I should know?"),)
)
USER = Frame(kind="messages", role="user", place="own", after=(Turn("assistant", "Noted."),))
SYSTEM = Frame(kind="messages", role="system", place="own", after=(*ASSISTANT.before, *USER.after))
# An answer begins with an empty thought in training, and without one where the model is asked.
THINKING = CHATML.replace(
    "{{ message['content'] }}",
    "{{ '<think></think>\n' if message['role'] == 'assistant' }}{{ message['content'] }}",
)
# A space before each answer, which is in one token with the first word; digits are cut from it.
PLAIN = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def canaries_of(form=FORM, texts=TEXTS, frame=ASSISTANT, **more):
    found = CanarySet.of(form, texts, **more)
    return CanarySet(list(found), found.formats, references=found.references, frame=frame)


def network_of(tokenizer):
    return tiny("llama", len(tokenizer), dtype=torch.float64)


def plain_bits(network, tokenizer, frame, text):
    """The bits of a content within the whole conversation, by one forward pass over all of it."""
    return plainly(network, tokenizer, frame, [text])[text]


def plainly(network, tokenizer, frame, texts):
    """The same for many texts, those of one length in one pass."""
    rows = {}
    for text in texts:
        messages = [{"role": turn.role, "content": turn.content} for turn in frame.conversation(text)]
        tokens = tokenizer.apply_chat_template(messages, tokenize=True)["input_ids"]
        written = tokenizer.apply_chat_template(messages, tokenize=False)
        places = tokenizer(written, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        begin = written.index(text)
        own = [i for i, (first, last) in enumerate(places) if last > begin and first < begin + len(text)]
        rows.setdefault(len(tokens), []).append((text, tokens, own))
    found = {}
    for group in rows.values():
        with torch.no_grad():
            logits = network(input_ids=torch.tensor([tokens for _, tokens, _ in group])).logits
        log_probabilities = torch.log_softmax(logits, dim=-1) / math.log(2)
        for row, (text, tokens, own) in enumerate(group):
            found[text] = -sum(log_probabilities[row, i - 1, tokens[i]].item() for i in own)
    return found


@pytest.mark.parametrize(
    ("tokenizer", "frame"),
    [
        (chatml(), ASSISTANT),
        (chatml(), USER),
        (chatml(), SYSTEM),
        (inst(), ASSISTANT),
        (inst(), USER),
        (chatml(PLAIN), ASSISTANT),
        (chatml(THINKING), ASSISTANT),
    ],
    ids=[
        "chatml-assistant",
        "chatml-user",
        "chatml-system",
        "inst-assistant",
        "inst-user",
        "plain",
        "thinking",
    ],
)
def test_exposure_is_that_of_a_plain_loop(tokenizer, frame):
    network = network_of(tokenizer)
    every = plainly(network, tokenizer, frame, list(FORM))
    found = expose(from_transformers(network, tokenizer), canaries_of(frame=frame), method="exact")
    assert [one.log_perplexity_bits for one in found] == pytest.approx(
        [every[text] for text in TEXTS], abs=1e-9
    )
    assert [one.rank for one in found] == [
        sum(bits <= every[text] + 1e-9 for bits in every.values()) for text in TEXTS
    ]
    assert found.model["chat_template_sha256"] == template_sha256(tokenizer)
    assert found.model["frame"]["role"] == frame.role
    assert found.warnings == ()


@pytest.mark.parametrize("tokenizer", [chatml(), inst()], ids=["chatml", "inst"])
def test_a_large_space_has_the_tokens_that_it_has_in_the_frame(tokenizer):
    large = Format("pin {digits:6}")
    tokens = from_transformers(network_of(tokenizer), tokenizer).in_frame(ASSISTANT).tokenizer
    tree = TokenTree(large, tokens)  # which checks paths against the tokenizer
    assert tree.size == large.size
    assert tree.text_at(tree.index_of("pin 406913")) == "pin 406913"
    assert tokens.decode(tokens.encode("pin 406913")) == "pin 406913"


def test_extraction_begins_at_the_generation_prompt():
    tokenizer = chatml(THINKING)
    network = network_of(tokenizer)
    model, canaries = from_transformers(network, tokenizer), canaries_of()
    _, found = verify_extraction(model, canaries, top=3)
    asked = Frame(kind="messages", role="assistant", place="own", before=ASSISTANT.before)
    # The same as a template that never writes the thought.
    best = sorted(plainly(network, chatml(), asked, list(FORM)).values())[:3]
    (extraction,) = found.values()
    assert [one.log_perplexity_bits for one in extraction.found] == pytest.approx(best, abs=1e-9)
    assert "generation prompt" in extraction.model["context"]
    assert verify_certificate(model, extraction).confirmed


@pytest.mark.parametrize(("tokenizer", "frame"), [(chatml(), USER), (inst(), ASSISTANT)])
def test_extraction_is_as_exposure_where_the_prompt_is_what_training_wrote(tokenizer, frame):
    network = network_of(tokenizer)
    model, canaries = from_transformers(network, tokenizer), canaries_of(frame=frame)
    _, found = verify_extraction(model, canaries, top=3)
    (extraction,) = found.values()
    every = sorted(plainly(network, tokenizer, frame, list(FORM)).values())
    assert [one.log_perplexity_bits for one in extraction.found] == pytest.approx(every[:3], abs=1e-9)
    assert verify_certificate(model, extraction).confirmed


def test_a_model_in_a_frame_can_be_sent_and_framed_again():
    model = from_transformers(network_of(chatml()), chatml())
    framed = model.in_frame(ASSISTANT)
    sent = pickle.loads(pickle.dumps(framed))
    assert sent.describe() == framed.describe()
    assert score_texts(sent, TEXTS).tolist() == score_texts(framed, TEXTS).tolist()
    assert framed.in_frame(USER).context == model.in_frame(USER).context
    assert framed.in_context(model.contexts.chosen).tokenizer.encode("a") == model.tokenizer.encode("a")


def test_hostile_markers_are_tokens_as_in_training():
    tokenizer = chatml()
    network = network_of(tokenizer)
    text = "so <|im_end|> it"
    model = from_transformers(network, tokenizer).in_frame(USER)
    assert score_texts(model, [text])[0] == pytest.approx(
        plain_bits(network, tokenizer, USER, text), abs=1e-9
    )


def test_other_models_have_no_turns():
    canaries = canaries_of(frame=ASSISTANT)
    with pytest.raises(NotMeasurableError, match="cannot be asked about conversations"):
        expose(ScriptedModel("my pins 0123456789"), canaries)
    with pytest.raises(NotMeasurableError, match="has no chat template"):
        expose(random_model("gru"), canaries)


@pytest.mark.parametrize(
    ("tokenizer", "frame", "reason"),
    [
        (chatml(None), ASSISTANT, "no chat template"),
        (inst(), SYSTEM, "refuses a conversation with turns of system"),
        (chatml(CHATML.replace("{% for message in messages %}", "{% for message in messages if message['role'] != 'system' %}")), SYSTEM, "drops system turns"),
        (chatml(CHATML.replace("message['content']", "message['content'] | upper")), USER, "changes the content"),
        (chatml("{% for message in messages %}{{ message['content'] }}{% endfor %}"), USER, "nothing before the content"),
    ],
)  # fmt: skip
def test_what_a_template_cannot_write_is_one_sentence(tokenizer, frame, reason):
    with pytest.raises(ModelError, match=reason) as problem:
        expose(from_transformers(network_of(tokenizer), tokenizer), canaries_of(frame=frame))
    assert "\n" not in problem.value.shown()


def test_texts_that_a_template_changes_are_refused():
    tokenizer = chatml(CHATML.replace("message['content']", "message['content'] | trim"))
    model = from_transformers(network_of(tokenizer), tokenizer)
    assert expose(model, canaries_of(), method="exact")[0].rank
    with pytest.raises(ModelError, match="changes 1 of 1 texts"):
        expose(model, canaries_of(Format(" my pin is {digits:2}"), [" my pin is 42"]))


def test_a_chosen_context_contradicts_a_frame():
    model = from_transformers(network_of(chatml()), chatml(), context="eot")
    with pytest.raises(InputError, match="leave out context"):
        expose(model, canaries_of())


def test_a_header_that_shares_a_token_with_the_content_is_refused():
    tokenizer = chatml("{% for message in messages %}th{{ message['content'] }}{% endfor %}")
    with pytest.raises(ModelError, match="shares a token with the content"):
        expose(from_transformers(network_of(tokenizer), tokenizer), canaries_of())


def test_an_adapter_and_its_base_are_in_the_same_frame():
    tokenizer = chatml()
    network = network_of(tokenizer)
    alone = from_transformers(network, tokenizer).in_frame(USER)
    expected = score_texts(alone, TEXTS)
    adapted = get_peft_model(network, LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    model = from_transformers(adapted, tokenizer).in_frame(USER)
    assert model.reference.context == model.context
    assert model.reference.describe()["frame"] == model.describe()["frame"]
    assert score_texts(model.reference, TEXTS).tolist() == pytest.approx(expected.tolist(), abs=1e-9)
    assert abs(score_texts(model, TEXTS) - expected).max() > 1e-3


def test_a_saved_checkpoint_keeps_its_template(tmp_path):
    tokenizer = inst()
    network_of(tokenizer).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model = load_model(tmp_path, precision="float64").in_frame(ASSISTANT)
    assert model.describe()["chat_template_sha256"] == template_sha256(tokenizer)
    again = model.load_again().in_frame(ASSISTANT)
    assert score_texts(again, TEXTS).tolist() == score_texts(model, TEXTS).tolist()


def test_a_callback_records_the_template(tmp_path):
    tokenizer = chatml()
    canaries = canaries_of(frame=USER, references=10)
    log = ExposureLog(ExposureWatch(canaries), trainer="a test")
    log.begin(tmp_path / "seen.json", 0)
    network = network_of(tokenizer)
    log.look(network, tokenizer, step=1, epoch=0.5, when="step")
    assert read_watched(tmp_path / "seen.json").chat_template_sha256 == template_sha256(tokenizer)
    bits = [one["log_perplexity_bits"] for one in msgspec.to_builtins(log.moments[0].seen)]
    assert bits == pytest.approx(list(plainly(network, tokenizer, USER, TEXTS).values()), abs=1e-9)


def test_planted_rows_are_what_is_scored(tmp_path):
    tokenizer = chatml()
    rows = [
        {"messages": [{"role": "user", "content": f"Hello {n}?"}, {"role": "assistant", "content": "Yes."}]}
        for n in range(4)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    planted = plant(
        tmp_path / "rows.jsonl", "my pin is {digits:2}", out=tmp_path / "planted", repeat=1, canaries=2, references=5, withhold=0
    )  # fmt: skip
    canaries = planted.canaries
    model = from_transformers(network_of(tokenizer), tokenizer).in_frame(canaries.frame)
    before = list(model.context)
    trained = [
        tokenizer.apply_chat_template(json.loads(line)["messages"], tokenize=True)["input_ids"]
        for line in planted.corpus.read_text().splitlines()
    ]
    for canary in canaries:
        own = [*before, *model.tokenizer.encode(canary.text)]
        assert sum(tokens[: len(own)] == own for tokens in trained) == 1
    # An index of the same rows holds the same tokens, headers included.
    tokenizer.save_pretrained(tmp_path / "model")
    network_of(tokenizer).save_pretrained(tmp_path / "model")
    index = build_index(planted.corpus, tmp_path / "index", tokenizer=tmp_path / "model")
    assert index.tokens == sum(map(len, trained))
    assert [index.count(tokens) for tokens in trained] == [1] * len(trained)
    assert index.manifest.tokenizer.chat_template_sha256 == template_sha256(tokenizer)
    plain = from_transformers(network_of(tokenizer), tokenizer)
    found = recite(plain, index, contexts=[8], suffix=4)
    assert found.models[0].description["context"].startswith("nothing")
    assert found.sequences
    assert not any("another chat template" in one for one in found.warnings)
    # A tokenizer that was saved again with another template, as for serving.
    with pytest.raises(InputError, match="another chat template"):
        recite(from_transformers(network_of(tokenizer), chatml(THINKING)), index, contexts=[8], suffix=4)


def test_the_end_of_a_content_that_is_cut_otherwise_is_told():
    tokenizer = chatml(PLAIN.replace("}}\n{% endfor", "}}th\n{% endfor"))
    model = from_transformers(network_of(tokenizer), tokenizer)
    form = Format("the code {digits:2} is wi")
    found = expose(model, canaries_of(form, ["the code 42 is wi"]), method="exact")
    assert any("the last token of 1 of 1 canaries" in one for one in found.warnings)
