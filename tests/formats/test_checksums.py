"""Digits with a checksum, against checks that go by the definitions."""

import itertools

import pytest

from coalmine import Format
from coalmine.errors import FormatError


def luhn_sum(digits):
    """As a clerk does it: double every second digit from the right, and add the digits of everything."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        total += sum(map(int, str(int(digit) * (2 if place % 2 else 1))))
    return total % 10


@pytest.mark.parametrize("total", [0, 3, 9])
def test_a_luhn_hole_makes_exactly_the_digits_with_that_sum(total):
    expected = [
        f"{a}{b} {c}" for a, b, c in itertools.product("0123456789", repeat=3) if luhn_sum(a + b + c) == total
    ]
    assert list(Format(f"{{luhn:{total}+** *}}")) == expected


@pytest.mark.parametrize("total", [0, 1, 96])
def test_a_mod97_hole_makes_exactly_the_numbers_with_that_remainder(total):
    assert list(Format(f"{{mod97:{total}+**-**}}")) == [
        f"{n:04d}"[:2] + "-" + f"{n:04d}"[2:] for n in range(10_000) if n % 97 == total
    ]


@pytest.mark.parametrize(
    "template", ["{luhn:10+**}", "{mod97:97+**}", "{luhn:**}", "{luhn:0+}", "{mod97:1+12*}", "{luhn}"]
)
def test_a_checksum_that_is_not_written_like_one_is_refused_with_an_example(template):
    with pytest.raises(FormatError, match=r"write it like \{(luhn|mod97):"):
        Format(template)
