"""States that are keys and values: those of a prefix that many rows share are there once, and each row has those of its own tail."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from coalmine.models.reference.networks import LEAST_SHARED, Network, State

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# What a model of an unexpected design may raise.
REFUSALS = (TypeError, ValueError, AttributeError, LookupError, RuntimeError)
# How far a number may be from the model's own, relative to the largest: far above rounding, and far below what a token that is left
# out changes.
CLOSENESS = {torch.float64: 1e-9, torch.float32: 1e-4}
CLOSENESS_ELSEWHERE = 0.05

Sharing = Literal["folded", "repeated"]


class KeyedNetwork(Network):
    """A network whose state is the tokens, or the keys and values of each of its layers.

    After `freeze`, the first half of a state is the keys and values of the prefix, with a batch of 1, and the other half those of each
    row. The parts of a layer stay on the device of that layer.
    """

    carries_state = False
    fixed_state = False

    def __init__(self, input_device: torch.device, cached_on: tuple[torch.device, ...]) -> None:
        """`cached_on` is where the keys and the values of each layer are; empty where the state is the tokens."""
        torch.nn.Module.__init__(self)
        self.input_device = input_device
        self._cached_on = cached_on
        self._layers = len(cached_on) // 2
        self._known = _KnownPrefix()

    @property
    def sharing(self) -> Sharing | None:
        """How a frozen prefix is read; None if it cannot be frozen."""
        return None

    @property
    def reads_in_pieces(self) -> bool:
        """False where each piece reads all tokens before it again."""
        return self._layers > 0

    @property
    def keeps_prefix_once(self) -> bool:
        """Whether a frozen prefix is there once, not once per row."""
        return self._layers > 0 and self.sharing is not None

    def freeze(self, state: State) -> State:
        """All that a single row has read becomes a prefix, unless it is short."""
        if self.tokens_read(state) < LEAST_SHARED or not self.keeps_prefix_once:
            return state
        prefix = self._known.same_as(self.unfrozen(state))
        return prefix + tuple(part[:, :, :0] for part in prefix)

    def unfrozen(self, state: State) -> State:
        """The keys and values of each row, with those of the prefix repeated for each."""
        prefix, tails = self.parts(state)
        if not prefix:
            return tails
        return tuple(
            torch.cat([one.expand(len(other), -1, -1, -1), other], dim=2)
            for one, other in zip(prefix, tails, strict=True)
        )

    def parts(self, state: State) -> tuple[State, State]:
        """The keys and values of the prefix, empty if there is none, and those of each row."""
        if not self._layers or len(state) != 4 * self._layers:
            return (), state
        return state[: 2 * self._layers], state[2 * self._layers :]

    def tokens_read(self, state: State) -> int:
        """The number of tokens that each row has read."""
        prefix, tails = self.parts(state)
        before = prefix[0].shape[2] if prefix else 0
        return int(before + tails[0].shape[1 if len(state) == 1 else 2])

    def rows(self, state: State) -> int:
        """The rows of the tails."""
        return int(state[-1].shape[0])

    def some(self, state: State, first: int, many: int) -> State:
        """The prefix, and the tails of rows that follow each other."""
        prefix, tails = self.parts(state)
        return prefix + tuple(part.narrow(0, first, many) for part in tails)

    def select(self, state: State, rows: Tensor) -> State:
        """The prefix, and the tails of some rows."""
        prefix, tails = self.parts(state)
        return prefix + tuple(part.index_select(0, rows.to(part.device)) for part in tails)

    def join(self, states: Sequence[State]) -> State:
        """States with the same prefix still share it; with different ones, each row gets its own."""
        if len(states) == 1:
            return states[0]
        parts = [self.parts(state) for state in states]
        prefix = parts[0][0]
        if not all(_are_same(prefix, one) for one, _ in parts):
            prefix, parts = (), [((), self.unfrozen(state)) for state in states]
        return prefix + tuple(torch.cat(same) for same in zip(*(tails for _, tails in parts), strict=True))

    def at_home(self, state: State) -> State:
        """Each part on the device of its layer; a prefix that is there already is not there twice."""
        homes = (
            (self.input_device,)
            if len(state) == 1
            else self._cached_on * (len(state) // len(self._cached_on))
        )
        prefix, tails = self.parts(tuple(part.to(home) for part, home in zip(state, homes, strict=True)))
        return (self._known.same_as(prefix) if prefix else ()) + tails


class _KnownPrefix:
    """The prefix that was last seen, as long as a state holds it."""

    def __init__(self) -> None:
        self._parts: tuple[weakref.ref[Tensor], ...] = ()

    def __reduce__(self) -> tuple[type[_KnownPrefix], tuple[()]]:
        return _KnownPrefix, ()

    def same_as(self, prefix: State) -> State:
        """The known tensors, if they are equal to these in each bit; else these, which are known from now on."""
        held = tuple(part for part in (known() for known in self._parts) if part is not None)
        if _are_same(held, prefix):
            return held
        self._parts = tuple(weakref.ref(part) for part in prefix)
        return prefix


def _are_same(one: State, other: State) -> bool:
    return len(one) == len(other) and all(
        mine is its
        or (
            mine.shape == its.shape
            and mine.dtype == its.dtype
            and mine.device == its.device
            and torch.equal(mine, its)
        )
        for mine, its in zip(one, other, strict=True)
    )


@torch.inference_mode()
def devices_of_keys(model: PreTrainedModel, home: torch.device) -> tuple[torch.device, ...]:
    """Where the keys and the values of each layer are, if a cache holds nothing but those of all tokens; empty for others.

    That is found out by looking at one.
    """
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    probe = torch.zeros((1, 2), dtype=torch.long, device=home)
    try:
        cache = model(input_ids=probe, past_key_values=DynamicCache(), use_cache=True).past_key_values
    except REFUSALS:
        return ()
    layers = getattr(cache, "layers", None) or []
    if not all(type(layer) is DynamicLayer and layer.get_seq_length() == 2 for layer in layers):
        return ()
    return tuple(part.device for layer in layers for part in (layer.keys, layer.values))


@torch.inference_mode()
def way_to_share(model: Any, home: torch.device, layers: int) -> Sharing | None:
    """The first way of reading after a frozen prefix that gives the model's own numbers on a few tokens; None if none does."""
    from transformers import DynamicCache

    from coalmine.models.transformers.shared_cache import NotFoldedError, keys_and_values, read_shared

    size = int(model.config.get_text_config().vocab_size)
    ids = [(place * 7 + 4) % size for place in range(12)]
    start, rows = (torch.tensor(one, device=home) for one in ([ids[:6]], [ids[6:9], ids[9:]]))

    try:
        cache = DynamicCache()
        model(input_ids=start.expand(2, -1), past_key_values=cache, use_cache=True)
        whole = model(input_ids=rows, past_key_values=cache, use_cache=True).logits
        cache = DynamicCache()
        model(input_ids=start, past_key_values=cache, use_cache=True)
        prefix = keys_and_values(cache)
    except REFUSALS:
        return None
    if len(prefix) != 2 * layers:
        return None
    nearest = CLOSENESS.get(whole.dtype, CLOSENESS_ELSEWHERE) * whole.abs().max()
    ways: tuple[Sharing, ...] = ("folded", "repeated")
    for way in ways:
        tails = tuple(part[:, :, :0].expand(2, -1, -1, -1) for part in prefix)
        logits = []
        try:
            # Several tokens, and then one, whose mask is another one.
            for piece in (rows[:, :2], rows[:, 2:]):
                output, tails = read_shared(model, piece, prefix, tails, folded=way == "folded")
                logits.append(output.logits)
        except (*REFUSALS, NotFoldedError):
            continue
        if (torch.cat(logits, dim=1) - whole).abs().max() <= nearest:
            return way
    return None
