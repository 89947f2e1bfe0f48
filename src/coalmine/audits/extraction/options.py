"""The options of `extract`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from coalmine.audits.options import MEMORY, SEARCH_MEMORY, Option, Options
from coalmine.errors import InputError
from coalmine.records.chat import Role

Method = Literal["search", "brute", "beam", "greedy", "prompt"]
METHODS: tuple[Method, ...] = get_args(Method)


class ExtractionOptions(Options, frozen=True, kw_only=True):
    """How secrets are searched for.

    Attributes:
        top: how many of the least surprising members to find.
        method: "search" (best-first, proven unless `budget` expansions are spent first), "brute" (every member of a small space),
            "beam" (`width` nodes per level), "greedy", or "prompt" (give the model the beginning and read what it writes, all that a
            model that gives only text can be asked).
        prompts: for the prompt method, what users may write: in a chat the turn before the assistant's, elsewhere a text in place of the
            format's beginning. Without any, the model is asked once, as the canaries were planted.
        given: a beginning that is known already, such as the first digits of a number.
        role: for a model with a chat template, whose turn the secret is: "assistant", "user" or "system"; None means the assistant's. A
            model that was loaded with a `context` is asked about plain text.
        turn: for a model with a chat template, whether the secret is the turn of a conversation of its "own", or "inside" another turn.
        beside: for a model with a chat template, the text of the other turn; None takes the one that `plant` takes.
        width: nodes that "beam" follows at each depth.
        budget: expansions that "search" may spend.
        memory: bytes of model states that a search may hold.

    >>> ExtractionOptions(top=3).method
    'search'
    """

    top: Annotated[int, Option("How many of the least surprising members to find.", decides=True)] = 10
    method: Annotated[
        Method, Option("search (proves its answer), brute (small spaces), beam, greedy or prompt.")
    ] = "search"
    prompts: tuple[str, ...] = ()
    given: Annotated[str, Option("A beginning of the secret that is known already.", decides=True)] = ""
    role: Annotated[
        Role | None,
        Option("For a chat model: whose turn the secret is: assistant (the default), user or system."),
    ] = None
    turn: Annotated[
        Literal["own", "inside"],
        Option("For a chat model: own, a turn of a conversation of its own, or inside another turn."),
    ] = "own"
    beside: Annotated[
        str | None, Option("For a chat model: the text of the other turn beside the secret.")
    ] = None
    width: Annotated[int, Option("Nodes that `beam` follows at each depth.")] = 100
    budget: Annotated[int, Option("Expansions that `search` may spend.")] = 1_000_000
    memory: Annotated[int, SEARCH_MEMORY] = MEMORY

    def deciding(self) -> dict[str, Any]:
        """What is searched for, and how it is asked for."""
        return {**super().deciding(), **({"prompts": self.prompts} if self.prompts else {})}

    @property
    def places(self) -> bool:
        """Whether they say where in a conversation the secret is."""
        return (self.role, self.turn, self.beside) != (None, "own", None)

    def check(self) -> None:
        """Reject values that cannot be searched with."""
        for name, choices in (("role", (None, *get_args(Role))), ("turn", ("own", "inside"))):
            if getattr(self, name) not in choices:
                known = ", ".join(choice for choice in choices if choice is not None)
                raise InputError(
                    f"{name} should be one of {known}, but is {getattr(self, name)!r}; give one of them"
                )
        if self.prompts and self.method != "prompt":
            raise InputError(
                f"prompts are for the prompt method, and the method is {self.method}; use --method prompt"
            )
        if self.method not in METHODS:
            raise InputError(f"unknown method {self.method!r}: known are {', '.join(METHODS)}")
        for name in ("top", "width", "budget"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")
