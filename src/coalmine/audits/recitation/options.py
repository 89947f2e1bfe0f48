"""The options of `recite`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

import msgspec

from coalmine.audits.options import SEED, Option, Options
from coalmine.errors import InputError

SampleKind = Literal["normalized", "uniform"]
# Beyond this, a float does not hold every whole number.
MOST_TRIES = 2**53
# With a vocabulary of bytes, half as many take all of the memory that a beam may have.
MOST_BEAMS = 1_000_000


class RecitationOptions(Options, frozen=True, kw_only=True):
    """What models are asked to recite; `settings` in recitation.json, which has what was left open as it was decided.

    Attributes:
        suffix: how many tokens must come out.
        contexts: how many tokens are given before the suffix. Without `lengths`, each is tried on sequences of its own length. None
            takes the usual ones that the models can read; models that fill gaps have none.
        lengths: of the sequences, in tokens; each context is then tried on all that are long enough, so that one long length compares
            contexts on the same suffixes.
        sample: "normalized" draws up to `per_bucket` sequences of every length and number of copies; "uniform" draws `per_bucket`
            places of each length.
        per_bucket: see `sample`.
        max_sequences: the most sequences in all.
        temperature: of drawing tokens, for the probability that a suffix comes out by sampling.
        top_k: draw only from this many of the likeliest tokens.
        tries: a suffix counts as found in n tries where it comes out at least once with probability `chance`.
        chance: see `tries`.
        greedy_only: only the greedy verdict, which stops reading a suffix at its first miss.
        beam: also whether beam search of this width writes the suffix.
        anywhere: also whether prompt and output occur together anywhere in the corpus.
        near: also whether the output is within this many insertions, deletions and replacements of tokens of the suffix.
        hidden_share: for masked models, which are given whole sequences with this share of tokens hidden.
        confidence: the level of all intervals, between 0 and 1.
        seed: of the sample.

    >>> RecitationOptions(contexts=(50, 100), per_bucket=200).suffix
    50
    """

    suffix: Annotated[int, Option("Tokens that must come out.")] = 50
    contexts: Annotated[tuple[int, ...] | None, Option("Tokens that are given, such as 50,100.")] = None
    lengths: Annotated[
        tuple[int, ...] | None,
        Option("Tokens of the sequences; one long length compares contexts on the same suffixes."),
    ] = None
    sample: Annotated[str, Option("normalized (as many of each number of copies) or uniform.")] = "normalized"
    per_bucket: Annotated[int, Option("Sequences of each length and number of copies, at most.")] = (
        msgspec.field(default=1000, name="each")
    )
    max_sequences: Annotated[int | None, Option("Sequences in all, at most.")] = msgspec.field(
        default=None, name="most"
    )
    temperature: Annotated[
        float, Option("Of sampling; greedy decoding is measured anyway.", decides=True)
    ] = 1.0
    top_k: Annotated[
        int | None, Option("Sample only from this many of the likeliest tokens.", decides=True)
    ] = None
    tries: Annotated[tuple[int, ...], Option("In how many tries a sampled suffix should come out.")] = (
        1,
        100,
        10_000,
    )
    chance: Annotated[float, Option("With which probability it should, at least.")] = 0.5
    greedy_only: Annotated[
        bool, Option("No sampling: stop reading a suffix at its first miss.", decides=True)
    ] = False
    beam: Annotated[int | None, Option("Also by beam search of this width (slow).", decides=True)] = None
    anywhere: Annotated[
        bool, Option("Also count outputs that follow their prompt anywhere in the corpus.")
    ] = False
    near: Annotated[int | None, Option("Also count outputs within this many edits of the suffix.")] = None
    hidden_share: Annotated[
        float | None, Option("For masked models: the share of tokens that is hidden.", decides=True)
    ] = 0.15
    confidence: float = 0.95
    seed: Annotated[int, SEED] = 0

    @property
    def writes(self) -> bool:
        """Whether what a model writes where it does not recite is looked at."""
        return self.anywhere or self.near is not None

    def deciding(self) -> dict[str, Any]:
        """What models are asked, and not how their answers are counted."""
        return {**super().deciding(), "writes": self.writes}

    def check(self) -> None:
        """Reject values that nothing can be asked with; `hidden_share` is a number until the models are known."""
        sizes = {"contexts": self.contexts, "lengths": self.lengths}
        most = {} if self.max_sequences is None else {"max_sequences": (self.max_sequences,)}
        for name, values in (sizes | most | {"suffix": (self.suffix,)}).items():
            if values is not None and (not values or min(values) < 1):
                raise InputError(f"{name} must be at least 1, got {', '.join(map(str, values)) or 'nothing'}")
        if self.sample not in get_args(SampleKind):
            raise InputError(f"a sample is {' or '.join(get_args(SampleKind))}, got {self.sample!r}")
        if self.hidden_share is None or not 0 < self.hidden_share < 1:
            raise InputError(
                f"the share of hidden tokens must be above 0 and below 1, got {self.hidden_share}; 0.15 is usual"
            )
        if any(not 1 <= one <= MOST_TRIES for one in self.tries):
            raise InputError(f"tries must be from 1 to 2^53, got {list(self.tries)}; 100 is usual")
        if not 0 < self.chance < 1:
            raise InputError(f"chance must be above 0 and below 1, got {self.chance}; 0.5 is usual")
        if self.beam is not None and not 1 <= self.beam <= MOST_BEAMS:
            raise InputError(f"a beam must be from 1 to {MOST_BEAMS:,} wide, got {self.beam:,}; 100 is wide")
        if self.near is not None and not 0 <= self.near < self.suffix:
            raise InputError(
                f"near must be a number of edits from 0 to {self.suffix - 1}, got {self.near}: more make any output into the suffix"
            )
