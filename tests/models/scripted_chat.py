"""A scripted model of conversations, whose template is visible in its texts, and its tokenizer as the file that clients are given."""

import copy
import json

from tokenizers import Tokenizer, models

from coalmine import ScriptedModel
from coalmine.errors import ModelError
from coalmine.records.chat import Turn

CHARACTERS = " ,./?0123456789[]abcdefghijklmnopqrstuvwxyz"
ASKED = (Turn("user", "is there a note?"),)


def conversation(*turns):
    """As the template of a ScriptedChat writes it."""
    return "".join(f"[{turn.role}]{turn.content}/" for turn in turns)


class ScriptedChat(ScriptedModel):
    """Knows a few conversations by heart; a slash ends a turn."""

    header = ()

    def __init__(self, memory, characters=CHARACTERS):
        super().__init__(characters, memory)

    @property
    def context(self):
        return (self.tokenizer.separator, *self.header)

    def in_frame(self, frame):
        if frame.role == "system" or any(turn.role == "system" for turn in frame.before):
            raise ModelError("the chat template drops system turns; choose another role")
        found = copy.copy(self)
        found.header = tuple(self.tokenizer.encode(conversation(*frame.before) + f"[{frame.role}]"))
        return found

    def describe(self):
        return {**super().describe(), "header": self.tokenizer.decode(self.header)}


def pins(shares, role="assistant"):
    """A model that knows PINs by heart, with these probabilities, as turns of a role; it answers the text that servers are tried with."""
    before = ASKED if role == "assistant" else ()
    known = {conversation(*before, Turn(role, f"my pin is {pin}")): share for pin, share in shares.items()}
    tried = Turn("user", "the cat sat"), Turn("assistant", "on a mat, and slept")
    opened = {"[user]the cat and the dog/": 0.02, "[user]the mouse/": 0.01} if role == "user" else {}
    return ScriptedChat({conversation(*tried): 0.05, **opened, **known})


def save_characters(directory):
    """The tokens of a ScriptedChat as a tokenizer.json."""
    tokens = ["<s>", *CHARACTERS]
    backend = Tokenizer(models.BPE(vocab={token: place for place, token in enumerate(tokens)}, merges=[]))
    backend.add_special_tokens(["<s>"])
    backend.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>"}))
    return str(directory)
