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
        fdr: the most of the flagged documents that may be there by chance, in expectation: none is flagged that does not disagree beyond
            chance at this false-discovery rate.

    >>> CrosscheckOptions(statistic="mean").share
    0.01
    """

    statistic: StatisticName = "share"
    span: Annotated[int, Option("Tokens over which the models are compared.", decides=True)] = 16
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
            self._require(getattr(self, name) in get_args(kind), name, f"one of {', '.join(get_args(kind))}")
        checked_count(self.span, "span")
        checked_fdr(self.fdr)
        self._require(0.0 < self.share <= 1.0, "share", "above 0 and at most 1")

    def checked(self) -> Self:
        """The same, once it is whole: users are told apart by a field, which the command knows later than the other options."""
        if self.together == "user" and self.fields.user is None:
            raise InputError(
                "documents of a user are kept together by the field that names the user; name it, or keep equal texts together"
            )
        return self
