"""The reference networks of pairs: an LSTM or a GRU reads the source, and a second one predicts the target from it.

"encoder-decoder" is the translation model of the Secret Sharer (arXiv:1802.08232): all that the decoder knows of the source is the
encoder's last state. "attention" also looks back at each position of the source before it predicts a token. Both have LSTM layers;
"gru-encoder-decoder" and "gru-attention" are the same with GRU layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec
import torch
from torch import Tensor, nn

from coalmine.errors import InputError
from coalmine.models.inference.pairs import PairNetwork
from coalmine.models.protocols import IntArray
from coalmine.models.reference.networks import Head, Network, SplitNetwork, State, check_shape, head_of
from coalmine.models.reference.tokens import ReferenceTokenizer


class PairNetworkConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of a pair network; both sides share one vocabulary and one embedding."""

    architecture: str
    vocabulary: int
    embedding: int = 128
    hidden: int = 128
    layers: int = 2
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_shape(self, "vocabulary", "embedding", "hidden", "layers")
        if self.architecture not in PAIR_NETWORKS:
            raise InputError(
                f"unknown architecture of pairs {self.architecture!r}: known are {', '.join(PAIR_NETWORKS)}"
            )


class SourceTokenizer:
    """A source as the encoder reads it, in training and in an audit: its tokens and the separator, so that it is never empty.

    A source is never scored, so a word that is not in the vocabulary is read as the unknown word, as in training.

    >>> from coalmine.models.reference.tokens import CharacterTokenizer
    >>> SourceTokenizer(CharacterTokenizer("ab ")).encode("ab")
    [1, 2, 3]
    """

    def __init__(self, tokenizer: ReferenceTokenizer) -> None:
        self._tokenizer = tokenizer

    @property
    def size(self) -> int:
        """The number of ids."""
        return self._tokenizer.size

    @property
    def unambiguous(self) -> bool:
        """Whether there is only one way to cut a text into these pieces."""
        return self._tokenizer.unambiguous

    def encode_document(self, text: str) -> IntArray:
        """The tokens of a source, as an array."""
        import numpy as np

        return np.append(self._tokenizer.encode_document(text), np.int32(self._tokenizer.separator))

    def encode(self, text: str) -> list[int]:
        """The tokens of a source, with the separator at its end."""
        return [int(token) for token in self.encode_document(text)]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some tokens; a separator has no text."""
        return self._tokenizer.decode(tokens)

    def pieces(self, *, first: bool) -> Sequence[bytes | None]:
        """The bytes that each id adds to a text."""
        return self._tokenizer.pieces(first=first)


class EncoderDecoder(PairNetwork):
    """Recurrent layers read the source, and layers of the same size continue from their last state to predict the target."""

    def __init__(self, config: PairNetworkConfig) -> None:
        super().__init__()
        self.config = config
        between_layers = config.dropout if config.layers > 1 else 0.0
        cell = nn.GRU if config.architecture in GRU_PAIR_NETWORKS else nn.LSTM
        self.embedding = nn.Embedding(config.vocabulary, config.embedding)
        self.encoder, self.decoder = (
            cell(config.embedding, config.hidden, config.layers, batch_first=True, dropout=between_layers)
            for _ in range(2)
        )
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(config.hidden, config.vocabulary)

    @property
    def architecture(self) -> str:
        """Its name in a record."""
        return self.config.architecture

    @property
    def vocabulary(self) -> int:
        """The number of logits."""
        return self.config.vocabulary

    def head(self) -> Head | None:
        """The weights of the last layer."""
        return head_of(self.output)

    def numbers_read(self, length: int) -> int:
        """Those of the decoder's gates, which are up to four times as many as the last layer reads."""
        return 4 * self.config.hidden * length

    def forward(self, sources: Tensor, lengths: Tensor, targets: Tensor) -> Tensor:
        """Logits of each target given its source, with teacher forcing."""
        return self.project(self.read_hidden(sources, lengths, targets))

    def read_hidden(self, sources: Tensor, lengths: Tensor, targets: Tensor) -> Tensor:
        """As `forward`, with the (batch, T, hidden) numbers that `project` turns into logits."""
        memory, state = self._encode(sources, lengths)
        places = torch.arange(memory.shape[1], device=memory.device)
        padding = (places >= lengths[:, None])[:, None]  # (batch, 1, S)
        return self._decode(targets, state, memory, padding)[0]

    def project(self, hidden: Tensor) -> Tensor:
        """The last layer alone: the logits of some of what `read_hidden` gave."""
        return cast("Tensor", self.output(hidden))

    def conditioned(self, source: Sequence[int]) -> Network:
        """The decoder after this source, which is read once."""
        ids = torch.tensor([list(source)], device=self.embedding.weight.device)
        with torch.no_grad():
            memory, state = self._encode(ids, torch.tensor([ids.shape[1]], device=ids.device))
        return _DecoderOfOneSource(self, memory[0], state)

    def _encode(self, sources: Tensor, lengths: Tensor) -> tuple[Tensor, State]:
        """The (batch, S, hidden) states at each position of each source, and the state after its last token."""
        embedded = self.dropout(self.embedding(sources))
        shape = (self.config.layers, len(sources), self.config.hidden)
        parts = 2 if isinstance(self.encoder, nn.LSTM) else 1
        state: State = tuple(embedded.new_zeros(shape) for _ in range(parts))
        last, places, begin = state, [], 0
        # The source is read in as many pieces as there are lengths, and the state of a source is taken where it ends, so that no
        # padding gets into it. A packed sequence gives the same numbers, and takes four times as long on a CPU.
        for end in sorted(set(lengths.tolist())):
            read, state = _advanced(self.encoder, embedded[:, begin:end], state)
            places.append(read)
            ends_here = (lengths == end)[:, None]  # (batch, 1)
            last = tuple(torch.where(ends_here, now, then) for now, then in zip(state, last, strict=True))
            begin = end
        return torch.cat(places, dim=1), last

    def _decode(
        self, targets: Tensor, state: State, memory: Tensor, padding: Tensor | None
    ) -> tuple[Tensor, State]:
        """The last layer's input, and the state after the last token; `memory` is (batch, S, hidden), or (S, hidden) for all rows."""
        hidden, state = _advanced(self.decoder, self.dropout(self.embedding(targets)), state)
        return self.dropout(self._informed(hidden, memory, padding)), state

    def _informed(self, hidden: Tensor, memory: Tensor, padding: Tensor | None) -> Tensor:
        """What a token is predicted from: without attention, the decoder's own state only."""
        del memory, padding
        return hidden


class AttentiveEncoderDecoder(EncoderDecoder):
    """The same with attention by dot products with each position of the source.

    From "Effective Approaches to Attention-based Neural Machine Translation" (Luong, Pham and Manning, 2015, arXiv:1508.04025). The
    attended values are not fed to the next step, so that a whole target is read in one pass and the state is that of the layers.
    """

    def __init__(self, config: PairNetworkConfig) -> None:
        super().__init__(config)
        self.combination = nn.Linear(2 * config.hidden, config.hidden, bias=False)

    def _informed(self, hidden: Tensor, memory: Tensor, padding: Tensor | None) -> Tensor:
        """The decoder's state, combined with the positions of the source that it attends to."""
        likeness = hidden @ memory.mT  # (batch, T, S)
        if padding is not None:
            likeness = likeness.masked_fill(padding, float("-inf"))
        attended = likeness.softmax(dim=-1) @ memory  # (batch, T, hidden)
        combined: Tensor = self.combination(torch.cat([attended, hidden], dim=-1))
        return combined.tanh()


class _DecoderOfOneSource(SplitNetwork):
    """A decoder that carries its state from token to token; the source has been read, and is the same for all rows."""

    state_batch_dim = 1

    def __init__(self, pairs: EncoderDecoder, memory: Tensor, state: State) -> None:
        nn.Module.__init__(self)
        self.pairs = pairs
        self.output = pairs.output
        self._memory, self._state = memory, state

    @property
    def architecture(self) -> str:
        """Its name in a record."""
        return self.pairs.architecture

    @property
    def vocabulary(self) -> int:
        """The number of logits."""
        return self.pairs.vocabulary

    def initial_state(self, batch: int) -> State:
        """The encoder's last state, for each row."""
        return tuple(part.expand(-1, batch, -1).contiguous() for part in self._state)

    def _read(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        return self.pairs._decode(tokens, state, self._memory, None)  # noqa: SLF001 - it is a view of that network


def _advanced(layers: nn.LSTM | nn.GRU, inputs: Tensor, state: State) -> tuple[Tensor, State]:
    """The last layer's output at each position, and the state after the last: hidden, and for an LSTM its cell."""
    if isinstance(layers, nn.LSTM):
        hidden, (last, cell) = layers(inputs, (state[0], state[1]))
        return hidden, (last, cell)
    hidden, last = layers(inputs, state[0])
    return hidden, (last,)


PAIR_NETWORKS: dict[str, type[EncoderDecoder]] = {
    "encoder-decoder": EncoderDecoder,
    "attention": AttentiveEncoderDecoder,
    "gru-encoder-decoder": EncoderDecoder,
    "gru-attention": AttentiveEncoderDecoder,
}
GRU_PAIR_NETWORKS = ("gru-encoder-decoder", "gru-attention")


def build_pair_network(config: PairNetworkConfig) -> EncoderDecoder:
    """A network with fresh weights from torch's global generator."""
    return PAIR_NETWORKS[config.architecture](config)


def pair_config_from_dict(document: dict[str, Any]) -> PairNetworkConfig:
    """A config from a model's config.json."""
    return msgspec.convert(document, PairNetworkConfig)
