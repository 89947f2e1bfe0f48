"""What can be chosen about deduplication: `DedupOptions`, filled by `deduplicate` and by `coalmine data dedup`."""

from __future__ import annotations

from typing import Annotated, Literal

from coalmine.corpus.files.documents import Fields
from coalmine.errors import InputError
from coalmine.records.options import GIGABYTE, SEED, Option, Options

Keep = Literal["one", "none"]


class DedupOptions(Options, frozen=True, kw_only=True):
    """What is removed from a corpus as repeated; the same options give the same files.

    Attributes:
        exact: the length in bytes of UTF-8 from which on a text must not occur twice; None to skip this.
        keep: "one" keeps the first copy of repeated text, "none" keeps none.
        near: the Jaccard similarity, over 0 and up to 1, from which on a document is a near duplicate; None to skip this.
        memory: about how many bytes sorting may take. Near duplicates take about 8 bytes per word besides.
        seed: the seed of the hashes that propose near duplicates.
        fields: which fields of a row hold what; .txt has none.

    >>> DedupOptions(near=None).exact
    100
    """

    exact: Annotated[
        int | None,
        Option(
            "Bytes from which on a text must not occur twice.",
            off="Leave repeated text alone.",
        ),
    ] = 100
    keep: Annotated[Keep, Option("Of repeated text keep one, the first copy, or none.")] = "one"
    near: Annotated[
        float | None,
        Option(
            "Similarity from which on a document is a near duplicate, from 0 to 1.",
            off="Leave near duplicates alone.",
        ),
    ] = 0.8
    memory: Annotated[int, Option("What sorting may take, such as 500MB or 2GB.", in_bytes=True)] = (
        2 * GIGABYTE
    )
    seed: Annotated[int, SEED] = 0
    fields: Fields = Fields()

    def __post_init__(self) -> None:
        from coalmine.corpus.deduplication.near_duplicates import rows_in_band
        from coalmine.corpus.index.sorting import LARGEST_SORT

        if self.exact is None and self.near is None:
            raise InputError(
                "nothing to do: neither repeated text nor near duplicates are to be removed; ask for one"
            )
        if self.exact is not None and not 4 <= self.exact <= LARGEST_SORT:
            raise InputError(
                f"the length of repeated text should be from 4 to {LARGEST_SORT:,} bytes, got {self.exact}; 100 is usual"
            )
        if self.keep not in {"one", "none"}:
            raise InputError(f"keep should be 'one' or 'none', got {self.keep!r}")
        if self.near is not None:
            rows_in_band(self.near)  # raises an InputError for what is not a similarity
