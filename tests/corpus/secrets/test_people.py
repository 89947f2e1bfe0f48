"""Records that are known to be sensitive: one field of a table, given the other fields of its row."""

import json

import pytest

from coalmine.corpus import canaries_of_records
from coalmine.corpus.secrets.canaries import IN_CONTEXT
from coalmine.corpus.secrets.people import NO_VALUE
from coalmine.errors import InputError

SENTENCE = "the phone number of {name} is {phone}"
ROWS = [("Ann Lee", "713-853-4921"), ("Bob Ray", "(713) 853-0389"), ("Cat Fox", "+1 713 853 7201")]


@pytest.fixture
def people(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("Name,Phone\n" + "".join(f"{name},{phone}\n" for name, phone in ROWS))
    return path


def test_each_row_is_asked_for_its_field_with_the_others(people):
    made = canaries_of_records(people, SENTENCE)
    assert [one.text for one in made.canaries] == [
        f"the phone number of {name} is {phone}" for name, phone in ROWS
    ]
    assert {one.kind for one in made.canaries} == {"phone"}
    assert all(len(texts) == 100 for texts in made.canaries.references.values())
    assert all("Ann Lee" in one for one in made.canaries.references["phone-1"])


def test_the_field_can_be_named_and_what_follows_it_is_left_out(people):
    (first, *_) = canaries_of_records(people, "{phone} is the number of {name}", field="phone").canaries
    assert first.text == "713-853-4921"


def test_copies_are_counted_in_a_corpus_in_any_spelling(people, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    texts = ["call 713.853.4921 or (713) 853-4921", "Bob: 713-853-0389", "nothing"]
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    made = canaries_of_records(people, SENTENCE, corpus=corpus)
    assert [(one.times_trained_on, one.planted) for one in made.canaries] == [
        (2, True),
        (1, True),
        (0, False),
    ]


def test_references_do_not_occur_in_the_corpus_that_copies_are_counted_in(people, tmp_path):
    corpus = tmp_path / "corpus.txt"
    there = [f"713.853.{number:04}" for number in range(10_000) if number % 10 != 3]
    corpus.write_text("".join(f"call {number}\n" for number in there))
    made = canaries_of_records(people, SENTENCE, corpus=corpus)
    references = [one for texts in made.canaries.references.values() for one in texts]
    assert len(references) == 300
    assert all(one.endswith("3") for one in references)


def test_rows_without_a_value_and_rows_that_give_it_away_are_left_out_with_the_reason(tmp_path):
    path = tmp_path / "people.jsonl"
    rows = [
        {"name": "Ann", "phone": ""},
        {"name": "Room 4921", "phone": "713-853-4921"},
        {"name": "Bob", "phone": "713-853-0389"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = canaries_of_records(path, SENTENCE)
    assert len(made.canaries) == 1
    assert made.left_out == {("phone", IN_CONTEXT): 1, ("phone", NO_VALUE): 1}


def test_rows_that_say_the_same_are_one_secret(people):
    people.write_text(people.read_text() + "Ann Lee,713 853 4921\n")
    assert len(canaries_of_records(people, SENTENCE).canaries) == 3


@pytest.mark.parametrize(
    ("sentence", "field", "problem"),
    [
        ("the number of {name} is {number}", None, "has no column 'number'; its columns are name, phone"),
        (SENTENCE, "salary", "has no column 'salary'"),
        ("the number of {name}", "phone", "does not have the field 'phone'; put {phone}"),
        ("no field", None, "names no column"),
        ("the number of {name is {phone}", None, "has a brace without a partner"),
        ("the name of {phone} is {name}", None, "are not all of one kind of secret"),
    ],
)
def test_mistakes_are_told_in_a_sentence_without_a_secret(people, sentence, field, problem):
    with pytest.raises(InputError) as told:
        canaries_of_records(people, sentence, field=field)
    assert problem in str(told.value)
    assert "4921" not in str(told.value)
    assert "Ann" not in str(told.value)


def test_values_of_two_kinds_are_refused_with_how_many_fit(people):
    people.write_text(people.read_text() + "Dan Poe,dan.poe@corp.example\n")
    with pytest.raises(InputError, match="3 of 4 are of the kind phone"):
        canaries_of_records(people, SENTENCE)
