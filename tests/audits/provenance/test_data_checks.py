"""Checks of the data of an audit: times, repeated texts, unknown words and overlaps, against plain loops."""

import unicodedata
from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from coalmine.audits import AuditedUsers, User, UserText
from coalmine.audits.provenance.data_checks import (
    check_data,
    normalized,
    overlaps,
    repeated_texts,
    time_checks,
    without_shared,
)

START = "a text that is long enough to be compared: "
TEXTS = [f"{START}number {number}" for number in range(9)]


def user(name, *texts):
    return User(name, tuple(map(UserText, texts)))


def dated(dates):
    return [User("ann", tuple(UserText("hello", date=date) for date in dates))]


def test_texts_of_other_times_spoil_a_question_and_one_wrong_date_does_not_hide_them():
    days = [str(86_400 * day) for day in range(10_200)]
    for own, others, effects in (
        (["2018", "2018-06-30"], ["2019-01-01T10:00:00Z", None], ["spoils"]),
        (days[:200:2], days[1:200:2], []),
        ([*days[:200], days[-1]], days[10_000:], ["blurs"]),
        (["2018"], [None], ["untested"]),
    ):
        found = time_checks(dated(own), dated(others), "texts of suspects", "user")
        assert [check.effect for check in found] == effects


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ann", "bob", "eve"]),
            st.lists(
                st.sampled_from(["a b", "a  b ", "c", "d", "d\n", "x a b x"]).map(START.__add__),
                min_size=1,
                max_size=5,
            ),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_repeated_texts_are_those_of_a_loop(rows):
    every = [(name, " ".join(text.split())) for name, texts in rows for text in texts]
    owners = {text: {name for name, other in every if text == other} for _, text in every}
    repeated = [some for some in owners.values() if len(some) > 1]
    found = repeated_texts({"suspects": [user(name, *texts) for name, texts in rows]})
    assert bool(found) == bool(repeated)
    if repeated:
        assert found[0].says == (
            f"{len(repeated)} of {len(owners)} texts of at least 30 bytes are of several users, {len(set().union(*repeated))} of "
            f"{len({name for name, _ in rows})} in all; one of them of {max(map(len, repeated))}"
        )


GROUPS = AuditedUsers(
    suspects=[user("ann", TEXTS[0], TEXTS[1]), user("bob", TEXTS[2], TEXTS[7], "short")],
    others=[user("ann", TEXTS[1], TEXTS[3])],
    non_members=[user("carl", f"  {TEXTS[2]}\n", TEXTS[4]), user("eve", TEXTS[2])],
    reference=[user("bob", TEXTS[5], TEXTS[7]), user("dora", TEXTS[6], TEXTS[4], "short")],
)


def test_users_and_texts_that_groups_share_are_counted():
    found = overlaps(GROUPS)
    both = "the users that shadow models were trained on"
    assert [(asks, check.says) for asks, check in found] == [
        (("user",), "1 of 4 texts of suspects are also among other texts of suspects (user 1)"),
        (("texts",), "1 of 4 texts of suspects are also among non-members (user 2)"),
        (("texts",), f"1 of 2 users and 1 of 4 texts of suspects are also among {both} (user 2)"),
        (("texts", "user"), f"1 of 2 texts of non-members are also among {both} (non-member 1)"),
    ]
    assert {check.effect for _, check in found} == {"spoils"}
    assert check_data(GROUPS)["user"][-1] == found[-1][1]


def test_shared_texts_are_left_out_on_both_sides_alike():
    groups = AuditedUsers(
        suspects=[user("ann", TEXTS[0], TEXTS[1]), user("bob", TEXTS[1]), user("cid", TEXTS[6], TEXTS[5])],
        others=[user("ann", TEXTS[0], TEXTS[3])],
        non_members=[user("eve", TEXTS[1].upper(), TEXTS[2]), user("fay", TEXTS[5]), user("gus", TEXTS[7])],
        reference=[user("hal", TEXTS[5], TEXTS[8]), user("GUS", TEXTS[4])],
    )
    left, said = without_shared(groups)
    kept = defaultdict(list)
    for one in (*left.suspects, *left.others, *left.non_members):
        kept[one.name] += [text.text for text in one.texts]
    # What ann wrote before is not another text of hers.
    assert kept == {"ann": [TEXTS[0], TEXTS[3]], "cid": [TEXTS[6]], "eve": [TEXTS[2]]}
    assert said.startswith("7 texts")
    assert not overlaps(left)
    assert without_shared(left)[0] == left


@given(st.text())
def test_a_text_is_the_same_however_it_is_written(text):
    form = normalized(text)
    for way in ("NFC", "NFD", "NFKC", "NFKD"):
        assert normalized(unicodedata.normalize(way, text)) == form
    assert normalized(f"\n {text}\u200b\t") == form
    assert normalized("A  note\nto Ann") == normalized("a note to\u00a0ANN")
