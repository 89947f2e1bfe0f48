"""Audits where the truth is known and nothing should be found: p-values, false discoveries, and how often the blind baseline fires."""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from provenance_measures import Scores, found_at_fdr

from coalmine.audits.provenance.blind_baseline import blind_baseline
from coalmine.audits.provenance.users import User
from coalmine.randomness import arrays
from coalmine.statistics import conformal_p_values

LEVELS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75)
# How many suspects there are where nobody is a member; how many true members are among suspects, beside how many others.
UNSEEN = (20, 149)
MEMBERS, INNOCENT = (0, 10, 30, 75), 30
# The level of the blind baseline, and how many users it sees on each side.
BLIND_LEVEL, SIDE = 0.01, 100
DAYS_SHIFTED = (0, 15, 30, 90)
DAYS = 180
# Fewer than by default, which makes the smallest p-value 0.2% and each audit faster.
ORDERS = 500
TOPIC = frozenset(
    (
        "trump",
        "president",
        "congress",
        "senate",
        "vote",
        "republicans",
        "democrats",
        "election",
        "government",
        "obama",
    )
)
TOPIC_SHARES = (0.0, 0.25, 0.5, 1.0)


# Members and non-members of the target: their scores by each statistic.
Sides = Mapping[str, Mapping[str, Scores]]


@dataclasses.dataclass(frozen=True)
class NullRow:
    """The mean of one quantity over simulated audits, and its standard error."""

    part: str
    setting: str
    statistic: str
    suspects: int
    members: int
    non_members: int
    quantity: str
    audits: int
    mean: float
    standard_error: float


def unseen_rows(sides: Sides, audits: int) -> Iterator[NullRow]:
    """A model that saw nobody: the p-values of random suspects against all others, and how often anyone is found."""
    for name in sides["members"]:
        everyone = np.concatenate([scores[name] for scores in sides.values()])
        for many in UNSEEN:
            seen: dict[str, list[float]] = {}
            for audit in range(audits):
                order = arrays(audit, "experiment", "unseen", many).permutation(len(everyone))
                suspects, calibration = everyone[order[:many]], everyone[order[many:]]
                p_values = conformal_p_values(suspects, calibration)
                for level in LEVELS:
                    share = float(np.mean(p_values <= level))
                    seen.setdefault(f"p-values of at most {level:g}", []).append(share)
                shown = found_at_fdr(suspects, calibration)
                seen.setdefault("audits that find anyone at 5%", []).append(float(shown.any()))
            counts = (many, 0, len(everyone) - many)
            yield from _rows("unseen", "a model that saw none of them", name, counts, seen)


def mixed_rows(sides: Sides, audits: int) -> Iterator[NullRow]:
    """The target: some members among suspects whom it did not see; the other non-members are compared with."""
    for name, members in sides["members"].items():
        others = sides["non-members"][name]
        for number in MEMBERS:
            seen: dict[str, list[float]] = {"false-discovery rate": []}
            for audit in range(audits):
                drawn = arrays(audit, "experiment", "mixed", number)
                order = drawn.permutation(len(others))
                chosen = members[drawn.permutation(len(members))[:number]]
                suspects = np.concatenate([chosen, others[order[:INNOCENT]]])
                shown = found_at_fdr(suspects, others[order[INNOCENT:]])
                seen["false-discovery rate"].append(float(shown[number:].sum()) / max(1, int(shown.sum())))
                if number:
                    seen.setdefault("members found", []).append(float(shown[:number].mean()))
            counts = (number + INNOCENT, number, len(others) - INNOCENT)
            yield from _rows("mixed", "the target", name, counts, seen)


def blind_rows(users: Sequence[User], audits: int) -> Iterator[NullRow]:
    """Users of both sides drawn alike; then with dates, or with topics, that differ."""
    settings: list[tuple[str, Callable[[int], bool]]] = [
        ("random", functools.partial(_fires, users, None, 0.0))
    ]
    settings += [
        (f"dates shifted by {days} of {DAYS} days", functools.partial(_fires, users, days, 0.0))
        for days in DAYS_SHIFTED
    ]
    settings += [
        (f"{share:.0%} of suspects chosen by topic", functools.partial(_fires, users, None, share))
        for share in TOPIC_SHARES
        if share
    ]
    for setting, fires in settings:
        # A shift either shows or does not; only the rate of false alarms needs many audits.
        number = audits if setting == "random" else audits // 4
        fired = [float(fires(audit)) for audit in range(number)]
        yield from _rows(
            "blind baseline", setting, "", (SIDE, 0, SIDE), {f"fires at {BLIND_LEVEL:.0%}": fired}
        )


def _fires(users: Sequence[User], days: int | None, topic: float, audit: int) -> bool:
    """Whether the blind baseline tells suspects from non-members that were drawn in one of these ways."""
    drawn = arrays(audit, "experiment", "blind", str((days, topic)))
    order = list(drawn.permutation(len(users)))
    if topic:
        by_topic = sorted(order, key=lambda place: -_about_topic(users[place]))
        first = by_topic[: round(topic * SIDE)]
        rest = [place for place in order if place not in set(first)]
        order = [*first, *rest]
    suspects, others = ([users[place] for place in some] for some in (order[:SIDE], order[SIDE : 2 * SIDE]))
    if days is not None:
        suspects, others = (_dated(suspects, days, drawn), _dated(others, 0, drawn))
    return bool(blind_baseline(suspects, others, orders=ORDERS, seed=audit).separating(BLIND_LEVEL))


def _about_topic(user: User) -> float:
    words = [word.lstrip("#@") for text in user.texts for word in text.text.split()]
    return sum(word in TOPIC for word in words) / len(words)


def _dated(users: Sequence[User], shift: int, drawn: np.random.Generator) -> list[User]:
    """Users whose texts are from random days, some days later."""
    first = dt.date(2019, 1, 1)
    return [
        User(
            user.name,
            tuple(
                text._replace(date=str(first + dt.timedelta(days=int(day) + shift)))
                for text, day in zip(user.texts, drawn.integers(0, DAYS, len(user.texts)), strict=True)
            ),
        )
        for user in users
    ]


def _rows(
    part: str, setting: str, statistic: str, counts: tuple[int, int, int], seen: Mapping[str, Sequence[float]]
) -> Iterator[NullRow]:
    for quantity, values in seen.items():
        error = float(np.std(values)) / math.sqrt(len(values))
        yield NullRow(part, setting, statistic, *counts, quantity, len(values), float(np.mean(values)), error)
