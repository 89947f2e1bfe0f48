"""What was seen of canaries during a training, for the comparison with their manifest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coalmine.records.documents import SaidOfCanary
from coalmine.records.watching import Moment


def said_of_canaries(moments: Sequence[Moment]) -> Iterator[SaidOfCanary]:
    """What each look says of each canary."""
    for moment in moments:
        for one in moment.canaries:
            yield SaidOfCanary(one.canary_id, one.format_id, one.repetitions)
