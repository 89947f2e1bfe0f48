"""How much is read at a time: what memory has room for, and half of it, again and again, where memory runs out."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from coalmine.errors import WorkerLostError
from coalmine.models.reference.networks import Network, State

# The logits held at a time while scoring: 64 MB in float32. Everything else that a pass needs is of the same order.
LOGITS_AT_A_TIME = 1 << 24
# The bytes of states that are made at a time while scoring or reading many texts: 256 MB.
STATES_AT_A_TIME = 1 << 28
# Both are as large again for each of these many bytes that an accelerator has.
ACCELERATOR_BYTES = 1 << 32
# The tokens of a long prefix that are read at a time.
PREFIX_PIECE = 1 << 10

# What torch says where it has no error of its own for the memory of a machine.
_RAN_OUT = ("out of memory", "allocate memory", "not enough memory")

Answer = TypeVar("Answer")


def times_the_budget(device: torch.device) -> int:
    """How many times the memory that a batch may take on any machine it may take on this device; it depends on nothing else.

    >>> times_the_budget(torch.device("cpu"))
    1
    """
    if device.type != "cuda":
        return 1
    return max(1, torch.cuda.get_device_properties(device).total_memory // ACCELERATOR_BYTES)


def ran_out(error: BaseException) -> bool:
    """Whether an error says that memory ran out.

    >>> ran_out(torch.OutOfMemoryError("CUDA out of memory.")), ran_out(RuntimeError("mat1 and mat2 cannot be multiplied"))
    (True, False)
    """
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(part in str(error) for part in _RAN_OUT)


class Room:
    """What a model found out about the memory that there is; all that share its weights share this."""

    def __init__(self) -> None:
        self._most_tokens: int | None = None

    @property
    def note(self) -> str | None:
        """For the record of a run; None if memory never ran out."""
        if self._most_tokens is None:
            return None
        return f"batches were halved to {self._most_tokens:,} tokens because memory ran out"

    def in_parts(
        self, items: int, tokens: int, read: Callable[[int, int], Answer], *, most: int | None = None
    ) -> list[Answer]:
        """What `read(begin, end)` gives for all items, of so many tokens each; for half as many at a time where memory runs out.

        At most `most` items are read at a time. `read` must leave nothing behind if it fails.
        """
        found, begin = [], 0
        while begin < items:
            end = min(items, begin + self._limited(items if most is None else most, tokens))
            answer = _tried(read, begin, end)
            if answer is None:
                self._halve(end - begin, tokens)
            else:
                found.append(answer[0])
                begin = end
        return found

    def _limited(self, items: int, tokens: int) -> int:
        return items if self._most_tokens is None else max(1, min(items, self._most_tokens // max(1, tokens)))

    def _halve(self, items: int, tokens: int) -> None:
        if items == 1:
            raise WorkerLostError(
                f"there is not enough memory to read {tokens:,} tokens at a time; free some, or use a device with more"
            )
        fewer = items // 2 * max(1, tokens)
        self._most_tokens = fewer if self._most_tokens is None else min(fewer, self._most_tokens)
        warnings.warn(str(self.note), RuntimeWarning, stacklevel=4)


def _tried(read: Callable[[int, int], Answer], begin: int, end: int) -> tuple[Answer] | None:
    """The answer, or None where memory ran out."""
    try:
        return (read(begin, end),)
    except (MemoryError, RuntimeError) as error:
        if not ran_out(error):
            raise
    # Here the error is gone, and with it all that its frames held.
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return None


def read_prefix(network: Network, tokens: Tensor, keep: int, room: Room) -> tuple[Tensor, State]:
    """The (1, keep, width) hidden numbers of the last of (1, time) tokens that many rows begin with, and the state after them.

    A long prefix is read in pieces, so that what is made on the way takes little memory.
    """
    length = tokens.shape[1]
    state, kept = network.initial_state(1), []

    def piece(begin: int, end: int) -> None:
        nonlocal state
        wanted = end - max(begin, length - keep)
        hidden, state = network.read_hidden(tokens[:, begin:end], state, max(1, wanted))
        if wanted > 0:
            kept.append(hidden)

    if network.reads_in_pieces:
        room.in_parts(length, 1, piece, most=PREFIX_PIECE)
    else:
        room.in_parts(1, length, lambda _, __: piece(0, length))
    return kept[0] if len(kept) == 1 else torch.cat(kept, dim=1), network.freeze(state)
