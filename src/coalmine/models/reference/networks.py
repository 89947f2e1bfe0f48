"""The reference networks: LSTM, GRU, causal convolutions and a transformer.

Each reads tokens in pieces of any length and carries a state from one piece to the next. That is all the adapter needs: reading a text
at once, token by token, or from the middle of a shared prefix gives the same numbers. A state is a tuple of tensors with the batch on
`state_batch_dim`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, cast

import msgspec
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from coalmine.errors import InputError

State = tuple[Tensor, ...]

# The tokens that are read at a time where only the logits after them are needed.
AHEAD = 64
# The fewest tokens of a prefix that is kept once for many rows, where a network can. Fewer take longer to share than to copy.
LEAST_SHARED = 16


class Head(NamedTuple):
    """A last layer that can be applied in parts, because it is a matrix product and a function of each logit by itself."""

    weight: Tensor  # (vocabulary, width)
    bias: Tensor | None  # (vocabulary,)
    # Changes logits in place.
    bent: Callable[[Tensor], object] | None = None


def head_of(layer: nn.Module, bent: Callable[[Tensor], object] | None = None) -> Head | None:
    """The weights of a layer that is a matrix product and nothing else; None for any other, which has to be called."""
    changed = layer._forward_hooks or layer._forward_pre_hooks  # noqa: SLF001 - there is no other way to see them
    if type(layer) is not nn.Linear or changed or not (_is_plain(layer) or _only_moves(layer)):
        return None
    return Head(layer.weight, layer.bias, bent)


def _is_plain(layer: nn.Module) -> bool:
    return "forward" not in vars(layer)


def _only_moves(layer: nn.Module) -> bool:
    """Whether accelerate has wrapped a layer in order to bring its inputs to its weights, which stay where they are."""
    own: Any = vars(layer)
    before = getattr(own.get("_old_forward"), "__func__", None)
    return before is nn.Linear.forward and getattr(own.get("_hf_hook"), "offload", None) is False


def check_shape(config: Any, *sizes: str) -> None:
    """Reject a network with a size below 1, or with a dropout that leaves nothing."""
    for name in sizes:
        if getattr(config, name) < 1:
            raise InputError(f"{name} must be at least 1, got {getattr(config, name)}")
    if not 0 <= config.dropout < 1:
        raise InputError(f"dropout must be in [0, 1), got {config.dropout}")


class NetworkConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of a network; an architecture ignores the fields that it does not use."""

    architecture: str
    vocabulary: int
    embedding: int = 100
    hidden: int = 200
    layers: int = 2
    dropout: float = 0.0
    kernel: int = 5
    heads: int = 4

    def __post_init__(self) -> None:
        check_shape(self, "vocabulary", "embedding", "hidden", "layers", "kernel", "heads")
        if self.architecture not in NETWORKS:
            raise InputError(f"unknown architecture {self.architecture!r}: known are {', '.join(NETWORKS)}")
        if self.architecture == "transformer" and self.hidden % (2 * self.heads):
            raise InputError(
                f"hidden must be a multiple of twice heads, got {self.hidden} and {self.heads} heads"
            )


class Network(nn.Module):
    """The base of the four architectures."""

    state_batch_dim: ClassVar[int] = 0
    # Whether a state is as large after a thousand tokens as after one.
    fixed_state: ClassVar[bool] = True
    # Whether training carries the state from one window of a stream to the next.
    carries_state: ClassVar[bool] = True

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config

    @property
    def architecture(self) -> str:
        """Its name in a record."""
        return self.config.architecture

    @property
    def vocabulary(self) -> int:
        """The number of logits."""
        return self.config.vocabulary

    @property
    def max_length(self) -> int | None:
        """The most tokens that it can read; None where there is no limit."""
        return None

    @property
    def reads_in_pieces(self) -> bool:
        """Whether a text costs as much in pieces as at once."""
        return True

    @property
    def keeps_prefix_once(self) -> bool:
        """Whether rows that descend from a frozen state share what it takes in memory."""
        return False

    def initial_state(self, batch: int) -> State:
        """The state before the first token."""
        raise NotImplementedError

    def forward(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """(batch, time) ids to (batch, time, vocabulary) logits, and the state after the last of them."""
        raise NotImplementedError

    def read_hidden(self, tokens: Tensor, state: State, keep: int) -> tuple[Tensor, State]:
        """As `forward`, with the hidden numbers that `project` turns into logits, for the last `keep` tokens only.

        A network that cannot be read without its last layer gives the logits themselves, and computes those of other tokens in vain.
        """
        ahead = tokens.shape[1] - keep
        for begin in range(0, ahead, AHEAD):
            _, state = self(tokens[:, begin : min(ahead, begin + AHEAD)], state)
        logits, state = self(tokens[:, ahead:], state)
        return logits, state

    def project(self, hidden: Tensor) -> Tensor:
        """The logits of what `read_hidden` gave, which the caller may overwrite."""
        return hidden

    def head(self) -> Head | None:
        """What `project` does, where it can be done in parts."""
        return None

    def numbers_read(self, length: int, keep: int) -> int:
        """The most numbers that `read_hidden` makes of a row of `length` tokens, besides the state."""
        return self.vocabulary * min(length, max(keep, AHEAD))

    def freeze(self, state: State) -> State:
        """The state of a single row, from which many will descend, in a form that they share."""
        return state

    def rows(self, state: State) -> int:
        """The number of rows of a state."""
        return int(state[0].shape[self.state_batch_dim])

    def some(self, state: State, first: int, many: int) -> State:
        """The state of rows that follow each other, without a copy."""
        if self.rows(state) == many:
            return state
        return tuple(part.narrow(self.state_batch_dim, first, many) for part in state)

    def select(self, state: State, rows: Tensor) -> State:
        """The state of some rows, in their order; a row may occur many times."""
        # Parts are on several devices where layers are.
        return tuple(part.index_select(self.state_batch_dim, rows.to(part.device)) for part in state)

    def at_home(self, state: State) -> State:
        """A state on the device, or the devices, where the network made it."""
        return tuple(part.to(next(self.parameters()).device) for part in state)

    def join(self, states: Sequence[State]) -> State:
        """The states of several batches as one batch."""
        if len(states) == 1:
            return states[0]
        return tuple(torch.cat(same, dim=self.state_batch_dim) for same in zip(*states, strict=True))

    def _zeros(self, *shape: int) -> Tensor:
        return next(self.parameters()).new_zeros(shape)


class SplitNetwork(Network):
    """A network whose last layer, `output`, is separate from the others."""

    output: nn.Linear

    def forward(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits, and the state after the last token."""
        hidden, state = self.read_hidden(tokens, state, tokens.shape[1])
        return self.output(hidden), state

    def read_hidden(self, tokens: Tensor, state: State, keep: int) -> tuple[Tensor, State]:
        """The input of the last layer."""
        hidden, state = self._read(tokens, state)
        return hidden[:, hidden.shape[1] - keep :], state

    def project(self, hidden: Tensor) -> Tensor:
        """The last layer alone."""
        return cast("Tensor", self.output(hidden))

    def head(self) -> Head | None:
        """The weights of the last layer."""
        return head_of(self.output)

    def numbers_read(self, length: int, keep: int) -> int:
        """The size of the last layer's input."""
        del keep
        return self.output.in_features * length

    def _read(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """The last layer's input for each token, and the state after the last of them."""
        raise NotImplementedError


class RecurrentNetwork(SplitNetwork):
    """An embedding, layers of LSTM (or GRU), and a projection onto the vocabulary, as in the Secret Sharer (arXiv:1802.08232)."""

    state_batch_dim = 1

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocabulary, config.embedding)
        cell = nn.LSTM if config.architecture == "lstm" else nn.GRU
        between_layers = config.dropout if config.layers > 1 else 0.0
        self.recurrent = cell(
            config.embedding, config.hidden, config.layers, batch_first=True, dropout=between_layers
        )
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(config.hidden, config.vocabulary)

    def initial_state(self, batch: int) -> State:
        """Zeros: hidden, and for an LSTM its cell."""
        parts = 2 if self.config.architecture == "lstm" else 1
        return tuple(self._zeros(self.config.layers, batch, self.config.hidden) for _ in range(parts))

    def _read(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        embedded = self.dropout(self.embedding(tokens))  # (batch, time, embedding)
        if self.config.architecture == "lstm":
            hidden, state = self.recurrent(embedded, state)
        else:
            hidden, last = self.recurrent(embedded, state[0])
            state = (last,)
        return self.dropout(hidden), state


class ConvolutionalNetwork(SplitNetwork):
    """Causal convolutions with growing dilation; the state is the tail of each layer's input."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocabulary, config.hidden)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.hidden, 2 * config.hidden, config.kernel, dilation=2**layer)
            for layer in range(config.layers)
        )
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(config.hidden, config.vocabulary)

    def initial_state(self, batch: int) -> State:
        """Zeros: what comes before the first token."""
        reach = self.config.kernel - 1
        return tuple(self._zeros(batch, self.config.hidden, reach * 2**i) for i in range(self.config.layers))

    def _read(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        hidden = self.dropout(self.embedding(tokens)).transpose(1, 2)  # (batch, hidden, time)
        tails = []
        for convolution, tail in zip(self.convolutions, state, strict=True):
            seen = torch.cat([tail, hidden], dim=2)
            tails.append(seen[:, :, seen.shape[2] - tail.shape[2] :])
            hidden = hidden + self.dropout(F.glu(convolution(seen), dim=1))
        return hidden.transpose(1, 2), tuple(tails)


class TransformerNetwork(SplitNetwork):
    """A decoder with rotary positions; the state is the keys and values of every layer."""

    carries_state = False
    fixed_state = False

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocabulary, config.hidden)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.blocks = nn.ModuleList(_Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.hidden)
        self.output = nn.Linear(config.hidden, config.vocabulary)

    def initial_state(self, batch: int) -> State:
        """No keys and no values yet."""
        heads, width = self.config.heads, self.config.hidden // self.config.heads
        return tuple(self._zeros(batch, heads, 0, width) for _ in range(2 * self.config.layers))

    def _read(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        hidden = self.embedding(tokens)
        following: list[Tensor] = []
        for i, block in enumerate(self.blocks):
            hidden, keys, values = block(hidden, state[2 * i], state[2 * i + 1])
            following += [keys, values]
        return self.norm(hidden), tuple(following)


class _Block(nn.Module):
    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.attention_norm = nn.LayerNorm(config.hidden)
        self.mixing = nn.Linear(config.hidden, 3 * config.hidden)
        self.attention_output = nn.Linear(config.hidden, config.hidden)
        self.dropout = nn.Dropout(config.dropout)
        self.feedforward = nn.Sequential(
            nn.LayerNorm(config.hidden),
            nn.Linear(config.hidden, 4 * config.hidden),
            nn.GELU(),
            nn.Linear(4 * config.hidden, config.hidden),
            nn.Dropout(config.dropout),
        )

    def forward(self, hidden: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, time, width = hidden.shape
        past = keys.shape[2]
        mixed = self.mixing(self.attention_norm(hidden)).view(batch, time, 3, self.heads, width // self.heads)
        query, key, value = mixed.permute(2, 0, 3, 1, 4)  # each (batch, heads, time, width of a head)
        positions = torch.arange(past, past + time, device=hidden.device)
        keys = torch.cat([keys, _rotated(key, positions)], dim=2)
        values = torch.cat([values, value], dim=2)
        visible = torch.arange(past + time, device=hidden.device) <= positions[:, None]  # (time, past + time)
        attended = F.scaled_dot_product_attention(_rotated(query, positions), keys, values, attn_mask=visible)
        attended = attended.transpose(1, 2).reshape(batch, time, width)
        hidden = hidden + self.dropout(self.attention_output(attended))
        return hidden + self.feedforward(hidden), keys, values


def _rotated(heads: Tensor, positions: Tensor) -> Tensor:
    """Rotary position embedding: each pair of coordinates is rotated by an angle in proportion to the position.

    From "RoFormer: Enhanced Transformer with Rotary Position Embedding" (Su, Lu, Pan, Murtadha, Wen and Liu, 2021, arXiv:2104.09864).
    """
    half = heads.shape[-1] // 2
    frequencies = 10_000.0 ** (-torch.arange(half, device=heads.device, dtype=heads.dtype) / half)
    angles = positions[:, None] * frequencies  # (time, half)
    cosine, sine = angles.cos(), angles.sin()
    first, second = heads[..., :half], heads[..., half:]
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], dim=-1)


NETWORKS: dict[str, type[Network]] = {
    "lstm": RecurrentNetwork,
    "gru": RecurrentNetwork,
    "cnn": ConvolutionalNetwork,
    "transformer": TransformerNetwork,
}


def build_network(config: NetworkConfig) -> Network:
    """A network with fresh weights from torch's global generator."""
    return NETWORKS[config.architecture](config)


def parameter_count(network: nn.Module) -> int:
    """The number of trainable parameters."""
    return sum(parameter.numel() for parameter in network.parameters())


def config_from_dict(document: dict[str, Any]) -> NetworkConfig:
    """A config from a model's config.json."""
    return msgspec.convert(document, NetworkConfig)
