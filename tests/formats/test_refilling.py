"""Moves over a format: they lead to members only, each is as likely as its reverse, and they reach every member."""

import random
from collections import Counter

import pytest

from coalmine import Format
from coalmine.formats.refilling import Refilling

FORMATS = {
    "digits": Format("pin {digits:2}"),
    "lengths that differ": Format("{re:a{1,3}}-{re:[ab]{1,3}}"),
    "a member that begins another": Format("{re:[ab]{1,2}c{0,2}}"),
    "words": Format("x {word:2} y", words=["red", "green", "redder"]),
    "no part but the whole": Format("{re:(aa|bb|ab|ba)(aa|bb)|c[a-z]{2}}"),
}
LARGE = [Format("{card}"), Format("{ssn}"), Format("{uuid}"), Format("{choice:cat|horse} has {digits:9}")]


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_a_move_is_as_likely_as_its_reverse_and_reaches_every_member(form):
    moves, generator = Refilling(form), random.Random(0)
    steps = Counter()
    for member in form:
        for _ in range(20_000 // form.size):
            steps[member, moves.propose(member, generator)] += 1
    for (one, other), count in steps.items():
        assert other in form
        back = steps[other, one]
        # Two counts with the same mean differ by no more than a few of their standard deviations.
        assert abs(count - back) <= 5 * (count + back) ** 0.5
    reached, pending = {form.at(0)}, [form.at(0)]
    while pending:
        member = pending.pop()
        following = {other for one, other in steps if one == member} - reached
        reached |= following
        pending += following
    assert len(reached) == form.size


@pytest.mark.parametrize("form", LARGE, ids=[form.template for form in LARGE])
def test_moves_and_neighbors_of_large_formats_are_members(form):
    moves, generator = Refilling(form), random.Random(0)
    member = form.at(form.size // 3)
    changed = 0
    for _ in range(300):
        other = moves.propose(member, generator)
        assert other in form
        changed += other != member
        member = other
    assert changed > 100
    near = moves.neighbors(member)
    assert len(near) == len(set(near)) > 10
    assert member not in near
    assert all(other in form for other in near)
    # One that is near is near from the other side too.
    assert all(member in moves.neighbors(other) for other in near[:5])


def test_a_wide_end_grows_as_often_as_it_shrinks():
    # Where one member begins another: what is drawn again from a character to the end may be nothing, before or after.
    form = Format("{re:[ab]{1,7}}")
    moves, generator = Refilling(form), random.Random(0)
    shorter, longer = "abbaba", "abbabab"
    shrunk = sum(moves.propose(longer, generator) == shorter for _ in range(20_000))
    grown = sum(moves.propose(shorter, generator) == longer for _ in range(20_000))
    assert shrunk > 50
    assert abs(shrunk - grown) <= 5 * (shrunk + grown) ** 0.5


def test_neighbors_in_a_wide_part_are_all_members_that_differ_in_one_or_two_characters():
    form = Format("no {card}!")
    member = form.at(form.size // 7)
    changed = set()
    for at in range(3, 3 + 15):
        for new in range(100):
            changed.add(f"{member[:at]}{new:02d}{member[at + 2 :]}")
    assert set(Refilling(form).neighbors(member)) == {one for one in changed if one in form and one != member}


def test_neighbors_in_narrow_parts_are_all_their_other_fillings():
    form = Format("{choice:cat|horse} {digits:2}{re:x{0,2}}")
    found = Refilling(form).neighbors("cat 07x")
    digits = [f"cat {tens}7x" for tens in "123456789"] + [f"cat 0{ones}x" for ones in "012345689"]
    assert sorted(found) == sorted(["horse 07x", "cat 07", "cat 07xx", *digits])
