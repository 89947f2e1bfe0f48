"""Rows of examples and batches: the tokens of each, and which of them are in the loss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from coalmine.errors import InputError

# The label with which transformers and torch leave a token out of the loss.
IGNORED = -100


class LossRow(NamedTuple):
    """The tokens of one row, and for each whether it is in the loss."""

    tokens: list[int]
    in_loss: list[bool]


def loss_rows(batch: Any) -> Iterator[LossRow]:
    """The rows of an example or a batch; a row of several sequences, which `position_ids` tell apart, is several rows."""
    if not isinstance(batch, Mapping) or "input_ids" not in batch:
        raise InputError(
            f"an example must be a mapping with input_ids, got {type(batch).__name__}; give what the data loader yields"
        )
    tokens = _nested(batch["input_ids"])
    labels = _nested(batch.get("labels"), like=tokens)
    mask = _nested(batch.get("attention_mask"), like=tokens)
    for place, (row, starts) in enumerate(zip(tokens, _starts(batch, tokens), strict=True)):
        if labels is None:
            attended = mask[place] if mask is not None else [1] * len(row)
            _same_length(row, attended, "attention_mask")
            in_loss = [bool(one) for one in attended]
        else:
            _same_length(row, labels[place], "labels")
            _check_aligned(row, labels[place])
            # A label that is another token trains another text.
            in_loss = [label == token for token, label in zip(row, labels[place], strict=True)]
        for begin, end in zip(starts, [*starts[1:], len(row)], strict=True):
            # Padding of packed rows is a sequence of one token each, of which none is in the loss.
            if len(starts) == 1 or end - begin > 1 or in_loss[begin]:
                yield LossRow(row[begin:end], in_loss[begin:end])


def _starts(batch: Mapping[str, Any], tokens: list[list[int]]) -> list[list[int]]:
    """Where the sequences of each row begin: where packed rows count positions from 0 again."""
    positions = batch.get("position_ids")
    rows = None if positions is None else _nested(positions)
    if rows is None or [len(one) for one in rows] != [len(one) for one in tokens]:
        return [[0] for _ in tokens]  # positions of several dimensions are of pictures
    return [[0, *(at for at, one in enumerate(row) if one == 0 and at > 0)] for row in rows]


def _nested(values: Any, *, like: list[list[int]] | None = None) -> Any:
    """Lists of lists from a list, an array or a tensor of one or two dimensions, or from a list of those."""
    if values is None:
        return None
    plain = values.tolist() if hasattr(values, "tolist") else list(values)
    if plain and hasattr(plain[0], "tolist"):
        plain = [part.tolist() for part in plain]
    rows = plain if plain and isinstance(plain[0], Sequence) else [plain]
    if like is not None and len(rows) != len(like):
        raise InputError(
            f"a batch has {len(like)} rows of input_ids but {len(rows)} of labels or masks; pair them"
        )
    return rows


def _same_length(row: list[int], other: list[int], name: str) -> None:
    if len(row) != len(other):
        raise InputError(f"a row has {len(row)} input_ids but {len(other)} {name}; give one for each token")


def _check_aligned(row: list[int], labels: list[int]) -> None:
    """Raise an InputError for labels that are shifted by one already: read as aligned, they would hide every canary."""
    aligned = all(label in {IGNORED, token} for token, label in zip(row, labels, strict=True))
    taught = [place for place, label in enumerate(labels[:-1]) if label != IGNORED]
    if not aligned and len(taught) > 1 and all(labels[place] == row[place + 1] for place in taught):
        raise InputError(
            "labels are shifted by one against input_ids; give them aligned, as transformers has them"
        )
