"""Digits with a checksum: what a Luhn sum or a remainder modulo 97 leaves open, as fragments."""

from __future__ import annotations

import string
from collections.abc import Callable

from coalmine.formats.fragments import BLANK, EMPTY, Fragments

# What a digit adds to the checksum: the digit, and how many digits are to the right of it.
Weight = Callable[[int, int], int]


def luhn_weight(digit: int, places_from_right: int) -> int:
    """Every second digit from the right counts double, beginning with the second; one that has two digits counts as their sum.

    >>> [luhn_weight(7, place) for place in (0, 1)]
    [7, 5]
    """
    return digit if places_from_right % 2 == 0 else sum(divmod(2 * digit, 10))


def place_value(digit: int, places_from_right: int) -> int:
    """What a digit is worth in the number that it is part of, modulo 97.

    >>> place_value(3, 2)
    9
    """
    return digit * pow(10, places_from_right, 97) % 97


def with_checksum(fragments: Fragments, pattern: str, weight: Weight, modulus: int, total: int) -> int:
    """A digit for each * of a pattern, whose other characters stay, such that the weights of all add up to `total`.

    >>> make = Fragments()
    >>> list(make.automaton(with_checksum(make, "*-*", luhn_weight, 10, 0)))
    ['0-0', '1-8', '2-6', '3-4', '4-2', '5-9', '6-7', '7-5', '8-3', '9-1']
    """
    # For each sum so far, what may follow.
    following = [BLANK if so_far == total else EMPTY for so_far in range(modulus)]
    places_from_right = 0
    for character in reversed(pattern):
        if character != "*":
            following = [fragments.literal(character, one) if one != EMPTY else EMPTY for one in following]
            continue
        adds = [(digit, weight(int(digit), places_from_right)) for digit in string.digits]
        following = [
            fragments.branching({digit: following[(so_far + more) % modulus] for digit, more in adds})
            for so_far in range(modulus)
        ]
        places_from_right += 1
    return following[0]
