"""Checks of the data of an audit: times, repeated texts, unknown words, overlaps and numbers of users, against plain loops."""

import json
import unicodedata
from collections import defaultdict
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalmine.audits import AuditedUsers, User, UserText, read_users
from coalmine.audits.provenance.data_checks import (
    IndexedCorpus,
    check_data,
    hashed_users,
    normalized,
    overlaps,
    repeated_texts,
    time_ranges,
    unknown_words,
    without_shared,
)
from coalmine.corpus import CorpusIndex, Fields, build_index
from coalmine.errors import InputError
from coalmine.storage.files import sha256_of_file

LONG = "a text that is long enough to be compared, number {}"


def user(name, *texts, date=None):
    return User(name, tuple(UserText(text, date=date) for text in texts))


def dated(name, dates):
    return User(name, tuple(UserText("hello", date=date) for date in dates))


# Times


def test_ranges_that_do_not_overlap():
    found = time_ranges(
        [dated("ann", ["2018", "2018-06-30"])], [dated("bob", ["2019-01-01T10:00:00Z", None])]
    )
    assert found.disjoint
    assert found.share == 0.0
    assert (found.suspects.first, found.suspects.last) == ("2018-01-01", "2018-06-30")
    assert (found.non_members.first, found.non_members.last) == ("2019-01-01", "2019-01-01")
    assert (found.non_members.dated, found.non_members.undated) == (1, 1)


def test_ranges_of_the_same_time_and_one_wrong_date():
    days = [str(86_400 * day) for day in range(200)]
    found = time_ranges([dated("ann", days[::2])], [dated("bob", days[1::2])])
    assert not found.disjoint
    assert found.share > 0.95
    # One date far away makes the range long, and the share stays what it is.
    later = [str(86_400 * day) for day in range(10_000, 10_200)]
    found = time_ranges([dated("ann", [*days, later[-1]])], [dated("bob", later)])
    assert not found.disjoint
    assert found.share < 0.02


# Repeated texts

START = "a text that is long enough to be compared: "
names = st.sampled_from(["ann", "bob", "eve"])
phrases = st.lists(
    st.sampled_from(["a b", "a  b ", "c", "d", "d\n", "e f g"]).map(START.__add__), min_size=1, max_size=5
)


@given(st.lists(st.tuples(names, phrases), min_size=1, max_size=8))
def test_repeated_texts_are_those_of_a_dictionary(rows):
    users = [user(name, *texts) for name, texts in rows]
    owners = defaultdict(set)
    for name, texts in rows:
        for text in texts:
            owners[" ".join(text.split())].add(name)
    repeated = {text: who for text, who in owners.items() if len(who) > 1}
    found = repeated_texts({"suspects": users})
    assert found.texts == len(owners)
    assert found.repeated == len(repeated)
    assert found.users == len({name for name, _ in rows})
    assert found.affected_users == len(set().union(*repeated.values()))
    assert found.most_users == max(map(len, owners.values()))
    assert found.share == len(repeated) / len(owners)


def test_an_index_also_finds_texts_inside_those_of_others(tmp_path):
    said = "we will meet again on the first Monday of the month"
    rows = [
        ("ann", said),
        ("ann", "as I said: " + said),  # a quotation of herself
        ("bob", "> " + said + " -- no"),
        ("eve", "something else altogether, which nobody quotes"),
        ("eve", "a template that everybody uses at the end of a letter"),
        ("bob", "a template that everybody uses at the end of a letter"),
    ]
    path = tmp_path / "mail.jsonl"
    path.write_text("".join(json.dumps({"by": by, "text": text}) + "\n" for by, text in rows))
    users = read_users(path, Fields(user="by"))
    build_index(path, tmp_path / "index")
    index = CorpusIndex.open(tmp_path / "index")
    indexed = IndexedCorpus.of(index, {"reference": "another", "suspects": sha256_of_file(path)})
    assert indexed.group == "suspects"
    found = repeated_texts({"suspects": users}, indexed=indexed)
    assert found.repeated == 1
    assert found.quoted == 3  # Ann's, and the template of both
    carl = [user("carl", said.removeprefix("we will "), "what only Carl has ever written")]
    assert repeated_texts({"suspects": users, "non-members": carl}, indexed=indexed).quoted == 4
    with pytest.raises(InputError, match="of another corpus than those of the audit"):
        IndexedCorpus.of(index, {"suspects": "another"})
    groups = AuditedUsers(suspects=read_users(path, by="document"))
    # Every document is then a user of its own: hers is quoted by two, and the template is in two.
    found = check_data(groups, by="document", indexed=indexed).repeated_texts
    assert (found.users, found.repeated, found.quoted) == (6, 1, 3)


# Unknown words


def test_groups_that_differ_in_unknown_words_are_told_apart():
    few, many = [1, 2, 0, 1, 3, 1, 2, 1], [20, 25, 18, 30, 22, 27, 19, 24]
    total = [100] * 8
    found = unknown_words(
        {"suspects": (few, total), "non-members": (many, total), "reference": (many, total)}
    )
    assert [group.group for group in found.groups] == ["suspects", "non-members", "reference"]
    assert found.groups[0].share == pytest.approx(sum(few) / 800)
    assert found.difference.estimate.value == pytest.approx((sum(few) - sum(many)) / 8)
    assert found.difference.estimate.high < 0
    assert "percentage points" in found.difference.estimate.statement
    assert found.differ()
    assert not unknown_words({"suspects": (few, total), "non-members": (few[::-1], total)}).differ()


# Overlaps


TEXTS = [LONG.format(number) for number in range(9)]
GROUPS = AuditedUsers(
    suspects=[user("ann", TEXTS[0], TEXTS[1]), user("bob", TEXTS[2], TEXTS[7], "short")],
    others=[user("ann", TEXTS[1], TEXTS[3])],
    non_members=[user("carl", f"  {TEXTS[2]}\n", TEXTS[4]), user("eve", TEXTS[2])],
    reference=[user("bob", TEXTS[5], TEXTS[7]), user("dora", TEXTS[6], TEXTS[4], "short")],
)
SHARED = [
    ("suspects", "others", None, 1),
    ("suspects", "non-members", 0, 1),
    ("suspects", "reference", 1, 1),
    ("non-members", "reference", 0, 1),
]


def shared(found):
    return [(one.first, one.second, one.users, one.texts) for one in found]


def test_users_and_texts_that_groups_share_are_counted():
    found = overlaps(GROUPS)
    assert shared(found) == SHARED
    assert (found[0].first_users, found[0].first_texts) == (2, 4)
    assert shared(overlaps(GROUPS, by="document"))[2] == ("suspects", "reference", None, 2)


def test_who_shares_something_is_named_by_place():
    assert {(one.first, one.second): one.sharing for one in overlaps(GROUPS)} == {
        ("suspects", "others"): (1,),
        ("suspects", "non-members"): (2,),
        ("suspects", "reference"): (2,),
        ("non-members", "reference"): (1,),
    }
    by_fit = overlaps(GROUPS._replace(reference=()), remembered(GROUPS.reference))
    assert [one.sharing for one in by_fit] == [one.sharing for one in overlaps(GROUPS)]


@pytest.mark.parametrize("of_fit", [False, True])
def test_shared_texts_are_left_out_on_both_sides_alike(of_fit):
    groups = AuditedUsers(
        suspects=[user("ann", TEXTS[0], TEXTS[1]), user("bob", TEXTS[1]), user("cid", TEXTS[6], TEXTS[5])],
        others=[user("ann", TEXTS[0], TEXTS[3])],
        non_members=[user("eve", TEXTS[1].upper(), TEXTS[2]), user("fay", TEXTS[5]), user("gus", TEXTS[7])],
        reference=[user("hal", TEXTS[5], TEXTS[8]), user("GUS", TEXTS[4])],
    )
    known = groups.reference
    fit = remembered([*known, user("gus")]) if of_fit else None
    left, said = without_shared(groups._replace(reference=() if of_fit else known), fit)
    kept = {
        one.name: [text.text for text in one.texts]
        for one in (*left.suspects, *left.others, *left.non_members)
    }
    # What ann wrote before is not another text of hers.
    assert [one.name for one in left.others] == ["ann"]
    assert kept == {"ann": [TEXTS[3]], "cid": [TEXTS[6]], "eve": [TEXTS[2]]}
    assert [text.text for one in left.suspects for text in one.texts] == [TEXTS[0], TEXTS[6]]
    assert said.endswith(
        "were left out, and 1 suspect and 2 non-members with no other text or in two groups."
    )
    assert not overlaps(left, fit)
    again = without_shared(left, fit)
    assert again == (left, "No text belongs to several users, so nothing was left out.")


def remembered(reference):
    """What a fit keeps of its reference users: hashes."""
    hashed = hashed_users(reference, "salt", cased=False)
    return SimpleNamespace(
        record=SimpleNamespace(reference=hashed, reference_sha256="salt", names_cased=False)
    )


@given(st.text())
def test_a_text_is_the_same_however_it_is_written(text):
    form = normalized(text)
    for way in ("NFC", "NFD", "NFKC", "NFKD"):
        assert normalized(unicodedata.normalize(way, text)) == form
    assert normalized(f"\n {text}\u200b\t") == form
    assert normalized("A  note\nto Ann") == normalized("a note to\u00a0ANN")


VARIANTS = ["Ann@example.org", " ann@example.org", "ANN@EXAMPLE.ORG\u200b", "\uff41nn@example.org"]


@pytest.mark.parametrize("name", VARIANTS)
def test_a_user_is_the_same_however_the_name_is_written(name):
    groups = AuditedUsers(
        suspects=[user("ann@example.org", LONG.format(1)), user("eve", LONG.format(2))],
        non_members=[user(name, LONG.format(3).upper()), user("bob", LONG.format(1).upper())],
    )
    [found] = overlaps(groups)
    assert (found.users, found.texts, found.first_texts, found.second_texts) == (1, 1, 2, 2)


def test_case_tells_users_apart_where_users_of_one_group_differ_in_nothing_else():
    groups = AuditedUsers(suspects=[user("aQ"), user("Aq")], non_members=[user("aq"), user("zz")])
    assert overlaps(groups) == ()
    assert overlaps(groups._replace(non_members=[user("aQ")]))[0].users == 1


# All together


def test_documents_of_two_files_are_different_users():
    suspects, non_members = ([user("line 1", text)] for text in ("one", "one"))
    found = check_data(AuditedUsers(suspects=suspects, non_members=non_members), by="document")
    assert found.repeated_texts.repeated == 1
    assert shared(found.overlaps) == [("suspects", "non-members", None, 1)]
