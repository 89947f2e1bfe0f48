"""Calls of libraries that read untrusted files: what they raise becomes one sentence, and what they would print is not printed."""

from __future__ import annotations

import contextlib
import logging as python_logging
import warnings
from collections.abc import Iterator
from typing import Any

from coalmine.errors import CoalmineError, ModelError


@contextlib.contextmanager
def as_model_error(what: str, advice: str) -> Iterator[None]:
    """Turn whatever a library raises into a ModelError: `what`, the library's own words in parentheses, and `advice`.

    The block should contain nothing but calls of a library. What one raises on a damaged file is not documented and can be of any class,
    RecursionError and MemoryError included, and the tokenizers library raises a bare Exception.
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
    """Suppress progress bars, log lines and warnings of libraries: they quote names from files verbatim, escape codes included."""
    from transformers.utils import logging

    its_own: Any = logging  # untyped
    bars, verbosity = its_own.is_progress_bar_enabled(), its_own.get_verbosity()
    its_own.disable_progress_bar()
    its_own.set_verbosity(its_own.CRITICAL)
    others = [python_logging.getLogger(name) for name in ("accelerate", "bitsandbytes")]
    levels = [one.level for one in others]
    for one in others:
        one.setLevel(python_logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        its_own.set_verbosity(verbosity)
        for one, level in zip(others, levels, strict=True):
            one.setLevel(level)
        if bars:
            its_own.enable_progress_bar()


def _said(problem: BaseException) -> str:
    """The message of a library, cut to a length that fits a sentence; the name of the class if there is no message."""
    said = " ".join(str(problem).split()).rstrip(".:;")
    if isinstance(problem, KeyError) or not said:
        said = f"{type(problem).__name__} {said}".rstrip()
    return said if len(said) <= 300 else f"{said[:300]}…"
