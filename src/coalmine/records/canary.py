"""`Canary`: one member of a secret space, planted or withheld."""

from __future__ import annotations

import msgspec


class Canary(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a secret space, drawn at random, and planted or withheld by a coin.

    `repetitions` is how often it is planted in the corpus if the coin says so, which `planted` records. A withheld canary was drawn
    in the same way and has the number of copies that it was meant to have; `times_trained_on` is 0 for it. Where the planted
    corpus was rewritten, as by deduplication, `counted` is how many copies are left in it; the coin and the plan stay what they were.

    A secret that was found in the data is a canary too: `natural` is True, `kind` says what it is, and `repetitions` is how often it
    was found. Its text is that of the document: some context, and the secret.

    >>> canary = Canary(canary_id="f0-x4-0", format_id="f0", text="my pin is 4921", repetitions=4, planted=False)
    >>> canary.times_trained_on
    0
    """

    canary_id: str
    format_id: str
    text: str
    repetitions: int
    planted: bool
    # The source side of a translation pair; it shares its filling with `text`, which is the target side.
    source: str | None = None
    counted: int | msgspec.UnsetType = msgspec.UNSET
    # Of a secret that was in the data all along, and that nobody planted: what it is, such as "phone", and whose text it is in.
    natural: bool | msgspec.UnsetType = msgspec.UNSET
    kind: str | msgspec.UnsetType = msgspec.UNSET
    user: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def times_trained_on(self) -> int:
        """How often this canary occurs in the training data."""
        if self.counted is not msgspec.UNSET:
            return self.counted
        return self.repetitions if self.planted else 0
