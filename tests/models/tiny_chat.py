"""Tokenizers with chat templates: byte-level BPE with ChatML, and one that marks spaces with a template as Mistral's."""

import functools

from models.tiny_transformers import byte_fallback, byte_level, with_added

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Roles alternate, there is no system turn, and a space comes before the answer.
INST = (
    "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if message['role'] == 'user' %}[INST] {{ message['content'] }} [/INST]"
    "{% else %} {{ message['content'] }}{{ eos_token }}{% endif %}{% endfor %}"
)


@functools.cache
def chatml(template=CHATML):
    """A byte-level BPE tokenizer with the markers of ChatML."""
    return _with_template(with_added(byte_level(), special=["<|im_start|>", "<|im_end|>"]), template)


@functools.cache
def inst(template=INST):
    """A tokenizer as Llama 2's and Mistral's, which put a mark before the first word of a text."""
    own = byte_fallback()
    return _with_template(with_added(own), template)


def _with_template(tokenizer, template):
    tokenizer.chat_template = template
    return tokenizer
