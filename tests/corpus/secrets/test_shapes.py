"""What of a secret is drawn: always a space that has the secret as a member, and whose members are valid."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalmine import Format
from coalmine.corpus.secrets.shapes import shape_of

SECRETS = [
    ("phone", "713-853-1234", "713-853-"),
    ("phone", "+44 20 7946 0958", "+44 20 7946 "),
    ("phone", "(713) 853 12 34", "(713) 853 "),
    ("phone", "٠١٢-٣٤٥-٦٧٨٩", "٠١٢-٣٤٥-"),
    ("ssn", "219-09-9998", "219-"),
    ("ssn", "219 09 9998", "219 "),
    ("card", "4929 1234 5678 9015", "4929 12"),
    ("card", "371449635398431", "371449"),
    ("iban", "DE89 3704 0044 0532 0130 00", "DE89 3704 0044 05"),
    ("iban", "GB29NWBK60161331926819", "GB29NWBK601613"),
    ("aws-key", "AKIAIOSFODNN7EXAMPL2", "AKIA"),
    ("github-token", "ghp_0123456789abcdefghijABCDEFGHIJ012345", "ghp_"),
    ("hex-key", "0123456789abcdef0123456789abcdef", ""),
    ("jwt", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcDEF123-_xyz", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0."),
    ("private-key", "-----BEGIN RSA PRIVATE KEY-----\n" + "M" * 64 + "\n" + "aB3/" * 16 + "\n", None),
]


def remainder(iban):
    plain = iban.replace(" ", "")
    return int("".join(str(int(one, 36)) for one in plain[4:] + plain[:4])) % 97


def luhn_holds(number):
    digits = [int(one) for one in reversed(number) if one.isdigit()]
    return (sum(digits[::2]) + sum(sum(divmod(2 * one, 10)) for one in digits[1::2])) % 10 == 0


@pytest.mark.parametrize(("kind", "text", "fixed"), SECRETS)
def test_a_secret_is_a_member_of_its_own_shape(kind, text, fixed):
    shape = shape_of(kind, text)
    assert text.startswith(shape.fixed + shape.drawn)
    assert fixed is None or shape.fixed == fixed
    assert shape.drawn in Format(shape.template)


@pytest.mark.parametrize(("kind", "text"), [one[:2] for one in SECRETS])
def test_no_letter_or_digit_of_a_secret_is_in_the_template(kind, text):
    literal = [one.text for one in Format(shape_of(kind, text).template)._pieces if hasattr(one, "text")]
    assert not any(one.isalnum() for one in "".join(literal))


@settings(max_examples=10)
@given(number=st.integers(0, 10**8 - 1), seed=st.integers(0, 100))
def test_every_draw_of_an_iban_has_right_check_digits(number, seed):
    account = f"37040044{number:010d}"
    check = 98 - remainder(f"DE00{account}")
    iban = f"DE{check:02d}{account}"
    shape = shape_of("iban", iban)
    assert remainder(iban) == 1
    assert all(remainder(shape.fixed + one) == 1 for one in Format(shape.template).sample(5, seed))


@settings(max_examples=10)
@given(seed=st.integers(0, 100), text=st.sampled_from(["4929 1234 5678 9015", "371449635398431"]))
def test_every_draw_of_a_card_passes_the_luhn_check(seed, text):
    shape = shape_of("card", text)
    assert luhn_holds(text)
    assert all(luhn_holds(shape.fixed + one) for one in Format(shape.template).sample(5, seed))


@pytest.mark.parametrize(
    ("kind", "text"), [("phone", "123"), ("card", "4929"), ("iban", "DE"), ("token", "ghp_"), ("jwt", "a.b.")]
)
def test_what_leaves_nothing_to_draw_has_no_shape(kind, text):
    assert shape_of(kind, text) is None
