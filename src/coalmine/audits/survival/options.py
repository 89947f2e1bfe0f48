"""The settings of an SFTTrainer that decide which tokens reach the loss."""

from __future__ import annotations

from typing import Annotated

from coalmine.audits.options import Option, Options


class SftSettings(Options, frozen=True, kw_only=True):
    """The settings of TRL's SFTTrainer that decide which tokens reach the loss, by TRL's own names and with its defaults.

    Attributes:
        max_length: how many tokens of a row are kept; 0 for all.
        truncation_mode: which end of a longer row is kept: "keep_start" or "keep_end".
        packing: whether several rows share one.
        packing_strategy: "bfd" (longer rows lose their end), "bfd_split" (longer rows go on in another) or "wrapped" (a stream).
        padding_free: whether the rows of a batch are joined instead of padded.
        assistant_only_loss: whether only turns of the assistant are in the loss.
        completion_only_loss: whether only completions are; None where rows of prompt and completion decide.
        dataset_text_field: the field of rows that are texts.
        chat_template_path: a template in place of the tokenizer's own.

    >>> SftSettings(packing=True).packing_strategy
    'bfd'
    """

    max_length: Annotated[int, Option("How many tokens of a row are kept; 0 for all.", least=0)] = 1024
    truncation_mode: Annotated[str, Option("Which end of a longer row is kept: keep_start or keep_end.")] = (
        "keep_start"
    )
    packing: Annotated[bool, Option("Several rows share one.")] = False
    packing_strategy: Annotated[
        str,
        Option(
            "bfd (longer rows lose their end), bfd_split (they go on in another row) or wrapped (a stream)."
        ),
    ] = "bfd"
    padding_free: Annotated[bool, Option("The rows of a batch are joined instead of padded.")] = False
    assistant_only_loss: Annotated[bool, Option("Only turns of the assistant are in the loss.")] = False
    completion_only_loss: Annotated[
        bool | None,
        Option("Only completions are in the loss; TRL's default for rows of prompt and completion."),
    ] = None
    dataset_text_field: Annotated[str, Option("Which field holds the text, for rows that are texts.")] = (
        "text"
    )
    chat_template_path: Annotated[
        str | None, Option("A file with a chat template (.jinja), in place of the tokenizer's own.")
    ] = None
