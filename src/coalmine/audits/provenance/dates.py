"""Dates of texts: ISO 8601 or seconds since 1970, as numbers that can be compared."""

from __future__ import annotations

import datetime as dt
import math
import re

_YEAR_OR_MONTH = re.compile(r"\d{4}(-\d{2})?")
# Seconds that are valid as a date in eight digits are read as that date: they would be in the first years after 1970.
_EIGHT_DIGITS = re.compile(r"\d{8}")
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
# From the year 1 to the year 9999; milliseconds since 1970 are beyond it for all texts since 1978.
EARLIEST, LATEST = -62_135_596_800.0, 253_402_300_800.0


def seconds_since_1970(date: str) -> float | None:
    """The time that a date says, in seconds since 1970 in UTC; None if it is not a date.

    A date is ISO 8601 (a year, a month, a day or a time, in UTC unless it names another zone) or a number of seconds since 1970.

    >>> seconds_since_1970("1970-01-02"), seconds_since_1970("1970-01-01T01:00:00+01:00"), seconds_since_1970("86400.5")
    (86400.0, 0.0, 86400.5)
    >>> seconds_since_1970("last Tuesday") is None
    True
    """
    date = date.strip()
    if _NUMBER.fullmatch(date) and not _YEAR_OR_MONTH.fullmatch(date):
        as_day = _iso(date) if _EIGHT_DIGITS.fullmatch(date) else None
        seconds = float(date) if as_day is None else as_day
        return seconds if math.isfinite(seconds) and EARLIEST <= seconds < LATEST else None
    if _YEAR_OR_MONTH.fullmatch(date):
        date = f"{date}-01" if "-" in date else f"{date}-01-01"
    return _iso(date)


def day_of(seconds: float) -> str:
    """The day of a time in seconds since 1970, in UTC, as ISO 8601.

    >>> day_of(86400.5)
    '1970-01-02'
    """
    return (_EPOCH + dt.timedelta(seconds=math.floor(seconds))).date().isoformat()


def _iso(date: str) -> float | None:
    try:
        found = dt.datetime.fromisoformat(date)
    except ValueError:
        return None
    if found.tzinfo is None:
        found = found.replace(tzinfo=dt.UTC)
    return (found - _EPOCH).total_seconds()
