"""`exposure-during-training.json`: what a callback saw during a training."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from coalmine.records.documents import Document, Origin
from coalmine.records.watching import Moment, manifests_of_watch, said_of_canaries

SCHEMA = "coalmine.watched/1"


class WatchedTraining(msgspec.Struct, frozen=True, kw_only=True):
    """Exposure during a training."""

    schema: str = SCHEMA
    # What was watched, as `ExposureWatch.describe` returns it.
    watch: dict[str, Any]
    trainer: str = "coalmine train"
    watched: list[Moment]
    # The template of each format, by its id.
    formats: dict[str, str] = {}
    # The SHA-256 of the chat template that canaries of chat data were scored in; not there for plain texts.
    chat_template_sha256: str | msgspec.UnsetType = msgspec.UNSET


WATCHES = Document(
    record=WatchedTraining,
    schema=SCHEMA,
    file="exposure-during-training.json",
    title="exposure during training",
    by="the callbacks",
    origin=Origin(
        manifests=lambda record: manifests_of_watch(record.watch),
        canaries=lambda record: said_of_canaries(record.watched),
        is_measurement=False,
    ),
)
"""exposure-during-training.json: `run.all(WATCHES)` gives what callbacks saw during training."""


def read_watched(path: str | os.PathLike[str]) -> WatchedTraining:
    """Read the exposure-during-training.json that a callback wrote; exposures are in bits.

    >>> [moment.step for moment in read_watched("model-audit/watching/exposure-during-training.json").watched]  # doctest: +SKIP
    [0, 100, 200]
    """
    return WATCHES.alone(path)
