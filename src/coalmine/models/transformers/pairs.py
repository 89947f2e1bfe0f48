"""Sequence-to-sequence models of Hugging Face transformers (T5, Marian, BART and the like), from a local directory or a live object."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from coalmine.errors import ModelError, NotMeasurableError
from coalmine.models.inference.pairs import PairNetwork, PairNetworkModel
from coalmine.models.reference.networks import Head, Network, State, head_of
from coalmine.models.transformers.pair_tails import tail_of, without_layer
from coalmine.models.transformers.pretrained import load_pretrained
from coalmine.models.transformers.slow_tokenizers import read_tokenizer
from coalmine.models.transformers.subwords import SubwordTokenizer, encoded, subword_tokenizer

if TYPE_CHECKING:
    from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase


class SubwordSourceTokenizer(SubwordTokenizer):
    """A fast tokenizer as it encodes a source: with the special tokens that the encoder was trained with, such as a closing </s>.

    A source is never scored, so a part without a token is read as the unknown token, as in training.
    """

    def encode(self, text: str) -> list[int]:
        """The tokens of a source, special ones included."""
        tokens: list[int] = encoded(self._backend, text, special=True).ids
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some tokens; special ones have none."""
        return str(self._backend.decode(list(tokens), skip_special_tokens=True))


class TransformersPairNetwork(PairNetwork):
    """A sequence-to-sequence model of transformers; with its source held fixed, its state is the decoder's own keys and values."""

    def __init__(self, model: PreTrainedModel, *, adapter: bool = True) -> None:
        """With `adapter` False, a PEFT model is read as if its adapter were not there; the weights are the same ones."""
        super().__init__()
        self.model = model
        self._adapter = adapter
        self.eval()
        self.shares_prefixes = _carries_its_cache(self)
        # What comes after the layers; None if the model cannot be read without its last one.
        self.tail = tail_of(self)

    @property
    def architecture(self) -> str:
        """The model type of its config."""
        return str(self.model.config.model_type)

    @property
    def vocabulary(self) -> int:
        """The rows of the output embedding, which may be more than the tokenizer has."""
        return int(cast("Any", self.model).get_output_embeddings().weight.shape[0])

    @property
    def source_vocabulary(self) -> int:
        """The rows of the encoder's embedding."""
        return int(self._encoder.get_input_embeddings().weight.shape[0])

    @property
    def _encoder(self) -> Any:
        return cast("Any", self.model).get_encoder()

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """The adapter on or off while the model reads."""
        with contextlib.nullcontext() if self._adapter else cast("Any", self.model).disable_adapter():
            yield

    def check_length(self, tokens: int, side: str) -> None:
        """Refuse a text that is longer than the model has positions for."""
        most = getattr(self.model.config, "max_position_embeddings", None)
        if isinstance(most, int) and tokens > most:
            raise NotMeasurableError(
                f"a {side} of {tokens} tokens is longer than the {most} that the model can read; cut it as training did"
            )

    def conditioned(self, source: Sequence[int]) -> Network:
        """The decoder with this source read once and held fixed."""
        self.check_length(len(source), "source")
        ids = torch.tensor([list(source)], dtype=torch.long, device=self.model.device)
        with self.reading():
            hidden = self._encoder(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        return ConditionedDecoder(self, hidden)

    def forward(self, sources: Tensor, lengths: Tensor, targets: Tensor) -> Tensor:
        """Logits of padded pairs with teacher forcing; the padding after a source is masked."""
        self.check_length(sources.shape[1], "source")
        self.check_length(targets.shape[1], "target")
        mask = torch.arange(sources.shape[1], device=sources.device) < lengths[:, None]  # (batch, S)
        with self.reading():
            output: Any = self.model(
                input_ids=sources, attention_mask=mask.long(), decoder_input_ids=targets, use_cache=False
            )
        return cast("Tensor", output.logits)

    def read_hidden(self, sources: Tensor, lengths: Tensor, targets: Tensor) -> Tensor:
        """The input of the last layer; the logits themselves if the model does something unknown to them."""
        if self.tail is None:
            return super().read_hidden(sources, lengths, targets)
        with without_layer(self.last_layer) as read:
            self(sources, lengths, targets)
        return read[0]

    def project(self, hidden: Tensor) -> Tensor:
        """The last layer, and what the model adds to its output."""
        if self.tail is None:
            return hidden
        with self.reading():
            logits: Tensor = self.last_layer(hidden)
        return logits if self.tail.bias is None else logits + self.tail.bias

    def head(self) -> Head | None:
        """The weights of the last layer, if it is a matrix product that nothing, such as an adapter, adds to."""
        found = None if self.tail is None else head_of(self.last_layer)
        if found is None or self.tail is None or self.tail.bias is None:
            return found
        return None if found.bias is not None else found._replace(bias=self.tail.bias)

    def numbers_read(self, length: int) -> int:
        """Those of the widest layer, which are a few times as many as the last one reads."""
        return super().numbers_read(length) if self.tail is None else 4 * self.tail.width * length

    @property
    def last_layer(self) -> Any:
        """What makes the logits, adapters included."""
        return cast("Any", self.model).get_output_embeddings()


class ConditionedDecoder(Network):
    """The decoder of a sequence-to-sequence model, after one source.

    The output of the encoder, and the keys and values that the decoder's layers make of it, are stored once and shared by all rows of a
    batch. If an architecture cannot carry its cache, the state is the target's tokens, and each step reads them all again: slower, but
    right.
    """

    carries_state = False
    fixed_state = False

    def __init__(self, pairs: TransformersPairNetwork, hidden: Tensor) -> None:
        """`hidden` is (1, source, width): what the encoder makes of the source."""
        torch.nn.Module.__init__(self)
        self.pairs = pairs
        self._hidden = hidden
        # Keys and then values of each layer's attention to the source, (1, heads, source, width of a head); made by the first read.
        self._of_source: list[tuple[Tensor, Tensor]] = []

    @property
    def architecture(self) -> str:
        """That of the whole model."""
        return self.pairs.architecture

    @property
    def vocabulary(self) -> int:
        """How many logits there are."""
        return self.pairs.vocabulary

    @property
    def reads_in_pieces(self) -> bool:
        """False where each piece reads all tokens before it again."""
        return self.pairs.shares_prefixes

    def initial_state(self, batch: int) -> State:
        """No token was read."""
        return (torch.empty((batch, 0), dtype=torch.long, device=self._hidden.device),)

    def forward(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits, and the keys and values (or the tokens) of the target so far."""
        with self.pairs.reading():
            return (
                self._step(tokens, state) if self.pairs.shares_prefixes else self._read_again(tokens, state)
            )

    def read_hidden(self, tokens: Tensor, state: State, keep: int) -> tuple[Tensor, State]:
        """The input of the last layer; the logits themselves if the model does something unknown to them."""
        if self.pairs.tail is None:
            return super().read_hidden(tokens, state, keep)
        with without_layer(self.pairs.last_layer) as read:
            _, state = self(tokens, state)
        return read[0][:, -keep:], state

    def project(self, hidden: Tensor) -> Tensor:
        """The last layer alone, if it can be applied alone."""
        return self.pairs.project(hidden)

    def head(self) -> Head | None:
        """The weights of the last layer."""
        return self.pairs.head()

    def numbers_read(self, length: int, keep: int) -> int:
        """Those of hidden states, or of logits."""
        return (
            super().numbers_read(length, keep) if self.pairs.tail is None else self.pairs.numbers_read(length)
        )

    def _read_again(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        history = torch.cat([state[0], tokens], dim=1)
        self.pairs.check_length(history.shape[1], "target")
        output = self._decode(history, use_cache=False)
        return output.logits[:, state[0].shape[1] :], (history,)

    def _step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        from transformers import EncoderDecoderCache

        read = state[0].shape[2] if len(state) > 1 else 0
        self.pairs.check_length(read + tokens.shape[1], "target")
        own = list(zip(state[::2], state[1::2], strict=True)) if len(state) > 1 else []
        rows = tokens.shape[0]
        # Each row sees the same memory.
        shared = [
            (keys.expand(rows, -1, -1, -1), values.expand(rows, -1, -1, -1))
            for keys, values in self._of_source
        ]
        cache = EncoderDecoderCache(_cache_of(own), _cache_of(shared))
        output = self._decode(tokens, past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        if not self._of_source:
            layers = cache.cross_attention_cache.layers
            self._of_source = [(layer.keys[:1].clone(), layer.values[:1].clone()) for layer in layers]
        return output.logits, tuple(
            part for layer in cache.self_attention_cache.layers for part in (layer.keys, layer.values)
        )

    def _decode(self, tokens: Tensor, **options: Any) -> Any:
        from transformers.modeling_outputs import BaseModelOutput

        hidden = self._hidden.expand(tokens.shape[0], -1, -1)
        encoded = BaseModelOutput(last_hidden_state=cast("Any", hidden))
        return self.pairs.model(encoder_outputs=encoded, decoder_input_ids=tokens, **options)


def from_transformers_pairs(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    target_tokenizer: PreTrainedTokenizerBase | None = None,
    name: str = "model",
    origin: dict[str, Any] | None = None,
) -> PairNetworkModel:
    """Wrap a live sequence-to-sequence model and its tokenizer for audits. Its log-perplexities are in bits.

    `tokenizer` encodes sources. `target_tokenizer` encodes targets; by default, it is the same one. A target is scored after the tokens
    that the decoder reads before it when the model is trained on labels: its start token, and for some models further ones, such as the
    <s> of BART. A PEFT model is read with its adapter, unmerged; the `reference` of the returned model has the same weights without the
    adapter.

    >>> model = from_transformers_pairs(marian, AutoTokenizer.from_pretrained("marian/"))  # doctest: +SKIP
    >>> score_texts(model, ["the train is late"], sources=["der Zug hat Verspätung"])  # doctest: +SKIP
    array([12.8])
    """
    _refuse_virtual_tokens(model)
    writes_targets = target_tokenizer or tokenizer
    network = TransformersPairNetwork(model)
    start = _decoder_start(model)
    reading = read_tokenizer(writes_targets)
    targets = subword_tokenizer(reading.backend, size=network.vocabulary, separator=start)
    sources = SubwordSourceTokenizer(
        read_tokenizer(tokenizer).backend, size=network.source_vocabulary, separator=start
    )
    context = _before_a_target(model, writes_targets, targets, start)
    facts = {
        "prefixes": "shared" if network.shares_prefixes else "read again for each step",
        **reading.facts,
        **(origin or {}),
    }
    reference = None
    if hasattr(model, "disable_adapter"):
        reference = PairNetworkModel(
            TransformersPairNetwork(model, adapter=False),
            targets,
            sources,
            name=f"{name} without its adapter",
            origin={**facts, "adapter_in_use": False},
            context=context,
        )
        facts["adapter_in_use"] = True
    return PairNetworkModel(
        network, targets, sources, name=name, origin=facts, reference=reference, context=context
    )


def load_pairs(directory: Path, *, device: str, precision: str) -> PairNetworkModel:
    """A sequence-to-sequence model or a PEFT adapter of one from a local directory."""
    found = load_pretrained(
        directory, "AutoModelForSeq2SeqLM", "a sequence-to-sequence model", device=device, precision=precision
    )
    return from_transformers_pairs(found.model, found.tokenizer, name=found.name, origin=found.origin)


def _cache_of(layers: Sequence[tuple[Tensor, Tensor]]) -> DynamicCache:
    """Keys and values as a cache, without copying them: an expanded tensor stays one."""
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    cache = DynamicCache()
    for keys, values in layers:
        layer: Any = cast("Any", DynamicLayer)()
        layer.lazy_initialization(keys, values)
        layer.keys, layer.values = keys, values
        cache.layers.append(layer)
    return cache


def _refuse_virtual_tokens(model: PreTrainedModel) -> None:
    """Refuse prompts that were learned as vectors: they come before sources and targets, and reading in parts would lose them."""
    configs = getattr(model, "peft_config", None) or {}
    if isinstance(configs, dict) and any(
        getattr(config, "is_prompt_learning", False) for config in configs.values()
    ):
        raise ModelError(
            "a sequence-to-sequence model with a learned prompt cannot be audited; use an adapter of the LoRA kind, or the base model"
        )


def _decoder_start(model: PreTrainedModel) -> int:
    for config in (model.config, getattr(model, "generation_config", None)):
        start = getattr(config, "decoder_start_token_id", None)
        if start is not None:
            return int(start)
    raise ModelError(
        "the model's config has no decoder_start_token_id, so it is not known what comes before a target; set it in config.json"
    )


def _before_a_target(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, targets: SubwordTokenizer, start: int
) -> tuple[int, ...]:
    """What the decoder reads before the first token of a target when it is trained on labels that the tokenizer encodes."""
    probe = targets.encode("a")
    labels = list(cast("Any", tokenizer)(text_target="a").input_ids)
    shift = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    read = [start, *labels[:-1]]
    if shift is not None:
        read = shift(labels=torch.tensor([labels], device=model.device))[0].tolist()
    for place in range(1, len(read) - len(probe) + 1):
        if read[place : place + len(probe)] == probe:
            return tuple(read[:place])
    return (start,)


# What a model of an unexpected design may raise.
_REFUSALS = (TypeError, ValueError, AttributeError, RuntimeError, IndexError, KeyError, AssertionError)


@torch.inference_mode()
def _carries_its_cache(network: TransformersPairNetwork) -> bool:
    """Whether the decoder's cache of keys and values can be its state, found out on a few tokens; an error if nothing works."""
    try:
        sizes = (network.source_vocabulary, network.vocabulary)
        source, target = ([(place * 7 + 4) % size for place in range(5)] for size in sizes)
        device = network.model.device
        sources, targets = (
            torch.tensor([source] * 2, device=device),
            torch.tensor([target, target[::-1]], device=device),
        )
        whole = network(sources, torch.full((2,), len(source), device=device), targets)
    except _REFUSALS as problem:
        raise ModelError(_cannot_be_read(network, str(problem))) from None
    # Far above rounding, and far below what reading one token too few or too many changes.
    closeness = 0.05 if whole.dtype in {torch.float16, torch.bfloat16} else 1e-4
    for network.shares_prefixes in (True, False):
        with contextlib.suppress(*_REFUSALS):
            decoder = network.conditioned(source)
            first, state = decoder(targets[:, :2], decoder.initial_state(2))
            second, _ = decoder(targets[:, 2:], state)
            difference = (torch.cat([first, second], dim=1) - whole).abs().max()
            if difference <= closeness * whole.abs().max():
                return network.shares_prefixes
    raise ModelError(
        _cannot_be_read(network, "reading a target in parts gives other numbers than reading it at once")
    )


def _cannot_be_read(network: TransformersPairNetwork, why: str) -> str:
    first_line = (why.splitlines() or ["no reason given"])[0]
    return (
        f"models of the type {network.architecture!r} cannot be read as sequence-to-sequence models here ({first_line}); T5, Marian, "
        "BART and models built like them can"
    )
