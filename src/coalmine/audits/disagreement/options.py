"""The options of `crosscheck`."""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from coalmine.audits.options import SEED, Option, Options
from coalmine.corpus.files.documents import Fields
from coalmine.errors import InputError

Together = Literal["document", "text", "user"]


class CrosscheckOptions(Options, frozen=True, kw_only=True):
    """How documents are divided between the two models, and which are flagged; `settings` in crosscheck.json.

    A document is judged by the largest share of the other model's log-perplexity over `span` consecutive tokens that its own model is
    spared. None is flagged that does not disagree beyond chance at the false-discovery rate `fdr`.

    >>> CrosscheckOptions(span=8).share
    0.01
    """

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

        self._require(
            self.together in get_args(Together), "together", f"one of {', '.join(get_args(Together))}"
        )
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
