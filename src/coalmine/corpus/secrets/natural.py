"""`NaturalSecret`: a secret that was found in a corpus or in a table of records; and what can be chosen about auditing it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from coalmine.errors import InputError
from coalmine.records.options import SEED, Option, Options

# What a scan keeps of the text before a secret, in characters: more than anyone needs.
MOST_CONTEXT = 512


class NaturalSecret(msgspec.Struct, frozen=True, kw_only=True):
    """One secret, however often it occurs. It is as secret as what it is about: it goes only into files that are readable by you.

    Attributes:
        kind: the name of its kind, such as "phone".
        text: the secret as one document has it.
        before: what comes before it in that document, which is the first that has it.
        copies: how often it occurs in the corpus, in any spelling; 0 if the corpus was searched and it is not there.
        user: whose text it is in; None where that is not known.
        template: the template of the format that it was found by, for a kind that the user gave.
        whole: whether all of `before` is needed, because it is a sentence of the user's and not that of a document.
    """

    kind: str
    text: str
    before: str
    copies: int = 1
    user: str | None = None
    template: str | None = None
    whole: bool = False


class NaturalOptions(Options, frozen=True, kw_only=True):
    """How secrets that were found are made into canaries.

    Attributes:
        context: how many characters before a secret, at most, are given to the model; fewer where its document begins, and where the
            secret could be copied from them.
        most: secrets that are made into canaries, the most sensitive and then the most repeated first.
        references: other members of its kind, in the same context, that do not occur in the corpus.
        seed: the seed of all draws.

    >>> NaturalOptions(context=0).context
    0
    """

    context: Annotated[
        int, Option("Characters before a secret that the model is given, at most.", least=0)
    ] = 64
    most: Annotated[
        int,
        Option("Secrets that are made into canaries, the most sensitive and most repeated first.", least=1),
    ] = 1000
    references: Annotated[
        int, Option("Members of its kind that each secret is compared with, in its context.", least=1)
    ] = 100
    seed: Annotated[int, SEED] = 0

    def __post_init__(self) -> None:
        if not 0 <= self.context <= MOST_CONTEXT:
            raise InputError(
                f"the context should have 0 to {MOST_CONTEXT} characters, but has {self.context}; give another"
            )
        if self.references < 1:
            raise InputError(
                f"each secret needs at least 1 reference, but {self.references} were asked for; give more"
            )
