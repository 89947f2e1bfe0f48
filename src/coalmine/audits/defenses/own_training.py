"""Trainings of the user's own: a function of a corpus and a directory that gives a model, or the place of one."""

from __future__ import annotations

import inspect
import time
from pathlib import Path

from coalmine.audits.defenses.training import BenchTraining
from coalmine.audits.provenance.own_training import OwnTraining
from coalmine.engines.failures import foreign_failure
from coalmine.errors import CoalmineError
from coalmine.models.protocols import Model
from coalmine.storage.files import make_directory


def train_own(training: BenchTraining, own: OwnTraining, corpus: Path) -> tuple[Model, float]:
    """The model that the user's function makes of a corpus, and the seconds that it took. This runs that code.

    It is called with the corpus, with a directory that it may write to, and with the seed if it takes three arguments. What it raises is
    reported with its place, and without its message, which may quote the corpus.
    """
    out = make_directory(training.directory)
    arguments = (corpus, out, training.seed) if _takes_seed(own) else (corpus, out)
    began = time.perf_counter()
    try:
        model, _ = own.trained(*arguments)
    except CoalmineError:
        raise
    except Exception as error:
        problem = foreign_failure(error)
        if problem is None:
            raise
        raise problem from error
    return model, time.perf_counter() - began


def _takes_seed(own: OwnTraining) -> bool:
    try:
        inspect.signature(own.train).bind("corpus", "out", 0)
    except (TypeError, ValueError):
        return False
    return True
