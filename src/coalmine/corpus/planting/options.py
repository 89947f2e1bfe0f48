"""What can be chosen about planting and importing canaries: `PlantOptions` and `ImportOptions`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args

import msgspec

from coalmine.corpus.files.documents import Fields
from coalmine.errors import InputError
from coalmine.records.chat import Role
from coalmine.records.options import SEED, Option, Options

# What every reader of JSON keeps of an integer.
_LARGEST_SEED = 2**53


class PlantOptions(Options, frozen=True, kw_only=True):
    """What decides which canaries are planted, how often and where; the same options give the same files.

    If all canaries are remembered, the default of 32 coins per number of copies proves an epsilon of 1.25 on average,
    between 0.36 and 1.96 depending on how the coins fall (24 coins may prove nothing); 1,000 references are the fewest that
    can show a true-positive rate at a false-positive rate of 0.1%.

    Attributes:
        repeat: how often a canary is planted; each number gets canaries of its own.
        canaries: canaries per format and per number in `repeat`.
        references: members of each format that are drawn as well and never planted.
        withhold: the probability with which a canary is left out, by a coin of its own: what was left out is what the
            planted ones are compared with. With 0, one training run can show nothing about epsilon.
        unseen: how many characters or tokens `{unseen:n}` draws from, if so many never occur in the corpus.
        unseen_from: where these come from: the directory of a model or tokenizer, whose tokens are used; None takes characters that
            never occur in the corpus.
        role: in chat data, whose turn a canary is: "assistant", "user" or "system"; None means the assistant's.
        turn: in chat data, whether each copy is the turn of a conversation of its "own", or goes "inside" a turn of that role that is
            there already, at its beginning.
        beside: in chat data, the text of the other turn of a conversation of its own; None takes one that says nothing.
        seed: the seed of all draws.
        fields: which fields of a row hold what; .txt has none.

    >>> PlantOptions(repeat=4, canaries=1).repeat
    (4,)
    """

    repeat: Annotated[tuple[int, ...], Option("How often canaries are planted: one number or several.")] = (
        1,
        4,
        16,
    )
    canaries: Annotated[int, Option("Canaries per format and per number in --repeat.")] = 32
    references: Annotated[int, Option("Members of each format to draw and never plant.")] = 1000
    withhold: Annotated[
        float, Option("Probability that a canary is not planted, decided by its own coin.")
    ] = 0.5
    unseen: Annotated[
        int, Option("For {unseen:n}: how many characters or tokens to draw from, at most.", least=2)
    ] = 256
    unseen_from: Annotated[
        str | None,
        Option(
            "For {unseen:n}: a model's or tokenizer's directory, whose tokens to use; default: characters."
        ),
    ] = None
    role: Annotated[
        Role | None, Option("For chat data: whose turn a canary is: assistant (the default), user or system.")
    ] = None
    turn: Annotated[
        Literal["own", "inside"],
        Option(
            "For chat data: own, a turn of a conversation of its own, or inside, in a turn that is there."
        ),
    ] = "own"
    beside: Annotated[str | None, Option("For chat data: the text of the other turn beside a canary.")] = None
    seed: Annotated[int, SEED] = 0
    fields: Fields = Fields()

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "repeat", _checked_repeat(self.repeat))
        for name, choices in (("role", (None, *get_args(Role))), ("turn", ("own", "inside"))):
            value = getattr(self, name)
            if value not in choices:
                known = ", ".join(choice for choice in choices if choice is not None)
                raise InputError(f"{name} should be one of {known}, but is {value!r}; give one of them")
        for name, least in (("canaries", 1), ("references", 0), ("unseen", 2)):
            count = getattr(self, name)
            if count < least:
                raise InputError(f"{name} should be at least {least}, but is {count}; give a larger number")
        if not 0.0 <= self.withhold <= 1.0:
            raise InputError(f"withhold is a probability, but is {self.withhold}; give a number from 0 to 1")
        if self.withhold == 1.0:
            raise InputError(
                "withhold is 1, which leaves every canary out, so that nothing would be planted; give 0.5, which compares as many "
                "planted canaries as withheld ones"
            )
        if not 0 <= self.seed <= _LARGEST_SEED:
            raise InputError(
                f"the seed should be an integer from 0 to 2**53, but is {self.seed}; give another"
            )


class ImportOptions(Options, frozen=True, kw_only=True):
    """What a file of another tool does not say about its canaries.

    Attributes:
        format: the format that all texts are members of, a `Format` or its template, if they were drawn from one.
        withhold: the probability with which a coin left a canary out, where the file does not say so. Without a coin, one
            training run shows nothing about epsilon.

    >>> ImportOptions(format="my pin is {digits:4}", withhold=0.5).withhold
    0.5
    """

    format: Any = None
    withhold: Annotated[
        float | None,
        Option("Probability with which a coin left a canary out, if FILE does not say so."),
    ] = None

    def __post_init__(self) -> None:
        if self.withhold is not None and not 0.0 <= self.withhold < 1.0:
            raise InputError(
                f"withhold is a probability below 1, but is {self.withhold}; give the probability of the coin"
            )


def _checked_repeat(repeat: int | Sequence[int]) -> tuple[int, ...]:
    counts: list[int] = (
        [repeat] if isinstance(repeat, int) else [*repeat] if isinstance(repeat, Sequence) else []
    )
    if (
        not counts
        or any(not isinstance(count, int) for count in counts)
        or min(counts) < 1
        or len(set(counts)) < len(counts)
    ):
        raise InputError(
            f"repeat should be different whole numbers of at least 1, but is {repeat!r}; give some such as [1, 4, 16]"
        )
    return tuple(counts)
