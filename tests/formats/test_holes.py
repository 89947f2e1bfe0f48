from __future__ import annotations

import random
import re
import uuid
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stdnum import luhn
from stdnum.us import ssn

from coalmine import Format

DIGITS = st.text(alphabet="0123456789", min_size=16, max_size=16)
# Numbers that were issued and then withdrawn, or printed in advertisements; stdnum refuses these by list, not by rule.
WITHDRAWN = {"078-05-1120", "457-55-5462", "219-09-9999"}


@pytest.mark.parametrize(
    ("template", "size"),
    [
        ("{digits:9}", 10**9),
        ("{letters:5}", 26**5),
        ("{hex:8}", 16**8),
        ("{alnum:3}", 36**3),
        ("{ssn}", 898 * 99 * 9999),
        ("{card}", 10**15),
        ("{phone}", 712 * 792 * 10**4),
        ("{uuid}", 2**122),
        ("{choice:a|b|a}", 2),
        ("{re:[A-Z]{4}[0-9]{16}}", 26**4 * 10**16),
        ("{choice:a|aa}{choice:a|aa}", 3),
    ],
)
def test_sizes(template, size):
    assert Format(template).size == size


@settings(max_examples=200, derandomize=True)
@given(DIGITS)
def test_cards_are_the_numbers_that_pass_luhn(number):
    assert (number in Format("{card}")) == luhn.is_valid(number)


def test_sampled_cards_pass_luhn_and_have_sixteen_digits():
    for card in Format("{card}").sample(500, seed=3):
        assert len(card) == 16
        assert luhn.is_valid(card)


def test_social_security_numbers_obey_the_rules_in_every_area_group_and_at_the_edges_of_serials():
    secret = Format("{ssn}")
    numbers = [f"{area:03d}-01-0001" for area in range(1000)]
    numbers += [f"123-{group:02d}-9999" for group in range(100)]
    numbers += [f"899-99-{serial:04d}" for serial in (0, 1, 9, 10, 999, 1000, 9999)]
    for number in numbers:
        assert (number in secret) == ssn.is_valid(number), number
    for number in secret.sample(500, seed=1):
        assert ssn.is_valid(number) or number in WITHDRAWN


def test_phone_numbers_follow_the_numbering_plan():
    secret = Format("{phone}")
    rule = re.compile(r"(?!.11)[2-9][0-8]\d-(?!.11)[2-9]\d\d-\d{4}")
    codes = ["".join(digits) for digits in product("0123456789", repeat=3)]
    for code in codes:
        for number in (f"{code}-234-5678", f"234-{code}-5678"):
            assert (number in secret) == bool(rule.fullmatch(number)), number
    assert "911-234-5678" not in secret
    assert "212-911-5678" not in secret
    assert "290-234-5678" not in secret


def test_uuids_are_version_four_as_the_standard_library_reads_them():
    secret = Format("{uuid}")
    for text in secret.sample(200, seed=0):
        parsed = uuid.UUID(text)
        assert (parsed.version, parsed.variant, str(parsed)) == (4, uuid.RFC_4122, text)
    generator = random.Random(0)
    for _ in range(200):
        assert str(uuid.UUID(int=generator.getrandbits(128), version=4)) in secret
    assert str(uuid.UUID(int=7, version=1)) not in secret


def test_words_are_joined_by_single_spaces():
    secret = Format("{word:2}", words=["red", "re", "d"])
    assert list(secret) == ["d d", "d re", "d red", "re d", "re re", "re red", "red d", "red re", "red red"]


def test_words_with_spaces_in_them_are_counted_once_for_each_string():
    assert list(Format("{word:2}", words=["a", "a a"])) == ["a a", "a a a", "a a a a"]


def test_letters_digits_and_signs_at_the_edges():
    assert (Format("{letters:1}").at(0), Format("{letters:1}").at(25)) == ("a", "z")
    assert (Format("{alnum:1}").at(0), Format("{alnum:1}").at(35)) == ("0", "z")
    assert (Format("{hex:1}").at(0), Format("{hex:1}").at(15)) == ("0", "f")


def test_braces_in_literals_and_regular_expressions():
    assert list(Format("{{{choice:a|b}}}")) == ["{a}", "{b}"]
    assert list(Format(r"{re:\{[{}]{1}\}}}}")) == ["{{}}", "{}}}"]
    assert list(Format("{re:[]}a]}")) == ["]", "a", "}"]


def test_unseen_characters_follow_each_other_and_longer_texts_have_spaces_between():
    assert set(Format("{unseen:2}", words=["a", "b"])) == {"aa", "ab", "ba", "bb"}
    assert set(Format("{unseen:2}", words=["ox", "cow"])) == {"ox ox", "ox cow", "cow ox", "cow cow"}
