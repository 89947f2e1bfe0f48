"""A scripted model that fails at texts with one beginning: by a number that is none."""

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
