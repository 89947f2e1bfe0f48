"""The secrets of a scan as canaries: in the context of their first copy, the most sensitive and most repeated first."""

import hashlib
import json

import pytest

from coalmine.corpus import CanarySet, Fields, NaturalOptions, canaries_of_scan, scan
from coalmine.errors import InputError

TEXTS = [
    ("ann", "näive call me at home: 713-853-4921"),
    ("bob", "713-853-0389 is mine, or 713-853-0389"),
    ("bob", "my ssn is 219-09-9998, not the famous 078-05-1120"),
    ("cat", "her badge 004711 and (713) 853-0389"),
]


@pytest.fixture
def scanned(tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"by": user, "text": text}) + "\n" for user, text in TEXTS))
    scan(corpus, tmp_path / "scan", formats=["badge {digits:6}"], fields=Fields(user="by"))
    return tmp_path / "scan", corpus


def test_each_secret_has_the_context_of_its_first_copy_and_all_copies_count(scanned):
    made = canaries_of_scan(*scanned, formats=["badge {digits:6}"])
    assert [(one.text, one.times_trained_on, one.user) for one in made.canaries] == [
        ("my ssn is 219-09-9998", 1, "bob"),
        ("her badge 004711", 1, "cat"),
        ("713-853-0389", 3, "bob"),
        ("näive call me at home: 713-853-4921", 1, "ann"),
    ]
    assert made.left_out == {}


def test_a_limit_keeps_the_most_sensitive_and_says_what_it_left_out(scanned):
    made = canaries_of_scan(*scanned, NaturalOptions(most=2), formats=["badge {digits:6}"])
    assert [one.kind for one in made.canaries] == ["ssn", "badge {digits:6}"]
    assert [(kind, count) for (kind, _), count in made.left_out.items()] == [("phone", 2)]


def test_references_are_none_of_the_secrets_that_were_left_out(scanned):
    folder, corpus = scanned
    texts = [f"713-853-{number:04d}" for number in range(123, 9_000, 97)]
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    scan(corpus, folder, kinds=["phone"], overwrite=True)
    made = canaries_of_scan(folder, corpus, NaturalOptions(most=3, references=2000))
    every = {one[-4:] for texts in made.canaries.references.values() for one in texts}
    assert not every & {text[-4:] for text in texts}
    made.canaries.save(folder)
    assert CanarySet.load(folder) == made.canaries


def test_references_are_no_specimens_and_no_numbers_in_other_digits_of_the_corpus(scanned):
    folder, corpus = scanned
    famous = [f"713-555-01{number:02d}" for number in range(20, 80)]
    other = [
        f"713-555-{number}".translate({48 + one: 0x660 + one for one in range(10)})
        for number in range(3000, 3050)
    ]
    corpus.write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in ["713-555-1234", *famous, *other])
    )
    scan(corpus, folder, kinds=["phone"], overwrite=True)
    made = canaries_of_scan(folder, corpus, NaturalOptions(most=1, references=9000))
    lines = {one[-4:] for one in made.canaries.references["phone-1"]}
    assert len(lines) == 9000
    assert not lines & {f"01{number}" for number in range(20, 80)} | lines & {
        str(number) for number in range(3000, 3050)
    }


def test_the_context_of_a_secret_in_a_long_line_is_read_in_pieces(tmp_path):
    # Lines are read a megabyte at a time; one secret is just after a border, one across it, and one at the very start.
    words = "one two three four, " * 300_000
    places = {1 << 20: "713-853-4921", (2 << 20) - 6: "713-853-0389", (3 << 20) + 700: "713-853-6174"}
    line = "713-853-2086 " + words
    for place, number in places.items():
        line = f"{line[: place - 13]} call äöü at {number} {line[place:]}"
    (tmp_path / "corpus.txt").write_text(f"first\n{line}\nlast 713-853-5530\n")
    scan(tmp_path / "corpus.txt", tmp_path / "scan", kinds=["phone"])
    made = canaries_of_scan(
        tmp_path / "scan", tmp_path / "corpus.txt", NaturalOptions(context=14, references=1)
    )
    assert sorted(one.text for one in made.canaries) == sorted(
        ["713-853-2086", "last 713-853-5530", *(f"call äöü at {number}" for number in places.values())]
    )


def test_a_manifest_names_the_corpus_that_was_scanned_and_no_other_one_is_taken(tmp_path):
    corpus, other = tmp_path / "corpus.txt", tmp_path / "other.txt"
    corpus.write_text("ann is 219-09-9998\n")
    other.write_text("ann, bob: 219-09-9998\n")
    scan(corpus, tmp_path / "scan")
    scanned = canaries_of_scan(tmp_path / "scan", corpus).canaries.scanned
    assert (scanned.name, scanned.secrets) == ("corpus.txt", 1)
    assert scanned.sha256 == hashlib.sha256(corpus.read_bytes()).hexdigest()
    with pytest.raises(InputError, match=r"other\.txt is not the corpus that the scan in .* is of"):
        canaries_of_scan(tmp_path / "scan", other)
