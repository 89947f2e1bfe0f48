"""The options of `extract`."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from coalmine.audits.options import MEMORY, SEARCH_MEMORY, Option, Options
from coalmine.errors import InputError

Method = Literal["search", "brute", "prompt"]
METHODS: tuple[Method, ...] = get_args(Method)


class ExtractionOptions(Options, frozen=True, kw_only=True):
    """How secrets are searched for.

    Attributes:
        top: how many of the least surprising members to find.
        method: "search" (best-first, proven unless `budget` expansions are spent first), "brute" (scores every member by itself), or
            "prompt" (give the model the beginning and read what it writes, all that a model that gives only text can be asked).
        prompts: for the prompt method, what users may write: in a chat the turn before the assistant's, elsewhere a text in place of the
            format's beginning. Without any, the model is asked once, as the canaries were planted.
        given: a beginning that is known already, such as the first digits of a number.
        budget: expansions that "search" may spend.
        memory: bytes of model states that a search may hold.

    >>> ExtractionOptions(top=3).method
    'search'
    """

    top: Annotated[int, Option("How many of the least surprising members to find.")] = 10
    method: Annotated[Method, Option("search (proves its answer), brute (small spaces) or prompt.")] = (
        "search"
    )
    prompts: tuple[str, ...] = ()
    given: Annotated[str, Option("A beginning of the secret that is known already.")] = ""
    budget: Annotated[int, Option("Expansions that `search` may spend.")] = 1_000_000
    memory: Annotated[int, SEARCH_MEMORY] = MEMORY

    def check(self) -> None:
        """Reject values that cannot be searched with."""
        if self.method not in METHODS:
            raise InputError(f"unknown method {self.method!r}: known are {', '.join(METHODS)}")
        if self.prompts and self.method != "prompt":
            raise InputError("prompts are for the prompt method; use --method prompt")
        if min(self.top, self.budget) < 1:
            raise InputError(f"top and budget must be at least 1, got {self.top} and {self.budget}")
