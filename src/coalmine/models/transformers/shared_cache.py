"""A cache of keys and values whose shared prefix is there once for all rows, and attention over it without copies of it.

The queries of all rows are folded into one long list that attends to the prefix in a few large matrix products; each row attends to its
own tail, and the two are added by their weights. That is done in the place of torch's own attention while a model reads, so that
neither the model nor its config is changed. Where the prefix is not visible to every query in full (a sliding window) or has a bias
(ALiBi), and for a model that does not use torch's attention, the prefix is repeated for each row, in one layer and for some rows at a
time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from coalmine.models.reference.networks import State

# The products of queries and keys that are held at a time: 16 MB in float32, and more where there is an accelerator to keep busy.
SCORES_AT_A_TIME = {"cpu": 1 << 22}
SCORES_ELSEWHERE = 1 << 26
# The bytes of one layer's keys and values that are repeated for rows at a time.
REPEATED_BYTES = 1 << 26


class NotFoldedError(Exception):
    """A model computes attention in a way that cannot be replaced here."""


class _Weighted(NamedTuple):
    """Sums of values over some keys, relative to the highest score of each query."""

    sums: Tensor  # (rows, heads, time, width)
    totals: Tensor  # (rows, heads, time, 1)
    highest: Tensor  # (rows, heads, time, 1)


class SharedLayer(cast("type[Any]", DynamicLayer)):  # type: ignore[misc]  # transformers has no types for it
    """One layer: the keys and values of the prefix, with a batch of 1, and those of each row's tail."""

    def __init__(
        self, prefix: tuple[Tensor, Tensor], tail: tuple[Tensor, Tensor], folding: Folding | None
    ) -> None:
        """With `folding`, attention sees the tails only, and `folding` adds the prefix."""
        super().__init__()
        self.lazy_initialization(*tail)
        self.prefix = prefix
        self.keys, self.values = tail
        self._folding = folding

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Add tokens to the tails; what attention is to read."""
        self.keys = torch.cat([self.keys, key_states], dim=-2)
        self.values = torch.cat([self.values, value_states], dim=-2)
        if self._folding is not None:
            self._folding.expect(self)
            return self.keys, self.values
        return _after(self.prefix[0], self.keys), _after(self.prefix[1], self.values)

    def get_seq_length(self) -> int:
        """The tokens of the prefix and of a tail."""
        return int(self.prefix[0].shape[-2] + self.keys.shape[-2])

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Masks are made for the prefix too: they show whether all of it is visible."""
        return self.get_seq_length() + query_length, 0


class Folding(TorchFunctionMode):
    """While it is entered, attention of this thread over the tails of a cache is attention over prefix and tails."""

    def __init__(self) -> None:
        super().__init__()
        self._layer: SharedLayer | None = None
        # The last mask that was looked at, and whether it hides nothing of the prefix.
        self._mask: tuple[Tensor, bool] | None = None

    def expect(self, layer: SharedLayer) -> None:
        """The next attention is that of this layer."""
        self.check_done()
        self._layer = layer

    def check_done(self) -> None:
        """Refuse a model that did not use torch's attention for what it took from the cache."""
        if self._layer is not None:
            raise NotFoldedError("the model does not use torch's attention")

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Replace attention, and nothing else."""
        if func is not scaled_dot_product_attention or self._layer is None:
            return func(*args, **(kwargs or {}))
        layer, self._layer = self._layer, None
        return self._attend(layer, *args, **(kwargs or {}))

    def _attend(
        self,
        layer: SharedLayer,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """As torch's own function, whose arguments have these names."""
        length = layer.prefix[0].shape[2]
        tail, whole = layer.keys.shape[2], layer.get_seq_length()
        if (
            key.shape[2] != tail
            or dropout_p
            or is_causal
            or (attn_mask is not None and attn_mask.shape[-1] != whole)
        ):
            raise NotFoldedError("the model uses torch's attention in an unknown way")
        _, heads, time, width = query.shape
        fits = heads * time * tail <= _scores_at_a_time(query.device)
        if length < tail or not fits or not self._sees_all(attn_mask, length):
            return _attend_repeated(query, key, value, layer.prefix, attn_mask, scale, grouped=enable_gqa)
        scale = 1 / math.sqrt(width) if scale is None else scale
        own = None if attn_mask is None else attn_mask[..., length:]
        return attend_shared(query, layer.prefix, (key, value), own, scale)

    def _sees_all(self, mask: Tensor | None, length: int) -> bool:
        if mask is None:
            return True
        if self._mask is None or self._mask[0] is not mask:
            # Rows that share one mask are one row of it.
            seen = (mask[:1] if mask.stride(0) == 0 else mask)[..., :length]
            self._mask = mask, bool(seen.all() if seen.dtype == torch.bool else (seen == 0).all())
        return self._mask[1]


def attend_shared(
    query: Tensor,
    prefix: tuple[Tensor, Tensor],
    tail: tuple[Tensor, Tensor],
    mask: Tensor | None,
    scale: float,
) -> Tensor:
    """Attention of (rows, heads, time, width) queries to a prefix that all of them see, and to the tail of their row.

    `prefix` is (1, heads, length, width) keys and values, `tail` is (rows, heads, length, width); either may have fewer heads, each
    for a group of the query's. `mask` is over the tail, as torch's attention takes it.
    """
    one, other = _over_prefix(query * scale, *prefix), _over_tails(query * scale, *tail, mask)
    highest = torch.maximum(one.highest, other.highest)
    first, second = (one.highest - highest).exp_(), (other.highest - highest).exp_()
    sums = one.sums.mul_(first).add_(other.sums.mul_(second))
    return sums.div_(one.totals * first + other.totals * second).to(query.dtype)


def _over_prefix(query: Tensor, keys: Tensor, values: Tensor) -> _Weighted:
    rows, heads, time, width = query.shape
    groups, length = keys.shape[1], keys.shape[2]
    # (heads of keys, queries of all rows, width): the prefix is read once for many queries.
    folded = (
        query.reshape(rows, groups, heads // groups, time, width).transpose(0, 1).reshape(groups, -1, width)
    )
    queries, kind = folded.shape[1], _exact(query.dtype)
    sums = query.new_empty((groups, queries, values.shape[3]), dtype=kind)
    totals, highest = (query.new_empty((groups, queries, 1), dtype=kind) for _ in range(2))
    most = max(1, _scores_at_a_time(query.device) // (groups * length))
    for begin in range(0, queries, most):
        some = slice(begin, begin + most)
        scores = torch.matmul(folded[:, some], keys[0].transpose(1, 2)).to(kind)
        highest[:, some] = scores.amax(dim=2, keepdim=True)
        scores.sub_(highest[:, some]).exp_()
        totals[:, some] = scores.sum(dim=2, keepdim=True)
        sums[:, some] = torch.matmul(scores.to(query.dtype), values[0])
    return _Weighted(
        *(
            part.reshape(groups, rows, heads // groups, time, -1)
            .transpose(0, 1)
            .reshape(rows, heads, time, -1)
            for part in (sums, totals, highest)
        )
    )


def _over_tails(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> _Weighted:
    rows, heads, time, _ = query.shape
    length = keys.shape[2]
    most = max(1, _scores_at_a_time(query.device) // (heads * time * length))
    kind = _exact(query.dtype)
    found: list[_Weighted] = []
    for begin in range(0, rows, most):
        some = slice(begin, begin + most)
        scores = _grouped(query[some], keys[some].transpose(2, 3)).to(kind)  # (rows, heads, time, length)
        if mask is not None:
            own = mask if mask.shape[0] == 1 else mask[some]
            scores = scores.masked_fill_(~own, -torch.inf) if own.dtype == torch.bool else scores.add_(own)
        highest = scores.amax(dim=3, keepdim=True)
        scores.sub_(highest).exp_()
        totals = scores.sum(dim=3, keepdim=True)
        sums = _grouped(scores.to(query.dtype), values[some]).to(kind)
        found.append(_Weighted(sums, totals, highest))
    return (
        found[0] if len(found) == 1 else _Weighted(*(torch.cat(parts) for parts in zip(*found, strict=True)))
    )


def _grouped(left: Tensor, right: Tensor) -> Tensor:
    """The products of (rows, heads, time, n) and (rows, fewer heads, n, m), whose heads are each for a group of the others."""
    rows, heads, time, size = left.shape
    product = torch.matmul(left.reshape(rows, right.shape[1], -1, size), right)
    return product.reshape(rows, heads, time, -1)


def _attend_repeated(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    prefix: tuple[Tensor, Tensor],
    mask: Tensor | None,
    scale: float | None,
    *,
    grouped: bool,
) -> Tensor:
    """Torch's own attention, with the prefix repeated for some rows at a time."""
    # A model may have repeated the heads of its tails.
    times = key.shape[1] // prefix[0].shape[1]
    before = prefix if times == 1 else tuple(part.repeat_interleave(times, dim=1) for part in prefix)
    most = max(1, REPEATED_BYTES // sum(part.numel() * part.element_size() for part in before))
    found = []
    for begin in range(0, len(query), most):
        some = slice(begin, begin + most)
        own = mask if mask is None or mask.shape[0] == 1 else mask[some]
        keys, values = _after(before[0], key[some]), _after(before[1], value[some])
        found.append(
            scaled_dot_product_attention(
                query[some], keys, values, attn_mask=own, scale=scale, enable_gqa=grouped
            )
        )
    return found[0] if len(found) == 1 else torch.cat(found)


def _after(prefix: Tensor, tail: Tensor) -> Tensor:
    """The prefix, repeated for each row, and the tail of each row."""
    return torch.cat([prefix.expand(len(tail), -1, -1, -1), tail], dim=2)


def _exact(kind: torch.dtype) -> torch.dtype:
    """What to add weights in."""
    return kind if kind in {torch.float32, torch.float64} else torch.float32


def _scores_at_a_time(device: torch.device) -> int:
    return SCORES_AT_A_TIME.get(device.type, SCORES_ELSEWHERE)


def read_shared(
    model: Any, tokens: Tensor, prefix: State, tails: State, *, folded: bool, **options: Any
) -> tuple[Any, State]:
    """What a model makes of tokens that follow a prefix and tails, which are keys and values of each layer; and the new tails.

    Raises NotFoldedError where attention cannot be folded.
    """
    folding = Folding() if folded else None
    pairs = zip(_by_layer(prefix), _by_layer(tails), strict=True)
    cache = DynamicCache()
    cache.layers.extend(SharedLayer(one, other, folding) for one, other in pairs)
    if folding is None:
        output = model(input_ids=tokens, past_key_values=cache, use_cache=True, **options)
    else:
        with folding:
            output = model(input_ids=tokens, past_key_values=cache, use_cache=True, **options)
        folding.check_done()
    return output, keys_and_values(cache)


def keys_and_values(cache: Any) -> State:
    """Those of each layer of a cache; without those of a prefix."""
    return tuple(part for layer in cache.layers for part in (layer.keys, layer.values))


def _by_layer(parts: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    return list(zip(parts[::2], parts[1::2], strict=True))
