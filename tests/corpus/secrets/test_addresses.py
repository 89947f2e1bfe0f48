"""References of e-mail addresses: names as real as the others, and none that occurs."""

from coalmine.corpus.secrets.addresses import ALONE, COMMON, ECHOED, AddressBook, parts_of
from coalmine.corpus.secrets.canaries import canaries_of
from coalmine.corpus.secrets.natural import NaturalSecret

FIRST = ("ann", "bob", "cat", "dan", "eve", "fay", "gus", "hal")
LAST = ("lee", "ray", "fox", "kim", "poe", "roy", "sun", "tan")
ADDRESSES = [
    f"{one}.{other}@corp.example" for place, one in enumerate(FIRST) for other in LAST[place % 3 :: 3]
]


def test_references_recombine_the_names_of_the_corpus_and_keep_the_domain():
    others = AddressBook(ADDRESSES).others(ADDRESSES[0], 30, 0, "email-1")
    assert len(set(others)) == 30
    for one in others:
        first, _, last = one.removesuffix("@corp.example").partition(".")
        assert first in FIRST
        assert last in LAST
        assert one not in ADDRESSES


def test_a_word_is_drawn_as_often_as_names_have_it():
    book = AddressBook(
        [f"john.{one * 3}@x.test" for one in "abcdefghijklmnop"]
        + [f"zed{n * 'q'}.ann@x.test" for n in range(4)]
    )
    others = book.others("john.aaa@x.test", 60, 0, "email-1")
    assert sum(one.startswith("john.") for one in others) <= 4  # all but those that occur
    assert all("ann" in one or one.startswith("zed") for one in others)


def test_the_parts_of_a_name():
    assert parts_of("j_smith-27b") == ["j", "_", "smith", "-", "27", "b"]


def test_what_anyone_can_guess_is_left_out_with_the_reason():
    book = AddressBook(["info@a.test", "info@b.test", "info@c.test", "jmason@jmason.test", "ann@a.test"])
    assert book.guessable("info@a.test") == COMMON
    assert book.guessable("jmason@jmason.test") == ECHOED
    assert book.guessable("ann@a.test") is None


def test_an_address_without_others_like_it_is_left_out():
    made = canaries_of([NaturalSecret(kind="email", text="ann.lee@corp.example", before="to ")])
    assert len(made.canaries) == 0
    assert made.left_out == {("email", ALONE): 1}


def test_an_address_is_compared_with_references_and_not_with_a_space():
    made = canaries_of(NaturalSecret(kind="email", text=one, before=f"{one} write to <") for one in ADDRESSES)
    assert set(made.canaries.listed) == set(made.canaries.formats)
    for canary in made.canaries:
        assert canary.text.endswith("@corp.example")
        assert "write to" in canary.text
