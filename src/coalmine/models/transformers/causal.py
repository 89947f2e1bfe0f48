"""Causal language models of Hugging Face transformers, from a local directory or a live object."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from coalmine.errors import ModelError, TooLongError
from coalmine.models.contexts import contexts_of
from coalmine.models.inference.incremental import StatefulModel
from coalmine.models.reference.networks import Head, State, head_of
from coalmine.models.transformers.chat import ChatTemplate
from coalmine.models.transformers.key_states import KeyedNetwork, Sharing, devices_of_keys, way_to_share
from coalmine.models.transformers.peft_adapters import refuse_activated
from coalmine.models.transformers.placing import device_of, spread_over
from coalmine.models.transformers.pretrained import load_gguf, load_pretrained
from coalmine.models.transformers.quantization import as_stored
from coalmine.models.transformers.slow_tokenizers import read_tokenizer
from coalmine.models.transformers.subwords import subword_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# An id that no token has.
NO_TOKEN = -1
# Architectures whose recurrent state transformers keeps in float32, whatever the weights are in.
FLOAT32_STATES = ("mamba", "jamba", "bamba", "zamba", "rwkv", "recurrent_gemma")


class _Split(NamedTuple):
    """A model that is its layers, then its last layer, then a function of each logit by itself."""

    width: int  # of the last layer's input
    bent: Callable[[Tensor], object]  # changes logits in place


class CausalNetwork(KeyedNetwork):
    """A transformers model that carries its cache of keys and values as a state, so that shared prefixes are read and kept once.

    If an architecture keeps something other than the keys and values of all tokens (a sliding window, a recurrent state), the state is
    the tokens themselves, and each step reads them all again: slower, but right.
    """

    def __init__(self, model: PreTrainedModel, *, adapter: bool = True) -> None:
        """With `adapter` False, a PEFT model is read as if its adapter were not there; the weights are the same ones."""
        # Texts are brought to the first layer's device, and hidden numbers to the last layer's; others are in between.
        home = device_of(cast("Any", model).get_input_embeddings())
        super().__init__(home, devices_of_keys(model, home))
        self.model = model
        self._adapter = adapter
        self.shares_prefixes = self._layers > 0

    @property
    def architecture(self) -> str:
        """The model type of its config."""
        return str(self.model.config.model_type)

    @property
    def computed_in(self) -> str | None:
        """The precision of a part that is computed in another precision than the weights; None if there is none."""
        return "float32" if any(name in self.architecture for name in FLOAT32_STATES) else None

    @property
    def vocabulary(self) -> int:
        """The rows of the output embedding, which may be more than the tokenizer has."""
        return int(self.model.config.get_text_config().vocab_size)

    @property
    def max_length(self) -> int | None:
        """The number of positions in its config; None where the config does not give one."""
        said = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        return said if isinstance(said, int) and said > 0 else None

    def initial_state(self, batch: int) -> State:
        """No token was read."""
        return (torch.empty((batch, 0), dtype=torch.long, device=self.input_device),)

    @cached_property
    def sharing(self) -> Sharing | None:
        """Found out on a few tokens."""
        with self._reading():
            return way_to_share(self.model, self.input_device, self._layers)

    def forward(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits, and the keys and values (or the tokens) so far."""
        with self._reading():
            return self._read(self.model, tokens, state, "logits", tokens.shape[1])

    def read_hidden(self, tokens: Tensor, state: State, keep: int) -> tuple[Tensor, State]:
        """The input of the last layer; the logits themselves if the model does more than apply its last layer."""
        with self._reading():
            if self._split is not None:
                hidden, state = self._read(
                    self._own_model.base_model, tokens, state, "last_hidden_state", keep
                )
                return hidden.to(self._output_device), state
            some = {"logits_to_keep": keep} if self._keeps_some_logits else {}
            return self._read(self.model, tokens, state, "logits", keep, **some)

    def project(self, hidden: Tensor) -> Tensor:
        """The last layer alone, if it can be applied alone."""
        if self._split is None:
            return hidden
        with self._reading():
            logits = cast("Tensor", cast("Any", self._own_model).get_output_embeddings()(hidden))
        self._split.bent(logits)
        return logits

    def head(self) -> Head | None:
        """The weights of the last layer, if it is a matrix product that nothing, such as an adapter, adds to."""
        if self._split is None:
            return None
        return head_of(cast("Any", self._own_model).get_output_embeddings(), self._split.bent)

    def numbers_read(self, length: int, keep: int) -> int:
        """Those of hidden states and of a feedforward layer between them, or of logits."""
        if self._split is not None:
            return (self._split.width + 2 * self._feedforward) * length
        return self.vocabulary * (max(1, keep) if self._keeps_some_logits else length)

    @cached_property
    def _feedforward(self) -> int:
        """The width of a feedforward layer, by the names that configs have for it."""
        config = self.model.config.get_text_config()
        said = [
            getattr(config, name, None)
            for name in ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
        ]
        known = [one for one in said if isinstance(one, int) and one > 0]
        return known[0] if known else 4 * (self._split.width if self._split else 0)

    def _reading(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._adapter else cast("Any", self.model).disable_adapter()

    @cached_property
    def _split(self) -> _Split | None:
        """None if logits are not a function of the last layer's output."""
        with self._reading():
            return _split_of(self._own_model, self.model)

    @cached_property
    def _keeps_some_logits(self) -> bool:
        return "logits_to_keep" in inspect.signature(self._own_model.forward).parameters

    @cached_property
    def _output_device(self) -> torch.device:
        return device_of(cast("Any", self._own_model).get_output_embeddings())

    @property
    def _own_model(self) -> PreTrainedModel:
        """The model inside the wrapper of an adapter."""
        adapted = hasattr(self.model, "disable_adapter")
        return cast("Any", self.model).get_base_model() if adapted else self.model

    def _read(
        self, model: Any, tokens: Tensor, state: State, what: str, keep: int, **options: int
    ) -> tuple[Tensor, State]:
        """The numbers called `what` of the last `keep` tokens, and the state after them."""
        tokens = tokens.to(self.input_device)
        length = self.tokens_read(state) + tokens.shape[1]
        if self.max_length is not None and length > self.max_length:
            raise TooLongError(
                f"a text of {length} tokens, the context included, is longer than the {self.max_length} that the model can read; give "
                "shorter texts"
            )
        if not self.shares_prefixes:
            history = torch.cat([state[0], tokens], dim=1)
            output = model(input_ids=history, use_cache=False, **options)
            return getattr(output, what)[:, -keep:], (history,)
        prefix, tails = self.parts(state)
        if prefix:
            return self._read_after(model, tokens, prefix, tails, what, keep, **options)
        from transformers import DynamicCache

        cache = DynamicCache(zip(state[::2], state[1::2], strict=True)) if len(state) > 1 else DynamicCache()
        output = model(input_ids=tokens, past_key_values=cache, use_cache=True, **options)
        layers = output.past_key_values.layers
        return getattr(output, what)[:, -keep:], tuple(
            part for layer in layers for part in (layer.keys, layer.values)
        )

    def _read_after(
        self, model: Any, tokens: Tensor, prefix: State, tails: State, what: str, keep: int, **options: int
    ) -> tuple[Tensor, State]:
        """As `_read`, after a prefix that is there once. Where it must be repeated, it is for some rows at a time."""
        from coalmine.models.transformers.shared_cache import REPEATED_BYTES, read_shared

        folded = self.sharing == "folded"
        rows = len(tokens)
        each = 2 * max(part.numel() * part.element_size() for part in prefix)
        most = rows if folded else max(1, REPEATED_BYTES // each)
        found, after = [], []
        for first in range(0, rows, most):
            own = tuple(part[first : first + most] for part in tails)
            output, new = read_shared(
                model, tokens[first : first + most], prefix, own, folded=folded, **options
            )
            found.append(getattr(output, what)[:, -keep:])
            after.append(prefix + new)
        return found[0] if len(found) == 1 else torch.cat(found), self.join(after)


def from_transformers(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    name: str = "model",
    origin: dict[str, Any] | None = None,
    context: str = "auto",
    context_text: str | None = None,
) -> StatefulModel:
    """Wrap a live causal transformers model and its tokenizer for audits. Its log-perplexities are in bits.

    A text is scored after the token that separates documents: the tokenizer's BOS, or EOS if it has no BOS. `context` chooses "bos",
    "eot" (EOS) or "none" instead; with "none", the first token of a text is given and not scored. `context_text` comes after that. A PEFT
    model is read with its adapter, unmerged; the `reference` of the returned model has the same weights without the adapter.

    >>> model = from_transformers(trainer.model, tokenizer)  # doctest: +SKIP
    >>> score_texts(model, ["my pin is 4921"])  # doctest: +SKIP
    array([58.5])
    """
    reading = read_tokenizer(tokenizer)
    as_stored(model)
    for adapter, config in (getattr(model, "peft_config", None) or {}).items():
        refuse_activated(f"the adapter {adapter!r}", getattr(config, "alora_invocation_tokens", None))
    _check_reads_forward(model)
    separator = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    network = CausalNetwork(model)
    subwords = subword_tokenizer(
        reading.backend, size=network.vocabulary, separator=NO_TOKEN if separator is None else int(separator)
    )
    contexts = contexts_of(tokenizer, subwords.encode, context, context_text)
    chat = ChatTemplate(tokenizer, context_chosen=(context, context_text) != ("auto", None))
    facts = {
        **spread_over(model),
        "prefixes": "shared" if network.shares_prefixes else "read again for each step",
        **reading.facts,
        **(origin or {}),
    }
    reference = None
    if hasattr(model, "disable_adapter"):
        base = CausalNetwork(model, adapter=False)
        without = {**facts, "adapter_in_use": False}
        reference = StatefulModel(
            base, subwords, name=f"{name} without its adapter", origin=without, contexts=contexts, chat=chat
        )
        facts["adapter_in_use"] = True
    return StatefulModel(
        network, subwords, name=name, origin=facts, reference=reference, contexts=contexts, chat=chat
    )


def load_transformers(
    directory: Path,
    *,
    device: str,
    precision: str,
    device_map: str | None = None,
    context: str = "auto",
    context_text: str | None = None,
) -> StatefulModel:
    """A causal model or a PEFT adapter of one from a local directory, or a model from a GGUF file."""
    kind = "a causal language model"
    found = (
        load_gguf(directory, kind, device=device, precision=precision)
        if directory.is_file()
        else load_pretrained(
            directory,
            "AutoModelForCausalLM",
            kind,
            device=device,
            precision=precision,
            device_map=device_map,
        )
    )
    model = from_transformers(
        found.model,
        found.tokenizer,
        name=found.name,
        origin=found.origin,
        context=context,
        context_text=context_text,
    )
    if np.isnan(model.start([model.context or (0,)]).log2_probabilities).any():
        raise ModelError(
            f"{directory} gives values that are not numbers (NaN) instead of probabilities; check its weights and the settings "
            "in its configs"
        )
    return model


@torch.inference_mode()
def _check_reads_forward(model: PreTrainedModel) -> None:
    """Refuse a model that sees later tokens: its numbers would look like probabilities, but would not be."""
    if getattr(model.config, "is_encoder_decoder", False):
        raise ModelError(
            f"{type(model).__name__} reads a source and writes a target, so it is not a causal language model; save it, and measure it "
            "with `coalmine expose`, or use from_transformers_pairs"
        )
    size = int(model.config.get_text_config().vocab_size)
    first, *rest = ((place * 7 + 4) % size for place in range(6))
    rows = torch.tensor([[first, *rest], [first, *((token + 1) % size for token in rest)]])
    modes = [(module, module.training) for module in model.modules()]
    cast("Any", model).eval()  # dropout would make the rows differ
    try:
        logits = model(
            input_ids=rows.to(device_of(cast("Any", model).get_input_embeddings())), use_cache=False
        ).logits[:, 0]
    except (TypeError, ValueError, AttributeError, LookupError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(
            f"{type(model).__name__} cannot read a few tokens in {model.dtype}: {reason}; "
            "try another precision, or check that it works with transformers alone"
        ) from error
    finally:
        for module, training in modes:
            module.training = training
    # Far above rounding.
    closeness = 0.05 if logits.dtype in {torch.float16, torch.bfloat16} else 1e-4
    if (logits[0] - logits[1]).abs().max() > closeness * logits.abs().max():
        raise ModelError(
            f"{type(model).__name__} sees the tokens that come after a position, so it is not a causal language model (but a masked one, "
            "or its config lacks is_decoder); save it, and measure it with `coalmine expose --set kind=masked`, or use from_masked"
        )


@torch.inference_mode()
def _split_of(model: PreTrainedModel, whole: PreTrainedModel) -> _Split | None:
    """How to read a model without its last layer, if that reads the output of the other layers, and nothing unknown happens to its logits.

    None for a model that transforms either in other ways, or that cannot be read without its last layer.
    """
    backbone, head = model.base_model, cast("Any", model).get_output_embeddings()
    if backbone is model or not isinstance(head, torch.nn.Module):
        return None
    size = int(model.config.get_text_config().vocab_size)
    probe = torch.tensor(
        [[(place * 7 + 4) % size for place in range(6)]],
        device=device_of(cast("Any", model).get_input_embeddings()),
    )
    read: list[Tensor] = []
    made: list[Tensor] = []

    def put_others(_: torch.nn.Module, given: tuple[Tensor, ...], logits: Tensor) -> Tensor:
        # The model's own logits would not show it: dividing a 0 changes nothing, and a value near 0 may change by less than rounding.
        read.extend(given)
        # Most are near 0, where bending is seen best.
        values = torch.linspace(-1, 1, logits.numel(), dtype=torch.float64, device=logits.device) ** 3 * 1e4
        made.append(values.reshape(logits.shape).to(logits.dtype))
        return made[-1].clone()

    hook = head.register_forward_hook(put_others)
    try:
        logits = whole(input_ids=probe, use_cache=False).logits
        hook.remove()
        hidden = backbone(input_ids=probe, use_cache=False).last_hidden_state
        alone = len(read) == len(made) == 1 and read[0].dtype == hidden.dtype
        if alone and _are_same(read[0], hidden):
            for bent in _known_bends(model.config.get_text_config()):
                values = made[0].clone()
                bent(values)
                if _are_same(values, logits):
                    return _Split(int(hidden.shape[-1]), bent)
    except (TypeError, ValueError, AttributeError, LookupError, RuntimeError):
        pass  # It is read as a whole; if that fails too, it raises its own error.
    finally:
        hook.remove()
    return None


def _known_bends(config: Any) -> list[Callable[[Tensor], object]]:
    """What a model with this config may do to its logits: nothing, cap them (Gemma 2), divide (Granite) or multiply them (Cohere)."""
    # Functions of this module with an argument bound: a model is sent to other processes with the one that it uses.
    bends: list[Callable[[Tensor], object]] = [_unbent]
    if cap := getattr(config, "final_logit_softcapping", None):
        bends.append(partial(_capped, cap))
    if divisor := getattr(config, "logits_scaling", None):
        bends.append(partial(_divided, divisor))
    if factor := getattr(config, "logit_scale", None):
        bends.append(partial(_multiplied, factor))
    return bends


def _unbent(logits: Tensor) -> Tensor:
    return logits


def _capped(cap: float, logits: Tensor) -> Tensor:
    return logits.div_(cap).tanh_().mul_(cap)


def _divided(divisor: float, logits: Tensor) -> Tensor:
    return logits.div_(divisor)


def _multiplied(factor: float, logits: Tensor) -> Tensor:
    return logits.mul_(factor)


def _are_same(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one, other.to(one.device))
