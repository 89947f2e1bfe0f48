"""A scripted model that fails at texts with one beginning: by a number that is none, or by an exception of its own code."""

import numpy as np

from coalmine import ScriptedModel


class PoisonedModel(ScriptedModel):
    """Its log-probabilities are those of a ScriptedModel, except that the last character of `poison` has none after the others."""

    def __init__(self, characters, poison, *, value=np.nan, **more):
        super().__init__(characters, **more)
        self._poison, self._value = tuple(self.tokenizer.encode(poison)), value

    def _next(self, given):
        row = super()._next(given)
        if given == self._poison[:-1]:
            row[self._poison[-1]] = self._value
        return row


class RaisingModel(ScriptedModel):
    """It only scores, and raises where one of the texts begins with `poison`."""

    start = None

    def __init__(self, characters, poison, **more):
        super().__init__(characters, **more)
        self._poison = tuple(self.tokenizer.encode(poison))

    def score(self, sequences, *, ranks=False):
        if any(target[: len(self._poison)] == self._poison for _, target, _ in sequences):
            raise ZeroDivisionError("the message has the secret")
        return super().score(sequences, ranks=ranks)
