"""What a unit raises without purpose: a failure of a model's own code is the problem of the unit, and one of ours is a bug."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType

from coalmine.engines.units import Arrays, Run, Running, Unit, read_only
from coalmine.errors import (
    CoalmineError,
    ModelError,
    ModelOutputError,
    NoNumberError,
    NotMeasurableError,
    WorkerLostError,
)

# What coalmine is made of; code of any other module came with the model.
_OURS = frozenset(
    {
        *sys.stdlib_module_names,
        *("coalmine", "interegular", "msgspec", "numpy", "peft", "pyarrow", "pydivsufsort", "ray", "rensa", "safetensors", "scipy"),
        *("sklearn", "tokenizers", "torch", "transformers"),
    }
)  # fmt: skip


def run_unit(run: Run, unit: Unit, running: Running) -> Arrays:
    """The result of a unit.

    What the code of a model raises is a NotMeasurableError, which names the place and quotes nothing, since the message may hold a
    secret; too little memory is a WorkerLostError, since the same command may have more luck. A bug of ours is raised as it is, and so
    is Ctrl-C.
    """
    try:
        return run(read_only(unit), running)
    except (CoalmineError, KeyboardInterrupt):
        raise
    except (Exception, SystemExit) as error:
        problem = _out_of_memory(error) or foreign_failure(error)
        if problem is None:
            raise
        raise problem from error


def failure_of_inputs(error: BaseException) -> CoalmineError | None:
    """The reason why inputs have no answer, if that may be the inputs' fault; None for all else that can go wrong."""
    if isinstance(error, NotMeasurableError | NoNumberError | ModelError):
        return error
    if isinstance(error, ModelOutputError):
        return NoNumberError(str(error))
    if isinstance(error, CoalmineError) or _out_of_memory(error) is not None:
        return None
    return foreign_failure(error)


def foreign_failure(error: BaseException) -> NotMeasurableError | None:
    """What to say of an exception that went through code of a model; None if it is ours alone."""
    place = _foreign_place(error.__traceback__)
    if place is None:
        return None
    return NotMeasurableError(
        f"the model's own code raised {type(error).__name__} (line {place[1]} of {place[0]}); correct it, and run the same command again"
    )


def _out_of_memory(error: BaseException) -> WorkerLostError | None:
    # The library has no error of its own for the memory of the machine.
    said = str(error) if isinstance(error, RuntimeError) else ""
    if isinstance(error, MemoryError) or "allocate memory" in said or "out of memory" in said:
        return WorkerLostError(
            "a unit of work needs more memory than there is; use fewer workers or less memory each (memory), and run the same command "
            "to resume"
        )
    return None


def _foreign_place(trace: TracebackType | None) -> tuple[str, int] | None:
    """The file and the line of the last frame that is not ours, or None."""
    found = None
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in _OURS:
            found = Path(trace.tb_frame.f_code.co_filename).name, trace.tb_lineno
        trace = trace.tb_next
    return found
