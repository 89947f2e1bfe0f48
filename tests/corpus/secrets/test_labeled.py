"""How much of what is there is found, how much of what is found is there, and what chance lets pass."""

import random
import string

import pytest
from stdnum import luhn

from coalmine.corpus.secrets import specimens
from coalmine.corpus.secrets.finding import SecretFinder
from coalmine.corpus.secrets.kinds import KINDS, chosen_kinds
from corpus.secrets.labeled import CONTEXTS, MAKERS, measured, without_secrets

FINDER = SecretFinder(chosen_kinds())


def test_precision_and_recall_on_generated_texts():
    right, false, missed, problems = measured(2_000)
    for kind in {*MAKERS, *CONTEXTS}:
        assert right[kind] > 10
        assert right[kind] >= 0.99 * (right[kind] + missed[kind]), problems
        assert right[kind] >= 0.97 * (right[kind] + false[kind]), problems


def test_nothing_is_found_where_nothing_is():
    texts = list(without_secrets(200_000))
    assert sum(map(len, texts)) > 150_000
    assert [one.text for text in texts for one in FINDER.find(text.encode())] == []


def random_text(rng, kind):
    digits = lambda n: "".join(rng.choices(string.digits, k=n))  # noqa: E731
    return {
        "card": lambda: f"4{digits(15)}",
        "ssn": lambda: f"{digits(3)}-{digits(2)}-{digits(4)}",
        "iban": lambda: f"DE{rng.randint(2, 98):02}{digits(18)}",
    }[kind]()


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.chance is not None])
def test_chance_is_the_share_of_random_texts_that_pass(kind):
    rng = random.Random(kind)
    content = "\n".join(random_text(rng, kind) for _ in range(3_000)).encode()
    shaped = [one for one in FINDER.candidates([content]) if one.kind.name == kind]
    passed = sum(one.value is not None for one in shaped)
    expected = KINDS[kind].chance * len(shaped)
    assert len(shaped) > 2_900
    assert abs(passed - expected) < 4 * expected**0.5


def test_specimens_are_tagged():
    for text in (
        "078-05-1120",
        "4111 1111 1111 1111",
        "378282246310005",
        "(212) 555-0142",
        "+44 7700 900123",
        "ann@example.com",
        "bo@mail.example.org",
        "DE89 3704 0044 0532 0130 00",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_" + "x" * 36,
    ):
        [found] = FINDER.find(f"see {text}.".encode())
        assert (found.text, found.specimen) == (text, True)


def test_listed_specimens_are_what_they_say():
    assert all(map(luhn.is_valid, specimens.CARDS))
    for account in specimens.IBANS:
        moved = account[4:] + account[:4]
        assert int("".join(str(int(one, 36)) for one in moved)) % 97 == 1, account


HOSTILE = [
    "7", "1 ", "4111 ", "123-45-6789-", "@", "a@", "a@b.", "a.", "a" * 300 + "@b.cc ", "a@" + "b." * 100, "eyJ", "-eyJaaaaaaaa",
    ".eyJaaaaaaaa", "-----BEGIN PRIVATE KEY-----", "DE89 ", "DE89370400", "+1 ", "(212) ", "xoxb-", "Bearer a1", "٣", "\N{NO-BREAK SPACE}",
    "ssn ", "sk-", "漢",
]  # fmt: skip


@pytest.mark.parametrize("pattern", HOSTILE)
def test_hostile_text_takes_no_longer_than_its_length(pattern):
    # If anything took the square of the length, this would not end.
    content = (pattern * (80_000 // len(pattern.encode()))).encode()
    found = FINDER.find(content)
    assert len(found) <= len(content) // 10
