"""Results of the survival check, and their file, survival.json: how many copies of each canary reach the loss."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from coalmine.records.documents import Document, Origin, SaidOfCanary
from coalmine.records.estimate import Count

SCHEMA = "coalmine.survival/2"
# How many canaries a message names one by one.
SHOWN = 10


class CanarySurvival(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the copies of one canary; counts are copies among the rows that were read."""

    canary_id: str
    # How many copies should be there: 0 for a withheld canary.
    repetitions: Count
    # Whole in one row, with all tokens of its holes in the loss. The text around the holes is known to everyone.
    reached: Count
    # Whole in one row, with some tokens of its holes in the loss and some not.
    partly: Count = 0
    # Whole in one row, with no token of its holes in the loss.
    masked: Count
    # Begins in one row and ends in the next.
    split: Count
    # Of those that reached the loss: at the start of a row, where the first token is not predicted from anything.
    at_row_start: Count
    # Of those that reached the loss: tokenized differently from what an audit scores: the canary alone, or as the turn that it is.
    other_tokens: Count
    # Of those that reached the loss, for canaries of chat data: not after the header that the chat template writes before their turn.
    other_header: Count = 0
    # Whether the tokenizer changes the planted text, such as to lower case.
    altered: bool
    # Tokens that hold any part of a hole, over all copies that are whole in one row, and how many of them are in the loss.
    hole_tokens: Count = 0
    hole_tokens_in_loss: Count = 0

    @property
    def missing(self) -> int:
        """Copies that were not found whole: cut off, dropped or changed."""
        return max(0, self.repetitions - self.reached - self.partly - self.masked - self.split)

    @property
    def share_in_loss(self) -> float | None:
        """The share of the tokens of its holes that are in the loss; None where no copy is whole in one row."""
        return self.hole_tokens_in_loss / self.hole_tokens if self.hole_tokens else None

    @property
    def lost_in_words(self) -> str:
        """What became of the copies that do not reach the loss."""
        share = 100 * (self.share_in_loss or 0.0)
        partly = (
            f"{self.partly} partly ({share:.0f}% of the secret's tokens are in the loss), "
            if self.partly
            else ""
        )
        return f"{partly}{self.masked} masked, {self.split} split, {self.missing} missing"


class Survival(msgspec.Struct, frozen=True, kw_only=True):
    """What the preprocessing left of the canaries, in the order of the manifest.

    >>> Survival(canaries=[], rows=8, tokens=64, tokens_in_loss=56, warnings=[]).ok
    True
    """

    schema: str = SCHEMA
    canaries: list[CanarySurvival]
    # Packed sequences count one by one.
    rows: Count
    tokens: Count
    tokens_in_loss: Count
    # Rows of the trainer that the training ends before it reads once: with few steps, less than an epoch, or without its last batch.
    rows_unread: Count = 0
    # One sentence each; none of them shows a secret.
    warnings: list[str]
    # The SHA-256 of the manifest that the canaries are from.
    manifest_sha256: str = ""
    # Whose batches were read, such as "SFTTrainer of trl 1.16.0"; empty for batches that were given.
    trainer: str = ""
    # The settings of the trainer that decide which tokens reach the loss.
    settings: dict[str, Any] = {}
    # The SHA-256 of the chat template that canaries of chat data are written with; not there for plain texts. A template that the trainer
    # puts in place of the tokenizer's own is named here only if it writes the canaries' conversations differently.
    chat_template_sha256: str | UnsetType = UNSET

    @property
    def never(self) -> list[str]:
        """The planted canaries whose secret never reaches the loss whole."""
        return [entry.canary_id for entry in self.canaries if entry.repetitions and not entry.reached]

    @property
    def elsewhere(self) -> list[str]:
        """The planted canaries that reach the loss only where the header that the chat template writes is not before them."""
        return [
            entry.canary_id
            for entry in self.canaries
            if entry.repetitions and 0 < entry.reached == entry.other_header
        ]

    @property
    def ok(self) -> bool:
        """Whether each canary reaches the loss as often as it was planted, and no withheld one does."""
        return all(entry.reached == entry.repetitions for entry in self.canaries)

    def __str__(self) -> str:
        """A short summary: one line in all, one per warning, and one for each of the first canaries that lost copies."""
        planted = [entry for entry in self.canaries if entry.repetitions]
        copies = sum(entry.repetitions for entry in planted)
        reached = sum(entry.reached for entry in planted)
        size = f"{self.rows:,} rows, {self.tokens:,} tokens, {self.tokens_in_loss:,} in the loss"
        lines = [
            f"{reached:,} of {copies:,} copies of {len(planted)} planted canaries reach the loss ({size})."
        ]
        lines += [f"- {warning}" for warning in self.warnings]
        lost = [entry for entry in planted if entry.reached < entry.repetitions]
        lines += [
            f"  {entry.canary_id}: {entry.reached} of {entry.repetitions} reach the loss; {entry.lost_in_words}"
            for entry in lost[:SHOWN]
        ]
        lines += [f"  and {len(lost) - SHOWN} more"] if len(lost) > SHOWN else []
        return "\n".join(lines)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write to a file, or as survival.json to a directory; readable by its owner only."""
        place = Path(path)
        return (
            SURVIVALS.save(place, self) if place.is_dir() else SURVIVALS.save(place.parent, self, place.name)
        )


SURVIVALS = Document(
    record=Survival,
    schema=SCHEMA,
    file="survival.json",
    title="survival check",
    by="`coalmine lab survive`, `check_survival`",
    origin=Origin(
        manifests=lambda record: [record.manifest_sha256 or None],
        canaries=lambda record: [
            SaidOfCanary(one.canary_id, repetitions=one.repetitions) for one in record.canaries
        ],
        is_measurement=False,
        follows_manifest=True,
    ),
)
"""survival.json: `run.all(SURVIVALS)` gives the survival checks of a run."""


def read_survival(path: str | os.PathLike[str]) -> Survival:
    """Read the survival.json that `check_survival` or `coalmine lab survive` wrote.

    >>> read_survival("model-audit/survival/survival.json").ok  # doctest: +SKIP
    True
    """
    return SURVIVALS.load(path)
