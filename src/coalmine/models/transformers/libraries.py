"""Libraries that read other people's files: what they raise becomes one sentence, and what they would print is not printed."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

from coalmine.errors import CoalmineError, ModelError


@contextlib.contextmanager
def as_model_error(what: str, advice: str) -> Iterator[None]:
    """Turn whatever a library raises into a ModelError: `what`, the library's own words in parentheses, and `advice`.

    Nothing but calls of a library belongs into the block. What one raises on a damaged file is not documented and of every class,
    RecursionError and MemoryError among them, and the tokenizers library raises the bare Exception.
    """
    try:
        yield
    except CoalmineError:
        raise
    except Exception as problem:
        raise ModelError(f"{what} ({_said(problem)}); {advice}") from problem
    except BaseException as problem:
        # A failed assertion in Rust, which is not an Exception; its class cannot be imported.
        if type(problem).__name__ != "PanicException":
            raise
        raise ModelError(f"{what} ({_said(problem)}); {advice}") from problem


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Neither progress bars nor log lines nor warnings of libraries: they quote names from files as they are, escape codes included."""
    from transformers.utils import logging

    its_own: Any = logging  # untyped
    bars, verbosity = its_own.is_progress_bar_enabled(), its_own.get_verbosity()
    its_own.disable_progress_bar()
    its_own.set_verbosity(its_own.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        its_own.set_verbosity(verbosity)
        if bars:
            its_own.enable_progress_bar()


def _said(problem: BaseException) -> str:
    """What a library says, at a length that fits a sentence; the name of the class where it says nothing."""
    said = " ".join(str(problem).split()).rstrip(".:;")
    if isinstance(problem, KeyError) or not said:
        said = f"{type(problem).__name__} {said}".rstrip()
    return said if len(said) <= 300 else f"{said[:300]}…"
