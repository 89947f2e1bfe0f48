"""Masked language models such as BERT: pseudo-log-perplexities, fillings of gaps, and whether they restore a masked text."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coalmine.errors import ModelError, NotMeasurableError
from coalmine.models.inference.gaps import GapScorer, check_gaps, hidden_places, likeliest, widest_layer
from coalmine.models.protocols import IntArray, TokenSequence
from coalmine.models.transformers.adapter_base import base_of_adapter
from coalmine.models.transformers.model_files import CONFIG_FILE, architectures_of, read_object
from coalmine.models.transformers.pretrained import load_pretrained
from coalmine.models.transformers.slow_tokenizers import read_tokenizer
from coalmine.models.transformers.subwords import SubwordTokenizer, encoded

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from coalmine.models.transformers.span_corruption import SpanCorruptionModel

# Heads that fill gaps, by the end of their class's name. Loading a model of another class as a masked one would initialize a head at
# random, and the scores would be meaningless.
_TRAINED_HEADS = (
    "ForMaskedLM",
    "BertForPreTraining",
    "AlbertForPreTraining",
    "ForConditionalGeneration",
    "T5WithLMHeadModel",
)


class MaskedTransformer(GapScorer):
    """BERT, RoBERTa, DistilBERT and other encoders of transformers with a head that predicts masked tokens; a MaskedModel."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: SubwordTokenizer,
        *,
        mask: int,
        opening: tuple[int, ...],
        closing: tuple[int, ...],
        name: str = "model",
        origin: dict[str, Any] | None = None,
        adapter: bool = True,
        reference: MaskedTransformer | None = None,
    ) -> None:
        """`opening` and `closing` are the special tokens around a text, such as [CLS] and [SEP]."""
        super().__init__(
            model, tokenizer, mask=mask, closing=closing, name=name, origin=origin, adapter=adapter
        )
        self.reference = reference
        self._opening = opening
        self._longest = _longest_row(model)
        self._picks_early = self._can_pick_early()

    @property
    def context(self) -> tuple[int, ...]:
        """The special tokens at the beginning of a text."""
        return self._opening

    @property
    def max_length(self) -> int | None:
        """The most tokens that it can read, its context included and closing tokens apart; None where there is no limit."""
        return None if self._longest is None else self._longest - len(self._closing)

    def describe(self) -> dict[str, Any]:
        """For the record of a run."""
        return {
            "adapter": "masked",
            "context": "the tokenizer's special tokens on both sides",
            **self._facts(),
        }

    @torch.inference_mode()
    def fill(self, sequences: Sequence[TokenSequence], gaps: Sequence[Sequence[int]]) -> list[list[int]]:
        """For each sequence, the likeliest tokens at some positions of its target, all hidden at once; among equals, the lowest id."""
        self._check_at_rest()
        rows = [self._row(sequence) for sequence in sequences]
        columns = []
        for row, sequence, own in zip(rows, sequences, gaps, strict=True):
            check_gaps(own, len(sequence.target))
            first = len(row) - len(self._closing) - len(sequence.target)
            columns.append(first + np.array(own, dtype=np.int64))
            row[columns[-1]] = self._mask
        filled: list[list[int]] = [[] for _ in sequences]
        most = max((len(own) for own in gaps), default=0)

        def fill(batch: Sequence[int]) -> None:
            which = np.repeat(np.arange(len(batch)), [len(columns[i]) for i in batch])
            places = np.concatenate([columns[i] for i in batch])
            if not len(places):
                return
            logits = self._logits_at(np.stack([rows[i] for i in batch]), which, places)
            for place, token in zip(which.tolist(), likeliest(logits).tolist(), strict=True):
                filled[batch[place]].append(token)

        self._in_batches([len(row) for row in rows], fill, answers=most)
        return filled

    def solves_masking(
        self, sequences: Sequence[TokenSequence], *, share: float = 0.15, seed: int = 0
    ) -> list[bool]:
        """Whether each target is restored without an error when a `share` of its tokens is hidden at once.

        This is recitation for masked models (section 5.1 of "Quantifying Memorization Across Neural Language Models", arXiv:2202.07646).
        Which positions are hidden depends on the seed and the target's tokens only.
        """
        gaps = [hidden_places(sequence.target, share=share, seed=seed) for sequence in sequences]
        filled = self.fill(sequences, gaps)
        return [
            tokens == [sequence.target[place] for place in own]
            for tokens, sequence, own in zip(filled, sequences, gaps, strict=True)
        ]

    def _at_gap(self, rows: IntArray, places: IntArray) -> Tensor:
        return self._logits_at(rows, np.arange(len(rows)), places)

    def _logits_at(self, rows: IntArray, which: IntArray, places: IntArray) -> Tensor:
        """Logits at places[i] of row which[i], (places, vocabulary)."""
        tokens, chosen, columns = self._tensor(rows), self._tensor(which), self._tensor(places)
        if not self._picks_early:
            return self._read(tokens)[chosen, columns]

        def pick(_: torch.nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor]:
            return (inputs[0][chosen, columns][None],)

        # The predictions for the rest of the row are not needed, and each is as wide as the vocabulary.
        hook = self._model.get_output_embeddings().register_forward_pre_hook(pick)
        try:
            return self._read(tokens)[0]
        finally:
            hook.remove()

    def _read(self, tokens: Tensor) -> Tensor:
        with self._as_chosen():
            logits: Tensor = self._model(input_ids=tokens, attention_mask=torch.ones_like(tokens)).logits
        return logits

    def _row(self, sequence: TokenSequence) -> NDArray[np.int32]:
        row = super()._row(sequence)
        if self._longest is not None and len(row) > self._longest:
            raise NotMeasurableError(
                f"a text of {len(row)} tokens, special ones included, is longer than the {self._longest} that {self.name!r} can read; "
                "give shorter texts"
            )
        return row

    def _numbers(self, length: int, answers: int) -> int:
        projected = answers if self._picks_early else length
        return max(projected * self._tokenizer.size, widest_layer(self._model.config, length))

    @torch.inference_mode()
    def _can_pick_early(self) -> bool:
        """Whether hidden positions can be selected before the projection to the vocabulary, found out by trying it."""
        rows = np.array([[*self._opening, self._mask, self._mask, *self._closing]] * 2)
        which, places = np.array([0, 1, 1]), np.array([0, 0, len(self._opening)])
        self._picks_early = False
        plain = self._logits_at(rows, which, places)
        self._picks_early = True
        try:
            picked = self._logits_at(rows, which, places)
        except (TypeError, ValueError, AttributeError, IndexError, RuntimeError):
            return False
        return picked.shape == plain.shape and torch.allclose(picked, plain, rtol=0.01, atol=0.01)


def from_masked(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    name: str = "model",
    origin: dict[str, Any] | None = None,
) -> MaskedTransformer | SpanCorruptionModel:
    """Wrap a live masked model and its tokenizer for audits: one like BERT, or T5 with its sentinels. Its scores are in bits.

    A PEFT model is read with its adapter, unmerged; the `reference` of the returned model has the same weights without the adapter.

    >>> model = from_masked(bert, AutoTokenizer.from_pretrained("bert/"))  # doctest: +SKIP
    >>> score_texts(model, ["my pin is 4921"])  # doctest: +SKIP
    array([41.2])
    """
    reading = read_tokenizer(tokenizer)
    make, tokens, separator = _adapter_for(model, tokenizer, reading.backend)
    subwords = SubwordTokenizer(
        reading.backend, size=int(cast("Any", model.config).vocab_size), separator=separator
    )
    facts = {**reading.facts, **(origin or {})}
    reference = None
    if hasattr(model, "disable_adapter"):
        without = {**facts, "adapter_in_use": False}
        named = f"{name} without its adapter"
        reference = make(model, subwords, **tokens, name=named, origin=without, adapter=False)
        facts["adapter_in_use"] = True
    found: MaskedTransformer | SpanCorruptionModel = make(
        model, subwords, **tokens, name=name, origin=facts, reference=reference
    )
    return found


def _adapter_for(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, backend: Any
) -> tuple[Any, dict[str, Any], int]:
    """The class of the adapter for a model, the special tokens that it takes, and the token that separates documents."""
    opening, closing = special_tokens_around(backend)
    if getattr(model.config, "is_encoder_decoder", False):
        from coalmine.models.transformers.span_corruption import (
            SpanCorruptionModel,
            decoder_start,
            sentinels_of,
        )

        start = decoder_start(model.config)
        spans = {"sentinels": sentinels_of(backend), "start": start, "closing": closing}
        return SpanCorruptionModel, spans, start
    if tokenizer.mask_token_id is None or not opening:
        raise ModelError(
            "the tokenizer must have a mask token and put a special token before a text; it has "
            f"{tokenizer.mask_token!r} and puts {len(opening)} there: use the tokenizer that the model was trained with"
        )
    tokens = {"mask": int(tokenizer.mask_token_id), "opening": opening, "closing": closing}
    return MaskedTransformer, tokens, opening[0]


def load_masked(directory: Path, *, device: str, precision: str) -> MaskedTransformer | SpanCorruptionModel:
    """A masked model, T5 or a PEFT adapter of one from a local directory."""
    config = read_object((base_of_adapter(directory) or directory) / CONFIG_FILE)
    made_as = architectures_of(config)
    if made_as and not any(each.endswith(_TRAINED_HEADS) for each in made_as):
        raise ModelError(
            f"{directory} was saved as {made_as[0]}, which has no trained head that fills gaps; save the model with the head that it "
            "was trained with, such as BertForMaskedLM"
        )
    pairs = bool(config.get("is_encoder_decoder"))
    found = load_pretrained(
        directory,
        "AutoModelForSeq2SeqLM" if pairs else "AutoModelForMaskedLM",
        "a model trained by span corruption" if pairs else "a masked language model",
        device=device,
        precision=precision,
    )
    return from_masked(found.model, found.tokenizer, name=found.name, origin=found.origin)


def special_tokens_around(backend: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The special tokens that a tokenizer puts before and after a text."""
    backend = copy.deepcopy(backend)
    backend.no_truncation()
    backend.no_padding()
    written = encoded(backend, "a", special=True)
    own = [place for place, special in enumerate(written.special_tokens_mask) if not special]
    if not own:
        raise ModelError(
            "the tokenizer makes no token of the text 'a'; use the one that the model was trained with"
        )
    return tuple(written.ids[: own[0]]), tuple(written.ids[own[-1] + 1 :])


def _longest_row(model: PreTrainedModel) -> int | None:
    """The size of a model's position table, or the number in its config if it has no such table."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            # Models like RoBERTa count positions from the one after that of padding.
            return module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
    said = getattr(model.config, "max_position_embeddings", None)
    return said if isinstance(said, int) and said > 0 else None
