"""What can be chosen about an index: `IndexOptions`, filled by `build_index` and by `coalmine data index`."""

from __future__ import annotations

from typing import Annotated, Any

from coalmine.corpus.files.documents import Fields
from coalmine.errors import InputError
from coalmine.records.options import GIGABYTE, Option, Options

BYTES = "bytes"


class IndexOptions(Options, frozen=True, kw_only=True):
    """How a corpus is indexed.

    Attributes:
        tokenizer: "bytes", a model's directory, `python:module:function`, or a model's tokenizer.
        memory: about how many bytes sorting may take; a smaller number makes more shards. A single document is never divided.
        fields: which fields of a row hold what; .txt has none. What is indexed is the text, or the target of a pair.

    >>> IndexOptions().tokenizer
    'bytes'
    """

    tokenizer: Annotated[
        Any,
        Option("A model's directory or python:module:function, to count in its tokens; or the word bytes."),
    ] = BYTES
    memory: Annotated[
        int,
        Option("What sorting may take, such as 500MB or 2GB; less makes more shards.", in_bytes=True),
    ] = 2 * GIGABYTE
    fields: Fields = Fields()

    def __post_init__(self) -> None:
        if self.memory < 1:
            raise InputError(
                f"memory should be a number of bytes above 0, got {self.memory}; give at least some millions"
            )
