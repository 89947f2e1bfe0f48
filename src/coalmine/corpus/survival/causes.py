"""What removes copies of canaries before they reach the loss: the causes, and how many copies each one explains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

Cause = Literal[
    "not_in_data",
    "not_given",
    "template",
    "preprocessing",
    "assistant_only_loss",
    "completion_only_loss",
    "labels",
    "truncation",
    "packing",
    "packing_split",
    "collator",
    "unknown",
]
CAUSES: tuple[Cause, ...] = get_args(Cause)
# Each after a number of copies.
IN_WORDS: Mapping[Cause, str] = {
    "not_in_data": "not in the data",
    "not_given": "not among the rows of the trainer, which was given other data",
    "template": "dropped or changed by the chat template",
    "preprocessing": "lost in preprocessing, before the trainer was given its rows",
    "assistant_only_loss": "left out by assistant_only_loss",
    "completion_only_loss": "left out by completion_only_loss",
    "labels": "left out by the labels of their rows",
    "truncation": "cut off at max_length",
    "packing": "cut off by packing, which drops what exceeds max_length",
    "packing_split": "split over two rows by packing",
    "collator": "left out by the data collator",
    "unknown": "lost for a reason that cannot be told",
}


class LossTally(NamedTuple):
    """How many copies of one canary there are at one stage: with all of its secret in the loss, with a part, and with nothing."""

    reached: int = 0
    partly: int = 0
    masked: int = 0

    @property
    def whole(self) -> int:
        """Copies that are complete in one row."""
        return self.reached + self.partly + self.masked

    @property
    def left_out(self) -> int:
        """Copies that are complete in one row and not, or not completely, in the loss."""
        return self.partly + self.masked


class Stages(NamedTuple):
    """One canary on its way from the data to the loss; None for a stage that nothing is known about."""

    # Copies that should be there.
    planted: int
    # In the texts of the data that the trainer should have been given.
    in_data: int | None = None
    # In the texts that the trainer keeps beside its rows, which are those that it was given, without the rows that it dropped.
    kept: int | None = None
    # Of those in the data: in rows that the trainer drops when it cuts them, because nothing of them is left in the loss.
    dropped: int = 0
    # In the trainer's own rows of the texts that it keeps, or else of the data, before anything is cut off, and after that.
    uncut: LossTally | None = None
    cut: LossTally | None = None
    # In the rows that the trainer will train on, as they are and as its collator makes batches of them.
    found: LossTally = LossTally()
    collated: LossTally = LossTally()


class Settings(NamedTuple):
    """The settings of a trainer that can remove a copy."""

    assistant_only: bool = False
    completion_only: bool = False
    # What removes a copy where rows are cut to a length.
    cutting: Cause = "truncation"
    # Whether the trainer makes its rows from texts, and whether it writes them with a chat template.
    prepares: bool = False
    templated: bool = False


def removed(stages: Stages, settings: Settings) -> dict[Cause, int]:
    """How many copies each cause removed, by what is there before and after it; what nothing explains is "unknown".

    >>> removed(Stages(4, in_data=4, uncut=LossTally(4), cut=LossTally(1), found=LossTally(1), collated=LossTally(1)), Settings())
    {'truncation': 3}
    """
    claims = _claims(stages, settings)
    claims["collator"] = stages.found.reached - stages.collated.reached
    left = stages.planted - stages.collated.reached
    explained: dict[Cause, int] = {}
    for cause in CAUSES:
        copies = min(max(0, claims.get(cause, 0)), left)
        if copies > 0:
            explained[cause] = copies
            left -= copies
    if left > 0:
        explained["unknown"] = left
    return explained


def _claims(stages: Stages, settings: Settings) -> dict[Cause, int]:
    """How many copies are lost from each stage to the next, as far as both are known."""
    claims: dict[Cause, int] = {}
    in_data, uncut, cut, found = stages.in_data, stages.uncut, stages.cut, stages.found
    if in_data is not None:
        claims["not_in_data"] = stages.planted - in_data
    if uncut is None or cut is None:
        if in_data is not None and not settings.prepares:
            claims["preprocessing"] = in_data - found.whole
        return {**claims, **_left_out(found.left_out, settings)}
    before = in_data if stages.kept is None else stages.kept
    if before is not None:
        claims["template" if settings.templated else "preprocessing"] = before - uncut.whole
    cut_off, absent = uncut.reached - cut.reached, 0
    if stages.kept is not None and in_data is not None:
        # Rows of the data that the trainer does not have: it dropped them, or was never given them.
        gone = max(0, in_data - stages.kept)
        claims["not_given"] = gone - min(gone, stages.dropped)
        cut_off += min(gone, stages.dropped)
    elif in_data is not None:
        # Copies that the trainer's own preparation of the data keeps, and that it does not have.
        absent = max(0, cut.left_out - found.left_out)
        claims["not_given"] = max(0, cut.reached - found.reached) + absent
    claims[settings.cutting] = cut_off
    return {**claims, **_left_out(uncut.left_out - absent, settings)}


def _left_out(copies: int, settings: Settings) -> dict[Cause, int]:
    """What left copies out of the loss; where two settings could have, only the labels of the rows are to be seen."""
    if settings.assistant_only == settings.completion_only:
        return {"labels": copies}
    return {"assistant_only_loss" if settings.assistant_only else "completion_only_loss": copies}


def in_words(causes: Mapping[Cause, int]) -> str:
    """Causes with their numbers of copies, in a phrase.

    >>> in_words({"truncation": 3, "collator": 1})
    '3 cut off at max_length, 1 left out by the data collator'
    """
    return ", ".join(f"{causes[cause]:,} {IN_WORDS[cause]}" for cause in CAUSES if causes.get(cause))
