"""The options of `crosscheck`."""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from coalmine.audits.options import SEED, Option, Options
from coalmine.corpus.files.documents import Fields
from coalmine.errors import InputError

StatisticName = Literal["share", "span", "mean", "total"]
Together = Literal["document", "text", "user"]


class CrosscheckOptions(Options, frozen=True, kw_only=True):
    """How documents are divided between the two models, and on which the models disagree; `settings` in crosscheck.json.

    Attributes:
        statistic: by what a document is judged. "share" is the largest share of the other model's log-perplexity over `span` consecutive
            tokens that a model is spared; "span" is the largest difference of the two over as many tokens, in bits; "mean" is the
            difference for a whole document in bits per character, and "total" the same in bits.
        span: see `statistic`; in tokens.
        share: the most documents that are flagged, as a share of all.
        fdr: the most of the flagged documents that may be there by chance, in expectation: none is flagged that does not disagree beyond
            chance at this false-discovery rate.
        together: what is never divided between the halves: a "document", all documents with the same "text", or all of a "user".
        seed: of the halves, the weights and the order of documents.
        fields: which fields of a row hold what; .txt has none.

    >>> CrosscheckOptions(statistic="mean").share
    0.01
    """

    statistic: Annotated[
        StatisticName,
        Option(
            "share: the largest share of bits that one model is spared over a span; span: the most bits; mean: bits per character of a "
            "document; total: all bits of it."
        ),
    ] = "share"
    span: Annotated[int, Option("Tokens of a span.", decides=True)] = 16
    share: Annotated[float, Option("The most documents that are flagged, as a share of all.")] = 0.01
    fdr: Annotated[float, Option("The most of them that may disagree by chance, as a share.")] = 0.1
    together: Annotated[
        Together,
        Option(
            "What is never divided between the halves: a document, equal documents (text), or those of a user.",
            decides=True,
        ),
    ] = "document"
    seed: Annotated[int, SEED] = 0
    fields: Fields = Fields()

    def __post_init__(self) -> None:
        from coalmine.statistics.scores import checked_count, checked_fdr

        for name, kind in (("statistic", StatisticName), ("together", Together)):
            if getattr(self, name) not in get_args(kind):
                raise InputError(
                    f"{name} should be one of {', '.join(get_args(kind))}, got {getattr(self, name)!r}"
                )
        checked_count(self.span, "span")
        checked_fdr(self.fdr)
        if not 0.0 < self.share <= 1.0:
            raise InputError(f"share must be above 0 and at most 1, got {self.share}; use for example 0.01")

    def checked(self) -> Self:
        """The same, once it is whole: users are told apart by a field, which the command knows later than the other options."""
        if self.together == "user" and self.fields.user is None:
            raise InputError(
                "documents of a user are kept together by the field that names the user; name it, or keep equal texts together"
            )
        return self
