"""A model that kills the worker that asks it about one sequence; the process of the tests it spares."""

import multiprocessing
import os
import signal


class DeadlyModel:
    """Scores as another model does, and notes the first sequence of each call; one of these can be made `deadly`."""

    def __init__(self, model):
        self.name, self.context, self.tokenizer = "deadly", model.context, model.tokenizer
        self.resolution_bits = model.resolution_bits
        self.asked, self.deadly = [], None
        self._model = model

    def describe(self):
        return {"adapter": "deadly"}

    def score(self, sequences):
        self.asked.append(sequences[0])
        if sequences[0] == self.deadly and multiprocessing.parent_process() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return self._model.score(sequences)
