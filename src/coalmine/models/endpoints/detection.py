"""How likely a switch of models would have gone unnoticed, from how often the server's identity was tested.

There are two kinds of temporary switches. In a row: some consecutive answers come from another model. It is unnoticed if no probe was
among them and none of them was asked again. Scattered: each request reaches another model with the same probability, as with a load
balancer. A probe that reaches it shows it, and a question that is asked twice shows it if the two answers come from different models.
Both assume that the two models differ in whatever is compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

# The share of answers for which the probability is recorded.
SHARE = 0.05


class Stretch(NamedTuple):
    """The answers between two probes, the size of their window, how many of it were asked again, and how often that occurred."""

    answers: int
    window: int
    repeats: int
    times: int = 1


class Checks(NamedTuple):
    """How a server was recognized: the numbers of accepted answers, of probes, and of questions that were asked again."""

    answers: int
    probes: int
    repeats: int
    stretches: tuple[Stretch, ...] = ()

    def to_record(self, *, tolerance_bits: float | None) -> dict[str, Any]:
        """For the record of a run; differences below `tolerance_bits` are not seen, and none at all if it is None."""
        in_a_row = unnoticed_in_a_row(math.ceil(SHARE * self.answers), self.answers, self.stretches)
        scattered = unnoticed_scattered(SHARE, self.probes, self.repeats)
        return {
            "answers": self.answers,
            "probes": self.probes,
            "repeats": self.repeats,
            "most_answers_between_probes": max((one.answers for one in self.stretches), default=0),
            "tolerance_bits": tolerance_bits,
            "unnoticed": {
                "share": SHARE,
                "in_a_row": 1.0 if tolerance_bits is None else in_a_row,
                "scattered": 1.0 if tolerance_bits is None else scattered,
            },
        }


def unnoticed_in_a_row(length: int, answers: int, stretches: Iterable[Stretch]) -> float:
    """The probability that `length` consecutive answers of `answers` came from another model unnoticed, wherever they began.

    If requests are in flight at the same time, stretches overlap, and this is an upper bound.

    >>> unnoticed_in_a_row(1, 16, [Stretch(16, 16, 0)]), unnoticed_in_a_row(17, 32, [Stretch(16, 32, 1, times=2)])
    (1.0, 0.0)
    """
    if not 0 < length <= answers:
        return 0.0
    places = (
        one.times * max(0, one.answers - length + 1) * _none_asked_again(length, one) for one in stretches
    )
    return min(1.0, math.fsum(places) / (answers - length + 1))


def unnoticed_scattered(share: float, probes: int, repeats: int) -> float:
    """The probability that another model gave a random `share` of all answers unnoticed.

    >>> round(unnoticed_scattered(0.5, probes=1, repeats=2), 3)
    0.125
    """
    if not 0 < share < 1:
        return 1.0 if share <= 0 or not probes else 0.0
    return math.exp(probes * math.log1p(-share) + repeats * math.log1p(-2 * share * (1 - share)))


def _none_asked_again(length: int, stretch: Stretch) -> float:
    """The probability that none of `length` answers of a window is among those that are drawn to be asked again."""
    window = max(stretch.window, stretch.answers)
    return math.prod(max(0, window - length - drawn) / (window - drawn) for drawn in range(stretch.repeats))
