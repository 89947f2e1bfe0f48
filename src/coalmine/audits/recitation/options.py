"""The options of `recite`."""

from __future__ import annotations

from typing import Annotated

from coalmine.audits.options import SEED, Option, Options

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
        hidden_share: for masked models, which are given whole sequences with this share of tokens hidden.
        confidence: the level of all intervals, between 0 and 1.
        seed: of the sample.

    >>> RecitationOptions(contexts=(50, 100), per_bucket=200).suffix
    50
    """

    suffix: Annotated[int, Option("Tokens that must come out.")] = 50
    contexts: Annotated[tuple[int, ...] | None, Option("Tokens that are given, such as 50,100.")] = None
    lengths: Annotated[tuple[int, ...] | None, Option("Tokens of the sequences, for all contexts.")] = None
    sample: Annotated[str, Option("normalized (as many of each number of copies) or uniform.")] = "normalized"
    per_bucket: Annotated[int, Option("Sequences of each length and number of copies, at most.")] = 1000
    max_sequences: Annotated[int | None, Option("Sequences in all, at most.")] = None
    temperature: Annotated[float, Option("Of sampling.", decides=True)] = 1.0
    top_k: Annotated[int | None, Option("Sample from this many of the likeliest tokens.", decides=True)] = (
        None
    )
    tries: Annotated[tuple[int, ...], Option("Tries in which a suffix should be sampled.")] = (1, 100, 10_000)
    chance: Annotated[float, Option("With which probability it should, at least.")] = 0.5
    greedy_only: Annotated[bool, Option("No sampling: stop at the first miss.", decides=True)] = False
    beam: Annotated[int | None, Option("Also by beam search of this width (slow).", decides=True)] = None
    anywhere: Annotated[
        bool, Option("Also outputs that follow their prompt anywhere in the corpus.", decides=True)
    ] = False
    hidden_share: Annotated[float | None, Option("Share of tokens that is hidden.", decides=True)] = 0.15
    confidence: float = 0.95
    seed: Annotated[int, SEED] = 0

    def check(self) -> None:
        """Reject values that nothing can be asked with; `hidden_share` is a number until the models are known."""
        for name in ("contexts", "lengths"):
            sizes = getattr(self, name)
            self._require(sizes is None or min(sizes, default=0) >= 1, name, "at least 1", 50)
        most = self.max_sequences
        self._require(self.suffix >= 1, "suffix", "at least 1")
        self._require(most is None or most >= 1, "max_sequences", "at least 1", 1000)
        self._require(self.sample in {"normalized", "uniform"}, "sample", "normalized or uniform")
        share = self.hidden_share
        self._require(share is not None and 0 < share < 1, "hidden_share", "above 0 and below 1")
        in_range = all(1 <= one <= MOST_TRIES for one in self.tries)
        self._require(in_range, "tries", "from 1 to 2^53", 100)
        self._require(0 < self.chance < 1, "chance", "above 0 and below 1")
        beam = self.beam
        self._require(beam is None or 1 <= beam <= MOST_BEAMS, "beam", f"from 1 to {MOST_BEAMS}", 100)
