"""Models trained by span corruption, such as T5: pseudo-log-perplexities, fillings of gaps, and whether they restore cut-out spans."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coalmine.errors import InputError, ModelError, NotMeasurableError
from coalmine.models.inference.gaps import (
    GapScorer,
    check_gaps,
    how_many_hidden,
    likeliest,
    masking_draws,
    widest_layer,
)
from coalmine.models.protocols import IntArray, TokenSequence
from coalmine.models.transformers.subwords import SubwordTokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# As T5 writes them; in the vocabulary of mT5 they are marked as words.
_SENTINEL = re.compile(r"▁?<extra_id_(\d+)>")


class _Cut(NamedTuple):
    """A text with spans cut out, as in training."""

    row: NDArray[np.int32]  # what the encoder reads: a sentinel in place of each span
    script: NDArray[
        np.int64
    ]  # what the decoder reads: its start, then each sentinel with the tokens of its span
    asked: NDArray[np.bool_]  # which positions of the script hold such tokens


class SpanCorruptionModel(GapScorer):
    """A T5-like model of transformers; a MaskedModel.

    The encoder reads the text with a sentinel in place of each gap, and the decoder predicts what was there. A text is scored
    after the token that the decoder starts with, which the encoder never sees.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: SubwordTokenizer,
        *,
        sentinels: tuple[int, ...],
        start: int,
        closing: tuple[int, ...],
        name: str = "model",
        origin: dict[str, Any] | None = None,
        adapter: bool = True,
        reference: SpanCorruptionModel | None = None,
    ) -> None:
        """`sentinels` mark gaps, in order; `start` is what the decoder starts with; `closing` ends a text."""
        super().__init__(
            model, tokenizer, mask=sentinels[0], closing=closing, name=name, origin=origin, adapter=adapter
        )
        self.reference = reference
        self._sentinels, self._start = sentinels, start

    @property
    def context(self) -> tuple[int, ...]:
        """The token that the decoder starts with."""
        return (self._start,)

    def describe(self) -> dict[str, Any]:
        """For the record of a run."""
        return {
            "adapter": "span corruption",
            "context": "decoder start, first sentinel; the whole text but the gap before and behind it",
            **self._facts(),
        }

    @torch.inference_mode()
    def fill(self, sequences: Sequence[TokenSequence], gaps: Sequence[Sequence[int]]) -> list[list[int]]:
        """For each sequence, the greedy filling of some positions of its target, all cut out at once; among equals, the lowest id.

        Neighboring positions are one span. The decoder is given the length of each span, and the next sentinel.
        """
        self._check_at_rest()
        cuts = [self._cut(sequence, own) for sequence, own in zip(sequences, gaps, strict=True)]
        filled: list[list[int]] = [[] for _ in cuts]

        def fill(batch: Sequence[int]) -> None:
            scripts = _side_by_side([cuts[i].script for i in batch], self._start)
            asked = _side_by_side([cuts[i].asked for i in batch], 0).astype(bool)
            written = self._decode(np.stack([cuts[i].row for i in batch]), scripts, asked)
            for i, tokens, own in zip(batch, written, asked, strict=True):
                found = dict(zip(sorted(gaps[i]), tokens[own].tolist(), strict=True))
                filled[i] = [found[place] for place in gaps[i]]

        self._in_batches([len(cut.row) for cut in cuts], fill, answers=1)
        return filled

    @torch.inference_mode()
    def solves_masking(
        self,
        sequences: Sequence[TokenSequence],
        *,
        share: float = 0.15,
        mean_span: float = 3.0,
        seed: int = 0,
    ) -> list[bool]:
        """Whether each target is restored without an error when a `share` of its tokens is cut out, in spans of a mean length.

        This is recitation for masked models (section 5.1 of "Quantifying Memorization Across Neural Language Models", arXiv:2202.07646).
        Which spans are cut out depends on the seed and the target's tokens only. One pass is enough: greedy decoding writes the truth
        exactly if each token of the truth is the likeliest after those before it.
        """
        gaps = [
            hidden_spans(sequence.target, share=share, mean_span=mean_span, seed=seed)
            for sequence in sequences
        ]
        cuts = [self._cut(sequence, own) for sequence, own in zip(sequences, gaps, strict=True)]
        solved = [False] * len(cuts)
        longest = max((len(cut.script) for cut in cuts), default=0)

        def solve(batch: Sequence[int]) -> None:
            scripts = _side_by_side([cuts[i].script for i in batch], self._start)
            logits = self._logits(np.stack([cuts[i].row for i in batch]), scripts[:, :-1])
            expected = (
                likeliest(logits).cpu().numpy()
            )  # (batch, script - 1): the prediction after each position
            for i, tokens in zip(batch, expected, strict=True):
                truth, asked = cuts[i].script[1:], cuts[i].asked[1:]
                solved[i] = bool((tokens[: len(truth)] == truth)[asked].all())

        self._in_batches([len(cut.row) for cut in cuts], solve, answers=longest)
        return solved

    def _at_gap(self, rows: IntArray, places: IntArray) -> Tensor:
        return self._logits(rows, np.array([[self._start, self._mask]] * len(places)))[:, -1]

    def _logits(self, rows: IntArray, scripts: IntArray) -> Tensor:
        """The (batch, script, vocabulary) logits after each position of the decoder's scripts."""
        tokens = self._tensor(rows)
        with self._as_chosen():
            logits: Tensor = self._model(
                input_ids=tokens,
                attention_mask=torch.ones_like(tokens),
                decoder_input_ids=self._tensor(scripts),
                use_cache=False,
            ).logits
        return logits

    def _decode(self, rows: IntArray, scripts: IntArray, asked: NDArray[np.bool_]) -> IntArray:
        """The scripts, with what the decoder writes token by token at the asked positions."""
        tokens = self._tensor(rows)
        seen = torch.ones_like(tokens)
        open_places = torch.from_numpy(asked).to(self._device)
        # The truth at open positions is never read: they are blank from the start, and each is overwritten before its turn.
        written = self._tensor(np.where(asked, self._start, scripts))
        with self._as_chosen():
            memory = self._model.get_encoder()(input_ids=tokens, attention_mask=seen)
            cache = None
            for place in range(written.shape[1] - 1):
                output = self._model(
                    encoder_outputs=memory,
                    attention_mask=seen,
                    decoder_input_ids=written[:, place : place + 1],
                    past_key_values=cache,
                    use_cache=True,
                )
                cache = output.past_key_values
                following = written[:, place + 1]
                written[:, place + 1] = torch.where(
                    open_places[:, place + 1], likeliest(output.logits[:, -1]), following
                )
        return np.asarray(written.cpu().numpy())

    def _cut(self, sequence: TokenSequence, gaps: Sequence[int]) -> _Cut:
        """A sequence with gaps cut out; neighboring ones are one span."""
        check_gaps(gaps, len(sequence.target))
        whole = self._row(sequence)
        first = len(whole) - len(self._closing) - len(sequence.target)
        hidden = {first + gap for gap in gaps}
        row: list[int] = []
        script, asked, spans = [self._start], [False], 0
        for place, token in enumerate(whole.tolist()):
            if place not in hidden:
                row.append(token)
                continue
            if place - 1 not in hidden:
                if spans == len(self._sentinels):
                    raise NotMeasurableError(
                        f"the gaps make more spans than the {spans} that the model has sentinels for; hide a smaller share, or "
                        "take shorter texts"
                    )
                row.append(self._sentinels[spans])
                script.append(self._sentinels[spans])
                asked.append(False)
                spans += 1
            script.append(token)
            asked.append(True)
        return _Cut(np.array(row, dtype=np.int32), np.array(script), np.array(asked))

    def _row(self, sequence: TokenSequence) -> NDArray[np.int32]:
        row = super()._row(sequence)
        if row[0] != self._start:
            raise NotMeasurableError(
                f"a text is scored after the token that the decoder starts with, {self._start}, got {row[0]}; give the model's context "
                "before it"
            )
        return row[1:]

    def _numbers(self, length: int, answers: int) -> int:
        return max((answers + 1) * self._tokenizer.size, widest_layer(self._model.config, length))


def hidden_spans(tokens: Sequence[int], *, share: float, mean_span: float, seed: int) -> list[int]:
    """The positions to cut out of a text, in order: a `share` of them, at least one, in spans of `mean_span` tokens on average.

    Spans never touch; all ways to cut a text into as many spans are equally likely.

    >>> hidden = hidden_spans(range(200), share=0.15, mean_span=3.0, seed=0)
    >>> len(hidden), sum(place - 1 not in hidden for place in hidden)
    (30, 10)
    """
    if not mean_span >= 1:
        raise InputError(f"spans must have a mean length of at least 1, got {mean_span}")
    hidden = how_many_hidden(tokens, share)
    kept = len(tokens) - hidden
    spans = min(max(1, round(hidden / mean_span)), kept + 1)
    draws = masking_draws(tokens, seed)
    ends = [*sorted(draws.sample(range(1, hidden), spans - 1)), hidden]
    # The number of kept tokens before each span; no two are equal, so that there are kept tokens between spans.
    before = sorted(draws.sample(range(kept + 1), spans))
    places, done = [], 0
    for end, kept_before in zip(ends, before, strict=True):
        places += [kept_before + place for place in range(done, end)]
        done = end
    return places


def sentinels_of(backend: Any) -> tuple[int, ...]:
    """The sentinels of a tokenizer, in order."""
    found = {
        int(match[1]): token
        for written, token in backend.get_vocab(with_added_tokens=True).items()
        if (match := _SENTINEL.fullmatch(written))
    }
    sentinels: list[int] = []
    while len(sentinels) in found:
        sentinels.append(found[len(sentinels)])
    if not sentinels:
        raise ModelError(
            "the tokenizer has no sentinel <extra_id_0>, so the model cannot be asked to fill gaps; name one that was trained by span "
            "corruption, such as T5"
        )
    return tuple(sentinels)


def decoder_start(config: Any) -> int:
    """The token that the decoder starts with."""
    for name in ("decoder_start_token_id", "pad_token_id"):
        token = getattr(config, name, None)
        if token is not None:
            return int(token)
    raise ModelError("the config does not say what the decoder starts with; set decoder_start_token_id in it")


def _side_by_side(rows: Sequence[NDArray[Any]], filler: int) -> NDArray[np.int64]:
    """Rows as one array; the padding after a shorter one is read after it, and cannot change a number that is used."""
    array = np.full((len(rows), max(len(row) for row in rows)), filler, dtype=np.int64)
    for row, own in zip(array, rows, strict=True):
        row[: len(own)] = own
    return array
