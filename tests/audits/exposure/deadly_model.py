"""Models that fail in other processes, for the tests of engines: they are sent there by name."""

import os
import signal

from coalmine import ScriptedModel


class Deadly(ScriptedModel):
    """Kills its process, if that is not the one in which it was made, when it is asked to score a text with a word in it."""

    word, home = "", 0

    @classmethod
    def of(cls, model, word):
        model.__class__, model.word, model.home = cls, word, os.getpid()
        return model

    def score(self, sequences, **options):
        texts = [self.tokenizer.decode(sequence.target) for sequence in sequences]
        if os.getpid() != self.home and any(self.word in text for text in texts):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().score(sequences, **options)


class Elsewhere(ScriptedModel):
    """Says that it runs on another machine."""

    def checks(self):
        return {}
